//! What a call that succeeded changes for those after it.

use crate::order::ToolOutcome;
use crate::{conductor, known};
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::Decision;

/// Notes a result in its request: the state that the tool leads to, the values that it gives, and where the
/// tool policy stands then. A call that failed changes nothing.
pub(crate) fn took(
    request: &mut AgentRequest,
    snapshot: &Snapshot,
    name: &str,
    outcome: &ToolOutcome,
    decided: &mut Vec<Decision>,
) {
    let Some(tool) = snapshot.tools.get(name).filter(|_| !outcome.is_error) else {
        return;
    };
    if let Some(state) = &tool.state {
        request.state.clone_from(state);
    }
    known::keep(request, tool, &outcome.content);
    decided.extend(conductor::advance(request, snapshot, name));
}
