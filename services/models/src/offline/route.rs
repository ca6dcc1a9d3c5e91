//! Chooses a task type, and a pattern, from what is on offer: the simplest, unless the question asks
//! for another one in so many words.

use super::inputs::{Choosable, options, text};
use super::parts;
use agentfleet_schema::words::is_stop_word;
use serde_json::{Value, json};

/// The task type for everything, and the pattern of one agent.
const GENERAL: &str = "general";
const SIMPLEST: &str = "react";
/// Words that set an order.
const ORDER: &[&str] = &["first", "then", "afterwards", "next", "finally", "lastly"];

/// The task type whose name the question says.
pub(super) fn task_type(inputs: &Value) -> Value {
    let options = options(inputs, "task_types");
    let question = text(inputs, "question");
    match said(&options, question) {
        Some(option) => choice(&option.name, "the question says its name"),
        // Also where it is not on offer: what comes first there is no better.
        None => choice(GENERAL, "the question asks for no particular kind of task"),
    }
}

/// The pattern that the question names, or for which it has the parts or the order.
pub(super) fn pattern(inputs: &Value) -> Value {
    let options = options(inputs, "patterns");
    let question = text(inputs, "question");
    if let Some(option) = said(&options, question) {
        return choice(&option.name, "the question says its name");
    }
    let promising = |word: &str| {
        let mut all = options.iter();
        all.find(|option| option.description.to_lowercase().contains(word))
    };
    let framing = text(inputs, "framing");
    if let Some(parts) = parts::find(question).or_else(|| parts::find(framing))
        && let Some(option) = promising("subagents")
    {
        let named = parts.items.join(", ");
        return choice(&option.name, &format!("the task names parts: {named}"));
    }
    let words: Vec<String> = words(question).collect();
    let order: Vec<&str> = ORDER
        .iter()
        .copied()
        .filter(|word| words.iter().any(|own| own == word))
        .collect();
    if order.len() > 1
        && let Some(option) = promising("plan")
    {
        let order = order.join(", ");
        return choice(
            &option.name,
            &format!("the question sets an order: {order}"),
        );
    }
    let simplest = options.iter().find(|option| option.name == SIMPLEST);
    let name = simplest.or(options.first()).map_or(SIMPLEST, |o| &o.name);
    choice(name, "the task names no parts and sets no order")
}

/// The option whose name the message says, if any.
pub(super) fn said<'o>(options: &'o [Choosable], message: &str) -> Option<&'o Choosable> {
    options.iter().find(|option| is_said(&option.name, message))
}

fn choice(name: &str, signal: &str) -> Value {
    json!({
        "choice": name,
        "signal": signal,
        "rationale": format!("{signal}; no language model is at work, and the simplest is taken unless \
                              the question asks for more"),
    })
}

/// Whether a question has every telling word of a name, in any form: `assess the risk` says
/// `risk-assessment`.
fn is_said(name: &str, question: &str) -> bool {
    let own: Vec<String> = words(name).filter(|word| !is_stop_word(word)).collect();
    let asked: Vec<String> = words(question).collect();
    let is_asked = |word: &String| asked.iter().any(|asked| are_forms(word, asked));
    !own.is_empty() && own.iter().all(is_asked)
}

/// Whether two words begin alike for most of the longer one.
fn are_forms(one: &str, other: &str) -> bool {
    let shared = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    let longer = one.chars().count().max(other.chars().count());
    let shared = shared.count();
    shared == longer || shared >= 4 && shared * 5 >= longer * 3
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}
