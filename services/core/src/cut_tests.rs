#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{Finish, ModelFailure, Outcome, ToolOutcome};
use crate::turn::{Situation, Turn};
use agentfleet_schema::config::{AgentPattern, Reasoner, Snapshot, ToolItem};
use agentfleet_schema::records::{
    Activity, CompletionStatus, DecidedBy, FanInRecord, Member, Termination,
};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, PlanStep};
use std::sync::Arc;

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for name in [
        "react",
        "reflexion",
        "plan-then-execute",
        "supervisor",
        "debate",
    ] {
        let reasoners = ["ada", "ben"].map(|name| Reasoner {
            name: name.into(),
            ..Reasoner::default()
        });
        let pattern = AgentPattern {
            name: name.into(),
            reasoners: reasoners.to_vec(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    let tool = ToolItem {
        name: "search".into(),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        ..ToolItem::default()
    };
    snapshot.tools.insert("search".into(), tool);
    snapshot
}

fn request(pattern: &str) -> AgentRequest {
    AgentRequest {
        question: "who owns the mill?".into(),
        session_id: "s".into(),
        pattern: pattern.into(),
        ..AgentRequest::default()
    }
}

/// A session whose plan has one step of a status.
fn planned(status: &str) -> AgentRequest {
    let mut request = request("plan-then-execute");
    request.history.push(AgentStep {
        action: "plan".into(),
        step_type: "plan".into(),
        plan: Some(vec![PlanStep {
            goal: "look it up".into(),
            status: status.into(),
            result: "a result".into(),
            ..PlanStep::default()
        }]),
        ..AgentStep::default()
    });
    request
}

/// A session whose fan-in has its verdict, in the last of its rounds.
fn joined(pattern: &str) -> AgentRequest {
    let mut request = request(pattern);
    request.step = 1;
    request.control.fan_in_step = Some(0);
    request.control.rounds = FleetLimits::default().max_rounds;
    request
}

fn verdict() -> FanInRecord {
    let members = (0..2).map(|index| Member {
        index,
        session: format!("child-{index}").as_str().into(),
        goal: format!("goal {index}"),
        status: CompletionStatus::Answered,
        document: format!("urn:text:{index}"),
        ..Member::default()
    });
    FanInRecord {
        members: members.collect(),
        ..FanInRecord::default()
    }
}

fn turn(request: AgentRequest, native_tools: bool) -> Turn {
    let fan_in = request.control.fan_in_step.map(|_| verdict());
    let situation = Situation {
        now: 0,
        snapshot: Arc::new(snapshot()),
        fleet: Arc::new(FleetLimits::default()),
        native_tools,
        nonce: "nonce".into(),
        fan_in,
    };
    Turn::parse(request, situation).unwrap()
}

fn whole(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ms: 1,
        ..Reply::default()
    })
}

fn cut(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ms: 1,
        cut: true,
        ..Reply::default()
    })
}

fn calling(names: &[&str], cut: bool) -> Input {
    let calls = names
        .iter()
        .map(|name| ((*name).to_owned(), std::collections::BTreeMap::default()));
    Input::ModelReplied(Reply {
        text: "let me see".into(),
        tool_calls: calls.collect(),
        cut,
        ..Reply::default()
    })
}

fn failed() -> Input {
    Input::ModelFailed(ModelFailure::default())
}

/// What was asked of the model and called, and how the step ended.
#[derive(Default)]
struct Played {
    asked: Vec<(Operation, Option<AfterCut>)>,
    called: usize,
    finish: Option<Finish>,
}

impl Played {
    fn finish(&self) -> &Finish {
        self.finish.as_ref().unwrap()
    }

    fn answer(&self) -> (&str, Termination, bool) {
        let Outcome::Answer(answer) = &self.finish().outcome else {
            panic!("no answer: {:?}", self.finish().outcome)
        };
        (&answer.text, answer.termination, answer.partial)
    }

    fn next(&self) -> &AgentRequest {
        let Outcome::Continue(next) = &self.finish().outcome else {
            panic!("it ended: {:?}", self.finish().outcome)
        };
        next
    }
}

fn play(mut turn: Turn, replies: Vec<Input>) -> Played {
    let mut played = Played::default();
    let mut replies = replies.into_iter();
    let mut input = Input::Begin;
    loop {
        input = match turn.resume(input) {
            Order::AskModel(ask) => {
                played.asked.push((ask.operation, ask.cut.clone()));
                let asked = &played.asked;
                replies
                    .next()
                    .unwrap_or_else(|| panic!("no reply to {asked:?}"))
            }
            Order::CallTool(_) => {
                played.called += 1;
                Input::ToolReturned(ToolOutcome {
                    content: "found".into(),
                    ..ToolOutcome::default()
                })
            }
            Order::ReadDocuments(uris) => {
                let texts = uris.iter().map(|uri| Some(format!("text of {uri}")));
                Input::DocumentsRead(texts.collect())
            }
            Order::Finish(finish) => {
                assert_eq!(replies.next(), None, "a reply was not asked for");
                played.finish = Some(*finish);
                return played;
            }
        };
    }
}

/// Every way to an answer that a model writes: the request, whether the model calls tools natively, what
/// stands before the text, and the end of one that is whole.
fn answers() -> Vec<(AgentRequest, bool, &'static str, Termination)> {
    vec![
        (
            request("react"),
            false,
            "Final Answer: ",
            Termination::FinalAnswer,
        ),
        (request("react"), true, "", Termination::FinalAnswer),
        (planned("complete"), false, "", Termination::PlanComplete),
        (
            joined("supervisor"),
            false,
            "",
            Termination::SubagentsComplete,
        ),
        (
            {
                // They disagreed in the last round.
                let mut request = joined("debate");
                request.limits.max_model_calls = Some(20);
                request
            },
            false,
            "",
            Termination::SubagentsComplete,
        ),
    ]
}

/// With the comparison of a debate, which comes before its judgement.
fn after_comparison(request: &AgentRequest, replies: Vec<Input>) -> Vec<Input> {
    let compared = (request.pattern == "debate").then(|| whole(r#"{"agreement": "disagree"}"#));
    compared.into_iter().chain(replies).collect()
}

#[test]
fn an_answer_that_was_cut_is_gone_on_with_once_and_else_given_in_part() {
    for (asked, native, before, ends) in answers() {
        let with = |replies: Vec<Input>| {
            let replies = after_comparison(&asked, replies);
            play(turn(asked.clone(), native), replies)
        };
        let name = format!("{} {native}", asked.pattern);
        let first = format!("{before}The mill is A");
        let played = with(vec![cut(&first), whole("da's.")]);
        assert_eq!(
            played.answer(),
            ("The mill is Ada's.", ends, false),
            "{name}"
        );
        let (_, last) = played.asked.last().unwrap();
        assert_eq!(*last, Some(AfterCut::GoOn(first.clone())), "{name}");

        let parts: [(Vec<Input>, &str); 2] = [
            (vec![cut(&first), cut("da's, as")], "The mill is Ada's, as"),
            (vec![cut(&first), failed()], "The mill is A"),
        ];
        for (replies, text) in parts {
            let played = with(replies);
            let (answer, termination, partial) = played.answer();
            assert!(partial && termination == Termination::ReplyCut, "{name}");
            let told = format!("{text}\n\n---\n\n**Incomplete:** {CUT}.");
            assert_eq!(answer, told, "{name}");
        }
    }
}

#[test]
fn nothing_is_asked_on_that_no_budget_pays_for() {
    let mut poor = planned("complete");
    poor.limits.max_model_calls = Some(3);
    poor.control.spent.model_calls = 2;
    let played = play(turn(poor, false), vec![cut("The mill")]);
    assert_eq!(played.asked.len(), 1);
    let (text, termination, partial) = played.answer();
    assert!(text.starts_with("The mill\n") && partial);
    assert_eq!(termination, Termination::ReplyCut);

    // Where an estimate of its price says so, likewise.
    let mut turn = turn(planned("complete"), false);
    turn.resume(Input::Begin);
    assert!(matches!(turn.resume(cut("The mill")), Order::AskModel(_)));
    let Order::Finish(finish) = turn.cannot_afford("too dear") else {
        panic!("not finished")
    };
    let Outcome::Answer(answer) = finish.outcome else {
        panic!("no answer")
    };
    assert_eq!(answer.termination, Termination::ReplyCut);
}

#[test]
fn who_says_nothing_is_asked_once_more_in_other_words() {
    for (asked, native, before, ends) in answers() {
        let with = |replies: Vec<Input>| {
            let replies = after_comparison(&asked, replies);
            play(turn(asked.clone(), native), replies)
        };
        let name = format!("{} {native}", asked.pattern);
        let text = format!("{before}The mill is Ada's.");
        let played = with(vec![whole(" \n"), whole(&text)]);
        let answer = ("The mill is Ada's.", ends, false);
        assert_eq!(played.answer(), answer, "{name}");
        let (operation, last) = played.asked.last().unwrap();
        assert_eq!(*last, Some(AfterCut::Silence), "{name}");
        let same = played.asked.iter().filter(|(of, _)| of == operation);
        assert_eq!(same.count(), 2, "{name}");
        // Where that fails, it failed: nothing was begun that could stand.
        let played = with(vec![whole(""), failed()]);
        assert!(
            !matches!(&played.finish().outcome, Outcome::Answer(answer) if !answer.partial),
            "{name}"
        );
    }
}

#[test]
fn half_a_comparison_is_no_agreement() {
    const HALF: &str = r#"{"agreement": "agree", "reason": "both say that Ada"#;
    const DISAGREES: &str = r#"{"agreement": "disagree", "reason": "Ben"}"#;
    let compared = |replies: Vec<Input>| {
        let played = play(turn(joined("debate"), false), replies);
        assert_eq!(played.asked[1], (Operation::Compare, Some(AfterCut::Anew)));
        let Activity::Concluded(end) = &played.finish().activity else {
            panic!("it went on")
        };
        let decision = played.finish().decisions[0].clone();
        (end.compared.clone().unwrap().agreed, decision)
    };
    let (agreed, decision) = compared(vec![cut(HALF), cut(HALF), whole("Nobody.")]);
    assert!(!agreed);
    assert_eq!((&*decision.chosen, &*decision.signal), ("disagree", CUT));
    assert_eq!(decision.decided_by, DecidedBy::Fallback);
    let (agreed, decision) = compared(vec![cut(HALF), whole(DISAGREES), whole("Nobody.")]);
    assert!(!agreed);
    assert_eq!(decision.decided_by, DecidedBy::Model);
    // Cut behind the object, it is whole.
    let said = format!("{DISAGREES} I would add that");
    let played = play(
        turn(joined("debate"), false),
        vec![cut(&said), whole("Nobody.")],
    );
    assert_eq!(played.asked.len(), 2);
}

/// Objects that would mean something if their end were made up: the request, the replies before, and the
/// half object.
#[test]
fn half_an_object_is_asked_for_anew_and_says_nothing() {
    let table: Vec<(AgentRequest, Vec<Input>, Operation, &str)> = vec![
        (
            request("supervisor"),
            vec![],
            Operation::Decompose,
            r#"{"thought": "t", "goals": ["one", "two"#,
        ),
        (
            request("plan-then-execute"),
            vec![],
            Operation::PlanCreate,
            r#"{"thought": "t", "steps": [{"goal": "one"}, {"goal": "tw"#,
        ),
        (
            planned("pending"),
            vec![whole("Thought: t\nAction: search\nArgs: {}")],
            Operation::PlanAssess,
            r#"{"status": "complete", "reason": "r", "result": "all of i"#,
        ),
        (
            request("reflexion"),
            vec![whole("Thought: t\nAction: search\nArgs: {}")],
            Operation::Critique,
            r#"{"decision": "go-back", "wrong": "no sour"#,
        ),
        (
            AgentRequest {
                control: {
                    let mut control = joined("supervisor").control;
                    control.rounds = 1;
                    control
                },
                ..joined("supervisor")
            },
            vec![],
            Operation::Review,
            r#"{"decision": "investigate", "goals": ["one", "tw"#,
        ),
        (
            request(""),
            vec![],
            Operation::SelectPattern,
            r#"{"choice": "debate", "signal": "beca"#,
        ),
    ];
    for (asked, before, operation, half) in table {
        let mut replies = before;
        let mut turn = turn(asked, false);
        let mut input = Input::Begin;
        let (mut anew, mut told) = (0, String::new());
        for _ in 0..20 {
            input = match turn.resume(input) {
                Order::AskModel(ask) if ask.operation == operation => {
                    anew += usize::from(ask.cut == Some(AfterCut::Anew));
                    cut(half)
                }
                Order::AskModel(_) if replies.is_empty() => whole("Final Answer: it"),
                Order::AskModel(_) => replies.remove(0),
                Order::CallTool(_) => Input::ToolReturned(ToolOutcome::default()),
                Order::ReadDocuments(uris) => {
                    Input::DocumentsRead(uris.iter().map(|_| Some("text".into())).collect())
                }
                Order::Finish(finish) => {
                    told = format!("{finish:?}");
                    break;
                }
            };
        }
        assert!(anew > 0, "{operation:?} was not asked for anew");
        assert!(!told.is_empty(), "{operation:?} came to no end");
        for invented in [
            "all of i\"",
            "no sour\"",
            "goal: \"tw",
            "chosen: \"debate\"",
        ] {
            assert!(!told.contains(invented), "{operation:?}: {told}");
        }
        assert!(!told.contains("FanOut {"), "{operation:?}: {told}");
    }
}

#[test]
fn half_a_call_is_not_made_and_the_model_is_told() {
    const IMAGINED: &str = "Thought: t\nAction: search\nArgs: {}\nObservation: the mill is Ad";
    let table: Vec<(bool, Input, bool)> = vec![
        (
            false,
            cut("Thought: t\nAction: search\nArgs: {\"query\": \"the mi"),
            false,
        ),
        (false, cut("Thought: t\nAction: sea"), false),
        (false, cut("Thought: it is a long story, and"), false),
        // What was imagined behind it was cut, not the call.
        (false, cut(IMAGINED), true),
        (true, calling(&["search"], true), false),
        (true, calling(&["search", "fetch"], true), true),
        (true, calling(&["search"], false), true),
    ];
    for (native, reply, is_called) in table {
        let shown = format!("{native} {reply:?}");
        let played = play(turn(request("react"), native), vec![reply.clone()]);
        assert_eq!(played.called, usize::from(is_called), "{shown}");
        let step = played.next().history.last().unwrap();
        assert_eq!(step.observation.contains(CUT), !is_called, "{step:?}");

        // The same in a step of a plan, which is asked again at once.
        let mut replies = vec![reply];
        if !is_called {
            replies.push(whole("Thought: t\nAction: search\nArgs: {}"));
        }
        replies.push(whole(
            r#"{"status": "complete", "reason": "r", "result": "it"}"#,
        ));
        let played = play(turn(planned("pending"), native), replies);
        assert_eq!(played.called, 1, "{shown}");
    }
    // Who is cut again and again ends with what there is, and says why.
    let mut tired = request("react");
    (tired.control.state).set_react(|state| state.retries = 2);
    let played = play(turn(tired, true), vec![calling(&["search"], true)]);
    let (text, termination, partial) = played.answer();
    assert!(partial && text.contains(CUT), "{text}");
    assert_eq!(termination, Termination::ReplyCut);
}

#[test]
fn a_step_of_a_plan_whose_result_was_cut_is_complete_in_part() {
    let replies = vec![cut("Final Answer: Ada, who"), cut(" bought it, and")];
    let played = play(turn(planned("pending"), false), replies);
    let plan = played.next().history.last().unwrap().plan.clone().unwrap();
    assert_eq!(plan[0].result, "Ada, who bought it, and");
    assert!(plan[0].partial && plan[0].status == "complete");
}

#[test]
fn other_calls_of_a_reply_are_named_to_the_model() {
    let told = "Not run, because one call is made a turn: fetch, list";
    let calls = || calling(&["search", "fetch", "list"], false);
    let played = play(turn(request("react"), true), vec![calls()]);
    let step = played.next().history.last().unwrap();
    assert!(step.observation.contains(told), "{}", step.observation);

    let assessed = whole("no object");
    let played = play(turn(planned("pending"), true), vec![calls(), assessed]);
    let step = played.next().history.last().unwrap();
    assert!(step.observation.contains(told), "{}", step.observation);

    // Also where the first is none that can be made.
    let unknown = calling(&["serch", "fetch"], false);
    let played = play(turn(request("react"), true), vec![unknown]);
    let step = played.next().history.last().unwrap();
    assert!(step.observation.contains("Not run") && played.called == 0);
}
