//! Free-form requests: the offline model cannot write, but it can pick the sentences of a given text
//! that share most with the question.

use super::goal::Goal;
use super::inputs::text;
use super::observation::{Origin, Passage};
use super::quotes::find;
use super::sentences::split;
use crate::{Message, ModelRequest};
use serde_json::Value;

/// A text shorter than this is a question rather than something to quote from, in sentences.
const LEAST_SENTENCES: usize = 2;

const CANNOT: &str = "No language model is configured, so nothing can be written here: the offline \
     model only quotes.";

/// What can be said without a language model.
pub(super) fn reply(request: &ModelRequest) -> String {
    let question = question(request);
    let given = texts(&request.inputs, &question);
    let given = if given.is_empty() {
        within(&question)
    } else {
        given
    };
    if given.is_empty() {
        return format!("{CANNOT} No text was given to quote from.");
    }
    let passages: Vec<Passage> = given
        .into_iter()
        .map(|(title, text)| {
            Passage::of_text(
                Origin {
                    title,
                    uri: String::new(),
                },
                &text,
            )
        })
        .collect();
    let found = find(&Goal::parse(&question), &passages);
    if found.quotes.is_empty() {
        return format!("{CANNOT} No sentence of the given text shares a word with the question.");
    }
    let mut parts = vec![format!(
        "{CANNOT} These sentences of the given text share most with the question:"
    )];
    parts.extend(found.quotes.iter().map(super::quotes::Quote::block));
    parts.join("\n\n")
}

/// What is asked: the variable of that name, else the last thing the user said.
fn question(request: &ModelRequest) -> String {
    for name in ["question", "query", "instruction", "task", "prompt"] {
        let value = text(&request.inputs, name);
        if !value.trim().is_empty() {
            return value.to_owned();
        }
    }
    let said = request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::User(text) => Some(text.clone()),
            Message::System(_)
            | Message::Assistant(_)
            | Message::ToolCall { .. }
            | Message::ToolResult { .. } => None,
        });
    said.unwrap_or_default()
}

/// The variables that hold text to quote from.
fn texts(inputs: &Value, question: &str) -> Vec<(String, String)> {
    let Some(variables) = inputs.as_object() else {
        return Vec::new();
    };
    variables
        .iter()
        .filter_map(|(name, value)| {
            let text = value.as_str()?.trim();
            let worth = text != question.trim() && split(text).len() >= LEAST_SENTENCES;
            worth.then(|| (format!("the given `{name}`"), text.to_owned()))
        })
        .collect()
}

/// A question that brings its text along: all but its first sentence.
fn within(question: &str) -> Vec<(String, String)> {
    let Some((asked, rest)) = question.trim().split_once('\n') else {
        return Vec::new();
    };
    let worth = !asked.trim().is_empty() && split(rest).len() >= LEAST_SENTENCES;
    if worth {
        vec![("the given text".to_owned(), rest.trim().to_owned())]
    } else {
        Vec::new()
    }
}
