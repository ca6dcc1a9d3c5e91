//! Which tool a model means by a name.

use crate::say;
use crate::tools::{self, UNDEFINED_STATE};
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Snapshot, ToolItem, fits};
use agentfleet_schema::records::Decision;

/// Subject of the decision that a name was read as another.
const SUBJECT: &str = "tool-name";
/// How much two names are alike, from 0 to 1, of which one is taken for a slip.
const ALIKE: f64 = 0.8;

/// The tool of a name; what is told otherwise names the nearest.
pub(super) fn tool<'a>(
    request: &AgentRequest,
    snapshot: &Snapshot,
    visible: &'a [ToolItem],
    name: &str,
    decided: &mut Vec<Decision>,
) -> Result<&'a ToolItem, String> {
    if let Some(tool) = visible.iter().find(|tool| tool.name == name) {
        return Ok(tool);
    }
    // Models change case and separators; that much is forgiven.
    let mut meant = visible
        .iter()
        .filter(|tool| tools::plain(&tool.name) == tools::plain(name));
    if let (Some(tool), None) = (meant.next(), meant.next()) {
        decided.push(say::only(
            SUBJECT,
            &tool.name,
            "the one tool whose name differs in no more than case and separators",
            format!("the model called `{}`", say::in_one_line(name)),
        ));
        return Ok(tool);
    }
    let granted = tools::granted(request, snapshot);
    if granted.iter().any(|tool| tool.name == name) {
        return Err(format!(
            "Error: tool `{name}` is closed by the tool policy now ({})",
            available(visible)
        ));
    }
    let without = &request.control.without;
    if snapshot.tools.contains_key(name) && without.iter().any(|glob| fits(glob, name)) {
        return Err(format!(
            "Error: tool `{name}` is closed, because the person does not want it to be used ({})",
            available(visible)
        ));
    }
    if snapshot.tools.contains_key(name) {
        let state = match request.state.as_str() {
            "" => UNDEFINED_STATE,
            state => state,
        };
        return Err(format!(
            "Error: tool `{name}` is not open to this run in state `{state}` ({})",
            available(visible)
        ));
    }
    let near = nearest(visible, name).map(|near| format!(": did you mean `{near}`?"));
    Err(format!(
        "Error: unknown tool `{name}`{} ({})",
        near.unwrap_or_default(),
        available(visible)
    ))
}

fn available(visible: &[ToolItem]) -> String {
    if visible.is_empty() {
        return "no tool is available: answer from what you know".to_owned();
    }
    let names: Vec<_> = visible.iter().map(|t| format!("`{}`", t.name)).collect();
    format!("available: {}", names.join(", "))
}

/// The tool whose name is most like another, if one is.
fn nearest<'a>(visible: &'a [ToolItem], name: &str) -> Option<&'a str> {
    let alike = |tool: &ToolItem| strsim::jaro_winkler(&tool.name.to_lowercase(), name);
    let best = visible.iter().map(|tool| (alike(tool), tool.name.as_str()));
    let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(alike, _)| *alike > ALIKE)
        .map(|(_, name)| name)
}
