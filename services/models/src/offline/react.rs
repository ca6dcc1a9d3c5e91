//! One ReACT turn without reasoning: ask every tool that searches once, search with wider words if that
//! found little, read the best source in full if only an excerpt is at hand, then quote.

use super::goal::Goal;
use super::inputs::{PastCall, ToolInfo, flag, number, past_calls, text, tools};
use super::observation::{Form, Origin, Passage, is_failure, is_left_out, passages};
use super::quotes::{CONFIDENCE_NOTE, Found, counted, find};
use super::toolbox::{fetcher, searchers};
use crate::ModelRequest;
use serde_json::json;
use std::fmt::Write as _;

/// How an answer begins that has nothing on the thing itself; a synthesis passes it on.
pub(super) const NOTHING_MENTIONS: &str = "Nothing that was found mentions";
/// Searches made before settling for what there is.
const MOST_SEARCHES: usize = 3;

/// The turn's reply in the text format.
pub(super) fn turn(request: &ModelRequest) -> String {
    let inputs = &request.inputs;
    let goal = match text(inputs, "goal") {
        "" => text(inputs, "question"),
        goal => goal,
    };
    let goal = Goal::parse(goal);
    let tools = tools(request);
    let calls = past_calls(request, &tools);
    let found = find(
        &goal,
        &evidence(&calls, text(inputs, "parent_context"), &goal),
    );
    let last = flag(inputs, "last") || number(inputs, "iterations_left") == Some(0);
    if !last && let Some(action) = next_call(&goal, &tools, &calls, &found) {
        return action;
    }
    answer(&goal, &tools, &calls, &found)
}

/// Everything there is to quote from.
fn evidence(calls: &[PastCall], context: &str, goal: &Goal) -> Vec<Passage> {
    let mut all: Vec<Passage> = calls.iter().flat_map(passages).collect();
    let context = context.trim();
    // A parent that hands down its question has handed down nothing new.
    if !context.is_empty() && !goal.question.contains(context) && !context.contains(&goal.question)
    {
        let origin = Origin {
            title: "Context of the parent".to_owned(),
            uri: String::new(),
        };
        all.push(Passage::of_text(origin, context));
    }
    all
}

fn next_call(goal: &Goal, tools: &[ToolInfo], calls: &[PastCall], found: &Found) -> Option<String> {
    let searchers = searchers(tools, goal);
    let searched = calls
        .iter()
        .filter(|c| searchers.iter().any(|s| s.tool.name == c.tool))
        .count();
    let little = !found.is_enough;
    // Every tool with the narrower words first, then each with the wider ones. What one tool found
    // says nothing about what another one knows.
    for query in goal.queries() {
        for searcher in &searchers {
            let is_asked = calls.iter().any(|call| call.tool == searcher.tool.name);
            if searched < MOST_SEARCHES && (little || !is_asked) {
                let (argument, value) = searcher.argument(goal, query.clone());
                let tool = searcher.tool.name.as_str();
                if !is_made(calls, tool, &value) {
                    return Some(action(
                        &why_search(goal, calls, found),
                        tool,
                        &argument,
                        &value,
                    ));
                }
            }
        }
    }
    let fetcher = fetcher(tools)?;
    let tool = fetcher.tool.name.as_str();
    if calls.iter().any(|c| c.tool == tool) {
        return None;
    }
    // An excerpt of the matter itself, or the best document where there is little else.
    let (source, why) = match (&found.namesake, &found.excerpt, &found.best) {
        (Some(namesake), _, _) => (namesake, "is of the document called after it"),
        (None, Some(excerpt), _) => (excerpt, "is an excerpt"),
        (None, None, Some(best)) if little && best.form == Form::Text && found.on_topic => {
            (best, "is the best so far")
        }
        (None, None, _) => return None,
    };
    if source.origin.uri.is_empty() {
        return None;
    }
    let thought = format!(
        "The passage from {} {why}. I read the whole.",
        source.origin.shown()
    );
    Some(action(&thought, tool, fetcher.argument, &source.origin.uri))
}

/// Whether a call was made before, with these words.
fn is_made(calls: &[PastCall], tool: &str, value: &str) -> bool {
    calls.iter().any(|call| {
        call.tool == tool
            && call
                .arguments
                .iter()
                .any(|(_, asked)| asked.trim().eq_ignore_ascii_case(value))
    })
}

fn why_search(goal: &Goal, calls: &[PastCall], found: &Found) -> String {
    let Some(last) = calls.last() else {
        let first = if goal.head.is_empty() {
            "its names".to_owned()
        } else {
            format!("\"{}\"", goal.head)
        };
        return format!("I search for the words of the goal, {first} first.");
    };
    format!(
        "So far {} from {}, last from `{}`. I look further.",
        counted(found.quotes.len(), "quotation"),
        counted(found.sources(), "source"),
        last.tool,
    )
}

fn action(thought: &str, tool: &str, argument: &str, value: &str) -> String {
    format!(
        "Thought: {thought}\nAction: {tool}\nArgs: {}",
        json!({ argument: value })
    )
}

fn answer(goal: &Goal, tools: &[ToolInfo], calls: &[PastCall], found: &Found) -> String {
    let thought = format!(
        "{} read, {} kept.",
        counted(found.read, "passage"),
        counted(found.quotes.len(), "quotation")
    );
    let mut parts: Vec<String> = vec![opening(goal, tools, calls, found)];
    parts.extend(found.quotes.iter().map(super::quotes::Quote::block));
    let looked = looked(calls);
    if !looked.is_empty() {
        parts.push(format!(
            "Looked in {}.{}",
            looked.join("; "),
            left_out(goal, found)
        ));
    }
    parts.push(format!("{}\n{CONFIDENCE_NOTE}", found.confidence_line()));
    format!("Thought: {thought}\nFinal Answer: {}", parts.join("\n\n"))
}

fn opening(goal: &Goal, tools: &[ToolInfo], calls: &[PastCall], found: &Found) -> String {
    let title = goal.title();
    let unmentioned: Vec<String> = found
        .unmentioned
        .iter()
        .map(|w| format!("\"{w}\""))
        .collect();
    let is_asked = goal
        .asked
        .iter()
        .any(|asked| found.unmentioned.contains(&asked.word));
    let mut unmentioned = unmentioned.join(" or ");
    if is_asked && !goal.focus.is_empty() {
        let about: Vec<&str> = goal.focus.iter().map(|term| term.word.as_str()).collect();
        let _ = write!(unmentioned, " together with \"{}\"", about.join(" "));
    }
    if found.quotes.is_empty() {
        let why = match (calls.is_empty(), tools.is_empty()) {
            (true, true) => " No tool is on offer to look with.",
            (true, false) => {
                " No search was made: no tool on offer takes a free text, or no step was left."
            }
            (false, _) => "",
        };
        let lacking = if unmentioned.is_empty() {
            String::new()
        } else {
            format!(" {NOTHING_MENTIONS} {unmentioned}.")
        };
        return format!("Nothing was found on \"{title}\".{why}{lacking}");
    }
    let sources = counted(found.sources(), "source");
    let quoted = counted(found.quotes.len(), "quotation");
    if !unmentioned.is_empty() {
        format!(
            "{NOTHING_MENTIONS} {unmentioned}. The closest: {quoted} from {sources} that share other \
             words of the question, not interpreted, since no language model is at work."
        )
    } else if found.on_topic {
        format!(
            "On \"{title}\": {quoted} from {sources}, picked by the words shared with the goal and \
             not interpreted, since no language model is at work."
        )
    } else {
        format!(
            "{NOTHING_MENTIONS} \"{title}\" itself. The closest: {quoted} from \
             {sources} that share other words of the goal, not interpreted, since no language model \
             is at work."
        )
    }
}

/// Each call and what it gave.
fn looked(calls: &[PastCall]) -> Vec<String> {
    calls
        .iter()
        .map(|call| {
            let asked: Vec<String> = call
                .arguments
                .iter()
                .map(|(_, value)| format!("\"{value}\""))
                .collect();
            let found = passages(call);
            let facts = found.iter().filter(|p| p.form == Form::Fact).count();
            let gave = match found.len() {
                0 if is_left_out(&call.observation) => "no longer at hand".to_owned(),
                0 if call.observation.trim().to_lowercase().starts_with("error") => {
                    "an error".to_owned()
                }
                0 if is_failure(&call.observation) || call.observation.trim().is_empty() => {
                    "nothing".to_owned()
                }
                count if facts == count => counted(count, "statement"),
                1 if is_what_was_asked_for(call, &found[0]) && found[0].is_cut => {
                    "read in part".to_owned()
                }
                1 if is_what_was_asked_for(call, &found[0]) => "read in full".to_owned(),
                count => counted(count, "passage"),
            };
            let asked = if asked.is_empty() {
                String::new()
            } else {
                format!(" for {}", asked.join(", "))
            };
            format!("`{}`{asked}: {gave}", call.tool)
        })
        .collect()
}

/// Whether a call asked for a document by its address, and got it.
fn is_what_was_asked_for(call: &PastCall, passage: &Passage) -> bool {
    call.arguments
        .iter()
        .any(|(_, value)| *value == passage.origin.uri)
}

fn left_out(goal: &Goal, found: &Found) -> String {
    let mut told = String::new();
    if found.about_others > 0 {
        let verb = if found.about_others == 1 {
            "does"
        } else {
            "do"
        };
        let _ = write!(
            told,
            " Left out: {} that {verb} not name {}.",
            counted(found.about_others, "passage"),
            goal.names()
        );
    }
    if found.unrelated > 0 {
        let verb = if found.unrelated == 1 { "does" } else { "do" };
        let what = if found.on_topic && goal.has_head() {
            format!("mention \"{}\"", goal.head)
        } else {
            "share a telling word with the goal".to_owned()
        };
        let _ = write!(
            told,
            " Set aside: {} that {verb} not {what}.",
            counted(found.unrelated, "passage")
        );
    }
    told
}
