//! Runs to look at: the real core, driven by a queue in memory, a written model and a clock that
//! only counts. Everything a console sees (triples, texts, responses) comes from assembled records.

use agentfleet_core::commit::{Streamed, assemble};
use agentfleet_core::fan_in::{Completion, decide};
use agentfleet_core::provenance::{completion_status, is_partial};
use agentfleet_core::{
    Commit, FleetLimits, Input, ModelAsk, Order, Outcome, Reply, Situation, StreamAs, ToolOutcome,
    ToolUse, Turn,
};
use agentfleet_runtime::client::{Assembler, Event};
use agentfleet_schema::config::{AgentPattern, AgentTaskType, Snapshot, ToolItem};
use agentfleet_schema::records::{Call, FanInRecord, FanOutRecord, OutcomeKind, Source, Usage};
use agentfleet_schema::topics::property;
use agentfleet_schema::vocabulary::{tg, xsd};
use agentfleet_schema::{
    AgentRequest, AgentResponse, Digest, MessageId, MessageType, Millis, Operation, SessionId,
    Spent, Term, Triple, Triples, uris,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// 2026-11-21T09:00:00Z.
pub(crate) const START: Millis = 1_795_251_600_000;

pub(crate) const QUESTION: &str = "Assess the risk profile of Company X as a potential partner";

/// What a run left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) root: SessionId,
    /// In the order of their commits.
    pub(crate) triples: Vec<Triple>,
    pub texts: BTreeMap<String, String>,
    /// In the order of time.
    pub responses: Vec<(Millis, AgentResponse)>,
}

impl Run {
    pub(crate) fn text(&self, uri: &str) -> Option<String> {
        self.texts.get(uri).cloned()
    }

    /// The responses as a follower sees them.
    pub(crate) fn events(&self) -> Vec<(Millis, Event)> {
        let mut assembler = Assembler::default();
        self.responses
            .iter()
            .flat_map(|(at, response)| {
                assembler
                    .take(response)
                    .into_iter()
                    .map(|event| (*at, event))
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

/// What the written model says to a question, and how long it takes.
pub(crate) type Script = fn(&AgentRequest, &ModelAsk) -> (String, u64);

/// The worked example: four subagents, one of them a supervisor itself, one too late.
pub(crate) fn risk() -> Run {
    Fleet::new(risk_script).run(request(QUESTION))
}

/// The same, seen while it is going on.
pub(crate) fn running() -> Run {
    Fleet {
        until: START + 2_200,
        ..Fleet::new(risk_script)
    }
    .run(request(QUESTION))
}

/// One agent, two tools, no fan-out.
pub(crate) fn single() -> Run {
    let mut request = request("When does the supplier contract end?");
    request.pattern = "react".into();
    Fleet::new(single_script).run(request)
}

/// Two rounds, a failed subagent in the first, and texts that try to break out.
pub(crate) fn hostile() -> Run {
    Fleet::new(hostile_script).run(request(
        "Break \"quotes\", <script>alert(1)</script> & `ticks` \u{1b}[31mred\n%%{init: {}}%% #35; 日本語 🚀",
    ))
}

/// A model that fails at once.
pub(crate) fn failed() -> Run {
    let mut request = request("Anything?");
    request.pattern = "react".into();
    Fleet {
        model_fails: true,
        ..Fleet::new(single_script)
    }
    .run(request)
}

fn request(question: &str) -> AgentRequest {
    AgentRequest {
        question: question.into(),
        session_id: SessionId::derive(&["sample", question]),
        conversation_id: "talk-7".into(),
        collection: "partners".into(),
        streaming: true,
        ..AgentRequest::default()
    }
}

fn goals(list: &[(&str, &str)], thought: &str) -> String {
    let goals: Vec<_> = list
        .iter()
        .map(|(goal, pattern)| serde_json::json!({"goal": goal, "pattern": pattern, "context": ""}))
        .collect();
    serde_json::json!({"thought": thought, "goals": goals}).to_string()
}

fn act(thought: &str, tool: &str, arguments: &str) -> String {
    format!("Thought: {thought}\nAction: {tool}\nArgs: {arguments}")
}

const RISK_ANSWER: &str = "\
# Risk profile of Company X

Company X is a **workable partner** with one open point: its operations could not be judged in time.

## Financial health

Confidence: 0.80

Revenue grew by 12 % in fiscal 2025; the current ratio is 1.4. Debt is moderate (Annual report 2025).

| figure | 2024 | 2025 |
|:--|--:|--:|
| revenue, m EUR | 41.2 | 46.1 |
| current ratio | 1.3 | 1.4 |

## Legal exposure

Confidence: 65%

- no sanctions hit
- one pending case, `C-114/25`, of low value

## Reputation

Confidence: 0.55

> Mixed press: praise for service, complaints about delays.

1. Sentiment turned positive in March.
2. Two outlets repeat the same complaint.";

fn risk_script(request: &AgentRequest, ask: &ModelAsk) -> (String, u64) {
    let goal = &request.subagent_goal;
    let nth = request
        .history
        .iter()
        .filter(|s| s.step_type == "react")
        .count();
    let text = match ask.operation {
        Operation::ClassifyTaskType => {
            r#"{"choice":"risk-assessment","signal":"\"assess the risk profile\"","rationale":"The task asks for a risk profile across several dimensions."}"#.into()
        }
        Operation::SelectPattern => {
            r#"{"choice":"supervisor","signal":"scope: four independent dimensions","rationale":"Independent dimensions can be looked into in parallel."}"#.into()
        }
        Operation::Decompose if goal.is_empty() => goals(
            &[
                ("Analyse financial health and stability of Company X", "react"),
                ("Review regulatory filings, sanctions and legal exposure of Company X", "react"),
                ("Analyse news sentiment and public reputation of Company X", "supervisor"),
                ("Assess supply chain dependencies and operational risks of Company X", "react"),
            ],
            "The framing names four dimensions, and none needs another's result.",
        ),
        Operation::Decompose => goals(
            &[
                ("Collect press coverage of Company X", "react"),
                ("Collect customer reviews of Company X", "react"),
            ],
            "Press and customers are different voices.",
        ),
        Operation::Review => {
            r#"{"decision":"answer","signal":"every dimension that can be judged is covered","rationale":"What is missing will not come from asking again."}"#.into()
        }
        Operation::Synthesise if goal.is_empty() => RISK_ANSWER.into(),
        Operation::Synthesise => {
            "Coverage is mixed, and turned positive in March.\n\nConfidence: 0.55".into()
        }
        Operation::React if goal.starts_with("Analyse financial") => match nth {
            0 => act("I need the filings first.", "search", r#"{"query": "Company X annual report 2025", "limit": "5"}"#),
            1 => act("The ratios are in the balance sheet.", "fetch", r#"{"uri": "https://dossier.example/company-x/balance-sheet-2025.csv"}"#),
            _ => "Thought: That is enough.\nFinal Answer: Revenue grew by 12 %, and liquidity is sound.\n\nConfidence: 0.80".into(),
        },
        Operation::React if goal.starts_with("Review regulatory") => match nth {
            0 => act("Sanctions lists come first.", "sanctions-lookup", r#"{"name": "Company X"}"#),
            1 => act("That tool is not there; the library has the filings.", "search", r#"{"query": "Company X regulatory filings sanctions"}"#),
            _ => "Thought: One case is pending.\nFinal Answer: No sanctions hit. One pending case of low value.\n\nConfidence: 0.65".into(),
        },
        Operation::React if goal.starts_with("Assess supply") => match nth {
            0 => act("Suppliers are in the knowledge graph.", "search", r#"{"query": "Company X suppliers"}"#),
            _ => "Thought: Late, but here.\nFinal Answer: One supplier delivers 60 % of the parts.".into(),
        },
        _ => match nth {
            0 => act("Look it up.", "search", &serde_json::json!({"query": goal}).to_string()),
            _ => format!("Thought: Done.\nFinal Answer: What was found on \"{goal}\".\n\nConfidence: 0.50"),
        },
    };
    let slow = if goal.starts_with("Assess supply") {
        5_500
    } else {
        0
    };
    (text, 300 + slow + (goal.len() as u64 * 7) % 400)
}

fn single_script(request: &AgentRequest, _: &ModelAsk) -> (String, u64) {
    let text = match request.history.len() {
        0 => act(
            "Find the contract.",
            "search",
            r#"{"query": "supplier contract"}"#,
        ),
        1 => act(
            "Read it.",
            "fetch",
            r#"{"uri": "https://dossier.example/contract.md"}"#,
        ),
        _ => {
            "Thought: It is in section 9.\nFinal Answer: It ends on **31 March 2027** (section 9)."
                .into()
        }
    };
    (text, 420)
}

fn hostile_script(request: &AgentRequest, ask: &ModelAsk) -> (String, u64) {
    let goal = &request.subagent_goal;
    let text = match ask.operation {
        Operation::ClassifyTaskType => {
            r#"{"choice":"risk-assessment","signal":"</title><x onload=\"y\">]]>","rationale":"--> \" ; end"}"#.into()
        }
        Operation::SelectPattern => r#"{"choice":"supervisor"}"#.into(),
        Operation::Decompose => goals(
            &[
                ("subgraph end\n\"]; click n0 call alert(1) --> %%{init}%%", "react"),
                ("<b>&amp;</b> `back` style: fill:#f00; \u{202e}drow", "react"),
            ],
            "two",
        ),
        Operation::Review => r#"{"decision":"investigate","signal":"gap","rationale":"more","goals":[
            {"goal":"style: x #quot; one more","pattern":"react","context":""},
            {"goal":"and 日本語 with 🚀 in it","pattern":"react","context":""}]}"#.into(),
        Operation::Synthesise => "Done <i>here</i>.\n\nConfidence: 0.4".into(),
        _ if goal.starts_with("subgraph") => "no marker, no answer".into(),
        _ if request.history.is_empty() => {
            act("\u{1b}]0;title\u{7}", "search", r#"{"query": "\"; DROP <x>\n--"}"#)
        }
        _ => "Final Answer: ok".into(),
    };
    (text, 100)
}

fn snapshot() -> Arc<Snapshot> {
    let mut snapshot = Snapshot {
        version: 7,
        ..Snapshot::default()
    };
    for name in ["react", "supervisor", "tree-of-thoughts"] {
        let pattern = AgentPattern {
            name: name.into(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    for name in ["general", "research", "risk-assessment", "summarisation"] {
        let mut task = AgentTaskType {
            name: name.into(),
            ..AgentTaskType::default()
        };
        if name == "risk-assessment" {
            task.framing_prompt =
                "Analyse across financial, reputational, legal and operational dimensions.".into();
            task.valid_patterns = ["supervisor", "tree-of-thoughts", "react"]
                .map(Into::into)
                .into();
            task.limits.subagent_timeout_ms = Some(9_000);
            task.limits.max_iterations = Some(2);
        }
        snapshot.task_types.insert(name.into(), task);
    }
    for name in ["search", "fetch"] {
        let tool = ToolItem {
            name: name.into(),
            kind: format!("document-{name}"),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        };
        snapshot.tools.insert(name.into(), tool);
    }
    Arc::new(snapshot)
}

enum Happening {
    Work(Box<AgentRequest>, Option<Box<FanInRecord>>),
    Completed(Completion, SessionId, u32),
    Deadline(SessionId, u32),
}

struct Fleet {
    script: Script,
    model_fails: bool,
    until: Millis,
    agenda: BTreeMap<(Millis, u64), Happening>,
    count: u64,
    fan_outs: HashMap<(SessionId, u32), FanOutRecord>,
    verdicts: HashMap<(SessionId, u32), FanInRecord>,
    completions: Vec<Completion>,
    run: Run,
}

impl Fleet {
    fn new(script: Script) -> Self {
        Self {
            script,
            model_fails: false,
            until: Millis::MAX,
            agenda: BTreeMap::new(),
            count: 0,
            fan_outs: HashMap::new(),
            verdicts: HashMap::new(),
            completions: Vec::new(),
            run: Run::default(),
        }
    }

    fn run(mut self, mut request: AgentRequest) -> Run {
        self.run.root = request.session_id.clone();
        request.control.root = request.session_id.clone();
        request.control.started_at = START;
        request.control.config_version = Some(7);
        request.control.hard_deadline = START + 3_600_000;
        self.at(START, Happening::Work(Box::new(request), None));
        while let Some(((now, _), happening)) = self.agenda.pop_first() {
            if now > self.until {
                break;
            }
            match happening {
                Happening::Work(request, verdict) => self.work(now, *request, verdict.map(|v| *v)),
                Happening::Completed(completion, parent, step) => {
                    self.completions.push(completion);
                    self.look(now, parent, step);
                }
                Happening::Deadline(parent, step) => self.look(now, parent, step),
            }
        }
        let until = self.until;
        self.run.responses.retain(|(at, _)| *at <= until);
        self.run.responses.sort_by_key(|(at, _)| *at);
        self.run
    }

    fn at(&mut self, at: Millis, happening: Happening) {
        self.count += 1;
        self.agenda.insert((at, self.count), happening);
    }

    fn look(&mut self, now: Millis, parent: SessionId, step: u32) {
        let place = (parent, step);
        let fan_out = self.fan_outs[&place].clone();
        if let Some(verdict) = self.verdicts.get(&place) {
            for late in verdict
                .missing
                .iter()
                .filter(|child| self.completions.iter().any(|c| c.session == child.session))
            {
                let uri = uris::completion(&late.session);
                let mark = Triple::new(&uri, tg::LATE, Term::typed("true", xsd::BOOLEAN));
                self.run.triples.push(mark);
            }
            return;
        }
        if let Some(verdict) = decide(&fan_out, &self.completions, now) {
            let request = serde_json::from_str(&fan_out.synthesis.body).unwrap();
            self.verdicts.insert(place, verdict.clone());
            self.at(
                now + 2,
                Happening::Work(Box::new(request), Some(Box::new(verdict))),
            );
        }
    }

    fn work(&mut self, began: Millis, request: AgentRequest, fan_in: Option<FanInRecord>) {
        let fleet = Arc::new(FleetLimits {
            max_rounds: 2,
            max_retries: 2,
            ..FleetLimits::default()
        });
        let mut snapshot = snapshot();
        if request.subagent_goal.is_empty() {
            // The round limit is a supervisor's; iterations are not what this sample is about.
            Arc::make_mut(&mut snapshot)
                .patterns
                .get_mut("supervisor")
                .unwrap()
                .limits
                .max_iterations = Some(2);
        }
        let task = Arc::make_mut(&mut snapshot)
            .task_types
            .get_mut("risk-assessment")
            .unwrap();
        if request.pattern == "react" {
            task.limits.max_iterations = Some(5);
        }
        let situation = Situation {
            now: began,
            snapshot: snapshot.clone(),
            fleet,
            native_tools: false,
            nonce: "nonce".into(),
            fan_in,
        };
        let nonce = format!("{}-{}", request.session_id, request.step);
        let mut now = began;
        let mut calls = Vec::new();
        let mut streamed = Streamed::default();
        let mut turn = Turn::parse(request.clone(), situation).unwrap();
        let mut input = Input::Begin;
        let finish = loop {
            input = match turn.resume(input) {
                Order::AskModel(_) if self.model_fails => {
                    Input::ModelFailed(agentfleet_core::ModelFailure {
                        message: "the key was refused".into(),
                        hint: "set another key".into(),
                        ..agentfleet_core::ModelFailure::default()
                    })
                }
                Order::AskModel(ask) => {
                    let (text, ms) = (self.script)(&request, &ask);
                    self.stream(&request, &nonce, ask.stream, &text, now, ms, &mut streamed);
                    now += ms as Millis;
                    let usage = Usage {
                        input_tokens: 180 + request.question.len() as u64,
                        output_tokens: text.len() as u64 / 4,
                        cost: 0.000_1,
                        unpriced_calls: 0,
                    };
                    calls.push(Call::Model {
                        operation: ask.operation.as_str().into(),
                        model: "scripted-1".into(),
                        prompt: String::new(),
                        reply: text.clone(),
                        usage,
                        ms,
                        calls_tools: false,
                        cut: false,
                        ignored: Vec::new(),
                        tried: Vec::new(),
                    });
                    Input::ModelReplied(Reply {
                        text,
                        usage,
                        ms,
                        ..Reply::default()
                    })
                }
                Order::CallTool(call) => {
                    let outcome = tool(&call);
                    now += outcome.ms as Millis;
                    calls.push(Call::Tool {
                        name: call.tool.name.clone(),
                        arguments: call.arguments.clone(),
                        result: outcome.content.clone(),
                        is_error: outcome.is_error,
                        ms: outcome.ms,
                        sources: outcome.sources.clone(),
                        tried: Vec::new(),
                        adopted: None,
                    });
                    Input::ToolReturned(outcome)
                }
                Order::ReadDocuments(uris) => Input::DocumentsRead(
                    uris.iter()
                        .map(|uri| self.run.texts.get(uri).cloned())
                        .collect(),
                ),
                Order::Finish(finish) => break *finish,
            };
        };
        self.commit(
            request,
            snapshot,
            nonce,
            began,
            now + 3,
            calls,
            streamed,
            finish,
        );
    }

    #[allow(clippy::too_many_arguments)]
    fn commit(
        &mut self,
        request: AgentRequest,
        snapshot: Arc<Snapshot>,
        nonce: String,
        began: Millis,
        now: Millis,
        calls: Vec<Call>,
        streamed: Streamed,
        finish: agentfleet_core::Finish,
    ) {
        if now > self.until {
            return;
        }
        let next = match &finish.outcome {
            Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) => true,
            Outcome::Answer(_) | Outcome::Cancelled(_) | Outcome::Fail { .. } => false,
        };
        let started_at = if request.control.started_at == 0 {
            began
        } else {
            request.control.started_at
        };
        let assembled = assemble(&Commit {
            request_digest: Digest::of(b"request"),
            properties: [(property::ID.to_owned(), "caller-1".to_owned())].into(),
            nonce,
            attempt: if request.subagent_goal.starts_with("Review") {
                2
            } else {
                1
            },
            config_version: 7,
            snapshot,
            started_at,
            now,
            finish,
            wasted: Spent::default(),
            calls,
            streamed,
            responses: agentfleet_schema::topics::AGENT_RESPONSE,
            worked: Box::default(),
            request,
        });
        let record = &assembled.record;
        self.run.texts.extend(assembled.documents);
        for publication in &record.publications {
            match publication.topic.as_str() {
                "explainability" => {
                    let told: Triples = serde_json::from_str(&publication.body).unwrap();
                    self.run.triples.extend(told.triples);
                }
                "agent-response" => {
                    let response = serde_json::from_str(&publication.body).unwrap();
                    self.run.responses.push((now, response));
                }
                "agent-request" if next => {
                    let request: AgentRequest = serde_json::from_str(&publication.body).unwrap();
                    self.at(now + 1, Happening::Work(Box::new(request), None));
                }
                "agent-deadline" if publication.properties["kind"] == "join" => {
                    let place = (record.session.clone(), record.step);
                    self.at(
                        publication.deliver_at.unwrap(),
                        Happening::Deadline(place.0, place.1),
                    );
                }
                _ => {}
            }
        }
        if let Some(fan_out) = assembled.fan_out {
            self.fan_outs
                .insert((fan_out.session.clone(), fan_out.step), fan_out);
        }
        if let Some(parent) = record
            .parent
            .as_ref()
            .filter(|_| record.outcome.is_terminal())
        {
            let completion = Completion {
                session: record.session.clone(),
                status: completion_status(record),
                partial: is_partial(record),
                document: uris::answer_document(&record.session),
                sources: record
                    .grounds()
                    .map(|grounds| grounds.all().cloned().collect())
                    .unwrap_or_default(),
                spent: record.total,
            };
            let (parent, step) = (parent.session.clone(), parent.step);
            self.at(now + 1, Happening::Completed(completion, parent, step));
        }
        assert_ne!(record.outcome, OutcomeKind::Pause);
    }

    /// What an orchestrator streams while the model talks, in pieces of about 24 bytes.
    #[allow(clippy::too_many_arguments)]
    fn stream(
        &mut self,
        request: &AgentRequest,
        nonce: &str,
        kind: StreamAs,
        text: &str,
        from: Millis,
        ms: u64,
        streamed: &mut Streamed,
    ) {
        use agentfleet_core::react_format::{Part, Splitter};
        let mut splitter = Splitter::default();
        let mut rest = text;
        let total = text.len().max(1);
        while !rest.is_empty() {
            let mut end = rest.len().min(24);
            while !rest.is_char_boundary(end) {
                end += 1;
            }
            let (piece, after) = rest.split_at(end);
            rest = after;
            let at = from + (ms as usize * (total - rest.len()) / total) as Millis;
            let parts = match kind {
                StreamAs::Nothing => return,
                StreamAs::React => splitter.push(piece),
                StreamAs::Thought => {
                    let mut parts = splitter.push(piece);
                    parts.retain(|(part, _)| *part == Part::Thought);
                    parts
                }
                StreamAs::Answer => vec![(Part::Answer, piece.to_owned())],
            };
            for (part, content) in parts {
                let (kind, name, so_far, count) = match part {
                    Part::Thought => (
                        MessageType::Thought,
                        "thought",
                        &mut streamed.thought,
                        &mut streamed.thought_chunks,
                    ),
                    Part::Answer => (
                        MessageType::Answer,
                        "answer",
                        &mut streamed.answer,
                        &mut streamed.answer_chunks,
                    ),
                };
                so_far.push_str(&content);
                let chunk = AgentResponse {
                    message_type: kind,
                    content,
                    message_id: MessageId::of_attempt(nonce, name),
                    session_id: request.session_id.clone(),
                    root_session_id: request.root().clone(),
                    parent_session_id: request.parent_session_id.clone(),
                    step: Some(request.step),
                    seq: Some(*count),
                    ..AgentResponse::default()
                };
                *count += 1;
                self.run.responses.push((at, chunk));
            }
        }
    }
}

fn tool(call: &ToolUse) -> ToolOutcome {
    let argument = |name: &str| call.arguments.get(name).cloned().unwrap_or_default();
    let (content, source, title) = match call.tool.name.as_str() {
        "search" => (
            format!(
                "3 passages match \"{}\".\n\n1. The annual report 2025 says ...",
                argument("query")
            ),
            "https://dossier.example/company-x/annual-report-2025.md".to_owned(),
            "Annual report 2025".to_owned(),
        ),
        _ => (
            "year;revenue\n2024;41.2\n2025;46.1\n".repeat(40),
            argument("uri"),
            String::new(),
        ),
    };
    ToolOutcome {
        content,
        sources: vec![Source { uri: source, title }],
        ms: 12 + call.tool.name.len() as u64,
        ..ToolOutcome::default()
    }
}
