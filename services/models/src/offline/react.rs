//! One ReACT turn without reasoning: search once with each tool that searches, then quote.

use super::goal::Goal;
use super::inputs::{PastCall, flag, list, number, past_calls, text};
use super::observation::{Passage, passages};
use super::quotes;
use agentfleet_schema::words::{Words, terms};
use serde_json::{Value, json};

/// Searches made before answering.
const MOST_SEARCHES: usize = 3;
/// Arguments that take what is looked for.
const QUERY_ARGUMENTS: &[&str] = &["query", "question", "search", "terms", "keywords", "q"];
/// How a tool says that it searches: by words of its name, or the first of its description.
const SEARCHES: &[&str] = &["search", "look", "find", "retriev", "quer"];

/// The turn's reply in the text format.
pub(super) fn turn(inputs: &Value) -> String {
    let goal = match text(inputs, "goal") {
        "" => text(inputs, "question"),
        goal => goal,
    };
    let goal = Goal::of(goal);
    let calls = past_calls(inputs);
    let last = flag(inputs, "last") || number(inputs, "iterations_left") == Some(0);
    let mut searchers = list(inputs, "tools").iter().filter_map(searcher);
    let next = searchers
        .by_ref()
        .take(MOST_SEARCHES)
        .find(|(tool, _)| calls.iter().all(|call| call.tool != *tool));
    match next.filter(|_| !last) {
        Some((tool, argument)) => format!(
            "Thought: I search for the words of the goal.\nAction: {tool}\nArgs: {}",
            json!({ argument: goal.query })
        ),
        None if calls.is_empty() => format!(
            "Thought: I cannot search.\nFinal Answer: {}",
            not_searched(&goal, inputs, last)
        ),
        None => answer(&goal, &calls),
    }
}

/// The name of a tool that searches, and the argument for what is looked for. A tool that needs more
/// than that, or that asks a language model, is none.
fn searcher(tool: &Value) -> Option<(&str, &str)> {
    let (name, description) = (text(tool, "name"), text(tool, "description").to_lowercase());
    let begin = description.split_whitespace().take(3);
    let mut words = name.split('-').chain(begin);
    let searches = words.any(|word| SEARCHES.iter().any(|start| word.starts_with(start)));
    let arguments = list(tool, "arguments");
    let is_needed = |argument: &&Value| argument.get("required") != Some(&Value::Bool(false));
    let known = arguments
        .iter()
        .find(|argument| QUERY_ARGUMENTS.contains(&text(argument, "name")))?;
    let callable = arguments
        .iter()
        .filter(is_needed)
        .all(|argument| argument == known);
    (searches && callable && !description.contains("language model"))
        .then(|| (name, text(known, "name")))
}

/// The best passages, and what they are.
pub(super) fn answer(goal: &Goal<'_>, calls: &[PastCall]) -> String {
    let found: Vec<Passage> = calls.iter().flat_map(passages).collect();
    let terms = terms(&goal.query);
    let chosen = quotes::choose(&terms, &found);
    let mut shown = String::new();
    for quoted in &chosen {
        shown += &format!("{}\n{}\n{}\n", quoted.source, quoted.heading, quoted.text);
    }
    let shown = Words::of(&shown);
    let lacking: Vec<String> = terms
        .iter()
        .filter(|term| !shown.have(term))
        .map(|term| format!("\"{term}\""))
        .collect();
    let mut parts = vec![opening(goal, &chosen, &lacking)];
    parts.extend(quotes::blocks(&chosen));
    let looked: Vec<String> = calls.iter().map(looked).collect();
    if !looked.is_empty() {
        parts.push(format!("Looked in {}.", looked.join("; ")));
    }
    if !chosen.is_empty() {
        let but = if lacking.is_empty() {
            String::new()
        } else {
            format!(", not {}", lacking.join(", "))
        };
        parts.push(format!(
            "Words: the quotations have {} of the {} words searched for{but}. That counts words; whether \
             they answer the question is for you to judge.",
            terms.len() - lacking.len(),
            terms.len()
        ));
    }
    format!(
        "Thought: passages and statements read: {}, kept: {}.\nFinal Answer: {}",
        found.len(),
        chosen.len(),
        parts.join("\n\n")
    )
}

/// Says that nothing was searched, and what is missing: "nothing found" would be about the matter.
fn not_searched(goal: &Goal<'_>, inputs: &Value, last: bool) -> String {
    let title = goal.title;
    let has_searcher = list(inputs, "tools")
        .iter()
        .any(|tool| searcher(tool).is_some());
    let why = if last && has_searcher {
        "no step is left for it"
    } else {
        "no tool that searches is open here"
    };
    let mut said = format!(
        "Nothing was searched on \"{title}\": {why}. No language model is at work either, so there is no \
         answer."
    );
    let dispatched = text(inputs, "dispatched");
    if !dispatched.is_empty() {
        said += &format!(
            " The router ended with: {dispatched}. Telling whom a message is meant for takes a language model; \
             another pattern, such as `react`, searches what was loaded."
        );
    }
    said
}

fn opening(goal: &Goal<'_>, chosen: &[Passage], lacking: &[String]) -> String {
    let title = goal.title;
    if chosen.is_empty() {
        return format!("Nothing was found on \"{title}\".");
    }
    let rank = "what the search ranks first, as it stands there: no language model is at work";
    if lacking.is_empty() {
        format!("On \"{title}\", {rank}.")
    } else {
        format!(
            "No quotation has {}, so these may not be about \"{title}\". They are {rank}.",
            lacking.join(" or ")
        )
    }
}

/// A call and what it gave.
fn looked(call: &PastCall) -> String {
    let found = passages(call);
    let what = if found.iter().all(|p| p.is_fact) {
        "statement"
    } else {
        "passage"
    };
    let gave = match found.len() {
        0 if call.observation.trim_start().starts_with("error") => "an error".to_owned(),
        0 => "nothing".to_owned(),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let asked: Vec<String> = call
        .asked
        .iter()
        .map(|text| format!("\"{text}\""))
        .collect();
    format!("`{}` for {}: {gave}", call.tool, asked.join(", "))
}
