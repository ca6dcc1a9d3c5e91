//! What messages say beside their text.

use crate::style::Line;
use crate::text;
use agentfleet_schema::{AgentResponse, ErrorBody, uris};

/// What an event brings beside a change of the lanes.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Worth a line where no lanes are drawn.
    Happened(Line),
    /// The answer begins. `again`: what was given of it before came from a worker that died, and does
    /// not count.
    AnswerBegins { again: bool },
    /// The next piece of the answer, as Markdown.
    AnswerText(String),
    /// The run is over. `text` is the whole answer; beside an error, what was found all the same.
    Ended {
        text: String,
        error: Option<ErrorBody>,
    },
}

/// The tool of a call in short, as in `search(query: "lock gate")`.
pub(super) fn tool_of(call: &str) -> String {
    let name = call.split_once('(').map_or(call, |(name, _)| name);
    text::preview(name, 40)
}

/// Whether a thought is that of a fan-out: its text is the fan-out's document.
pub(super) fn is_fan_out(response: &AgentResponse) -> bool {
    let session = uris::session(&response.session_id);
    let rest = response
        .document
        .as_deref()
        .and_then(|uri| uri.strip_prefix(&session));
    rest.is_some_and(|rest| rest.starts_with("/fanout/"))
}

/// The goals a supervisor lists at the end of its thought: `1. ...`, `2. ...`.
pub(super) fn goals(text: &str) -> Vec<String> {
    let Some(start) = text
        .rfind("\n\n1. ")
        .map(|at| at + 2)
        .or(text.starts_with("1. ").then_some(0))
    else {
        return Vec::new();
    };
    let mut goals: Vec<String> = Vec::new();
    for line in text[start..].lines() {
        match (
            line.strip_prefix(&format!("{}. ", goals.len() + 1)),
            goals.last_mut(),
        ) {
            (Some(goal), _) => goals.push(goal.to_owned()),
            // A goal of several lines.
            (None, Some(last)) => {
                last.push('\n');
                last.push_str(line);
            }
            (None, None) => {}
        }
    }
    goals
}
