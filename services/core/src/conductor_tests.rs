#![allow(clippy::unwrap_used)]

use super::*;
use agentfleet_schema::config::{AgentTaskType, Condition, Specialist};
use serde_json::from_value;

/// Default, research by a sequence, and writing with lists.
fn snapshot() -> Snapshot {
    let policy: ToolPolicy = from_value(json!({"name": "p", "steps": [
        {"name": "research", "conditions": [{"type": "tool_used", "value": "search"}],
         "sequence": ["think", "reflect"], "availableTools": {"denied": ["send"]}},
        {"name": "write", "conditions": [{"type": "sequence_match", "value": "research"}],
         "availableTools": {"allowed": ["wr*", "search"]}},
        {"name": "start", "isDefault": true, "availableTools": {"denied": ["reflect"]}},
    ]}))
    .unwrap();
    let mut snapshot = Snapshot::default();
    snapshot.tool_policies.insert("p".into(), policy);
    for name in ["search", "think", "reflect", "send", "write"] {
        let tool = tools::open_to_all(name);
        snapshot.tools.insert(name.into(), tool);
    }
    snapshot
}

fn request() -> AgentRequest {
    AgentRequest {
        tool_policy: "p".into(),
        ..AgentRequest::default()
    }
}

fn open(request: &AgentRequest, snapshot: &Snapshot) -> String {
    let tools = tools::visible(request, snapshot);
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.join(" ")
}

#[test]
fn steps_follow_what_was_used_and_a_sequence_outranks_lists() {
    let snapshot = snapshot();
    let mut request = request();
    assert_eq!(open(&request, &snapshot), "search send think write");
    for (used, moved_to, expected) in [
        ("write", None, "search send think write"),
        ("search", Some("research"), "think"),
        ("think", None, "reflect"),
        // The sequence is done, which is what `write` waits for.
        ("reflect", Some("write"), "search write"),
        ("write", None, "search write"),
        ("search", Some("research"), "think"),
    ] {
        let decision = advance(&mut request, &snapshot, used);
        assert_eq!(decision.map(|it| it.chosen).as_deref(), moved_to, "{used}");
        assert_eq!(open(&request, &snapshot), expected, "after {used}");
    }
}

#[test]
fn a_sequence_under_way_is_finished_before_another_step_is_looked_at() {
    let mut snapshot = snapshot();
    let policy = snapshot.tool_policies.get_mut("p").unwrap();
    policy.steps[0].sequence = vec!["search".into(), "think".into()];
    policy.steps[1].conditions[0] = Condition {
        kind: condition_type::TOOL_USED.into(),
        value: "search".into(),
    };
    let mut request = request();
    // Both wait for `search`: the first of them becomes active.
    let decision = advance(&mut request, &snapshot, "search").unwrap();
    assert_eq!(decision.chosen, "research");
    assert_eq!(decision.signal, "`search` was used");
    // Its own first tool meets the conditions of both again, and moves nothing but the place in it.
    assert!(advance(&mut request, &snapshot, "search").is_none());
    assert_eq!(open(&request, &snapshot), "think");
}

#[test]
fn a_step_that_its_own_sequence_leads_to_has_it_behind_itself() {
    let mut snapshot = snapshot();
    let policy = snapshot.tool_policies.get_mut("p").unwrap();
    policy.steps[1].sequence = vec!["search".into(), "send".into()];
    policy.steps[1].conditions[0].value = String::new();
    policy.steps[0].conditions[0].value = "think".into();
    let mut request = request();
    assert!(advance(&mut request, &snapshot, "search").is_none());
    let decision = advance(&mut request, &snapshot, "send").unwrap();
    assert_eq!(decision.chosen, "write");
    assert_eq!(open(&request, &snapshot), "search write");
}

#[test]
fn a_tool_that_is_not_there_leaves_none_and_prompts_say_so() {
    let mut snapshot = snapshot();
    let mut request = request();
    advance(&mut request, &snapshot, "search");
    snapshot.tools.remove("think");
    assert_eq!(open(&request, &snapshot), "");
    let shown = shown(&request, &snapshot);
    assert_eq!(shown["next"], "think");
    assert_eq!(shown["is_missing"], true);
}

#[test]
fn what_the_config_says_comes_before_what_the_caller_says() {
    let mut snapshot = snapshot();
    let of = |name: &str, allowed: &str| -> ToolPolicy {
        from_value(json!({"name": name, "steps": [
            {"name": "only", "isDefault": true, "availableTools": {"allowed": [allowed]}}]}))
        .unwrap()
    };
    for (name, allowed) in [("of-type", "send"), ("of-specialist", "write")] {
        snapshot
            .tool_policies
            .insert(name.into(), of(name, allowed));
    }
    let task_type = AgentTaskType {
        tool_policy: "of-type".into(),
        ..AgentTaskType::default()
    };
    snapshot.task_types.insert("t".into(), task_type);
    let specialist = Specialist {
        tools: vec!["*".into()],
        tool_policy: "of-specialist".into(),
        ..Specialist::default()
    };
    snapshot.specialists.insert("s".into(), specialist);
    let mut request = request();
    advance(&mut request, &snapshot, "search");
    assert_eq!(open(&request, &snapshot), "think");
    request.task_type = "t".into();
    assert_eq!(open(&request, &snapshot), "send");
    request.control.specialist = "s".into();
    assert_eq!(open(&request, &snapshot), "write");
    // A position of another policy says nothing.
    advance(&mut request, &snapshot, "write");
    request.control.specialist.clear();
    request.task_type.clear();
    assert_eq!(open(&request, &snapshot), "search send think write");
}

#[test]
fn a_position_remembers_a_bounded_number_of_calls() {
    let snapshot = snapshot();
    let mut request = request();
    for _ in 0..REMEMBERED + 5 {
        advance(&mut request, &snapshot, "write");
    }
    assert_eq!(request.control.position.unwrap().used.len(), REMEMBERED);
}
