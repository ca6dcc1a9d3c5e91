//! Whether the principal of a run may make a call at all.

use crate::{say, words};
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Snapshot, ToolItem, permits};
use agentfleet_schema::records::Decision;

/// Subject of the decision that a call is not permitted.
const SUBJECT: &str = "tool-permission";

/// Lets a call through, or says what the principal lacks. A run without one is asked for by whoever holds
/// the data directory or may write to the queue, and may do everything.
pub(super) fn check(
    request: &AgentRequest,
    snapshot: &Snapshot,
    tool: &ToolItem,
    decided: &mut Vec<Decision>,
) -> Result<(), String> {
    let (Some(principal), Some(needed)) = (&request.control.principal, &tool.permission) else {
        return Ok(());
    };
    if permits(&principal.permissions, needed) {
        return Ok(());
    }
    let held = match principal.permissions.as_slice() {
        [] => "none".to_owned(),
        held => held.join(", "),
    };
    decided.push(say::only(
        SUBJECT,
        "deny",
        format!("the permissions of `{}`: {held}", principal.name),
        format!("tool `{}` needs `{needed}`", tool.name),
    ));
    Err(format!(
        "Error: `{}` was not called: permission `{needed}` is missing, and no other arguments change that. \
         Tell the person: {}",
        tool.name,
        words::say(words::locale(request, snapshot), "not-permitted", &[])
    ))
}
