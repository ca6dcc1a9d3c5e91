//! What pictures say of pauses, of large trees, of drafts and of what went wrong, from records as the
//! patterns leave them.

use agentfleet_console::style::Look;
use agentfleet_console::trace::{Format, Trace};
use agentfleet_core::provenance::tell;
use agentfleet_schema::PlanStep;
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::{
    Activity, ApprovalAnswer, Asked, Call, Child, Concluded, Critique, Decided, DecidedBy,
    Decision, Executed, FannedOut, Iterated, OutcomeKind, ParentLink, Planned, Routed, StepRecord,
    StepResult, Termination, Usage,
};
use agentfleet_schema::response::ErrorBody;
use agentfleet_schema::{SessionId, Triple};

const LONG: &str = "Assess all of the sites of the region, their safety records of the last ten years, \
    what each of them costs, and say which of them can be kept in the coming year";

/// Records of a run, in the order of their commits.
#[derive(Default)]
struct Tree {
    records: Vec<StepRecord>,
}

impl Tree {
    /// Adds a step to a session; the first one is routed.
    fn step(&mut self, session: &str, pattern: &str, question: &str) -> &mut StepRecord {
        let before: Vec<&StepRecord> = self
            .records
            .iter()
            .filter(|record| record.session.as_str() == session)
            .collect();
        let step = before.len() as u32;
        let derives_from = before.last().map(|last| tell(last).last);
        let parent = before.last().and_then(|last| last.parent.clone());
        let routed = Routed {
            question: question.into(),
            pattern: pattern.into(),
            decisions: vec![Decision {
                subject: "pattern".into(),
                options: ["debate", "plan-then-execute", "react", "supervisor"]
                    .map(Into::into)
                    .into(),
                signal: "the request names it".into(),
                chosen: pattern.into(),
                decided_by: DecidedBy::Caller,
                ..Decision::default()
            }],
            ..Routed::default()
        };
        let record = StepRecord {
            session: session.into(),
            root: "root".into(),
            step,
            parent,
            committed_at: 1_000 * self.records.len() as i64,
            routed: (step == 0).then_some(routed),
            derives_from: derives_from.unwrap_or_default(),
            usage: Usage {
                input_tokens: 1_000,
                output_tokens: 200,
                cost: 0.0,
                unpriced_calls: 0,
            },
            ..StepRecord::default()
        };
        self.records.push(record);
        self.records.last_mut().unwrap()
    }

    fn did(&mut self, session: &str, pattern: &str, activity: Activity) -> &mut StepRecord {
        let record = self.step(session, pattern, "What of the mill?");
        record.outcome = match activity {
            Activity::Concluded(_) => OutcomeKind::Answer,
            Activity::Asked(_) => OutcomeKind::Pause,
            Activity::FannedOut(_) => OutcomeKind::FanOut,
            Activity::None
            | Activity::Iterated(_)
            | Activity::Planned(_)
            | Activity::Executed(_)
            | Activity::Decided(_) => OutcomeKind::Continue,
        };
        if let Activity::Iterated(it) = &activity
            && it.action != "answer"
        {
            record.calls.push(Call::Tool {
                name: it.action.clone(),
                arguments: it.arguments.clone(),
                result: String::new(),
                is_error: false,
                ms: 0,
                sources: Vec::new(),
                tried: Vec::new(),
                adopted: None,
            });
        }
        record.activity = activity;
        record
    }

    /// A fan-out whose subagents are called `{session}-{index}`.
    fn fan_out(&mut self, session: &str, goals: &[String], policy: JoinPolicy) {
        let children = goals.iter().zip(0..).map(|(goal, index)| Child {
            index,
            session: SessionId::new(format!("{session}-{index}")),
            goal: goal.clone(),
            ..Child::default()
        });
        let fan_out = FannedOut {
            correlation: format!("join-{session}").into(),
            children: children.collect(),
            policy,
            round: 1,
            ..FannedOut::default()
        };
        self.did(session, "supervisor", Activity::FannedOut(fan_out));
    }

    /// Makes the session of the last record a subagent.
    fn below(&mut self, parent: &str, index: u32, goal: &str) {
        self.records.last_mut().unwrap().parent = Some(ParentLink {
            session: parent.into(),
            correlation: format!("join-{parent}").into(),
            index,
            goal: goal.into(),
            ..ParentLink::default()
        });
    }

    fn triples(&self) -> Vec<Triple> {
        let told = self.records.iter().map(tell);
        told.flat_map(|told| told.triples).collect()
    }

    fn trace(&self) -> Trace {
        Trace::from_triples(&self.triples())
    }

    fn shown(&self, format: Format) -> String {
        self.trace().render(format, Look::plain(100), &text)
    }
}

/// What documents say, by their place.
fn text(uri: &str) -> Option<String> {
    if uri.ends_with("/decision/0/intent/document") {
        let steps = r#"[{"specialist":"analytics","task":"find what does best","depends_on":[]}]"#;
        Some(format!(
            r#"{{"intent":"content_creation","steps":{steps}}}"#
        ))
    } else if uri.ends_with("/critique/document") {
        Some("What went wrong: no source\nTo try next: name it".into())
    } else if uri.contains("/step/0/") {
        Some("Ada owns the mill.".into())
    } else if uri.ends_with("/answer/document") {
        Some("Stopped: the run was cancelled.".into())
    } else {
        None
    }
}

fn call(n: u32) -> Iterated {
    Iterated {
        n,
        action: "document-search".into(),
        arguments: [("query".into(), format!("pump {n}"))].into(),
        ..Iterated::default()
    }
}

fn asked() -> Asked {
    Asked {
        id: "approval-1".into(),
        n: 1,
        tool: "pay".into(),
        arguments: [
            ("amount".into(), "5".into()),
            ("to".into(), "the supplier of pumps".into()),
        ]
        .into(),
        reason: "it cannot be taken back, and the supplier was changed last week by somebody who \
            is not known to us"
            .into(),
        expires_at: 1_795_251_600_000,
        ..Asked::default()
    }
}

/// The words of a picture: its texts, joined as they are read.
fn words(svg: &str) -> String {
    let texts = svg.split("<text ").skip(1);
    let texts = texts.filter_map(|text| text.split_once('>')?.1.split_once("</text>"));
    texts.map(|(text, _)| text).collect::<Vec<_>>().join(" ")
}

fn number(svg: &str, attribute: &str) -> f64 {
    let (_, rest) = svg.split_once(&format!(" {attribute}=\"")).unwrap();
    rest.split_once('"').unwrap().0.parse().unwrap()
}

/// The boxes and frames of a picture, as left, top, right and bottom.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let rects = svg.split("<rect ").skip(1);
    let rects =
        rects.filter(|rect| !rect.contains("class=\"page\"") && !rect.contains("\"frame\""));
    rects
        .map(|rect| {
            let rect = format!(" {rect}");
            let (x, y) = (number(&rect, "x"), number(&rect, "y"));
            [
                x,
                y,
                x + number(&rect, "width"),
                y + number(&rect, "height"),
            ]
        })
        .collect()
}

/// One supervisor over five over five each, with two calls in each of the last.
fn thirty_one() -> Tree {
    let mut tree = Tree::default();
    let goals = |of: &str| -> Vec<String> { (0..5).map(|n| format!("{of} {n}: {LONG}")).collect() };
    tree.fan_out("root", &goals("region"), JoinPolicy::All);
    for region in 0..5 {
        let id = format!("root-{region}");
        tree.fan_out(&id, &goals("site"), JoinPolicy::All);
        tree.below("root", region, &goals("region")[region as usize]);
        for site in 0..5 {
            let leaf = format!("{id}-{site}");
            tree.did(&leaf, "react", Activity::Iterated(call(1)));
            tree.below(&id, site, &goals("site")[site as usize]);
            tree.did(&leaf, "react", Activity::Iterated(call(2)));
            tree.did(&leaf, "react", Activity::Concluded(Concluded::default()));
        }
    }
    tree
}

#[test]
fn a_tree_of_thirty_agents_fits_a_screen_and_nothing_overlaps() {
    let svg = thirty_one().shown(Format::Svg);
    assert!(number(&svg, "width") <= 2_500.0, "{}", &svg[..200]);
    let boxes = boxes(&svg);
    assert_eq!(boxes.len(), 1 + 5 + 25 + 3 + 5 * 3, "every agent is there");
    for (at, a) in boxes.iter().enumerate() {
        for b in &boxes[at + 1..] {
            let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
            assert!(apart, "{a:?} {b:?}");
        }
    }
    let words = words(&svg);
    assert_eq!(words.matches("document-search: pump 2").count(), 25);
}

#[test]
fn a_run_that_waits_says_so_and_asks_in_whole_words() {
    let mut tree = Tree::default();
    let goals = ["pay the bill".to_owned()];
    tree.fan_out("root", &goals, JoinPolicy::Quorum);
    tree.did("root-0", "react", Activity::Asked(asked()));
    tree.below("root", 0, &goals[0]);
    let svg = tree.shown(Format::Svg);
    let words = words(&svg);
    for told in [
        "waits for a person",
        "a subagent waits for a person",
        "· waits for a person",
        "pay(amount: 5, to: the supplier of pumps)",
        "was changed last week by somebody",
        "then `deny`",
        "join policy quorum",
        "fan-out to 1 subagent",
        "the request names it",
    ] {
        assert!(words.contains(told), "{told}: {words}");
    }
    assert!(!words.contains("running"), "{words}");
    assert!(!words.contains("not debate"), "{words}");
    assert!(svg.contains("class=\"wait\""));

    let chart = tree.shown(Format::Mermaid);
    assert!(chart.contains("([\"waits for a person\"])"), "{chart}");
    assert!(chart.contains("a subagent waits"), "{chart}");
    assert!(!chart.contains("running"), "{chart}");
    assert!(chart.contains("known to us<br/>until"), "{chart}");
    assert!(chart.contains("classDef wait"), "{chart}");

    let text = tree.shown(Format::Tree);
    assert!(text.contains("Waits for a person:"), "{text}");
    assert!(text.contains("a subagent waits for a person"), "{text}");
}

#[test]
fn an_answered_approval_says_who_answered_what_and_why() {
    let mut tree = Tree::default();
    tree.did("root", "react", Activity::Asked(asked()));
    let edited = Decided {
        id: "approval-1".into(),
        tool: "pay".into(),
        arguments: [("amount".into(), "4".into())].into(),
        answer: ApprovalAnswer::Edit,
        by: "cleo".into(),
        ..Decided::default()
    };
    let record = tree.did("root", "react", Activity::Decided(edited));
    record.decisions = vec![Decision {
        subject: "approval".into(),
        options: ["approve", "deny", "edit"].map(Into::into).into(),
        signal: "one was broken".into(),
        chosen: "edit".into(),
        decided_by: DecidedBy::Person,
        ..Decision::default()
    }];
    for format in [Format::Svg, Format::Mermaid] {
        let shown = tree.shown(format);
        assert!(shown.contains("changed and approved by cleo"), "{shown}");
        assert!(shown.contains("with 4"), "{shown}");
        assert!(shown.contains("one was broken"), "{shown}");
        assert!(!shown.contains("waits for a person"), "{shown}");
    }
}

#[test]
fn a_step_that_only_decided_counts_with_its_tokens() {
    let mut tree = Tree::default();
    let record = tree.did("root", "supervisor", Activity::None);
    record.decisions = vec![Decision {
        subject: "fan-out".into(),
        options: vec!["alone".into()],
        signal: "a budget of 3 model calls is too little for 5 subagents".into(),
        chosen: "alone".into(),
        decided_by: DecidedBy::OnlyOption,
        ..Decision::default()
    }];
    tree.did("root", "supervisor", Activity::Iterated(call(1)));
    tree.did(
        "root",
        "supervisor",
        Activity::Concluded(Concluded::default()),
    );
    let totals = tree.trace().totals();
    assert_eq!((totals.steps, totals.tokens()), (3, 3 * 1_200));
    let words = words(&tree.shown(Format::Svg));
    assert!(
        words.contains("3 steps · 1 tool call · 3,600 tokens"),
        "{words}"
    );
    assert!(words.contains("too little for 5"), "{words}");
}

#[test]
fn a_draft_that_was_sent_back_is_no_tool_call() {
    let mut tree = Tree::default();
    tree.did("root", "reflexion", Activity::Iterated(call(1)));
    let critique = Critique {
        wrong: "no source".into(),
        next: "name it".into(),
        sent_back: true,
    };
    let draft = Iterated {
        n: 2,
        action: "answer".into(),
        candidates: vec!["answer".into(), "document-search".into()],
        observation: "What went wrong: no source".into(),
        critique: Some(critique),
        ..Iterated::default()
    };
    let record = tree.did("root", "reflexion", Activity::Iterated(draft));
    record.decisions = vec![Decision {
        subject: "critique".into(),
        options: ["go-back", "go-on"].map(Into::into).into(),
        signal: "no source".into(),
        chosen: "go-back".into(),
        decided_by: DecidedBy::Model,
        ..Decision::default()
    }];
    tree.did(
        "root",
        "reflexion",
        Activity::Concluded(Concluded::default()),
    );
    let trace = tree.trace();
    assert_eq!(trace.totals().tool_calls, 1);
    let drafts: Vec<_> = trace.sessions[0]
        .iterations()
        .map(|iteration| iteration.sent_back.as_deref())
        .collect();
    assert_eq!(drafts, [None, Some("no source")]);
    let words = words(&tree.shown(Format::Svg));
    for told in [
        "draft answer, sent back no source",
        "Critique: sent back What went wrong: no source To try next: name it",
    ] {
        assert!(words.contains(told), "{told}: {words}");
    }
    let text = tree.shown(Format::Tree);
    assert!(text.contains("2 draft answer, sent back"), "{text}");
    assert!(!text.contains("answer()"), "{text}");
    assert!(
        tree.shown(Format::Mermaid)
            .contains("draft answer, sent back")
    );
}

#[test]
fn steps_of_a_plan_have_numbers_and_results_and_failures_say_why() {
    let mut tree = Tree::default();
    let steps = ["find the owner", "read the lost register"].map(|goal| PlanStep {
        goal: goal.into(),
        ..PlanStep::default()
    });
    let pattern = "plan-then-execute";
    let planned = Planned {
        steps: steps[..1].to_vec(),
        ..Planned::default()
    };
    tree.did("root", pattern, Activity::Planned(planned));
    for (index, status) in [(0, "complete"), (1, "failed")] {
        let executed = Executed {
            steps: vec![StepResult {
                index,
                goal: steps[index as usize].goal.clone(),
                status: status.into(),
                ..StepResult::default()
            }],
            ..Executed::default()
        };
        let record = tree.did("root", pattern, Activity::Executed(executed));
        record.decisions = vec![Decision {
            subject: "plan-step".into(),
            options: ["complete", "failed"].map(Into::into).into(),
            signal: format!("the model says {status}: it is lost"),
            chosen: status.into(),
            decided_by: DecidedBy::Model,
            ..Decision::default()
        }];
    }
    let end = Concluded {
        termination: Termination::Error,
        error: Some(ErrorBody {
            code: "cancelled".into(),
            ..ErrorBody::default()
        }),
        ..Concluded::default()
    };
    tree.did("root", pattern, Activity::Concluded(end)).outcome = OutcomeKind::Cancelled;
    let words = words(&tree.shown(Format::Svg));
    for told in [
        "Plan with 1 step 0: find the owner",
        "Step 0 result: find the owner Ada owns the mill.",
        "Step 1 failed: read the lost register the model says failed: it is lost",
        "no answer cancelled Stopped: the run was cancelled.",
    ] {
        assert!(words.contains(told), "{told}: {words}");
    }
    let text = tree.shown(Format::Tree);
    assert!(
        text.contains("Step 1 failed: read the lost register"),
        "{text}"
    );
}

#[test]
fn a_long_goal_takes_three_lines_and_ends_in_an_ellipsis() {
    let mut tree = Tree::default();
    let record = tree.step("root", "react", &format!("{LONG} {LONG}"));
    record.activity = Activity::Iterated(call(1));
    let svg = tree.shown(Format::Svg);
    let (_, first) = svg.split_once("class=\"question\"").unwrap();
    let (first, _) = first.split_once("</g>").unwrap();
    assert_eq!(first.matches("class=\"name\"").count(), 3, "{first}");
    assert!(first.contains('…'), "{first}");
    let chart = tree.shown(Format::Mermaid);
    let goal = chart.lines().nth(1).unwrap();
    assert_eq!(goal.matches("<br/>").count(), 2, "{goal}");
    assert!(
        goal.contains("Assess all of the sites") && goal.contains('…'),
        "{goal}"
    );
}

#[test]
fn a_router_s_subagent_says_which_specialist_it_is() {
    let mut tree = Tree::default();
    let goals = ["find what does best".to_owned()];
    let planned = Planned {
        steps: vec![PlanStep {
            goal: goals[0].clone(),
            specialist: "analytics".into(),
            ..PlanStep::default()
        }],
        ..Planned::default()
    };
    tree.did("root", "router", Activity::Planned(planned));
    tree.fan_out("root", &goals, JoinPolicy::All);
    let words = words(&tree.shown(Format::Svg));
    for told in [
        "0: find what does best (to analytics)",
        "find what does best specialist analytics no step done yet",
    ] {
        assert!(words.contains(told), "{told}: {words}");
    }
}
