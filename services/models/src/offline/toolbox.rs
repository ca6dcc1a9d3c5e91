//! Which of the tools on offer can look something up, and how to call them.
//!
//! Tools are known by what they say of themselves, never by their names alone.

use super::goal::Goal;
use super::inputs::{ArgumentInfo, ToolInfo};
use super::terms::{stem, terms};

/// A tool that takes a free text and finds things.
#[derive(Clone, Debug)]
pub(super) struct Searcher<'a> {
    pub tool: &'a ToolInfo,
    argument: &'a ArgumentInfo,
    score: f64,
}

/// A tool that takes an address and gives the whole document.
#[derive(Clone, Debug)]
pub(super) struct Fetcher<'a> {
    pub tool: &'a ToolInfo,
    pub argument: &'a str,
}

const TEXT_ARGUMENTS: &[&str] = &[
    "query", "question", "search", "terms", "keywords", "text", "q", "topic", "about", "subject",
    "entity",
];
const ADDRESS_ARGUMENTS: &[&str] = &["uri", "url", "document", "id", "path", "source"];

/// Words by which a tool says that it looks things up, and what each is worth.
const SEARCHING: &[(&str, f64)] = &[
    ("search", 3.0),
    ("find", 2.0),
    ("retrieve", 2.0),
    ("lookup", 2.0),
    ("passages", 2.0),
    ("documents", 1.5),
    ("query", 1.5),
    ("knowledge", 1.0),
    ("facts", 1.0),
    ("texts", 1.0),
];
const FETCHING: &[&str] = &["fetch", "read", "open", "get", "whole", "full", "load"];
/// Words of tools that make up text, or change something: neither finds anything.
const NOT_SEARCHING: &[&str] = &[
    "completion",
    "generate",
    "compose",
    "draft",
    "translate",
    "send",
    "create",
    "delete",
    "update",
    "write",
    "remove",
    "post",
    "prompt",
    "summarise",
];

/// The tools that can search, the most promising for this goal first.
pub(super) fn searchers<'a>(tools: &'a [ToolInfo], goal: &Goal) -> Vec<Searcher<'a>> {
    let mut found: Vec<Searcher<'a>> = tools
        .iter()
        .filter(|tool| !has_any(&tool.name, NOT_SEARCHING) && !asks_a_model(tool))
        .filter_map(|tool| {
            let argument = text_argument(tool)?;
            let score = promise(tool, goal);
            (score > 0.0).then_some(Searcher {
                tool,
                argument,
                score,
            })
        })
        .collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found
}

/// The tool that fetches documents.
pub(super) fn fetcher(tools: &[ToolInfo]) -> Option<Fetcher<'_>> {
    tools.iter().find_map(|tool| {
        let says_so = has_any(&tool.name, FETCHING) || has_any(&tool.description, FETCHING);
        let argument = ADDRESS_ARGUMENTS
            .iter()
            .find_map(|wanted| tool.arguments.iter().find(|a| a.name == *wanted))?;
        let callable = tool
            .arguments
            .iter()
            .all(|a| !a.required || a.name == argument.name);
        let safe = !has_any(&tool.name, NOT_SEARCHING);
        (says_so && callable && safe).then_some(Fetcher {
            tool,
            argument: argument.name.as_str(),
        })
    })
}

impl Searcher<'_> {
    /// The argument and what to put in it.
    pub(super) fn argument(&self, goal: &Goal, query: String) -> (String, String) {
        let name = self.argument.name.as_str();
        let value = match (name, goal.subjects.first()) {
            ("subject" | "entity" | "about", Some(subject)) => subject.shown.clone(),
            _ => query,
        };
        (name.to_owned(), value)
    }
}

/// The argument that takes free text, if no other argument is required.
fn text_argument(tool: &ToolInfo) -> Option<&ArgumentInfo> {
    let known = TEXT_ARGUMENTS.iter().find_map(|wanted| {
        tool.arguments
            .iter()
            .find(|a| a.is_text && a.name == *wanted)
    });
    let only = match tool.arguments.as_slice() {
        [only] if only.is_text && !ADDRESS_ARGUMENTS.contains(&only.name.as_str()) => Some(only),
        _ => None,
    };
    let argument = known.or(only)?;
    let callable = tool
        .arguments
        .iter()
        .all(|a| !a.required || a.name == argument.name);
    callable.then_some(argument)
}

fn promise(tool: &ToolInfo, goal: &Goal) -> f64 {
    let name: Vec<String> = terms(&tool.name).into_iter().map(|t| t.stem).collect();
    let argument = tool
        .arguments
        .iter()
        .map(|a| a.description.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let told: Vec<String> = terms(&format!("{} {argument}", tool.description))
        .into_iter()
        .map(|t| t.stem)
        .collect();
    let mut score = 0.0;
    for (word, worth) in SEARCHING {
        let stem = stem(word);
        if name.contains(&stem) {
            score += 2.0 * worth;
        } else if told.contains(&stem) {
            score += worth;
        }
    }
    // A tool that speaks of the goal's own matter goes before a general one.
    let own = goal
        .terms
        .iter()
        .filter(|t| name.contains(&t.term.stem) || told.contains(&t.term.stem))
        .map(|t| t.role.weight())
        .sum::<f64>();
    if score > 0.0 { score + own } else { 0.0 }
}

fn asks_a_model(tool: &ToolInfo) -> bool {
    tool.description.to_lowercase().contains("language model")
}

fn has_any(text: &str, words: &[&str]) -> bool {
    let wanted: Vec<String> = words.iter().map(|word| stem(word)).collect();
    terms(text).iter().any(|term| wanted.contains(&term.stem))
}
