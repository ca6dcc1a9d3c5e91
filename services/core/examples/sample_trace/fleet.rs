//! A fleet of one thread: what the orchestrator, the aggregator and the undertaker do around the
//! core, without a queue, a store or a clock of their own.

use crate::script::Script;
use agentfleet_core::commit::{Assembled, Commit, Streamed, assemble};
use agentfleet_core::conversation;
use agentfleet_core::fan_in::{Completion, decide};
use agentfleet_core::{
    Finish, FleetLimits, Input, ModelAsk, ModelFailure, Order, Rejection, Reply, Situation,
    ToolOutcome, ToolUse, Turn, approval, error, say,
};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Call, CompletionStatus, FanInRecord, FanOutRecord, ModelWait, PauseRecord, Publication, Source,
    Termination, Worked,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, tg, xsd};
use agentfleet_schema::{
    AgentRequest, CorrelationId, Digest, Millis, Money, SessionId, Spent, Term, Triple, Triples,
    uris,
};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;

/// When every sample begins: 2026-01-01 in UTC.
const BEGIN: Millis = 1_767_225_600_000;
/// What a step takes.
const TICK: Millis = 250;

pub(crate) type Trace = Result<Vec<Triple>, Box<dyn Error>>;

/// What happens to a delivered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Work,
    /// No worker takes it until [`Fleet::release`].
    Hold,
    /// Its tree was closed before.
    Cancel,
    /// Its tree was closed while an attempt was calling something, and nobody knows how that ended.
    CancelInCall,
    /// The run's time was used up before.
    Expire,
    /// It was delivered too often.
    DeadLetter,
}

/// The fleet and everything it has said.
pub(crate) struct Fleet {
    script: Box<dyn Script>,
    snapshot: Arc<Snapshot>,
    now: Millis,
    queue: VecDeque<Publication>,
    held: Vec<Publication>,
    triples: Vec<Triple>,
    documents: BTreeMap<String, String>,
    fan_outs: Vec<FanOutRecord>,
    verdicts: BTreeMap<(SessionId, u32), FanInRecord>,
}

impl Fleet {
    pub(crate) fn new(script: impl Script + 'static) -> Self {
        Self {
            snapshot: Arc::new(script.snapshot()),
            script: Box::new(script),
            now: BEGIN,
            queue: VecDeque::new(),
            held: Vec::new(),
            triples: Vec::new(),
            documents: BTreeMap::new(),
            fan_outs: Vec::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// Asks, and works until nothing is left to do.
    pub(crate) fn ask(&mut self, request: &AgentRequest) -> Result<(), Box<dyn Error>> {
        self.queue.push_back(Publication {
            topic: topics::AGENT_REQUEST.as_str().to_owned(),
            properties: [(property::ID.to_owned(), "caller-1".to_owned())].into(),
            deliver_at: None,
            body: serde_json::to_string(request)?,
        });
        self.work()
    }

    /// Delivers what was held.
    pub(crate) fn release(&mut self) -> Result<(), Box<dyn Error>> {
        self.queue.extend(self.held.drain(..));
        self.work()
    }

    /// Lets the join deadline of every open fan-out pass.
    pub(crate) fn deadline(&mut self) -> Result<(), Box<dyn Error>> {
        let due = self
            .fan_outs
            .iter()
            .map(|f| f.join_deadline)
            .max()
            .unwrap_or(self.now);
        self.now = self.now.max(due);
        self.aggregate();
        self.work()
    }

    pub(crate) fn told(self) -> Trace {
        Ok(self.triples)
    }

    fn work(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(delivery) = self.queue.pop_front() {
            let mut request: AgentRequest = serde_json::from_str(&delivery.body)?;
            match self.script.fate(&request) {
                Fate::Hold
                    if !self.held.contains(&delivery) && self.decided(&request).is_none() =>
                {
                    self.held.push(delivery);
                }
                fate => {
                    self.accept(&mut request);
                    let (finish, calls) = self.finish(&request, fate)?;
                    self.commit(request, &delivery, finish, calls)?;
                    self.aggregate();
                }
            }
        }
        Ok(())
    }

    fn accept(&self, request: &mut AgentRequest) {
        if request.control.root.is_empty() {
            request.control.root = request.session_id.clone();
        }
        if request.control.started_at == 0 {
            request.control.started_at = self.now;
        }
        request
            .control
            .config_version
            .get_or_insert(self.snapshot.version);
        if request.control.hard_deadline == 0 {
            request.control.hard_deadline = self.now + 3_600_000;
        }
    }

    /// The verdict on a fan-out above a request, if one was reached.
    fn decided(&self, request: &AgentRequest) -> Option<&FanInRecord> {
        let mut above = request.control.ancestors.iter();
        above.find_map(|above| self.verdicts.get(&(above.session.clone(), above.step)))
    }

    fn finish(
        &self,
        request: &AgentRequest,
        fate: Fate,
    ) -> Result<(Finish, Vec<Call>), Box<dyn Error>> {
        let stopped = match fate {
            Fate::Cancel | Fate::CancelInCall => Some(say::cancelled(
                "the run was cancelled by ada",
                Termination::Cancelled,
            )),
            Fate::Expire => Some(say::cancelled("its time was used up", Termination::Timeout)),
            Fate::DeadLetter => Some(say::failed(
                error::body(
                    error::Code::DeadLetter,
                    "no worker could work this step",
                    "",
                ),
                Termination::DeadLettered,
                0,
            )),
            Fate::Work | Fate::Hold if self.decided(request).is_some() => Some(say::cancelled(
                "the fan-out above was concluded without this result",
                Termination::Cancelled,
            )),
            Fate::Work | Fate::Hold => None,
        };
        if let Some(finish) = stopped {
            let begun = Call::Tool {
                name: "search".into(),
                arguments: [("query".to_owned(), "company-x".to_owned())].into(),
                result: "started; its end is unknown".into(),
                is_error: true,
                ms: 0,
                sources: Vec::new(),
                tried: Vec::new(),
                adopted: None,
            };
            let begun = matches!(fate, Fate::CancelInCall).then_some(begun);
            return Ok((finish, begun.into_iter().collect()));
        }
        let place = |step| (request.session_id.clone(), step);
        let verdict = request
            .control
            .fan_in_step
            .and_then(|step| self.verdicts.get(&place(step)));
        let situation = Situation {
            now: self.now,
            snapshot: Arc::clone(&self.snapshot),
            fleet: Arc::new(FleetLimits::default()),
            native_tools: false,
            nonce: "nonce".into(),
            fan_in: verdict.cloned(),
        };
        let mut turn = match Turn::parse(request.clone(), situation) {
            Ok(turn) => turn,
            Err(Rejection::Invalid(error)) => {
                return Ok((say::failed(error, Termination::Error, 0), Vec::new()));
            }
            Err(Rejection::NotImplementedHere(pattern)) => {
                return Err(format!("no sample may use the pattern `{pattern}`").into());
            }
        };
        let mut calls = Vec::new();
        let mut input = Input::Begin;
        loop {
            input = match turn.resume(input) {
                Order::AskModel(ask) => self.ask_model(request, &ask, &mut calls),
                Order::CallTool(tool_use) => {
                    Input::ToolReturned(self.call_tool(&tool_use, &mut calls))
                }
                Order::ReadDocuments(uris) => Input::DocumentsRead(
                    uris.iter()
                        .map(|uri| self.documents.get(uri).cloned())
                        .collect(),
                ),
                Order::Finish(finish) => return Ok((*finish, calls)),
            };
        }
    }

    fn ask_model(&self, request: &AgentRequest, ask: &ModelAsk, calls: &mut Vec<Call>) -> Input {
        let Some(text) = self.script.reply(ask.operation, request) else {
            return Input::ModelFailed(ModelFailure {
                message: "the provider refused the key".into(),
                hint: "set another key".into(),
                ..ModelFailure::default()
            });
        };
        // Some calls have no price, so that every kind of step tells such a one.
        let unpriced_calls =
            u64::from((text.len() + request.step as usize + request.question.len()) % 3 == 1);
        let usage = agentfleet_schema::records::Usage {
            input_tokens: 120,
            output_tokens: 1 + text.len() as u64 / 4,
            cost: if unpriced_calls > 0 { 0.0 } else { 0.000_25 },
            unpriced_calls,
        };
        calls.push(Call::Model {
            operation: ask.operation.as_str().to_owned(),
            model: "sample-model".into(),
            prompt: String::new(),
            reply: text.clone(),
            usage,
            ms: 40,
            calls_tools: false,
            cut: text.len() % 5 == 0,
            ignored: vec!["search".to_owned(); text.len() % 7 / 6],
            tried: Vec::new(),
        });
        Input::ModelReplied(Reply {
            text,
            usage,
            ms: 40,
            ..Reply::default()
        })
    }

    fn call_tool(&self, tool_use: &ToolUse, calls: &mut Vec<Call>) -> ToolOutcome {
        let outcome = ToolOutcome {
            ms: 7,
            ..self.script.tool(tool_use)
        };
        calls.push(Call::Tool {
            name: tool_use.tool.name.clone(),
            arguments: tool_use.arguments.clone(),
            result: outcome.content.clone(),
            is_error: outcome.is_error,
            ms: outcome.ms,
            sources: outcome.sources.clone(),
            tried: Vec::new(),
            adopted: None,
        });
        outcome
    }

    fn commit(
        &mut self,
        mut request: AgentRequest,
        delivery: &Publication,
        finish: Finish,
        calls: Vec<Call>,
    ) -> Result<(), Box<dyn Error>> {
        let started_at = self.now;
        self.now += TICK;
        let attempt = self.script.attempt(&request);
        // An attempt that died had asked a model, and called a tool, before.
        let wasted = Spent {
            tokens: 40 * u64::from(attempt - 1),
            cost: Money::millionths(15 * u64::from(attempt - 1)),
            model_calls: u64::from(attempt - 1),
            tool_calls: u64::from(attempt - 1),
            unpriced_calls: 0,
        };
        request.control.spent = request.control.spent + wasted;
        let Assembled {
            record,
            documents,
            fan_out,
            pause,
            ..
        } = assemble(&Commit {
            request_digest: Digest::of(delivery.body.as_bytes()),
            properties: delivery.properties.clone(),
            nonce: format!("{}/{}", request.session_id, request.step),
            attempt,
            config_version: self.snapshot.version,
            snapshot: Arc::clone(&self.snapshot),
            started_at,
            now: self.now,
            finish,
            wasted,
            calls,
            streamed: Streamed::default(),
            responses: topics::AGENT_RESPONSE,
            worked: Box::new(Worked {
                conversation: if conversation::remembers(&request) {
                    request.control.conversation.clone()
                } else {
                    Vec::new()
                },
                waited: (attempt > 1).then(|| ModelWait {
                    times: 2,
                    ms: 3_000,
                    reason: "the provider is overloaded".into(),
                }),
                ..Worked::default()
            }),
            request,
        });
        self.documents.extend(documents);
        self.fan_outs.extend(fan_out);
        for publication in record.publications {
            if publication.topic == topics::EXPLAINABILITY.as_str() {
                let told: Triples = serde_json::from_str(&publication.body)?;
                self.triples.extend(told.triples);
            } else if publication.topic == topics::AGENT_REQUEST.as_str() {
                self.queue.push_back(publication);
            }
        }
        match pause {
            Some(pause) => self.decide(&pause),
            None => Ok(()),
        }
    }

    /// A person answers a call that waits, or the wait ends.
    fn decide(&mut self, pause: &PauseRecord) -> Result<(), Box<dyn Error>> {
        let request = pause.request().ok_or("a wait without a request")?;
        let decided = match self.script.answer(pause) {
            Some(verdict) => {
                self.now += 60_000;
                approval::decide(&pause.asked, verdict, None, self.now)?
            }
            None => {
                self.now = self.now.max(pause.asked.expires_at);
                approval::expired(&pause.asked, self.now)
            }
        };
        let finish = approval::answered(&request, &decided);
        self.commit(request, &pause.resume, finish, Vec::new())
    }

    /// Looks at every fan-out without a verdict, then marks what came too late for its own.
    fn aggregate(&mut self) {
        for fan_out in &self.fan_outs {
            let place = (fan_out.session.clone(), fan_out.step);
            let completions = self.completions(&fan_out.correlation);
            if let Some(verdict) = self.verdicts.get(&place) {
                for completion in &completions {
                    if verdict
                        .missing
                        .iter()
                        .any(|child| child.session == completion.session)
                    {
                        let uri = uris::completion(&completion.session);
                        let late = Term::typed("true", xsd::BOOLEAN);
                        self.triples.push(Triple::new(&uri, tg::LATE, late));
                    }
                }
            } else if let Some(verdict) = decide(fan_out, &completions, self.now) {
                self.verdicts.insert(place, verdict);
                self.queue.push_back(fan_out.synthesis.clone());
            }
        }
    }

    fn completions(&self, correlation: &CorrelationId) -> Vec<Completion> {
        let of_correlation = self
            .triples
            .iter()
            .filter(|t| t.p.iri == tg::CORRELATION_ID && t.o.value == correlation.as_str());
        of_correlation
            .map(|t| t.s.iri.as_str())
            .filter(|node| self.is_a(node, tg::SUBAGENT_COMPLETION))
            .map(|node| Completion {
                session: self.object(node, tg::SUBAGENT_SESSION_ID).into(),
                status: CompletionStatus::from_literal(&self.object(node, tg::STATUS)),
                partial: self.object(node, tg::PARTIAL) == "true",
                document: self.object(node, tg::RESULT),
                sources: self.grounds(&self.object(node, tg::SUBAGENT_SESSION_ID).into()),
                spent: Spent {
                    tokens: self.object(node, tg::TOKENS).parse().unwrap_or_default(),
                    cost: self
                        .object(node, tg::COST_TOTAL)
                        .parse()
                        .unwrap_or_default(),
                    model_calls: self
                        .object(node, tg::MODEL_CALLS_TOTAL)
                        .parse()
                        .unwrap_or_default(),
                    tool_calls: self
                        .object(node, tg::TOOL_CALLS_TOTAL)
                        .parse()
                        .unwrap_or_default(),
                    unpriced_calls: 0,
                },
            })
            .collect()
    }

    /// What the answer of a session rests on.
    fn grounds(&self, session: &SessionId) -> Vec<Source> {
        let answer = uris::answer(session);
        let of_answer = self.triples.iter().filter(|t| t.s.iri == answer);
        let named = of_answer.filter(|t| [tg::CITES, tg::CONSULTED].contains(&t.p.iri.as_str()));
        let source = |t: &Triple| Source {
            uri: t.o.iri.clone(),
            title: self.object(&t.o.iri, RDFS_LABEL),
        };
        named.map(source).collect()
    }

    fn is_a(&self, node: &str, class: &str) -> bool {
        self.triples
            .iter()
            .any(|t| t.s.iri == node && t.p.iri == RDF_TYPE && t.o.iri == class)
    }

    /// The one value of a property, as text.
    fn object(&self, node: &str, property: &str) -> String {
        let found = self
            .triples
            .iter()
            .find(|t| t.s.iri == node && t.p.iri == property);
        found.map_or_else(String::new, |t| format!("{}{}", t.o.iri, t.o.value))
    }
}
