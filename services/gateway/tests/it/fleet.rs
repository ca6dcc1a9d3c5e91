//! A fleet behind the gateway: the embedded engine, the core's own turns and commits, the shipped
//! fan-in and endings. Only the model is missing: a question says what the fleet does with it.
//!
//! - `hold ...`: streams a chunk, then waits until the gate is opened.
//! - `flood N ...`: streams N chunks of 64 KiB before the answer.
//! - `fail ...`: the model fails.
//! - `compare A and B`: under `supervisor`, fans out to one subagent for each.
//! - `... kept back ...`: waits until the gate is opened before anything of it is committed.
//! - anything else is answered with what was asked.

use crate::client::Client;
use agentfleet_aggregator::{Approvals, Endings, FanIn, completions};
use agentfleet_broker::{
    Broker, Delivery, Durability, EmbeddedBroker, Options as BrokerOptions, Outgoing, Subscription,
};
use agentfleet_config::{ConfigStore, DocumentsConfig, Item};
use agentfleet_core::commit::{Commit, Streamed, assemble};
use agentfleet_core::{
    Finish, FleetLimits, Input, ModelAsk, ModelFailure, Order, Reply, Situation, Turn, say,
};
use agentfleet_documents::EmbeddedDocuments;
use agentfleet_gateway::{Check, Collections, Failure, Gateway, Intake, Options, Parts, Status};
use agentfleet_graph::{Batch, EmbeddedGraph, GraphOptions};
use agentfleet_runtime::{
    Committed, Disposition, Drain, EmbeddedCommitter, Handler, Host, StepCommit, SystemHost, serve,
    serve_batches,
};
use agentfleet_schema::records::{Call, FanInRecord, StepRecord, Termination, Usage};
use agentfleet_schema::topics::{self, property, subscription};
use agentfleet_schema::{
    AgentRequest, AgentResponse, Digest, MessageId, MessageType, Millis, Operation, Spent, keys,
};
use agentfleet_storage::Database;
use async_trait::async_trait;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running fleet with its gateway.
pub(crate) struct Fleet {
    pub client: Client,
    pub parts: Parts,
    pub broker: EmbeddedBroker,
    pub graph: EmbeddedGraph,
    /// Opens for `hold`.
    pub gate: watch::Sender<bool>,
    /// Steps that were worked.
    pub worked: Arc<AtomicUsize>,
    /// What `Status` answers.
    pub healthy: Arc<AtomicBool>,
    pub stop: CancellationToken,
    pub open_streams: watch::Receiver<usize>,
    pub gateway: JoinHandle<()>,
    workers: CancellationToken,
    working: Vec<JoinHandle<()>>,
    data: Option<TempDir>,
}

/// Options of a test's gateway: a free port.
pub(crate) fn options() -> Options {
    Options {
        listen: ([127, 0, 0, 1], 0).into(),
        ..Options::default()
    }
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        Self::with(options()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let data = TempDir::new().unwrap();
        let mut fleet = Self::on(data.path(), options).await;
        fleet.data = Some(data);
        fleet
    }

    /// Opens a data directory, with a worker.
    pub(crate) async fn on(data: &Path, options: Options) -> Self {
        let mut fleet = Self::idle(data, options).await;
        fleet.work().await;
        fleet
    }

    /// Opens a data directory, with nobody at work.
    pub(crate) async fn idle(data: &Path, options: Options) -> Self {
        let database = Database::open(data).unwrap();
        let broker = EmbeddedBroker::open(&database, BrokerOptions::default()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let quiet = |_, _| ();
        let graph_options = GraphOptions::default();
        let graph = EmbeddedGraph::open(database.clone(), graph_options, &quiet)
            .await
            .unwrap();
        let notices = Arc::new(database.clone());
        let config = DocumentsConfig::new(Arc::new(documents.clone()), notices, || 0);
        config.put(items(), "test").await.unwrap();
        let committer = EmbeddedCommitter::new(database.clone(), broker.clone(), documents.clone());
        let aggregator = agentfleet_aggregator::Parts {
            broker: Arc::new(broker.clone()),
            documents: Arc::new(documents.clone()),
            committer: Arc::new(committer.clone()),
            graph: Arc::new(graph.clone()),
            host: Arc::new(SystemHost),
            coordination: None,
            reply_topics: agentfleet_core::ReplyTopics::default(),
        };
        let healthy = Arc::new(AtomicBool::new(true));
        let intake = Intake {
            broker: Arc::new(broker.clone()),
            usage: Some(Arc::new(agentfleet_runs::Usage::new(Arc::new(
                documents.clone(),
            )))),
            documents: Arc::new(documents),
            committer: Arc::new(committer),
            config: Arc::new(config),
            host: Arc::new(SystemHost),
            collections: Some(Arc::new(Loaded)),
            metered: Some(Arc::default()),
        };
        let parts = Parts {
            intake,
            graph: Arc::new(graph.clone()),
            approvals: Approvals::new(aggregator.clone()),
            endings: Endings::new(aggregator),
            status: Arc::new(Health(Arc::clone(&healthy))),
        };
        // Before the first request: a topic without a subscription keeps nothing.
        drop(broker.subscribe(requests()).await.unwrap());
        let stop = CancellationToken::new();
        let gateway = Gateway::serve(parts.clone(), options, stop.clone())
            .await
            .unwrap();
        let client = Client {
            address: gateway.address(),
        };
        let open_streams = gateway.open_streams();
        Self {
            client,
            parts,
            broker,
            graph,
            gate: watch::Sender::new(false),
            worked: Arc::new(AtomicUsize::new(0)),
            healthy,
            stop,
            open_streams,
            gateway: tokio::spawn(gateway.run()),
            workers: CancellationToken::new(),
            working: Vec::new(),
            data: None,
        }
    }

    /// Sets a worker and an aggregator to work.
    pub(crate) async fn work(&mut self) {
        let drain = Drain {
            stop: self.workers.clone(),
            grace: Duration::from_secs(5),
            watchdog: None,
        };
        let worker = Arc::new(Worker {
            parts: self.parts.clone(),
            gate: self.gate.subscribe(),
            worked: Arc::clone(&self.worked),
        });
        let fan_in = Arc::new(FanIn::new(agentfleet_aggregator::Parts {
            broker: Arc::clone(&self.parts.intake.broker),
            documents: Arc::clone(&self.parts.intake.documents),
            committer: Arc::clone(&self.parts.intake.committer),
            graph: Arc::clone(&self.parts.graph),
            host: Arc::new(SystemHost),
            coordination: None,
            reply_topics: agentfleet_core::ReplyTopics::default(),
        }));
        drop(self.broker.subscribe(completions()).await.unwrap());
        let (broker, steps) = (Arc::clone(&self.parts.intake.broker), drain.clone());
        self.working.push(tokio::spawn(async move {
            serve(broker, requests(), worker, 8, steps).await.unwrap();
        }));
        let broker = Arc::clone(&self.parts.intake.broker);
        self.working.push(tokio::spawn(async move {
            serve_batches(broker, completions(), fan_in, 64, Duration::ZERO, drain)
                .await
                .unwrap();
        }));
    }

    /// Stops everything in order, and gives back the data directory.
    pub(crate) async fn shut_down(mut self) -> Option<TempDir> {
        self.stop.cancel();
        self.workers.cancel();
        (&mut self.gateway).await.unwrap();
        for working in self.working.drain(..) {
            working.await.unwrap();
        }
        self.data.take()
    }

    /// Publishes a response of a session, as a worker that streams does.
    pub(crate) async fn say(&self, response: AgentResponse) {
        publish(&*self.parts.intake.broker, vec![response]).await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
        self.workers.cancel();
    }
}

fn requests() -> Subscription {
    Subscription {
        topic: topics::AGENT_REQUEST,
        name: subscription::ORCHESTRATOR.to_owned(),
        only: None,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

fn items() -> Vec<Item> {
    let item = |item_type: &str, key: &str, value: serde_json::Value| Item {
        item_type: item_type.to_owned(),
        key: key.to_owned(),
        value,
    };
    vec![
        item(
            "agent-pattern",
            "react",
            serde_json::json!({ "name": "react" }),
        ),
        item(
            "agent-pattern",
            "supervisor",
            serde_json::json!({ "name": "supervisor" }),
        ),
        item(
            "agent-task-type",
            "general",
            serde_json::json!({ "name": "general" }),
        ),
    ]
}

struct Health(Arc<AtomicBool>);

#[async_trait]
impl Status for Health {
    async fn checks(&self) -> Vec<Check> {
        let ok = self.0.load(Ordering::SeqCst);
        let detail = if ok {
            String::new()
        } else {
            "the model does not answer".to_owned()
        };
        vec![Check {
            name: "model".to_owned(),
            ok,
            detail,
        }]
    }

    async fn metrics(&self) -> String {
        assert!(self.0.load(Ordering::SeqCst), "a secret detail");
        "agentfleet_steps_total 1\n".to_owned()
    }
}

struct Loaded;

#[async_trait]
impl Collections for Loaded {
    async fn loaded(&self) -> Result<Vec<String>, Failure> {
        Ok(vec!["dossier".to_owned(), "tenant-1".to_owned()])
    }
}

async fn publish(broker: &dyn Broker, responses: Vec<AgentResponse>) {
    let message = |response: AgentResponse| Outgoing {
        topic: topics::AGENT_RESPONSE,
        properties: [
            (
                property::SESSION.to_owned(),
                response.session_id.to_string(),
            ),
            (
                property::ROOT.to_owned(),
                response.root_session_id.to_string(),
            ),
        ]
        .into(),
        payload: serde_json::to_vec(&response).unwrap(),
        deliver_at: None,
        durability: Durability::Process,
    };
    broker
        .publish(responses.into_iter().map(message).collect())
        .await
        .unwrap();
}

/// Works requests as an orchestrator does: look up, take the turn, commit once.
struct Worker {
    parts: Parts,
    gate: watch::Receiver<bool>,
    worked: Arc<AtomicUsize>,
}

#[async_trait]
impl Handler for Worker {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        let mut request: AgentRequest = serde_json::from_slice(&delivery.payload).unwrap();
        if request.control.root.is_empty() {
            request.control.root = request.session_id.clone();
        }
        let now = SystemHost.now();
        if request.control.hard_deadline == 0 {
            request.control.started_at = now;
            request.control.hard_deadline = now + 3_600_000;
        }
        let (session, step) = (request.session_id.clone(), request.step);
        if self
            .read::<StepRecord>(&keys::outcome(&session, step))
            .await
            .is_some()
        {
            return Disposition::Ack;
        }
        self.worked.fetch_add(1, Ordering::SeqCst);
        let closed = keys::closed(&request.control.root);
        let nonce = SystemHost.nonce();
        let mut streamed = Streamed::default();
        let (finish, calls) = if self
            .parts
            .intake
            .documents
            .get(&closed)
            .await
            .unwrap()
            .is_some()
        {
            (
                say::cancelled("the run was ended", Termination::Cancelled),
                Vec::new(),
            )
        } else {
            self.turn(&request, now, &nonce, &mut streamed).await
        };
        self.commit(request, delivery, nonce, now, finish, calls, streamed)
            .await
    }
}

impl Worker {
    async fn read<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        let body = self.parts.intake.documents.get(key).await.unwrap()?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    async fn turn(
        &self,
        request: &AgentRequest,
        now: Millis,
        nonce: &str,
        streamed: &mut Streamed,
    ) -> (Finish, Vec<Call>) {
        let fan_in = match request.control.fan_in_step {
            Some(at) => {
                self.read::<FanInRecord>(&keys::fan_in(&request.session_id, at))
                    .await
            }
            None => None,
        };
        let situation = Situation {
            now,
            snapshot: self.parts.intake.config.snapshot().await.unwrap(),
            fleet: Arc::new(FleetLimits::default()),
            native_tools: false,
            nonce: "nonce".into(),
            fan_in,
        };
        let mut turn = Turn::parse(request.clone(), situation).unwrap();
        let mut calls = Vec::new();
        let mut input = Input::Begin;
        loop {
            input = match turn.resume(input) {
                Order::AskModel(ask) => {
                    self.model(request, &ask, nonce, streamed, &mut calls).await
                }
                Order::CallTool(tool) => panic!("no tools here: {tool:?}"),
                Order::ReadDocuments(uris) => {
                    let keys: Vec<String> = uris.iter().map(|uri| keys::document(uri)).collect();
                    let found = self.parts.intake.documents.get_many(&keys).await.unwrap();
                    let text = |body: Arc<[u8]>| String::from_utf8(body.to_vec()).unwrap();
                    Input::DocumentsRead(found.into_iter().map(|body| body.map(text)).collect())
                }
                Order::Finish(finish) => return (*finish, calls),
            };
        }
    }

    /// What stands in for the model.
    async fn model(
        &self,
        request: &AgentRequest,
        ask: &ModelAsk,
        nonce: &str,
        streamed: &mut Streamed,
        calls: &mut Vec<Call>,
    ) -> Input {
        let question = request.question.as_str();
        let text = match ask.operation {
            Operation::ClassifyTaskType => "general".to_owned(),
            Operation::SelectPattern => {
                let choice = if question.starts_with("compare") {
                    "supervisor"
                } else {
                    "react"
                };
                format!(
                    r#"{{"choice":"{choice}","signal":"its first word","rationale":"It says so."}}"#
                )
            }
            Operation::Decompose => {
                let goals = question.trim_start_matches("compare ").split(" and ");
                let goals: Vec<String> = goals.map(|goal| format!("Look at {goal}.")).collect();
                serde_json::json!({ "thought": "one each", "goals": goals }).to_string()
            }
            Operation::Review => r#"{"choice":"answer"}"#.to_owned(),
            Operation::Synthesise => "Both were looked at.\n\nConfidence: 0.8".to_owned(),
            Operation::React
            | Operation::PlanCreate
            | Operation::PlanRevise
            | Operation::PlanStep
            | Operation::PlanAssess
            | Operation::PlanSynthesise
            | Operation::Critique
            | Operation::Compare
            | Operation::Judge
            | Operation::ClassifyIntent
            | Operation::Gate
            | Operation::Complete
            | Operation::Prompt => {
                if question.contains("kept back") {
                    self.gate.clone().wait_for(|open| *open).await.unwrap();
                }
                if question.starts_with("fail") {
                    return Input::ModelFailed(ModelFailure {
                        message: "the model refuses".to_owned(),
                        hint: "ask another one".to_owned(),
                        ..ModelFailure::default()
                    });
                }
                let answer = format!("You asked: {question}\nThat is all.");
                if request.streaming {
                    self.stream(request, &answer, nonce, streamed).await;
                }
                format!("Thought: It is about {question}\nFinal Answer: {answer}")
            }
        };
        let usage = Usage {
            input_tokens: 20,
            output_tokens: 10,
            cost: 0.0,
            unpriced_calls: 0,
        };
        calls.push(Call::Model {
            operation: ask.operation.as_str().to_owned(),
            model: "echo-1".to_owned(),
            prompt: question.to_owned(),
            reply: text.clone(),
            usage,
            ms: 1,
            calls_tools: false,
            cut: false,
            ignored: Vec::new(),
            tried: Vec::new(),
        });
        Input::ModelReplied(Reply {
            text,
            usage,
            ms: 1,
            ..Reply::default()
        })
    }

    async fn stream(
        &self,
        request: &AgentRequest,
        answer: &str,
        nonce: &str,
        streamed: &mut Streamed,
    ) {
        let chunk = |seq: u32, id: &str, content: String| AgentResponse {
            message_type: MessageType::Answer,
            content,
            message_id: MessageId::of_attempt(nonce, id),
            session_id: request.session_id.clone(),
            root_session_id: request.root().clone(),
            step: Some(request.step),
            seq: Some(seq),
            ..AgentResponse::default()
        };
        let broker = &*self.parts.intake.broker;
        let question = request.question.as_str();
        if let Some(count) = question.strip_prefix("flood ") {
            let count: u32 = count.split(' ').next().unwrap().parse().unwrap();
            for seq in 0..count {
                let chunk = chunk(seq, "flood", "x".repeat(64 * 1024));
                publish(broker, vec![chunk]).await;
            }
            return;
        }
        let (first, second) = answer.split_at(10);
        publish(broker, vec![chunk(0, "answer", first.to_owned())]).await;
        first.clone_into(&mut streamed.answer);
        streamed.answer_chunks = 1;
        if question.starts_with("hold") {
            self.gate.clone().wait_for(|open| *open).await.unwrap();
        }
        publish(broker, vec![chunk(1, "answer", second[..5].to_owned())]).await;
        streamed.answer.push_str(&second[..5]);
        streamed.answer_chunks = 2;
    }

    #[allow(clippy::too_many_arguments)]
    async fn commit(
        &self,
        request: AgentRequest,
        delivery: &Delivery,
        nonce: String,
        now: Millis,
        finish: Finish,
        calls: Vec<Call>,
        streamed: Streamed,
    ) -> Disposition {
        let snapshot = self.parts.intake.config.snapshot().await.unwrap();
        let assembled = assemble(&Commit {
            request_digest: Digest::of(&delivery.payload),
            properties: delivery.properties.clone(),
            nonce: nonce.clone(),
            attempt: 1,
            config_version: snapshot.version,
            snapshot: Arc::clone(&snapshot),
            started_at: now,
            now: SystemHost.now(),
            finish,
            wasted: Spent::default(),
            calls,
            streamed,
            responses: topics::AGENT_RESPONSE,
            worked: Box::default(),
            request,
        });
        // As the graph-writer would, only sooner: whoever sees the answer finds its trace.
        for publication in &assembled.record.publications {
            if publication.topic == topics::EXPLAINABILITY.as_str() {
                let message = serde_json::from_str(&publication.body).unwrap();
                let batch = Batch::of_message(message, &publication.properties);
                self.parts.graph.insert(vec![batch]).await.unwrap();
            }
        }
        let (objects, record) = (assembled.objects(), &assembled.record);
        let (session, step) = (&record.session, record.step);
        let body = serde_json::to_vec(record).unwrap();
        let commit = StepCommit {
            record: (keys::outcome(session, step), body),
            nonce,
            objects,
            marker: keys::published(session, step),
            publications: record.publications.clone(),
            without_call: None,
        };
        match self
            .parts
            .intake
            .committer
            .commit(commit, Some(delivery))
            .await
            .unwrap()
        {
            Committed::Won => Disposition::Settled,
            Committed::Lost | Committed::Called => Disposition::Ack,
        }
    }
}
