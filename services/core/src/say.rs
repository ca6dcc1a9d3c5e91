//! Small builders of what a step leaves to be told.

use crate::error::{Code, body};
use crate::order::{Answer, Finish, ModelFailure, Order, Outcome, Said};
use crate::so_far;
use agentfleet_schema::records::{
    Activity, ClosedRecord, Concluded, DecidedBy, Decision, EndedBy, EndedFromOutside, Termination,
};
use agentfleet_schema::{ErrorBody, MessageType};
use std::collections::BTreeMap;

/// A text without breaks, so that a list of such can have one a line.
pub fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A message whose text is collated into a document.
pub fn message(kind: MessageType, text: impl Into<String>, document: String) -> Said {
    Said {
        message_type: kind,
        text: text.into(),
        streamed: false,
        document: Some(document),
    }
}

/// How many subagents, in words.
pub(crate) fn subagents(count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} subagent{s}")
}

/// Longest value of an argument that an action names in full, in characters.
const LONGEST_VALUE: usize = 80;
/// Most characters of an action.
const LONGEST_ACTION: usize = 400;

/// A call in short: `search(query: "lock gate")`. One line; long values are cut. The whole call is in
/// the step record and in the provenance.
pub fn action(tool: &str, arguments: &BTreeMap<String, String>) -> String {
    let short = |text: &str, most: usize| match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    let arguments: Vec<String> = arguments
        .iter()
        .map(|(name, value)| {
            // Quoted as in JSON, so that line feeds stay inside.
            let value = serde_json::Value::from(short(value, LONGEST_VALUE));
            format!("{name}: {value}")
        })
        .collect();
    short(&format!("{tool}({})", arguments.join(", ")), LONGEST_ACTION)
}

/// Says below what a call came to which other calls of the same reply were not made.
pub(crate) fn name_not_run(text: &mut String, not_run: &[String]) {
    if !not_run.is_empty() {
        text.push_str(&format!(
            "\n\n(Not run, because one call is made a turn: {}. Call again if still needed.)",
            not_run.join(", ")
        ));
    }
}

/// A decision that left nothing to choose: `signal` says what came of it.
pub(crate) fn only(
    subject: impl Into<String>,
    chosen: impl Into<String>,
    narrowed_by: impl Into<String>,
    signal: impl Into<String>,
) -> Decision {
    let chosen = chosen.into();
    Decision {
        subject: subject.into(),
        options: vec![chosen.clone()],
        narrowed_by: narrowed_by.into(),
        signal: signal.into(),
        chosen,
        decided_by: DecidedBy::OnlyOption,
        rationale: String::new(),
    }
}

/// That a call is made.
pub fn called(tool: &str, arguments: &BTreeMap<String, String>) -> Said {
    Said {
        message_type: MessageType::Action,
        text: action(tool, arguments),
        streamed: false,
        document: None,
    }
}

/// Progress for whoever watches; not stored.
pub fn status(text: impl Into<String>) -> Said {
    Said {
        message_type: MessageType::Status,
        text: text.into(),
        streamed: false,
        document: None,
    }
}

/// The end of a session in an error.
pub fn failed(error: ErrorBody, termination: Termination, model_ms: u64) -> Finish {
    Finish {
        activity: Activity::Concluded(Concluded {
            termination,
            error: Some(error.clone()),
            model_ms,
            ..Concluded::default()
        }),
        outcome: Outcome::Fail { error, termination },
        routed: None,
        decisions: Vec::new(),
        said: Vec::new(),
    }
}

/// The end of a session whose model cannot be used.
pub fn model_failed(failure: ModelFailure, model_ms: u64) -> Order {
    let error = body(Code::ModelFailed, failure.message, failure.hint);
    Order::Finish(Box::new(failed(error, Termination::Error, model_ms)))
}

/// The end of a turn that calls nothing and ordered a call: it cannot be told whether that is allowed.
pub(crate) fn cannot_call() -> Order {
    let error = body(
        Code::InvalidRequest,
        "a step that calls no tools ordered a call",
        "this is a fault of the program",
    );
    Order::Finish(Box::new(failed(error, Termination::Error, 0)))
}

/// The end of a session at its hard deadline.
pub fn time_used_up() -> Finish {
    cancelled("its time was used up", Termination::Timeout)
}

/// Why a session ends whose tree was closed, for [`cancelled`].
pub fn tree_closed(closed: &ClosedRecord) -> (String, Termination) {
    match (closed.cause.as_str(), closed.by.as_str()) {
        ("deadline", _) => (
            "the time of the run is used up".to_owned(),
            Termination::Timeout,
        ),
        (_, "") => ("the run was cancelled".to_owned(), Termination::Cancelled),
        (_, by) => (
            format!("the run was cancelled by {by}"),
            Termination::Cancelled,
        ),
    }
}

/// Why a session ends that a fan-out above did without, for [`cancelled`].
pub fn decided_above() -> (String, Termination) {
    let reason = "the fan-out above was concluded without this result";
    (reason.to_owned(), Termination::Cancelled)
}

/// The end of a session because its tree was closed, or what it worked for is decided.
pub fn cancelled(reason: &str, termination: Termination) -> Finish {
    stopped(format!("Stopped: {reason}."), termination)
}

fn stopped(text: String, termination: Termination) -> Finish {
    Finish {
        activity: Activity::Concluded(Concluded {
            termination,
            ..Concluded::default()
        }),
        outcome: Outcome::Cancelled(Answer {
            text,
            termination,
            partial: true,
        }),
        routed: None,
        decisions: Vec::new(),
        said: Vec::new(),
    }
}

/// What the caller of a run that was stopped is told as the error, of the text that it ended with.
pub fn error_of(text: &str, termination: Termination) -> ErrorBody {
    let code = match termination {
        Termination::Timeout => Code::Timeout,
        _ => Code::Cancelled,
    };
    body(code, so_far::reason(text), "")
}

/// An end that no turn came to, as the record keeps it.
pub fn from_outside(by: EndedBy, finish: &Finish) -> Option<EndedFromOutside> {
    let (reason, termination, error) = match &finish.outcome {
        Outcome::Cancelled(answer) => (answer.text.clone(), answer.termination, None),
        Outcome::Fail { error, termination } => (String::new(), *termination, Some(error.clone())),
        Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) | Outcome::Answer(_) => {
            return None;
        }
    };
    Some(EndedFromOutside {
        by,
        reason,
        termination,
        error,
    })
}

/// The end that a record keeps so.
pub fn ended(end: &EndedFromOutside) -> Finish {
    match &end.error {
        Some(error) => failed(error.clone(), end.termination, 0),
        None => stopped(end.reason.clone(), end.termination),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_short_is_one_bounded_line() {
        let call = |arguments: &[(&str, &str)]| {
            let arguments = arguments
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            action("search", &arguments)
        };
        for (arguments, expected) in [
            (vec![], "search()"),
            (
                vec![("query", "lock gate")],
                r#"search(query: "lock gate")"#,
            ),
            (
                vec![("b", "2"), ("a", "one\n\"two\"")],
                r#"search(a: "one\n\"two\"", b: "2")"#,
            ),
        ] {
            assert_eq!(call(&arguments), expected);
        }
        let cut = format!("search(q: \"{}...\")", "é".repeat(LONGEST_VALUE));
        assert_eq!(call(&[("q", &"é".repeat(500))]), cut);
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(call(&many).chars().count(), LONGEST_ACTION + "...".len());
    }
}
