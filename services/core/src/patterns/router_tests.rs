#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::Outcome;
use crate::turn::Turn;
use agentfleet_schema::RoutingContext;
use agentfleet_schema::config::{AgentPattern, Intent, Snapshot, Specialist, ToolItem};
use std::sync::Arc;

fn situation(specialists: &[&str]) -> Situation {
    let mut snapshot = Snapshot::default();
    for name in ["react", "router", "plan-then-execute"] {
        let pattern = AgentPattern {
            name: name.into(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    for name in ["analytics_diagnosis", GENERAL_CHAT] {
        snapshot.intents.insert(name.into(), Intent::default());
    }
    for name in specialists {
        let specialist = Specialist {
            name: (*name).into(),
            prompt: format!("prompt of {name}"),
            tools: vec![format!("{name}_*")],
            context: vec!["tenant_type".into(), "entities".into()],
            profile: format!("{name}-model"),
            ..Specialist::default()
        };
        snapshot.specialists.insert((*name).into(), specialist);
    }
    for name in ["blog_list", "analytics_trend"] {
        let tool = ToolItem {
            name: name.into(),
            kind: "http".into(),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        };
        snapshot.tools.insert(name.into(), tool);
    }
    Situation {
        now: 0,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in: None,
    }
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "Why did my blog traffic drop this week?".into(),
        session_id: "s".into(),
        pattern: "router".into(),
        routing: RoutingContext {
            tenant_type: "food_bakery".into(),
            active_services: vec!["blog".into(), "chat".into()],
            recent_topics: vec!["traffic".into()],
        },
        ..AgentRequest::default()
    }
}

#[test]
fn the_last_call_of_a_budget_is_not_spent_on_classifying() {
    let mut request = request();
    request.limits.max_model_calls = Some(1);
    let mut turn = Turn::parse(request, situation(BOTH)).unwrap();
    let Order::Finish(finish) = turn.resume(Input::Begin) else {
        panic!("the model was asked")
    };
    let Outcome::Continue(next) = &finish.outcome else {
        panic!("{:?}", finish.outcome)
    };
    assert_eq!(next.pattern, "react");
    let [intent, specialist] = finish.decisions.as_slice() else {
        panic!("{:?}", finish.decisions)
    };
    assert_eq!(
        (intent.chosen.as_str(), specialist.chosen.as_str()),
        (GENERAL_CHAT, GENERAL)
    );
    assert_eq!(specialist.decided_by, DecidedBy::Fallback);
    assert_eq!(
        specialist.signal,
        "the budget of 1 model calls has one left"
    );
}

const BOTH: &[&str] = &["analytics", "blog"];

/// The decisions, and the request that goes on.
fn dispatched(specialists: &[&str], replies: &[&str]) -> (Vec<Decision>, AgentRequest) {
    let mut turn = Turn::parse(request(), situation(specialists)).unwrap();
    let mut step = turn.resume(Input::Begin);
    for reply in replies {
        let Order::AskModel(ask) = &step else {
            panic!("asked too seldom: {step:?}")
        };
        assert_eq!(ask.operation, Operation::ClassifyIntent);
        step = turn.resume(Input::ModelReplied(Reply {
            text: (*reply).into(),
            ..Reply::default()
        }));
    }
    let Order::Finish(finish) = step else {
        panic!("asked too often: {step:?}")
    };
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it ended")
    };
    for decision in &finish.decisions {
        assert!(
            decision.options.contains(&decision.chosen),
            "PV-2: {decision:?}"
        );
    }
    (finish.decisions, *next)
}

#[test]
fn the_model_sees_the_message_and_little_else() {
    let mut turn = Turn::parse(request(), situation(BOTH)).unwrap();
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!("nothing is asked")
    };
    assert_eq!(ask.variables["tenant_type"], "food_bakery");
    assert_eq!(ask.variables["active_services"], json!(["blog", "chat"]));
    assert_eq!(ask.variables["recent_topics"], json!(["traffic"]));
    let schema = ask.schema.unwrap();
    let properties = &schema["properties"];
    assert_eq!(
        properties["specialist"]["enum"],
        json!(["analytics", "blog", "general"])
    );
    assert_eq!(
        properties["intent"]["enum"],
        json!(["analytics_diagnosis", "general_chat"])
    );
}

#[test]
fn a_specialist_goes_on_with_its_prompt_tools_context_and_model() {
    let reply = r#"{"intent": "analytics_diagnosis", "confidence": 0.94, "specialist": "analytics",
        "entities": ["traffic", "blog"], "multi_step": false, "steps": []}"#;
    let (decisions, next) = dispatched(BOTH, &[reply]);
    let chosen: Vec<_> = decisions.iter().map(|d| d.chosen.as_str()).collect();
    assert_eq!(chosen, ["analytics_diagnosis", "analytics"]);
    assert_eq!(next.pattern, "react");
    assert_eq!(next.framing, "prompt of analytics");
    assert_eq!(next.control.profile, "analytics-model");
    assert_eq!(
        next.control.context,
        "tenant type: food_bakery\nentities: traffic, blog"
    );
    let turn = Turn::parse(next, situation(BOTH)).unwrap();
    let tools: Vec<_> = turn.tools().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(tools, ["analytics_trend"]);
}

#[test]
fn what_is_unclear_or_unknown_goes_to_general_without_tools() {
    let unsure = r#"{"intent": "general_chat", "confidence": 0.3, "specialist": "blog"}"#;
    let unknown = r#"{"intent": "general_chat", "confidence": 0.9, "specialist": "cook"}"#;
    let meant = r#"{"intent": "general_chat", "confidence": 0.9, "specialist": "general"}"#;
    let odd = r#"{"intent": "general_chat", "confidence": 7, "specialist": "blog"}"#;
    for (specialists, replies, by) in [
        (BOTH, &[meant][..], DecidedBy::Model),
        (BOTH, &[unsure][..], DecidedBy::Fallback),
        (BOTH, &[unknown, unknown][..], DecidedBy::Fallback),
        (BOTH, &["what?", odd][..], DecidedBy::Fallback),
        (BOTH, &[odd, meant][..], DecidedBy::Model),
        (&[][..], &[][..], DecidedBy::OnlyOption),
    ] {
        let (decisions, next) = dispatched(specialists, replies);
        let last = decisions.last().unwrap();
        assert_eq!(
            (last.chosen.as_str(), last.decided_by),
            ("general", by),
            "{replies:?}"
        );
        let turn = Turn::parse(next, situation(specialists)).unwrap();
        assert_eq!(turn.tools(), [], "{replies:?}");
    }
}

#[test]
fn several_steps_become_a_plan_of_specialists() {
    let reply = |steps: Value| {
        json!({"intent": "analytics_diagnosis", "confidence": 0.9, "specialist": "analytics",
               "multi_step": true, "steps": steps})
        .to_string()
    };
    let two = reply(json!([
        {"specialist": "analytics", "task": "topics"},
        {"specialist": "blog", "task": "calendar", "depends_on": "step_1"},
    ]));
    let (_, next) = dispatched(BOTH, &[&two]);
    assert_eq!(next.pattern, "plan-then-execute");
    let plan = dag::current(&next).unwrap();
    assert_eq!(
        (plan[1].specialist.as_str(), plan[1].depends_on.clone()),
        ("blog", vec![0])
    );
    let mut turn = Turn::parse(next, situation(BOTH)).unwrap();
    let Order::Finish(finish) = turn.resume(Input::Begin) else {
        panic!("no specialist is at work")
    };
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!("no fan-out")
    };
    assert_eq!(fan_out.children[0].1.framing, "prompt of analytics");
    // What cannot be carried out is asked for once more.
    for (wrong, why) in [
        (
            json!([{"specialist": "cook", "task": "t"}]),
            "`specialist` is `cook`",
        ),
        (json!([{"specialist": "blog"}]), "has no `task`"),
        (
            json!([{"specialist": "blog", "task": "t", "depends_on": "first"}]),
            "step_1",
        ),
        (
            json!([{"specialist": "blog", "task": "t", "depends_on": ["step_2"]},
                   {"specialist": "blog", "task": "u", "depends_on": ["step_1"]}]),
            "comes after it",
        ),
    ] {
        let wrong = reply(wrong);
        let (decisions, next) = dispatched(BOTH, &[&wrong, &wrong]);
        assert!(decisions[0].signal.contains(why), "{}", decisions[0].signal);
        assert_eq!(next.control.specialist, "general");
    }
}

#[test]
fn who_has_no_tool_here_is_not_offered_and_what_is_missing_is_named() {
    // There is `blog_list`, and nothing for shops.
    let (decisions, next) = dispatched(&["shop"], &[]);
    assert_eq!(next.control.specialist, "general");
    let [chosen] = decisions.as_slice() else {
        panic!("{decisions:?}")
    };
    let missing = "`shop`: no tool matches `shop_*`";
    assert_eq!(chosen.options, ["general"]);
    assert_eq!(
        chosen.signal,
        format!("no other specialist has a tool here ({missing})")
    );
    assert!(chosen.narrowed_by.ends_with(missing), "{chosen:?}");
    assert!(next.history[0].observation.contains(missing));
    let mut turn = Turn::parse(request(), situation(&["blog", "shop"])).unwrap();
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!("there are two to choose among")
    };
    let offered = &ask.schema.unwrap()["properties"]["specialist"]["enum"];
    assert_eq!(*offered, json!(["blog", "general"]));
    assert_eq!(ask.variables["specialists"].as_array().unwrap().len(), 1);
}

#[test]
fn an_unclear_message_is_not_about_what_comes_first() {
    let mut situation = situation(BOTH);
    Arc::make_mut(&mut situation.snapshot)
        .intents
        .remove(GENERAL_CHAT);
    let mut turn = Turn::parse(request(), situation).unwrap();
    turn.resume(Input::Begin);
    let nonsense = |turn: &mut Turn| {
        turn.resume(Input::ModelReplied(Reply {
            text: "what?".into(),
            ..Reply::default()
        }))
    };
    nonsense(&mut turn);
    let Order::Finish(finish) = nonsense(&mut turn) else {
        panic!("asked too often")
    };
    let intent = &finish.decisions[0];
    assert_eq!(intent.chosen, GENERAL_CHAT);
    assert_eq!(intent.options, ["analytics_diagnosis", GENERAL_CHAT]);
}

#[test]
fn without_depth_the_session_works_each_step_as_its_specialist() {
    let reply = json!({"intent": "analytics_diagnosis", "confidence": 0.9, "specialist": "analytics",
        "multi_step": true, "steps": [
            {"specialist": "analytics", "task": "topics"},
            {"specialist": "general", "task": "calendar", "depends_on": "step_1"}]});
    let (_, mut next) = dispatched(BOTH, &[&reply.to_string()]);
    next.limits.max_depth = Some(0);
    for (prompt, tools, status) in [
        ("prompt of analytics", &["analytics_trend"][..], "pending"),
        ("", &[], "complete"),
    ] {
        let mut turn = Turn::parse(next, situation(BOTH)).unwrap();
        let Order::AskModel(ask) = turn.resume(Input::Begin) else {
            panic!("the step failed")
        };
        assert_eq!(ask.variables["framing"], prompt);
        let seen: Vec<_> = turn.tools().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(seen, tools);
        let Order::Finish(finish) = turn.resume(Input::ModelReplied(Reply {
            text: "Final Answer: done".into(),
            ..Reply::default()
        })) else {
            panic!("it goes on")
        };
        let why = &finish.decisions[0];
        assert_eq!(
            (why.subject.as_str(), why.chosen.as_str()),
            ("fan-out", "alone")
        );
        assert_eq!(why.signal, "no depth is left for subagents");
        let Outcome::Continue(following) = finish.outcome else {
            panic!("it ended")
        };
        assert_eq!(dag::current(&following).unwrap()[1].status, status);
        next = *following;
    }
}
