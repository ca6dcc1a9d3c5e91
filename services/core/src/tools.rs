//! Which tools a step may see: by group and by state, as the reference system defines them.

use crate::conversation;
use crate::{conductor, say};
use crate::{history, specialists};
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Snapshot, ToolItem, fits, tool_kind};
use agentfleet_schema::records::Decision;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// State of a run that never set one.
pub const UNDEFINED_STATE: &str = "undefined";

/// The tools a request may use, in the order of their names: those it is granted, as far as its tool policy
/// leaves them open now. A tool that reads back is always open: it shows a run nothing but what is its own.
pub fn visible<'a>(request: &AgentRequest, snapshot: &'a Snapshot) -> Vec<&'a ToolItem> {
    let is_open = conductor::allows(request, snapshot);
    let mut tools = granted(request, snapshot);
    tools.retain(|tool| tool.kind == tool_kind::READ_BACK || is_open(tool));
    tools
}

/// The tools a request has, whichever of them its policy leaves open now.
///
/// Granted iff (the request's groups hold `*` or share one with the tool) and (the tool's
/// applicable states hold `*` or the request's state). No group given means `default`. A tool that
/// reads back is granted iff something of the history lies elsewhere, whatever groups, state and
/// specialist.
pub fn granted<'a>(request: &AgentRequest, snapshot: &'a Snapshot) -> Vec<&'a ToolItem> {
    let default = [String::from("default")];
    let groups: &[String] = request.group.as_deref().unwrap_or(&default);
    let state = if request.state.is_empty() {
        UNDEFINED_STATE
    } else {
        &request.state
    };
    let mut tools: Vec<&ToolItem> = snapshot
        .tools
        .values()
        .filter(|tool| tool.kind != tool_kind::READ_BACK)
        .filter(|tool| {
            groups.iter().any(|g| g == "*") || tool.group.iter().any(|g| groups.contains(g))
        })
        .filter(|tool| specialists::allows(request, snapshot, tool))
        .filter(|tool| {
            !request
                .control
                .without
                .iter()
                .any(|glob| fits(glob, &tool.name))
        })
        .filter(|tool| {
            tool.applicable_states
                .iter()
                .any(|s| s == "*" || s == state)
        })
        .collect();
    if history::has_more(request) {
        let all = snapshot.tools.values();
        tools.extend(all.filter(|tool| tool.kind == tool_kind::READ_BACK));
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// What becomes of tool groups that a new run names and that no tool is in: they give nothing, which is told.
/// A run that comes over the queue was not refused at a door.
pub fn settle(request: &AgentRequest, snapshot: &Snapshot) -> Option<Decision> {
    if !conversation::begins(request) {
        return None;
    }
    let asked = request.group.as_deref()?;
    let configured: BTreeSet<&str> = snapshot
        .tools
        .values()
        .flat_map(|tool| tool.group.iter().map(String::as_str))
        .chain(ALWAYS)
        .collect();
    let is_known = |name: &&String| configured.contains(name.as_str());
    let (known, unknown): (Vec<&String>, Vec<&String>) = asked.iter().partition(is_known);
    let first = unknown.first()?;
    let names = |names: &[&String]| {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        names.join(", ")
    };
    let chosen = if known.is_empty() {
        "none".to_owned()
    } else {
        names(&known)
    };
    let signal = if unknown.len() == 1 {
        format!("the request names tool group `{first}`, and no tool is in it")
    } else {
        format!(
            "the request names tool groups that no tool is in: {}",
            names(&unknown)
        )
    };
    Some(say::only(
        "override-group",
        chosen,
        format!(
            "the {} tool groups of the config, version {}",
            configured.iter().filter(|name| **name != "*").count(),
            snapshot.version
        ),
        signal,
    ))
}

/// Groups that mean something although no tool is in them.
const ALWAYS: [&str; 2] = ["*", "default"];

/// The tool groups that a request can hand on to subagents: those of its own that a tool it sees is in.
pub fn groups(request: &AgentRequest, snapshot: &Snapshot) -> Vec<String> {
    let default = [String::from("default")];
    let own: &[String] = request.group.as_deref().unwrap_or(&default);
    let is_own = |group: &&String| own.iter().any(|g| g == "*" || g == *group);
    let granted = granted(request, snapshot);
    let groups = granted
        .iter()
        .filter(|tool| tool.kind != tool_kind::READ_BACK)
        .flat_map(|tool| &tool.group)
        .filter(is_own);
    let groups: BTreeSet<&String> = groups.collect();
    groups.into_iter().cloned().collect()
}

/// The groups among `asked` that are `open`, and those that are not. Asking for `*`, or for nothing, is
/// asking for all there are: `None`.
pub fn narrowed(open: &[String], asked: &[String]) -> Option<(Vec<String>, Vec<String>)> {
    if asked.is_empty() || asked.iter().any(|group| group.trim() == "*") {
        return None;
    }
    let same = |a: &str, b: &str| a.trim().eq_ignore_ascii_case(b.trim());
    let is_asked = |group: &&String| asked.iter().any(|name| same(name, group));
    let is_unknown = |name: &&String| !open.iter().any(|group| same(name, group));
    let kept = open.iter().filter(is_asked).cloned().collect();
    let unknown = asked.iter().filter(is_unknown).cloned().collect();
    Some((kept, unknown))
}

/// A tool's name without what models change in one: case and separators.
pub(crate) fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '_', '.'], "-")
}

/// Tools as prompts show them.
pub fn described(tools: &[&ToolItem]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "arguments": tool.declared().iter().map(|a| json!({
                    "name": a.name, "type": a.kind, "description": a.description,
                    "required": a.required,
                })).collect::<Vec<_>>(),
            })
        })
        .collect()
}

/// A tool that every request has.
#[cfg(test)]
pub(crate) fn open_to_all(name: &str) -> ToolItem {
    ToolItem {
        name: name.into(),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        ..ToolItem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (name, group, states) in [
            ("search", "default", vec!["*"]),
            ("bank", "finance", vec!["*"]),
            ("submit", "default", vec!["reviewed"]),
        ] {
            snapshot.tools.insert(
                name.into(),
                ToolItem {
                    name: name.into(),
                    group: vec![group.into()],
                    applicable_states: states.into_iter().map(String::from).collect(),
                    ..ToolItem::default()
                },
            );
        }
        snapshot
    }

    #[test]
    fn a_group_that_no_tool_is_in_is_told_and_gives_nothing() {
        let snapshot = snapshot();
        let asked = |groups: &[&str]| AgentRequest {
            group: Some(groups.iter().map(|&name| name.to_owned()).collect()),
            ..AgentRequest::default()
        };
        for (groups, chosen) in [
            (&["finanse"][..], Some("none")),
            (&["finance", "finanse"], Some("finance")),
            (&["finance"], None),
            (&["*"], None),
            (&["default"], None),
            (&[], None),
        ] {
            let found = settle(&asked(groups), &snapshot);
            let found = found.as_ref().map(|decision| decision.chosen.as_str());
            assert_eq!(found, chosen, "{groups:?}");
        }
        let mut later = asked(&["finanse"]);
        assert!(visible(&later, &snapshot).is_empty());
        later.step = 1;
        assert_eq!(settle(&later, &snapshot), None);
        assert_eq!(settle(&AgentRequest::default(), &snapshot), None);
    }

    #[test]
    fn visibility_follows_group_and_state() {
        let snapshot = snapshot();
        let cases: &[(Option<&[&str]>, &str, &[&str])] = &[
            (None, "", &["search"]),
            (None, "reviewed", &["search", "submit"]),
            (Some(&[]), "", &[]),
            (Some(&["*"]), "", &["bank", "search"]),
            (Some(&["finance"]), "", &["bank"]),
            (
                Some(&["finance", "default"]),
                "reviewed",
                &["bank", "search", "submit"],
            ),
            (Some(&["nobody"]), "", &[]),
        ];
        for (group, state, expected) in cases {
            let request = AgentRequest {
                group: group.map(|g| g.iter().map(|s| (*s).to_owned()).collect()),
                state: (*state).to_owned(),
                ..AgentRequest::default()
            };
            let names: Vec<_> = visible(&request, &snapshot)
                .iter()
                .map(|t| t.name.as_str())
                .collect();
            assert_eq!(&names, expected, "group {group:?} state {state:?}");
        }
    }

    #[test]
    fn groups_are_handed_on_and_narrowed_and_never_widened() {
        let list =
            |words: &str| -> Vec<String> { words.split_whitespace().map(str::to_owned).collect() };
        let mut snapshot = snapshot();
        let both = ToolItem {
            group: list("default legal"),
            applicable_states: list("*"),
            ..ToolItem::default()
        };
        snapshot.tools.insert("both".into(), both);
        for (group, expected) in [
            (None, "default"),
            (Some("*"), "default finance legal"),
            (Some("finance nobody"), "finance"),
            (Some(""), ""),
        ] {
            let request = AgentRequest {
                group: group.map(list),
                ..AgentRequest::default()
            };
            assert_eq!(groups(&request, &snapshot), list(expected), "{group:?}");
        }
        for (asked, expected) in [
            ("", None),
            ("made-up *", None),
            ("a", Some(("a", ""))),
            ("B a", Some(("a b", ""))),
            ("b made-up", Some(("b", "made-up"))),
            ("made-up", Some(("", "made-up"))),
        ] {
            let expected = expected.map(|(kept, unknown)| (list(kept), list(unknown)));
            assert_eq!(narrowed(&list("a b c"), &list(asked)), expected, "{asked}");
        }
    }
}
