//! A model and a tool that take no time, the config they need, and asking with them.

use crate::Result;
use agentfleet::engine::Engine;
use agentfleet::error::Failure;
use agentfleet_config::ConfigStore;
use agentfleet_models::{
    Capabilities, ChatModel, Error as ModelError, ModelReply, ModelRequest, Operation, TextSink,
};
use agentfleet_runtime::client::{Event, Follow};
use agentfleet_schema::config::{ToolItem, item_type};
use agentfleet_schema::{AgentRequest, RunLimits};
use agentfleet_tools::{Error as ToolError, ToolCall, ToolResult, Tools};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers at once. A question `steps=N` takes N iterations; `children=N` fans out to N subagents of
/// `of` steps each.
#[derive(Debug)]
pub(crate) struct Instantly;

fn number(text: &str, name: &str) -> Option<usize> {
    let rest = text.split(name).nth(1)?;
    rest.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .ok()
}

#[async_trait]
impl ChatModel for Instantly {
    fn describe(&self) -> String {
        "instant".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: false,
            reasons: true,
            metered: true,
        }
    }

    async fn chat(
        &self,
        request: ModelRequest,
        sink: &dyn TextSink,
    ) -> std::result::Result<ModelReply, ModelError> {
        let inputs = &request.inputs;
        let question = inputs["question"].as_str().unwrap_or_default();
        note(question);
        let text = match request.operation {
            Operation::ClassifyTaskType => r#"{"choice":"general","signal":"s"}"#.to_owned(),
            Operation::SelectPattern => r#"{"choice":"react","signal":"s"}"#.to_owned(),
            Operation::React => {
                let history = inputs["history"].as_array().map_or(&[][..], Vec::as_slice);
                // A summary stands for the steps that it counts.
                let stands_for = |step: &Value| {
                    let counted = step["arguments"]["iterations"].as_str();
                    counted.and_then(|n| n.parse().ok()).unwrap_or(1)
                };
                let done: usize = history.iter().map(stands_for).sum();
                if done + 1 < number(question, "steps=").unwrap_or(1) {
                    let query = match number(question, "bytes=") {
                        Some(bytes) => format!("page {done} bytes={bytes}"),
                        // A call that is made again and again ends its run.
                        None => format!("page {done}"),
                    };
                    let name = if question.contains("alias") {
                        "q"
                    } else {
                        "query"
                    };
                    let query = json!({ name: query });
                    format!("Thought: go on\nAction: noop\nArgs: {query}")
                } else {
                    "Thought: done\nFinal Answer: it is done".to_owned()
                }
            }
            Operation::Decompose => {
                let of = number(question, "of=").unwrap_or(1);
                let goals: Vec<String> = (0..number(question, "children=").unwrap_or(2))
                    .map(|n| format!("goal {n} steps={of}"))
                    .collect();
                json!({"thought": "parts", "goals": goals}).to_string()
            }
            Operation::Review => r#"{"decision":"answer","signal":"s"}"#.to_owned(),
            Operation::Synthesise
            | Operation::PlanCreate
            | Operation::PlanRevise
            | Operation::PlanStep
            | Operation::PlanAssess
            | Operation::PlanSynthesise
            | Operation::Critique
            | Operation::Compare
            | Operation::Gate
            | Operation::Judge
            | Operation::ClassifyIntent
            | Operation::Complete
            | Operation::Prompt => "## All\nConfidence: 0.9\ndone".to_owned(),
        };
        sink.text(&text);
        Ok(ModelReply {
            text,
            model: "instant".into(),
            ..ModelReply::default()
        })
    }
}

/// When a question that says `noted` was first asked.
static ASKED: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

fn note(question: &str) {
    if question.contains("noted=") {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        asked
            .entry(question.to_owned())
            .or_insert_with(Instant::now);
    }
}

pub(crate) fn first_asked(question: &str) -> Option<Instant> {
    let asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    asked.get(question).copied()
}

/// Returns at once.
#[derive(Debug)]
pub(crate) struct Noop;

#[async_trait]
impl Tools for Noop {
    fn timeout(&self, _: &ToolItem) -> Duration {
        Duration::from_secs(10)
    }

    fn parameters(&self, _tool: &ToolItem) -> Value {
        json!({"type": "object"})
    }

    async fn call(&self, call: ToolCall) -> std::result::Result<ToolResult, ToolError> {
        let query = call.arguments.get("query").map(String::as_str);
        let bytes = number(query.unwrap_or_default(), "bytes=");
        Ok(ToolResult {
            content: bytes.map_or_else(|| "ok".to_owned(), |bytes| "a line\n".repeat(bytes / 7)),
            ..ToolResult::default()
        })
    }
}

impl Noop {
    /// Lets the fleet use it, and lets agents be as many and as long as the bench asks for.
    pub(crate) async fn allow(config: &dyn ConfigStore) -> Result<()> {
        let noop = json!({"name": "noop", "type": "document-search", "description": "nothing"});
        let item = |item_type: &str, key: &str, value: Value| agentfleet_config::Item {
            item_type: item_type.into(),
            key: key.into(),
            value,
        };
        let wide = json!({"name": "supervisor", "description": "d", "max_subagents": 1000});
        let long = json!({"name": "react", "description": "d", "max_iterations": 100_000});
        agentfleet_config::ConfigStore::put(
            config,
            vec![
                item(item_type::TOOL, "noop", noop),
                item(item_type::AGENT_PATTERN, "supervisor", wide),
                item(item_type::AGENT_PATTERN, "react", long),
            ],
            "bench",
        )
        .await?;
        Ok(())
    }
}

/// Puts both in the place of the real ones.
pub(crate) fn make_instant(engine: &mut Engine) {
    engine.model.model = Arc::new(Instantly);
    engine.tools = Arc::new(Noop);
}

/// Asks as the command line does, and returns how long the answer took.
pub(crate) async fn ask(engine: &Engine, question: String, pattern: &str) -> Result<Duration> {
    let request = AgentRequest {
        question,
        pattern: pattern.into(),
        streaming: true,
        limits: RunLimits {
            max_iterations: None,
            ..RunLimits::default()
        },
        ..AgentRequest::default()
    };
    let began = Instant::now();
    let taken = engine.store.intake().take_in(request, None).await;
    let session = taken.map_err(Failure::from)?.session;
    let mut follow = Follow::new(engine.broker(), engine.documents(), session, 0);
    loop {
        for event in follow.next().await?.events {
            if let Event::End { error, .. } = event {
                return match error {
                    None => Ok(began.elapsed()),
                    Some(error) => Err(error.message.into()),
                };
            }
        }
    }
}
