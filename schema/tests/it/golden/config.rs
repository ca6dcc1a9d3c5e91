//! Values of the config item fixtures.

use super::{Fixture, exact, reads};
use agentfleet_schema::config::{
    AgentPattern, AgentTaskType, Approval, AvailableTools, Condition, ConfigParam, Constraint,
    DefaultAnswer, Effect, Evidence, EvidenceRun, Gate, Intent, JoinPolicy, McpServer,
    ModelProfile, NamedParam, OAuth, PolicyStep, PromptItem, QueryItem, QueryParameter, RateLimit,
    Reasoner, RoleItem, Specialist, Status, TenantItem, TerminationCriteria, ToolArgument,
    ToolItem, ToolPolicy, ToolService,
};
use agentfleet_schema::{Money, RunLimits};
use std::collections::BTreeMap;

pub(crate) fn fixtures() -> Vec<Fixture> {
    let any = || vec!["*".to_owned()];
    let default_group = || vec!["default".to_owned()];
    let oauth = || OAuth {
        token_url: "https://id.example/token".into(),
        client_id: "fleet".into(),
        client_secret: "${BOOKS}".into(),
        scope: "books.read".into(),
    };
    let bare_pattern = || AgentPattern {
        name: "react".into(),
        ..AgentPattern::default()
    };
    let bare_type = || AgentTaskType {
        name: "general".into(),
        ..AgentTaskType::default()
    };
    let bare_prompt = || PromptItem {
        prompt: "Answer {{ question }}".into(),
        ..PromptItem::default()
    };
    let bare_tool = || ToolItem {
        name: "search".into(),
        kind: "document-search".into(),
        group: default_group(),
        applicable_states: any(),
        ..ToolItem::default()
    };
    vec![
        exact("config/agent-pattern/full", full_pattern()),
        reads("config/agent-pattern/minimal", bare_pattern()),
        reads("config/agent-pattern/nulls", bare_pattern()),
        reads("config/agent-pattern/unknown", pattern()),
        // As the orchestration spec prints it.
        reads(
            "config/agent-pattern/spec",
            AgentPattern {
                name: "react".into(),
                description: "ReACT \u{2014} Reasoning + Acting".into(),
                when_to_use: "Adaptive, good for open-ended tasks".into(),
                ..AgentPattern::default()
            },
        ),
        exact(
            "config/agent-task-type/full",
            AgentTaskType {
                termination: TerminationCriteria {
                    done_when: "each dimension has a finding with its source".into(),
                    max_failures: Some(3),
                },
                profiles: [("supervisor".to_owned(), "large".to_owned())].into(),
                prompts: [("react".to_owned(), "react-of-risk".to_owned())].into(),
                gate: Some(Gate {
                    exchanges: Some(3),
                    constraints: vec![Constraint {
                        phrases: vec!["draft only".into()],
                        without: vec!["mail.send".into()],
                    }],
                }),
                ask_back: true,
                same_tool: Some(2),
                locale: "sk".into(),
                tool_policy: "research".into(),
                most: RunLimits {
                    max_tokens: Some(500_000),
                    ..RunLimits::default()
                },
                exchanges: Some(5),
                fixed: vec!["join".into()],
                limits: all_limits(),
                status: Status::Applied,
                improves: "research".into(),
                evidence: Some(Evidence {
                    runs: 3,
                    terms: vec!["mill".into()],
                    ended: [("timeout".to_owned(), 3)].into(),
                    sessions: vec![EvidenceRun {
                        session: "s-1".into(),
                        question: "Whose is the mill?".into(),
                        ended: "timeout".into(),
                    }],
                }),
                decided_by: "Ada".into(),
                ..task_type()
            },
        ),
        reads("config/agent-task-type/minimal", bare_type()),
        reads("config/agent-task-type/nulls", bare_type()),
        reads("config/agent-task-type/unknown", task_type()),
        reads(
            "config/agent-task-type/spec",
            AgentTaskType {
                name: "risk-assessment".into(),
                description: "Due Diligence / Risk Assessment".into(),
                framing_prompt: "Analyse across financial, reputational, legal and operational \
                 dimensions using structured analytic techniques."
                    .into(),
                valid_patterns: ["supervisor", "plan-then-execute", "react"]
                    .map(String::from)
                    .into(),
                when_to_use: "Multi-dimensional analysis requiring structured assessment".into(),
                ..AgentTaskType::default()
            },
        ),
        // The peer calls the framing `framing`.
        reads(
            "config/agent-task-type/peer",
            AgentTaskType {
                name: "research".into(),
                description: "Research".into(),
                framing_prompt: "Look widely.".into(),
                valid_patterns: vec!["react".into()],
                ..AgentTaskType::default()
            },
        ),
        exact(
            "config/prompt/full",
            PromptItem {
                system: "You are careful.".into(),
                response_type: "json".into(),
                ..bare_prompt()
            },
        ),
        reads("config/prompt/minimal", bare_prompt()),
        reads("config/prompt/nulls", bare_prompt()),
        reads("config/prompt/unknown", bare_prompt()),
        exact(
            "config/tool/full",
            ToolItem {
                approval: Some(Approval {
                    timeout_ms: 3_600_000,
                    default: DefaultAnswer::Approve,
                    reason: "it costs".into(),
                }),
                repeatable: true,
                parameters: Some(serde_json::json!({
                    "type": "object",
                    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "maximum": 50}},
                    "required": ["query"],
                })),
                aliases: BTreeMap::from([("query".into(), vec!["q".into()])]),
                headers: BTreeMap::from([("x-key".into(), "${SEARCH_KEY}".into())]),
                oauth: Some(oauth()),
                body: Some(serde_json::json!({"q": "{query}"})),
                allow_hosts: vec!["cdn.example.org".into()],
                result: Some("/data".into()),
                outputs: BTreeMap::from([("book_id".into(), "/0/id".into())]),
                sparql: Some("SELECT * {?s ?p ?query}".into()),
                server: Some("catalogue".into()),
                tool: Some("search".into()),
                resource: Some("catalogue://{query}".into()),
                pattern: Some("react".into()),
                specialist: Some("legal".into()),
                service: Some("sums".into()),
                extra: BTreeMap::from([("precision".into(), 2.into())]),
                effect: Some(Effect::Destructive),
                permission: Some("search.run".into()),
                retries: Some(2),
                rate_limit: Some(RateLimit {
                    calls: 10,
                    per_ms: 60_000,
                }),
                ..tool()
            },
        ),
        reads("config/tool/minimal", bare_tool()),
        reads("config/tool/nulls", bare_tool()),
        reads(
            "config/tool/unknown",
            ToolItem {
                extra: BTreeMap::from([(
                    "from_a_newer_version".into(),
                    serde_json::json!({"deep": [1, null]}),
                )]),
                ..tool()
            },
        ),
        // As TrustGraph has it.
        reads(
            "config/tool/service",
            ToolItem {
                name: "Tell a joke".into(),
                description: "Tells a joke".into(),
                kind: "tool-service".into(),
                service: Some("joke".into()),
                arguments: vec![ToolArgument {
                    name: "topic".into(),
                    kind: "string".into(),
                    description: "What it is about".into(),
                    required: true,
                }],
                extra: BTreeMap::from([("style".into(), "pun".into())]),
                ..bare_tool()
            },
        ),
        exact(
            "config/tool-service/full",
            ToolService {
                id: "sums".into(),
                description: "Adds".into(),
                request_queue: "request:tg:sums".into(),
                response_queue: "persistent://tg/response/sums".into(),
                config_params: vec![
                    NamedParam::Name("style".into()),
                    NamedParam::Param(ConfigParam {
                        name: "precision".into(),
                        required: true,
                    }),
                ],
            },
        ),
        reads(
            "config/tool-service/peer",
            ToolService {
                id: "joke".into(),
                request_queue: "non-persistent://tg/request/joke".into(),
                response_queue: "non-persistent://tg/response/joke".into(),
                config_params: vec![NamedParam::Param(ConfigParam {
                    name: "style".into(),
                    required: false,
                })],
                ..ToolService::default()
            },
        ),
        reads(
            "config/tool/peer",
            ToolItem {
                description: "Ask the graph".into(),
                kind: "knowledge-query".into(),
                applicable_states: vec!["undefined".into()],
                ..bare_tool()
            },
        ),
        exact(
            "config/model-profile/full",
            ModelProfile {
                model: "a-model".into(),
                fallbacks: vec!["anthropic:another".into()],
                temperature: Some(0.25),
                max_tokens: Some(4_096),
                context_window: Some(32_000),
                input_price: Some(1.5),
                output_price: Some(6.0),
            },
        ),
        exact(
            "config/mcp-server/full",
            McpServer {
                name: "catalogue".into(),
                description: "Books".into(),
                url: Some("https://mcp.example/mcp".into()),
                headers: [("authorization".to_owned(), "Bearer ${BOOKS}".to_owned())].into(),
                oauth: Some(oauth()),
                command: Some("uvx".into()),
                args: vec!["a-server".into()],
                env: [("API_KEY".to_owned(), "${BOOKS}".to_owned())].into(),
            },
        ),
        exact(
            "config/role/full",
            RoleItem {
                name: "support".into(),
                description: "Helps".into(),
                may: vec!["session.*".into()],
                permissions: vec!["mail.*".into()],
                approves: vec!["mail.send".into()],
                tenants: vec!["acme".into()],
            },
        ),
        exact(
            "config/tenant/full",
            TenantItem {
                name: "acme".into(),
                description: "A customer".into(),
                runs_per_month: Some(1_000),
                tokens_per_month: Some(5_000_000),
                cost_per_month: Some(Money::of(99.5)),
            },
        ),
        exact(
            "config/intent/full",
            Intent {
                name: "knowledge_query".into(),
                description: "facts".into(),
            },
        ),
        exact(
            "config/specialist/full",
            Specialist {
                name: "blog".into(),
                description: "posts".into(),
                prompt: "You work on a blog.".into(),
                tools: vec!["blog_*".into()],
                context: vec!["tenant_type".into()],
                profile: "large".into(),
                exchanges: Some(20),
                tool_policy: "research".into(),
            },
        ),
        exact(
            "config/tool-policy/full",
            ToolPolicy {
                name: "research".into(),
                description: "search first".into(),
                steps: vec![
                    PolicyStep {
                        name: "find".into(),
                        description: "look".into(),
                        is_default: true,
                        available_tools: AvailableTools {
                            allowed: Some(vec!["search*".into()]),
                            denied: vec!["search.all".into()],
                        },
                        ..PolicyStep::default()
                    },
                    PolicyStep {
                        name: "think".into(),
                        conditions: vec![
                            Condition {
                                kind: "tool_used".into(),
                                value: "search".into(),
                            },
                            Condition {
                                kind: "sequence_match".into(),
                                value: String::new(),
                            },
                        ],
                        sequence: vec!["think".into(), "reflect".into()],
                        ..PolicyStep::default()
                    },
                ],
            },
        ),
        reads("config/model-profile/minimal", ModelProfile::default()),
        reads("config/model-profile/nulls", ModelProfile::default()),
        reads(
            "config/model-profile/unknown",
            ModelProfile {
                model: "a-model".into(),
                ..ModelProfile::default()
            },
        ),
        exact("config/query/full", query()),
        reads("config/query/minimal", bare_query()),
        reads("config/query/nulls", bare_query()),
        reads("config/query/unknown", bare_query()),
    ]
}

fn bare_query() -> QueryItem {
    QueryItem {
        sparql: "ASK { ?s ?p ?o }".into(),
        ..QueryItem::default()
    }
}

fn query() -> QueryItem {
    let parameter = |name: &str, kind: &str, description: &str| QueryParameter {
        name: name.into(),
        kind: kind.into(),
        description: description.into(),
        required: false,
        default: None,
    };
    QueryItem {
        description: "Steps of one run that took at least so long, slowest first.".into(),
        parameters: vec![
            QueryParameter {
                required: true,
                ..parameter("session", "session", "The run.")
            },
            QueryParameter {
                default: Some("100".into()),
                ..parameter("least", "integer", "In milliseconds.")
            },
            parameter("since", "date-time", "Only later ones."),
        ],
        sparql: "SELECT ?node ?ms FROM <urn:graph:retrieval> WHERE { ?node prov:wasGeneratedBy \
                 ?session ; tg:modelTimeMs ?ms ; prov:generatedAtTime ?at . FILTER (?ms >= ?least \
                 && (!BOUND(?since) || ?at >= ?since)) } ORDER BY DESC(?ms)"
            .into(),
    }
}

fn limits() -> RunLimits {
    RunLimits {
        max_iterations: Some(3),
        max_subagents: Some(4),
        max_depth: Some(2),
        max_sessions: Some(20),
        max_tokens: Some(100_000),
        subagent_timeout_ms: Some(300_000),
        run_timeout_ms: Some(3_600_000),
        ..RunLimits::default()
    }
}

fn all_limits() -> RunLimits {
    RunLimits {
        max_cost: Some(Money::millionths(2_500_000)),
        max_model_calls: Some(50),
        max_tool_calls: Some(40),
        max_replan_depth: Some(2),
        max_reflections: Some(3),
        ..limits()
    }
}

fn full_pattern() -> AgentPattern {
    AgentPattern {
        parallel: true,
        reasoners: vec![Reasoner {
            name: "sceptic".into(),
            stance: "look for what is wrong".into(),
            pattern: "react".into(),
            profile: "large".into(),
        }],
        min_confidence: Some(0.5),
        exchanges: Some(2),
        limits: all_limits(),
        ..pattern()
    }
}

fn pattern() -> AgentPattern {
    AgentPattern {
        name: "supervisor".into(),
        description: "decomposition, fan-out, synthesis".into(),
        when_to_use: "independent dimensions".into(),
        limits: limits(),
        ..AgentPattern::default()
    }
}

fn task_type() -> AgentTaskType {
    AgentTaskType {
        name: "risk-assessment".into(),
        description: "Due diligence".into(),
        framing_prompt: "Analyse by dimension.".into(),
        valid_patterns: vec!["supervisor".into(), "react".into()],
        when_to_use: "several dimensions".into(),
        join: JoinPolicy::AtLeast(2),
        limits: limits(),
        ..AgentTaskType::default()
    }
}

fn tool() -> ToolItem {
    ToolItem {
        name: "search".into(),
        kind: "http".into(),
        description: "Searches".into(),
        arguments: vec![ToolArgument {
            name: "query".into(),
            kind: "string".into(),
            description: "What to look for".into(),
            required: false,
        }],
        group: vec!["default".into(), "finance".into()],
        state: Some("searched".into()),
        applicable_states: vec!["undefined".into(), "searched".into()],
        template: Some("search-prompt".into()),
        collection: Some("dossiers".into()),
        limit: Some(5),
        url: Some("https://example.org/search".into()),
        method: Some("POST".into()),
        side_effects: true,
        approval: None,
        timeout_ms: Some(2_000),
        ..ToolItem::default()
    }
}
