//! Values of the message fixtures.

use super::{Fixture, exact, reads};
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::ForkedFrom;
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::{RDF_TYPE, prov, tg, xsd};
use agentfleet_schema::{
    AgentRequest, AgentResponse, AgentStep, Ancestor, Brief, Digest, ErrorBody, Exchange, HeldCall,
    Known, Lineage, Memory, MessageType, Metadata, Money, PatternState, PlanState, PlanStep,
    PolicyPosition, Principal, QuotaLeft, ReactState, RoutingContext, RunControl, RunLimits,
    SessionId, Spent, Term, TermType, ToolServiceRequest, ToolServiceResponse, Triple, Triples,
};
use serde_json::json;

pub(crate) fn fixtures() -> Vec<Fixture> {
    [requests(), steps(), responses(), rdf(), services()]
        .into_iter()
        .flatten()
        .collect()
}

fn services() -> Vec<Fixture> {
    vec![
        exact(
            "messages/tool-service-request/full",
            ToolServiceRequest {
                config: r#"{"style": "pun"}"#.into(),
                arguments: r#"{"topic": "cats"}"#.into(),
            },
        ),
        exact(
            "messages/tool-service-response/full",
            ToolServiceResponse {
                error: Some(ErrorBody {
                    code: "tool-service-error".into(),
                    message: "no joke about that".into(),
                    hint: Some("ask for less".into()),
                }),
                response: "Why did".into(),
                end_of_stream: true,
            },
        ),
        // As TrustGraph writes it.
        reads(
            "messages/tool-service-response/peer",
            ToolServiceResponse {
                response: "Why did".into(),
                end_of_stream: true,
                ..ToolServiceResponse::default()
            },
        ),
    ]
}

fn requests() -> Vec<Fixture> {
    let default = AgentRequest::default;
    vec![
        exact("messages/agent-request/full", request_with_budget()),
        exact(
            "messages/agent-request/revising",
            AgentRequest {
                control: RunControl {
                    state: PatternState::Plan(PlanState {
                        replans: 1,
                        replan: "step 1 failed".into(),
                    }),
                    ..RunControl::default()
                },
                ..default()
            },
        ),
        exact("messages/agent-request/default", default()),
        reads("messages/agent-request/minimal", default()),
        reads("messages/agent-request/nulls", default()),
        reads("messages/agent-request/unknown", without_fork()),
        reads(
            "messages/agent-request/alias",
            AgentRequest {
                question: "q".into(),
                framing: "by dimension".into(),
                ..default()
            },
        ),
        reads(
            "messages/agent-request/nulls-inside",
            AgentRequest {
                history: vec![AgentStep {
                    plan: Some(vec![PlanStep::default()]),
                    ..step_default()
                }],
                control: RunControl {
                    root: "r".into(),
                    ..RunControl::default()
                },
                ..default()
            },
        ),
        reads(
            "messages/agent-request/peer-new",
            AgentRequest {
                question: "Who founded ACME?".into(),
                conversation_id: "talk-7".into(),
                streaming: true,
                ..default()
            },
        ),
        reads(
            "messages/agent-request/peer-next",
            AgentRequest {
                question: "Who founded ACME?".into(),
                state: "undefined".into(),
                group: Some(vec!["default".into(), "research".into()]),
                history: vec![AgentStep {
                    thought: "I need the \u{201c}founder\u{201d}".into(),
                    action: "knowledge-query".into(),
                    arguments: [
                        ("question", "founder of ACME"),
                        ("strict", "True"),
                        ("limit", "5"),
                        ("filter", "None"),
                        ("fields", "['name', 'year']"),
                    ]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                    observation: "Wile E. Coyote, 1949".into(),
                    plan: Some(Vec::new()),
                    subagent_results: Some([].into()),
                    ..step_default()
                }],
                collection: "acme".into(),
                streaming: true,
                session_id: "8d1f9c1e-1111-4222-8333-444455556666".into(),
                pattern: "react".into(),
                ..default()
            },
        ),
        reads(
            "messages/agent-request/peer-subagent",
            AgentRequest {
                question: "Analyse financial health of Company X".into(),
                session_id: "0a0b0c0d-1111-4222-8333-444455556666".into(),
                pattern: "react".into(),
                task_type: "risk-assessment".into(),
                framing: "Analyse across dimensions.".into(),
                correlation_id: "corr-abc123".into(),
                parent_session_id: "8d1f9c1e-1111-4222-8333-444455556666".into(),
                subagent_goal: "Analyse financial health of Company X".into(),
                expected_siblings: 4,
                ..default()
            },
        ),
        reads(
            "messages/agent-request/peer-synthesise",
            AgentRequest {
                question: "Assess Company X".into(),
                history: vec![AgentStep {
                    thought: "All subagents completed".into(),
                    action: "aggregate".into(),
                    observation: "{\"look at money\": \"solid\"}".into(),
                    step_type: "synthesise".into(),
                    plan: Some(Vec::new()),
                    subagent_results: Some([("look at money".to_owned(), json!("solid"))].into()),
                    ..step_default()
                }],
                session_id: "8d1f9c1e-1111-4222-8333-444455556666".into(),
                pattern: "supervisor".into(),
                ..default()
            },
        ),
    ]
}

fn steps() -> Vec<Fixture> {
    vec![
        exact("messages/agent-step/full", step()),
        exact("messages/agent-step/default", step_default()),
        reads("messages/agent-step/minimal", step_default()),
        reads("messages/agent-step/nulls", step_default()),
        reads("messages/agent-step/unknown", step()),
        reads(
            "messages/agent-step/json-arguments",
            AgentStep {
                action: "search".into(),
                arguments: [
                    ("text", "plain"),
                    ("flag", "true"),
                    ("count", "3"),
                    ("ratio", "0.5"),
                    ("none", ""),
                    ("list", "[\"a\",1]"),
                    ("object", "{\"k\":null}"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
                ..step_default()
            },
        ),
        reads(
            "messages/agent-step/peer",
            AgentStep {
                thought: "Executing plan step 0: find it".into(),
                action: "search".into(),
                arguments: [("query".to_owned(), "['a', 'b']".to_owned())].into(),
                observation: "found".into(),
                step_type: "execute".into(),
                plan: Some(vec![PlanStep {
                    goal: "find it".into(),
                    tool_hint: "search".into(),
                    depends_on: vec![],
                    status: "completed".into(),
                    result: "found".into(),
                    ..PlanStep::default()
                }]),
                subagent_results: Some([].into()),
                ..step_default()
            },
        ),
        exact(
            "messages/plan-step/full",
            PlanStep {
                specialist: "blog".into(),
                partial: true,
                ..plan_step()
            },
        ),
        exact("messages/plan-step/default", PlanStep::default()),
        reads("messages/plan-step/minimal", PlanStep::default()),
        reads("messages/plan-step/nulls", PlanStep::default()),
        reads("messages/plan-step/unknown", plan_step()),
        reads(
            "messages/plan-step/peer",
            PlanStep {
                goal: "find it".into(),
                status: "pending".into(),
                ..PlanStep::default()
            },
        ),
    ]
}

fn responses() -> Vec<Fixture> {
    let default = AgentResponse::default;
    let session = "urn:trustgraph:agent:8d1f9c1e";
    vec![
        exact("messages/agent-response/full", response()),
        exact("messages/agent-response/default", default()),
        exact(
            "messages/agent-response/chunk",
            AgentResponse {
                message_type: MessageType::Thought,
                content: "Look at".into(),
                message_id: "m1".into(),
                session_id: "s1".into(),
                root_session_id: "r1".into(),
                seq: Some(0),
                ..default()
            },
        ),
        exact(
            "messages/agent-response/action",
            AgentResponse {
                message_type: MessageType::Action,
                content: "search(query: \"lock gate\")".into(),
                end_of_message: true,
                message_id: "m2".into(),
                session_id: "s1".into(),
                root_session_id: "r1".into(),
                step: Some(1),
                seq: Some(0),
                ..default()
            },
        ),
        reads("messages/agent-response/minimal", default()),
        reads("messages/agent-response/nulls", default()),
        reads("messages/agent-response/unknown", without_subagents()),
        reads(
            "messages/agent-response/newer-type",
            AgentResponse {
                content: "?".into(),
                ..default()
            },
        ),
        reads(
            "messages/agent-response/final-answer-alias",
            AgentResponse {
                message_type: MessageType::Answer,
                content: "42".into(),
                ..default()
            },
        ),
        reads(
            "messages/agent-response/peer-thought",
            AgentResponse {
                message_type: MessageType::Thought,
                content: "I need to \u{2192} look".into(),
                end_of_message: true,
                message_id: format!("{session}/i1/thought").into(),
                ..default()
            },
        ),
        reads(
            "messages/agent-response/peer-explain",
            AgentResponse {
                message_type: MessageType::Explain,
                explain_id: Some(session.to_owned()),
                explain_graph: Some(RETRIEVAL_GRAPH.to_owned()),
                explain_triples: vec![Triple::new(
                    session,
                    RDF_TYPE,
                    Term::iri(tg::AGENT_QUESTION),
                )],
                ..default()
            },
        ),
        reads(
            "messages/agent-response/peer-end",
            AgentResponse {
                message_type: MessageType::Answer,
                end_of_message: true,
                end_of_dialog: true,
                message_id: format!("{session}/final").into(),
                in_token: Some(1200),
                out_token: Some(80),
                model: Some("a-model".into()),
                ..default()
            },
        ),
        reads(
            "messages/agent-response/peer-error",
            AgentResponse {
                message_type: MessageType::Error,
                content: "no such model".into(),
                end_of_message: true,
                end_of_dialog: true,
                error: Some(ErrorBody {
                    code: "agent-error".into(),
                    message: "no such model".into(),
                    hint: None,
                }),
                ..default()
            },
        ),
    ]
}

fn rdf() -> Vec<Fixture> {
    let question = "urn:trustgraph:agent:s";
    let told = Triples {
        metadata: Metadata {
            id: question.into(),
            root: String::new(),
            collection: "acme".into(),
        },
        triples: vec![
            Triple::new(question, RDF_TYPE, Term::iri(tg::QUESTION)),
            Triple::new(question, tg::QUERY, Term::text("Wie hei\u{df}t \"X\"?")),
        ],
    };
    vec![
        exact("messages/term/full", term()),
        exact("messages/term/default", Term::default()),
        exact("messages/term/iri", Term::iri(prov::ENTITY)),
        exact("messages/term/typed", Term::typed("3", xsd::INTEGER)),
        reads("messages/term/minimal", Term::default()),
        reads("messages/term/nulls", Term::default()),
        reads("messages/term/unknown", Term::iri(prov::ENTITY)),
        reads(
            "messages/term/peer-blank",
            Term {
                kind: TermType::Blank,
                id: "b0".into(),
                ..Term::default()
            },
        ),
        reads(
            "messages/term/peer-literal",
            Term::text("plain, numbers too: 3"),
        ),
        exact("messages/triple/full", triple()),
        exact("messages/triple/default", Triple::default()),
        reads("messages/triple/minimal", Triple::default()),
        reads("messages/triple/nulls", Triple::default()),
        reads("messages/triple/unknown", triple()),
        reads(
            "messages/triple/peer",
            Triple::new(question, RDF_TYPE, Term::iri(tg::QUESTION)),
        ),
        exact("messages/triples/full", triples()),
        exact("messages/triples/default", Triples::default()),
        reads("messages/triples/minimal", Triples::default()),
        reads("messages/triples/nulls", Triples::default()),
        reads("messages/triples/unknown", triples()),
        reads("messages/triples/peer", told),
    ]
}

fn step_default() -> AgentStep {
    AgentStep::default()
}

fn limits(n: u32) -> RunLimits {
    RunLimits {
        max_iterations: Some(n),
        max_subagents: Some(n + 1),
        max_depth: Some(n + 2),
        max_sessions: Some(n + 3),
        max_tokens: Some(u64::from(n) + 4),
        subagent_timeout_ms: Some(u64::from(n) + 5),
        run_timeout_ms: Some(u64::from(n) + 6),
        ..RunLimits::default()
    }
}

/// Every field set, none to its default.
fn request() -> AgentRequest {
    AgentRequest {
        question: "Assess the risk profile of Company X as a potential partner".into(),
        state: "searched".into(),
        group: Some(vec!["default".into(), "finance".into()]),
        history: vec![step()],
        user: "ada".into(),
        collection: "dossiers".into(),
        streaming: true,
        session_id: "s-1".into(),
        conversation_id: "talk-1".into(),
        pattern: "supervisor".into(),
        task_type: "risk-assessment".into(),
        framing: "Analyse by dimension.\nSay how sure you are.".into(),
        correlation_id: "corr-abc123".into(),
        parent_session_id: "s-0".into(),
        subagent_goal: "Review legal exposure".into(),
        expected_siblings: 4,
        model: "a-model".into(),
        step: 2,
        limits: limits(10),
        control: RunControl {
            root: "s-0".into(),
            ancestors: vec![Ancestor {
                session: "s-0".into(),
                step: 1,
            }],
            context: "fiscal 2025".into(),
            index: 1,
            fan_in_step: Some(1),
            fan_in_session: "s-9".into(),
            forked_from: Some(ForkedFrom {
                session: "s-9".into(),
                step: 3,
                node: "urn:trustgraph:agent:s-9/routing".into(),
            }),
            config_version: Some(7),
            started_at: 1_767_225_600_000,
            hard_deadline: 1_767_229_200_000,
            after: 1_767_225_600_400,
            spent: Spent {
                tokens: 1_234,
                ..Spent::default()
            },
            rounds: 1,
            state: PatternState::React(ReactState {
                retries: 2,
                repeats: 1,
                reflections: 2,
            }),
            previous: Some(Digest::of(b"previous")),
            derives_from: "urn:trustgraph:agent:s-1/routing".into(),
            ..RunControl::default()
        },
        ..AgentRequest::default()
    }
}

/// What the patterns after the first two hand on, none to its default.
fn request_of_patterns() -> AgentRequest {
    let mut request = request();
    request.routing = RoutingContext {
        tenant_type: "food_bakery".into(),
        active_services: vec!["blog".into()],
        recent_topics: vec!["traffic".into()],
    };
    request.limits.max_replan_depth = Some(2);
    request.limits.max_reflections = Some(3);
    request.control.conversation = vec![Exchange {
        session: "s-0".into(),
        question: "what?".into(),
        answer: "that".into(),
    }];
    request.tool_policy = "research".into();
    request.locale = "sk".into();
    request.control.without = vec!["mail.*".into()];
    request.control.brief = Some(Box::new(Brief {
        intent: "TASK".into(),
        goal: "send Ana a mail".into(),
        entities: [("contacts".to_owned(), vec!["Ana".to_owned()])].into(),
        constraints: vec!["a draft only".into()],
        ambiguities: vec!["which Ana".into()],
        raw_message: "mail ana, draft only".into(),
    }));
    request.control.known = vec![Known {
        name: "contact_id".into(),
        value: "c-1".into(),
        tool: "contact.find".into(),
    }];
    request.control.position = Some(Box::new(PolicyPosition {
        policy: "research".into(),
        step: "think".into(),
        at: 1,
        used: vec!["search".into(), "think".into()],
    }));
    request.control.held = Some(HeldCall {
        approval: "a-1".into(),
        tool: "pay".into(),
        arguments: [("amount".to_owned(), "5".to_owned())].into(),
        thought: "it is due".into(),
        not_run: vec!["search".into()],
        approved: true,
    });
    request.control.specialist = "blog".into();
    request.control.reasoner = "sceptic".into();
    request.control.profile = "large".into();
    for step in request
        .history
        .iter_mut()
        .flat_map(|step| &mut step.plan)
        .flatten()
    {
        step.specialist = "blog".into();
    }
    request
}

/// With an account of everything, none to its default.
fn request_with_budget() -> AgentRequest {
    let mut request = request_of_patterns();
    request.join = Some(JoinPolicy::Quorum);
    request.limits.max_cost = Some(Money::millionths(2_500_000));
    request.limits.max_model_calls = Some(50);
    request.limits.max_tool_calls = Some(40);
    request.control.lineage = vec![Lineage {
        session: "s-9".into(),
        iterations: 3,
    }];
    request.control.principal = Some(Principal {
        name: "ada".into(),
        tenant: "acme".into(),
        permissions: vec!["blog.*".into()],
    });
    request.control.memories = vec![Memory {
        name: "tone".into(),
        value: "friendly".into(),
    }];
    request.control.quota = Some(QuotaLeft {
        month: "2026-11".into(),
        runs: Some(7),
        tokens: Some(40_000),
        cost: Some(Money::millionths(2_500_000)),
    });
    request.control.spent = Spent {
        tokens: 1_234,
        cost: Money::millionths(1_250_000),
        model_calls: 3,
        tool_calls: 2,
        unpriced_calls: 0,
    };
    request
}

/// Of a session that goes on from no other, and names no model.
fn without_fork() -> AgentRequest {
    let mut request = request();
    request.model.clear();
    request.control.fan_in_session = SessionId::default();
    request.control.forked_from = None;
    // What it says there is of no pattern that this version knows.
    request.control.state = PatternState::None;
    request
}

fn step() -> AgentStep {
    AgentStep {
        thought: "two \"sides\"".into(),
        action: "search".into(),
        arguments: [("limit", "3"), ("query", "Company X")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        observation: "line one\nline two \u{2014} \u{1f9ed}".into(),
        user: "ada".into(),
        step_type: "synthesise".into(),
        plan: Some(vec![plan_step()]),
        subagent_results: Some(
            [(
                "Review legal exposure".to_owned(),
                json!({"status": "answered", "document": "urn:trustgraph:agent:s-2/answer/document"}),
            )]
            .into(),
        ),
    }
}

fn plan_step() -> PlanStep {
    PlanStep {
        goal: "find the filings".into(),
        tool_hint: "search".into(),
        depends_on: vec![0, 2],
        status: "complete".into(),
        result: "three filings".into(),
        ..PlanStep::default()
    }
}

fn response() -> AgentResponse {
    AgentResponse {
        message_type: MessageType::Answer,
        content: "Low risk.\n".into(),
        end_of_message: true,
        end_of_dialog: true,
        message_id: "0190c1de-0000-7000-8000-000000000001".into(),
        session_id: "s-1".into(),
        explain_id: Some("urn:trustgraph:agent:s-1/answer".into()),
        explain_graph: Some(RETRIEVAL_GRAPH.into()),
        explain_triples: vec![triple()],
        error: Some(ErrorBody {
            code: "timeout".into(),
            message: "the time of the run is used up".into(),
            hint: Some("ask for less".into()),
        }),
        in_token: Some(1_200),
        out_token: Some(80),
        model: Some("a-model".into()),
        root_session_id: "s-0".into(),
        parent_session_id: "s-0".into(),
        conversation_id: "talk-1".into(),
        subagent_goal: "Review legal exposure".into(),
        subagents: vec!["s-2".into(), "s-3".into()],
        step: Some(3),
        seq: Some(17),
        digest: Some(Digest::of(b"Low risk.\n")),
        document: Some("urn:trustgraph:agent:s-1/answer/document".into()),
    }
}

fn without_subagents() -> AgentResponse {
    AgentResponse {
        subagents: Vec::new(),
        ..response()
    }
}

/// Every field set, as no real term has them: only one group of them applies to each kind.
fn term() -> Term {
    Term {
        kind: TermType::Triple,
        iri: prov::ENTITY.into(),
        id: "b0".into(),
        value: "text".into(),
        datatype: xsd::DATE_TIME.into(),
        language: "en".into(),
        triple: Some(Box::new(triple())),
    }
}

fn triple() -> Triple {
    Triple::new(
        "urn:trustgraph:agent:s-1",
        tg::QUERY,
        Term::text("Why?\n\"because\""),
    )
}

fn triples() -> Triples {
    Triples {
        metadata: Metadata {
            id: "urn:trustgraph:agent:s-1".into(),
            root: "urn:trustgraph:agent:s-0".into(),
            collection: "dossiers".into(),
        },
        triples: vec![
            triple(),
            Triple::new(
                "urn:trustgraph:agent:s-1",
                RDF_TYPE,
                Term::iri(prov::ACTIVITY),
            ),
            Triple::new(
                "urn:trustgraph:agent:s-1",
                prov::STARTED_AT_TIME,
                Term::typed("2026-01-01T00:00:00.000Z", xsd::DATE_TIME),
            ),
        ],
    }
}
