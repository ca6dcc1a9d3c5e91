#![allow(clippy::unwrap_used, clippy::panic)]
use super::publish::MOST_TOLD;
use super::*;
use crate::limits::FleetLimits;
use crate::order::Answer;
use crate::order::{Input, Order, Reply};
use crate::say;
use crate::turn::{Situation, Turn};
use agentfleet_schema::config::{AgentPattern, Snapshot};
use agentfleet_schema::records::{Concluded, Decision, Termination};
use agentfleet_schema::vocabulary::{RDF_TYPE, prov, tg};
use agentfleet_schema::{AgentResponse, MessageId, PatternState, ReactState, RunLimits, Triples};
use std::sync::Arc;

fn snapshot() -> Arc<Snapshot> {
    let mut snapshot = Snapshot {
        version: 4,
        ..Snapshot::default()
    };
    for name in ["react", "supervisor"] {
        let pattern = AgentPattern {
            name: name.into(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    Arc::new(snapshot)
}

fn commit_of(request: AgentRequest, reply: &str, streamed: Streamed) -> Assembled {
    let situation = Situation {
        now: 1_000,
        snapshot: snapshot(),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in: None,
    };
    let mut turn = Turn::parse(request.clone(), situation).unwrap();
    turn.resume(Input::Begin);
    let reply = Reply {
        text: reply.into(),
        ..Reply::default()
    };
    let Order::Finish(finish) = turn.resume(Input::ModelReplied(reply)) else {
        panic!()
    };
    assemble(&Commit {
        finish: *finish,
        streamed,
        calls: vec![Call::Model {
            operation: "agent-react".into(),
            model: "m".into(),
            prompt: String::new(),
            reply: String::new(),
            usage: Usage {
                input_tokens: 7,
                output_tokens: 3,
                cost: 0.0,
                unpriced_calls: 0,
            },
            ms: 1,
            calls_tools: false,
            cut: false,
            ignored: Vec::new(),
            tried: Vec::new(),
        }],
        ..template(request)
    })
}

/// An attempt at a request that has not come to an end.
fn template(request: AgentRequest) -> Commit {
    Commit {
        properties: [
            ("id".to_owned(), "caller-1".to_owned()),
            ("junk".into(), "x".into()),
        ]
        .into(),
        snapshot: snapshot(),
        request,
        request_digest: Digest::of(b"request"),
        nonce: "n1".into(),
        attempt: 1,
        config_version: 4,
        started_at: 900,
        now: 1_000,
        finish: say::time_used_up(),
        wasted: Spent::default(),
        calls: Vec::new(),
        streamed: Streamed::default(),
        responses: topics::AGENT_RESPONSE,
        worked: Box::new(Worked {
            ..Worked::default()
        }),
    }
}

fn root() -> AgentRequest {
    let mut request = AgentRequest {
        question: "q".into(),
        session_id: "root".into(),
        pattern: "react".into(),
        streaming: true,
        ..AgentRequest::default()
    };
    request.control.hard_deadline = 99_000;
    request
}

fn responses(assembled: &Assembled) -> Vec<AgentResponse> {
    assembled
        .record
        .publications
        .iter()
        .filter(|p| p.topic == "agent-response")
        .map(|p| serde_json::from_str(&p.body).unwrap())
        .collect()
}

#[test]
fn an_answer_ends_the_dialog_once_and_carries_the_callers_id() {
    let assembled = commit_of(root(), "Final Answer: it is 4", Streamed::default());
    let responses = responses(&assembled);
    let ends: Vec<_> = responses.iter().filter(|r| r.end_of_dialog).collect();
    assert_eq!(ends.len(), 1, "OR-3");
    assert_eq!(ends[0].content, "it is 4");
    assert_eq!(ends[0].digest, Some(Digest::of(b"it is 4")));
    assert!(
        assembled
            .documents
            .iter()
            .any(|(uri, text)| { Some(uri) == ends[0].document.as_ref() && text == "it is 4" })
    );
    for publication in &assembled.record.publications {
        assert_eq!(publication.properties["id"], "caller-1");
        assert!(!publication.properties.contains_key("junk"));
    }
}

#[test]
fn a_subagent_never_ends_the_dialog_and_leaves_a_completion() {
    let mut child = root();
    child.correlation_id = "corr".into();
    child.parent_session_id = "root".into();
    child.session_id = "child".into();
    child.control.root = "root".into();
    child.control.ancestors = vec![agentfleet_schema::Ancestor {
        session: "root".into(),
        step: 1,
    }];
    let assembled = commit_of(child, "Final Answer: part", Streamed::default());
    assert!(
        responses(&assembled).iter().all(|r| !r.end_of_dialog),
        "OR-3"
    );
    let explain = &assembled.record.publications[0];
    assert_eq!(explain.properties["kind"], "completion");
    assert_eq!(explain.properties["parent-step"], "1");
    let triples: Triples = serde_json::from_str(&explain.body).unwrap();
    assert!(
        triples
            .triples
            .iter()
            .any(|t| { t.p.iri == RDF_TYPE && t.o.iri == tg::SUBAGENT_COMPLETION })
    );
    assert!(
        !assembled
            .record
            .publications
            .iter()
            .any(|p| p.topic == "agent-deadline"),
        "only a root has a hard deadline message"
    );
}

#[test]
fn what_was_streamed_is_not_said_again_and_a_mismatch_is_replaced() {
    let streamed = |answer: &str| Streamed {
        answer: answer.into(),
        answer_chunks: 2,
        ..Streamed::default()
    };
    let same = commit_of(root(), "Final Answer: it is 4", streamed("it is 4"));
    let end = responses(&same)
        .into_iter()
        .find(|r| r.end_of_dialog)
        .unwrap();
    assert_eq!((end.content.as_str(), end.seq), ("", Some(2)));
    assert_eq!(end.message_id, MessageId::of_attempt("n1", "answer"));
    let other = commit_of(root(), "Final Answer: it is 4", streamed("it is 5"));
    let end = responses(&other)
        .into_iter()
        .find(|r| r.end_of_dialog)
        .unwrap();
    assert_eq!((end.content.as_str(), end.seq), ("it is 4", Some(0)));
    assert_ne!(end.message_id, MessageId::of_attempt("n1", "answer"));
}

#[test]
fn a_call_that_was_told_while_it_ran_is_not_said_again_and_another_attempts_call_is() {
    let told = say::action("serch", &BTreeMap::new());
    for (streamed, content, id) in [
        ("", told.as_str(), "action"),
        (told.as_str(), "", "action"),
        // This attempt adopted the call of another.
        ("write(text: \"x\")", told.as_str(), "action-whole"),
    ] {
        let streamed = Streamed {
            action: streamed.into(),
            action_chunks: u32::from(!streamed.is_empty()),
            ..Streamed::default()
        };
        let assembled = commit_of(root(), "Thought: t\nAction: serch\nArgs: {}", streamed);
        let kinds: Vec<_> = responses(&assembled)
            .iter()
            .map(|r| (r.message_type, r.end_of_message))
            .collect();
        assert_eq!(
            kinds,
            [
                (MessageType::Explain, false),
                (MessageType::Thought, true),
                (MessageType::Action, true),
                (MessageType::Observation, true),
            ]
        );
        let action = responses(&assembled).swap_remove(2);
        assert_eq!(action.content, content);
        assert_eq!(action.message_id, MessageId::of_attempt("n1", id));
    }
}

#[test]
fn a_call_that_was_made_before_the_end_is_told_in_the_graph_with_what_is_known_of_it() {
    let mut request = root();
    request.step = 2;
    request.history = vec![agentfleet_schema::AgentStep::default()];
    request.control.derives_from = uris::observation(&"root".into(), 1);
    let made = |result: &str, is_error| Call::Tool {
        name: "write".into(),
        arguments: [("text".to_owned(), "x".to_owned())].into(),
        result: result.into(),
        is_error,
        ms: 7,
        sources: Vec::new(),
        tried: Vec::new(),
        adopted: None,
    };
    let unknown = "started; its end is unknown";
    let mut commit = Commit {
        finish: say::cancelled("the run was cancelled", Termination::Cancelled),
        calls: vec![made("done", false), made(unknown, true)],
        ..template(request)
    };
    let assembled = assemble(&commit);
    let triples: Triples = serde_json::from_str(&assembled.record.publications[0].body).unwrap();
    let has = |s: &str, p: &str, o: &str| {
        let found = |t: &&agentfleet_schema::Triple| t.s.iri == s && t.p.iri == p;
        let objects: Vec<_> = triples.triples.iter().filter(found).collect();
        objects.iter().any(|t| t.o.iri == o || t.o.value == o)
    };
    let session = "root".into();
    let (second, third) = (uris::iteration(&session, 2), uris::iteration(&session, 3));
    let (ok, lost) = (
        uris::observation(&session, 2),
        uris::observation(&session, 3),
    );
    for (s, p, o) in [
        (
            &second,
            prov::WAS_DERIVED_FROM,
            uris::observation(&session, 1).as_str(),
        ),
        (&second, tg::ACTION, "write"),
        (&second, tg::ARGUMENTS, r#"{"text":"x"}"#),
        (&ok, prov::WAS_DERIVED_FROM, &second),
        (&ok, tg::TOOL_DURATION_MS, "7"),
        (&third, prov::WAS_DERIVED_FROM, &ok),
        (&lost, RDF_TYPE, tg::ERROR),
        (&lost, tg::TOOL_ERROR, unknown),
        (&uris::answer(&session), prov::WAS_DERIVED_FROM, &lost),
    ] {
        assert!(has(s, p, o), "{s} {p} {o}");
    }
    assert!(!has(&ok, RDF_TYPE, tg::ERROR));
    let text = (uris::document_of(&ok), "done".to_owned());
    assert!(assembled.documents.contains(&text));
    // An answer tells its calls by its iterations.
    commit.finish = say::failed(ErrorBody::default(), Termination::Error, 0);
    commit.calls.clear();
    let Activity::Concluded(end) = assemble(&commit).record.activity else {
        panic!()
    };
    assert_eq!(end.cut_off, []);
}

#[test]
fn triples_are_published_before_any_child_and_the_fan_out_names_its_synthesis() {
    let mut request = root();
    request.pattern = "supervisor".into();
    let assembled = commit_of(
        request,
        r#"{"thought":"t","goals":["money","law"]}"#,
        Streamed::default(),
    );
    let topics: Vec<_> = assembled
        .record
        .publications
        .iter()
        .map(|p| p.topic.as_str())
        .collect();
    let first_child = topics.iter().position(|t| *t == "agent-request").unwrap();
    let explain = topics.iter().position(|t| *t == "explainability").unwrap();
    let deadlines = topics.iter().filter(|t| **t == "agent-deadline").count();
    assert!(explain < first_child);
    assert_eq!(deadlines, 2, "the root's own and the join's");
    assert_eq!(topics.iter().filter(|t| **t == "agent-request").count(), 2);
    let fan_out = assembled.fan_out.unwrap();
    assert_eq!(fan_out.synthesis_step, 1);
    let synthesis: AgentRequest = serde_json::from_str(&fan_out.synthesis.body).unwrap();
    assert_eq!(synthesis.control.fan_in_step, Some(0));
    assert_eq!(synthesis.step, 1);
    assert_eq!(synthesis.control.spent.tokens, 10);
}

#[test]
fn the_same_commit_tells_the_same_triples_and_reaches_its_question() {
    let a = commit_of(root(), "Thought: t\nFinal Answer: 4", Streamed::default());
    let b = commit_of(root(), "Thought: t\nFinal Answer: 4", Streamed::default());
    assert_eq!(a, b);
    let triples: Triples = serde_json::from_str(&a.record.publications[0].body).unwrap();
    let mut at = uris::answer(&"root".into());
    let question = uris::question(&"root".into());
    for _ in 0..10 {
        if at == question {
            return;
        }
        let derived = triples
            .triples
            .iter()
            .find(|t| t.s.iri == at && t.p.iri == prov::WAS_DERIVED_FROM)
            .unwrap_or_else(|| panic!("PV-1: {at} derives from nothing"));
        at.clone_from(&derived.o.iri);
    }
    panic!("PV-1: the chain never ends");
}

#[test]
fn what_was_streamed_with_a_gap_is_said_again_whole() {
    let streamed = Streamed {
        answer: "it is".into(),
        answer_chunks: 2,
        ..Streamed::default()
    };
    for (has_gap, seq, content) in [(false, 2, " 4"), (true, 0, "it is 4")] {
        let streamed = Streamed {
            has_gap,
            ..streamed.clone()
        };
        let assembled = commit_of(root(), "Final Answer: it is 4", streamed);
        let responses = responses(&assembled);
        let end = responses.iter().find(|r| r.end_of_dialog).unwrap();
        assert_eq!((end.seq, end.content.as_str()), (Some(seq), content));
    }
}

#[test]
fn responses_go_where_the_commit_says_and_carry_what_is_short_enough() {
    let mut commit = template(root());
    commit.responses = Topic::named("replies-1");
    let long = "x".repeat(property::MAX_CARRIED + 1);
    commit.properties = [
        ("id".to_owned(), "caller-1".to_owned()),
        ("traceparent".to_owned(), long),
    ]
    .into();
    let record = assemble(&commit).record;
    let topics: Vec<&str> = record
        .publications
        .iter()
        .map(|p| p.topic.as_str())
        .collect();
    assert!(topics.contains(&"replies-1") && !topics.contains(&"agent-response"));
    for publication in &record.publications {
        assert_eq!(publication.properties["id"], "caller-1");
        assert!(!publication.properties.contains_key("traceparent"));
    }
}

/// The end of a session that was asked in a request, with an answer in one call of a model.
fn answered(request: AgentRequest, calls: Vec<Call>, text: &str) -> StepRecord {
    let (finish, worked) = (
        Finish {
            activity: Activity::Concluded(Concluded::default()),
            outcome: Outcome::Answer(Answer {
                text: text.to_owned(),
                termination: Termination::FinalAnswer,
                partial: false,
            }),
            routed: None,
            decisions: Vec::new(),
            said: Vec::new(),
        },
        Box::new(Worked {
            came_at: Some(600),
            ..Worked::default()
        }),
    );
    let commit = Commit {
        finish,
        calls,
        worked,
        ..template(request)
    };
    assemble(&commit).record
}

#[test]
fn what_is_too_much_for_one_message_is_told_in_several() {
    let options: Vec<String> = (0..100).map(|n| format!("option-{n}")).collect();
    let decision = |n: usize| Decision {
        subject: format!("subject-{n}"),
        options: options.clone(),
        chosen: "option-1".into(),
        ..Decision::default()
    };
    let record = |decisions: usize| {
        let mut commit = template(AgentRequest {
            session_id: "s".into(),
            ..AgentRequest::default()
        });
        commit.finish.decisions = (0..decisions).map(decision).collect();
        assemble(&commit).record
    };
    assert_eq!(record(2).provenance().count(), 1);
    let record = record(200);
    let messages: Vec<_> = record.provenance().collect();
    assert!(messages.len() > 2, "{}", messages.len());
    let mut told = Vec::new();
    for message in &messages {
        assert!(
            message.body.len() < MOST_TOLD + MOST_TOLD / 10,
            "{}",
            message.body.len()
        );
        assert_eq!(message.properties, messages[0].properties);
        let message: Triples = serde_json::from_str(&message.body).unwrap();
        told.extend(message.triples);
    }
    assert_eq!(told, provenance::tell(&record).triples);
}

fn search(uris: &[&str]) -> Call {
    let sources = uris.iter().map(|uri| Source {
        uri: (*uri).to_owned(),
        title: String::new(),
    });
    Call::Tool {
        name: "search".into(),
        arguments: BTreeMap::new(),
        result: String::new(),
        is_error: false,
        ms: 1,
        sources: sources.collect(),
        tried: Vec::new(),
        adopted: None,
    }
}

fn objects(record: &StepRecord, property: &str) -> Vec<String> {
    let told = provenance::tell(record).triples;
    let of_property = told.into_iter().filter(|triple| triple.p.iri == property);
    of_property
        .map(|triple| format!("{}{}", triple.o.iri, triple.o.value))
        .collect()
}

#[test]
fn an_answer_tells_what_it_cites_what_was_only_read_and_that_nothing_was() {
    let request = |sources: &[&str], step| {
        let mut request = AgentRequest {
            session_id: "s".into(),
            step,
            ..AgentRequest::default()
        };
        if let Call::Tool { sources, .. } = search(sources) {
            request.control.sources = sources;
        }
        request
    };
    let text = "So it is (urn:doc:a).";
    let none: &[&str] = &[];
    for (request, calls, cites, consulted, unsourced) in [
        (request(none, 0), vec![], none, none, &["true"][..]),
        (
            request(&["urn:doc:a"], 1),
            vec![search(&["urn:doc:b", "urn:doc:a"])],
            &["urn:doc:a"],
            &["urn:doc:b"],
            none,
        ),
    ] {
        let record = answered(request, calls, text);
        assert_eq!(objects(&record, tg::CITES), cites);
        assert_eq!(objects(&record, tg::CONSULTED), consulted);
        assert_eq!(objects(&record, tg::UNSOURCED), unsourced);
        let derived = objects(&record, prov::WAS_DERIVED_FROM);
        assert!(cites.iter().all(|uri| derived.iter().any(|d| d == uri)));
        assert!(!derived.iter().any(|d| d == "urn:doc:b"), "{derived:?}");
    }
}

#[test]
fn a_session_begins_with_its_first_attempt() {
    let record = answered(
        AgentRequest {
            session_id: "s".into(),
            ..AgentRequest::default()
        },
        Vec::new(),
        "x",
    );
    assert!(record.started_at > 600);
    let began = provenance::date_time(600);
    assert_eq!(objects(&record, prov::STARTED_AT_TIME), [began]);
}

/// Every number in a value, by its place.
fn numbers(at: String, value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(_) => found.push(at),
        serde_json::Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                numbers(format!("{at}/{n}"), item, found);
            }
        }
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                numbers(format!("{at}/{name}"), field, found);
            }
        }
        _ => {}
    }
}

/// A request in which every field that holds a number has one.
fn numbered(pattern: &str) -> serde_json::Value {
    let mut request = AgentRequest {
        pattern: pattern.into(),
        step: 1,
        expected_siblings: 1,
        limits: RunLimits {
            max_iterations: Some(9),
            max_subagents: Some(9),
            max_depth: Some(9),
            max_sessions: Some(99),
            max_tokens: Some(1_000_000),
            max_cost: Some(agentfleet_schema::Money::of(9.0)),
            max_model_calls: Some(99),
            max_tool_calls: Some(99),
            max_replan_depth: Some(9),
            max_reflections: Some(9),
            subagent_timeout_ms: Some(9_000),
            run_timeout_ms: Some(99_000),
        },
        ..root()
    };
    let control = &mut request.control;
    (control.index, control.rounds) = (1, 1);
    control.state = PatternState::React(ReactState {
        retries: 1,
        repeats: 1,
        reflections: 1,
    });
    (control.started_at, control.after, control.fan_in_step) = (1, 1, None);
    control.config_version = Some(4);
    control.spent = Spent {
        tokens: 9,
        cost: agentfleet_schema::Money::of(0.1),
        model_calls: 1,
        tool_calls: 1,
        unpriced_calls: 0,
    };
    control.ancestors = vec![agentfleet_schema::Ancestor::default()];
    control.lineage = vec![agentfleet_schema::Lineage::default()];
    serde_json::to_value(request).unwrap()
}

#[test]
fn no_number_of_a_request_leaves_the_range_of_its_sums() {
    let two =
        r#"{"thought":"two sides","goals":[{"goal":"Look at money."},{"goal":"Look at law"}]}"#;
    let extremes = [
        serde_json::json!(0),
        serde_json::json!(u32::MAX),
        serde_json::json!(i64::MAX),
        serde_json::json!(i64::MIN),
        serde_json::json!(u64::MAX),
        serde_json::json!(1e300),
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize
    };
    let mut worked = 0;
    for (pattern, reply) in [("react", "Final Answer: 4"), ("supervisor", two)] {
        let whole = numbered(pattern);
        let mut places = Vec::new();
        numbers(String::new(), &whole, &mut places);
        assert!(places.len() > 25, "{places:?}");
        // Alone, then a few at once.
        for case in 0..1_500 {
            let mut json = whole.clone();
            let mut put = Vec::new();
            for n in 0..=(if case < 300 { 0 } else { next() % 4 }) {
                let extreme = extremes[next() % extremes.len()].clone();
                let alone = case < 300 && n == 0;
                let place = &places[if alone { case } else { next() } % places.len()];
                put.push(format!("{place} = {extreme}"));
                *json.pointer_mut(place).unwrap() = extreme;
            }
            // What no field of that type holds is refused at the door.
            let Ok(mut request) = serde_json::from_value::<AgentRequest>(json) else {
                continue;
            };
            let fleet = FleetLimits::default();
            crate::limits::accept(&mut request, &snapshot(), &fleet, 1_000);
            let deadline = request.control.hard_deadline;
            assert!(
                deadline > 0 && deadline <= agentfleet_schema::FAR,
                "{put:?}"
            );
            let limits = crate::limits::Limits::of(&request, &snapshot(), &fleet);
            let join = limits.join_deadline(1_000, deadline);
            assert!(join.is_none_or(|join| join >= 1_000), "{put:?}");
            let situation = Situation {
                now: 1_000.max(request.control.after),
                snapshot: snapshot(),
                fleet: Arc::new(fleet),
                native_tools: false,
                nonce: "nonce".into(),
                fan_in: None,
            };
            let mut turn = Turn::parse(request.clone(), situation).unwrap();
            let mut step = turn.resume(Input::Begin);
            if let Order::AskModel(_) = step {
                let usage = Usage {
                    input_tokens: u64::MAX,
                    output_tokens: u64::MAX,
                    cost: f64::MAX,
                    unpriced_calls: 0,
                };
                step = turn.resume(Input::ModelReplied(Reply {
                    text: reply.into(),
                    usage,
                    ms: u64::MAX,
                    ..Reply::default()
                }));
            }
            let Order::Finish(finish) = step else {
                continue;
            };
            worked += 1;
            let made = assemble(&Commit {
                finish: *finish,
                started_at: 1_000.max(request.control.after),
                ..template(request)
            });
            for publication in &made.record.publications {
                assert!(publication.deliver_at.is_none_or(|at| at > 0), "{put:?}");
            }
        }
    }
    assert!(worked > 300, "{worked}");
}

#[test]
fn a_request_of_megabytes_ends_in_messages_that_any_broker_takes() {
    for question in [
        "x".repeat(2_200_000),
        "\"".repeat(1_200_000),
        "\u{1}".repeat(900_000),
    ] {
        let request = AgentRequest {
            question,
            conversation_id: "c".repeat(800_000).into(),
            collection: "c".repeat(800_000).into(),
            ..root()
        };
        let error = crate::error::body(crate::error::Code::QuestionTooLong, "too long", "");
        let assembled = assemble(&Commit {
            finish: say::failed(error, Termination::Error, 0),
            ..template(request)
        });
        for publication in &assembled.record.publications {
            assert!(publication.body.len() <= 4 << 20, "{}", publication.topic);
            let properties = publication.properties.values();
            assert!(properties.map(String::len).sum::<usize>() < 4_096);
        }
    }
}

#[test]
fn a_synthesis_carries_the_correlation_that_it_answers_and_its_session_keeps_its_own() {
    let mut request = AgentRequest {
        pattern: "supervisor".into(),
        correlation_id: "above".into(),
        parent_session_id: "top".into(),
        ..root()
    };
    request.control.ancestors = vec![agentfleet_schema::Ancestor {
        session: "top".into(),
        step: 1,
    }];
    let goals = r#"{"thought": "two", "goals": ["a", "b"]}"#;
    let fan_out = commit_of(request, goals, Streamed::default())
        .fan_out
        .unwrap();
    let of_fan_out = CorrelationId::of_fan_out(&"root".into(), 0);
    let synthesis: AgentRequest = serde_json::from_str(&fan_out.synthesis.body).unwrap();
    assert_eq!(synthesis.correlation_id, of_fan_out);
    assert_eq!(fan_out.synthesis.properties["correlation"], "above");
    let ended = assemble(&template(synthesis));
    let own = CorrelationId::of_fan_out(&"top".into(), 1);
    assert_eq!(ended.record.parent.unwrap().correlation, own);
}

#[test]
fn a_completion_tells_its_error_and_a_run_its_conversation_and_config() {
    let mut child = root();
    child.correlation_id = "corr".into();
    child.parent_session_id = "top".into();
    child.conversation_id = "talk".into();
    child.control.ancestors = vec![agentfleet_schema::Ancestor {
        session: "top".into(),
        step: 1,
    }];
    let error = crate::error::body(crate::error::Code::ModelFailed, "no model", "");
    let ended = assemble(&Commit {
        finish: say::failed(error, Termination::Error, 0),
        ..template(child)
    });
    let told = provenance::tell(&ended.record).triples;
    let of = |subject: &str, predicate: &str| -> Vec<String> {
        let told = told
            .iter()
            .filter(|t| t.s.iri == subject && t.p.iri == predicate);
        told.map(|t| format!("{}{}", t.o.iri, t.o.value)).collect()
    };
    let completion = uris::completion(&"root".into());
    assert_eq!(of(&completion, tg::ERROR_MESSAGE), ["no model"]);
    let answer = uris::answer_document(&"root".into());
    assert_eq!(of(&answer, tg::CONVERSATION_ID), ["talk"]);
    let pattern = uris::pattern("react");
    assert_eq!(of(&pattern, tg::CONFIG_VERSION), ["4"]);
    assert_eq!(
        of(&pattern, agentfleet_schema::vocabulary::RDFS_LABEL),
        ["react"]
    );
}

#[test]
fn a_record_is_stored_without_what_it_tells_and_read_with_it() {
    // What looks like the member that is filled in, within a text before it and one after it.
    let trap = r#"{"publications":[]} and "publications":[]"#;
    let mut commit = template(AgentRequest {
        session_id: "s".into(),
        question: trap.into(),
        ..AgentRequest::default()
    });
    commit.finish.decisions = vec![Decision {
        subject: "trap".into(),
        rationale: trap.into(),
        ..Decision::default()
    }];
    *commit.worked = Worked {
        request: Some(trap.into()),
        ..Worked::default()
    };
    for decisions in [1, 300] {
        let first = commit.finish.decisions[0].clone();
        commit.finish.decisions = (0..decisions)
            .map(|n| Decision {
                subject: format!("trap-{n}"),
                rationale: trap.repeat(200),
                ..first.clone()
            })
            .collect();
        let assembled = assemble(&commit);
        let whole = serde_json::to_vec(&assembled.record).unwrap();
        let stored = StepRecord::stored(assembled.bare, &assembled.record.publications);
        assert!(stored.len() < whole.len());
        assert_eq!(audit::identity(&stored), audit::identity(&whole));
        let bodies = serde_json::from_slice::<StepRecord>(&stored).unwrap();
        assert!(bodies.provenance().all(|message| message.body.is_empty()));
        assert_eq!(read_whole(&stored).unwrap(), assembled.record);
    }
}
