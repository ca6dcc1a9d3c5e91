//! How long the texts of a request may be, whichever door it comes through.
//!
//! Lengths are those of the decoded text in bytes. What is within them fits into every message of the
//! run: written as JSON a byte becomes six at most, and a step tells the question twice.

use crate::error::Code;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::JoinPolicy;
use std::borrow::Cow;

/// Longest question, and longest goal of a subagent.
pub const MAX_QUESTION: usize = 256 * 1024;
/// Longest id or name.
pub const MAX_NAME: usize = 256;
/// Longest reason of a refusal, in characters.
const MAX_REASON: usize = 1_000;

/// What is wrong with a request: the code, what it is, and what to do about it.
pub type Wrong = (Code, String, &'static str);

const LOAD_IT: &str = "load long material as documents and ask about it";

/// Says what is missing, too long, or no name.
pub fn check(request: &AgentRequest) -> Result<(), Wrong> {
    if request.question.trim().is_empty() {
        let what = "`$.question` is missing or empty".to_owned();
        return Err((
            Code::EmptyQuestion,
            what,
            "set it to the task in plain text",
        ));
    }
    let length = request.question.len();
    if length > MAX_QUESTION {
        let what = format!("`$.question` has {length} bytes, the limit is {MAX_QUESTION}");
        return Err((Code::QuestionTooLong, what, LOAD_IT));
    }
    let length = request.subagent_goal.len();
    if length > MAX_QUESTION {
        let what = format!("`$.subagent_goal` has {length} bytes, the limit is {MAX_QUESTION}");
        return Err((Code::InvalidRequest, what, LOAD_IT));
    }
    if request.join == Some(JoinPolicy::AtLeast(0)) {
        let what = "`$.join.at-least`: must be 1 or more".to_owned();
        return Err((Code::InvalidRequest, what, ""));
    }
    let names = [
        ("user", request.user.as_str()),
        ("collection", request.collection.as_str()),
        ("conversation_id", request.conversation_id.as_str()),
        ("correlation_id", request.correlation_id.as_str()),
        ("model", request.model.as_str()),
        ("pattern", request.pattern.as_str()),
        ("task_type", request.task_type.as_str()),
        ("tool_policy", request.tool_policy.as_str()),
        ("control.principal.name", request.asker()),
        ("control.principal.tenant", request.tenant()),
    ];
    let is_wrong = |name: &str| name.len() > MAX_NAME || name.chars().any(char::is_control);
    match names.into_iter().find(|(_, name)| is_wrong(name)) {
        Some((field, _)) => Err((
            Code::InvalidRequest,
            format!("`$.{field}`: must have at most {MAX_NAME} bytes and no control characters"),
            "",
        )),
        None => Ok(()),
    }
}

/// The request as a record may tell it: a message that is refused for its length must not make the
/// messages that tell of it too long. `None` where nothing is to be cut.
pub(crate) fn cut(request: &AgentRequest) -> Option<AgentRequest> {
    let conversation = request.conversation_id.as_str();
    let collection = request.collection.as_str();
    let correlation = request.correlation_id.as_str();
    let names = [conversation, collection, correlation];
    if request.question.len() <= MAX_QUESTION
        && request.subagent_goal.len() <= MAX_QUESTION
        && names.iter().all(|name| name.len() <= MAX_NAME)
    {
        return None;
    }
    Some(AgentRequest {
        question: beginning(&request.question, MAX_QUESTION).to_owned(),
        subagent_goal: beginning(&request.subagent_goal, MAX_QUESTION).to_owned(),
        conversation_id: beginning(conversation, MAX_NAME).into(),
        collection: beginning(collection, MAX_NAME).into(),
        correlation_id: beginning(correlation, MAX_NAME).into(),
        ..request.clone()
    })
}

pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// A reason without the middle of what it quotes, where that is long.
pub fn reason(text: &str) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= MAX_REASON {
        return Cow::Borrowed(text);
    }
    let place = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    let (first, last) = (place(MAX_REASON * 2 / 3), place(count - MAX_REASON / 3));
    Cow::Owned(format!("{} [...] {}", &text[..first], &text[last..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_named_with_its_limit() {
        let asked = |field: &str, length: usize| {
            let mut body = serde_json::json!({"question": "q"});
            body[field] = "x".repeat(length).into();
            serde_json::from_value::<AgentRequest>(body).unwrap()
        };
        for (field, limit, code) in [
            ("question", MAX_QUESTION, Code::QuestionTooLong),
            ("subagent_goal", MAX_QUESTION, Code::InvalidRequest),
            ("user", MAX_NAME, Code::InvalidRequest),
            ("conversation_id", MAX_NAME, Code::InvalidRequest),
            ("task_type", MAX_NAME, Code::InvalidRequest),
        ] {
            check(&asked(field, limit)).unwrap();
            let (found, what, _) = check(&asked(field, limit + 1)).unwrap_err();
            assert_eq!(found, code, "{what}");
            assert!(what.contains(&format!("`$.{field}`")) && what.contains(&limit.to_string()));
        }
        assert_eq!(
            check(&asked("question", 0)).unwrap_err().0,
            Code::EmptyQuestion
        );
    }

    #[test]
    fn nobody_is_no_number_to_wait_for() {
        let joins = |count| AgentRequest {
            question: "q".into(),
            join: Some(JoinPolicy::AtLeast(count)),
            ..AgentRequest::default()
        };
        check(&joins(1)).unwrap();
        let (_, what, _) = check(&joins(0)).unwrap_err();
        assert_eq!(what, "`$.join.at-least`: must be 1 or more");
    }

    #[test]
    fn what_is_cut_has_whole_characters_and_is_within_the_bounds() {
        let long = AgentRequest {
            question: format!("x{}", "é".repeat(MAX_QUESTION)),
            conversation_id: "\u{1}".repeat(800_000).into(),
            ..AgentRequest::default()
        };
        let cut = super::cut(&long).unwrap();
        assert_eq!(cut.question.len(), MAX_QUESTION - 1);
        assert_eq!(cut.conversation_id.as_str().len(), MAX_NAME);
        assert!(super::cut(&cut).is_none());
    }

    #[test]
    fn a_long_reason_keeps_its_ends() {
        let text = format!("`$.step`: string \"{}\" at column 7", "é".repeat(3_000_000));
        let short = reason(&text);
        assert!(short.starts_with("`$.step`") && short.ends_with("column 7"));
        assert!(short.chars().count() < MAX_REASON + 10);
        assert_eq!(reason("as it is"), "as it is");
    }
}
