//! A model that says what it was told to say: for tests, demonstrations and benchmarks.
//!
//! A script is a list of rules; the first rule that matches a request answers it. Rules look at the
//! request alone (operation, number of past steps, text of the messages), never at a session, so one
//! script serves any number of sessions at once and any order of arrival. A request that no rule
//! matches is an error that names the operation and shows how its prompt begins.

use crate::error::Error;
use crate::{Capabilities, ChatModel, Message, ModelReply, ModelRequest, TextSink};
use agentfleet_schema::Operation;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

mod file;
mod gate;
mod rule;

pub use gate::Gate;
pub use rule::Rule;

/// Characters of a prompt shown when no rule matches it.
const BEGINNING: usize = 200;

/// Rules in order.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
    native_tools: bool,
    /// Keep every request for inspection.
    recording: bool,
}

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule; earlier rules win.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Offers native tool calls, as most real models do.
    #[must_use]
    pub fn with_native_tools(mut self) -> Self {
        self.native_tools = true;
        self
    }

    /// Keeps every request, for [`Scripted::requests`].
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recording = true;
        self
    }

    /// Reads a script file; its format is described in `scripted/file.rs`.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadScript {
            path: path.display().to_string(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        file::parse(&text).map_err(bad)
    }

    /// Reads a script from JSON.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        file::parse(text).map_err(|reason| Error::BadScript {
            path: "(text)".into(),
            reason,
        })
    }
}

/// The scripted model.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    /// Rule positions by operation: an instant reply costs a look into a short list.
    by_operation: BTreeMap<Operation, Vec<usize>>,
    calls: BTreeMap<Operation, AtomicU64>,
    used: Vec<AtomicU64>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Scripted {
    pub fn new(script: Script) -> Self {
        let by_operation = Operation::ALL
            .into_iter()
            .map(|operation| {
                let rules = script.rules.iter().enumerate();
                let mine = rules
                    .filter(|(_, rule)| rule.is_for(operation))
                    .map(|(at, _)| at);
                (operation, mine.collect())
            })
            .collect();
        let calls = Operation::ALL
            .into_iter()
            .map(|o| (o, AtomicU64::new(0)))
            .collect();
        let used = script.rules.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            script,
            by_operation,
            calls,
            used,
            requests: Mutex::new(Vec::new()),
        }
    }

    /// Calls received so far.
    pub fn calls(&self) -> u64 {
        self.calls
            .values()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Calls received so far for one operation.
    pub fn calls_for(&self, operation: Operation) -> u64 {
        self.calls
            .get(&operation)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Times the rule at a position of the script answered.
    pub fn uses_of_rule(&self, position: usize) -> u64 {
        self.used
            .get(position)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Every request so far, if the script records them.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn matching(&self, request: &ModelRequest) -> Option<&Rule> {
        // Rendered once, and only if a rule looks at it.
        let mut rendered: Option<String> = None;
        let positions = self.by_operation.get(&request.operation)?;
        positions.iter().copied().find_map(|at| {
            let rule = self.script.rules.get(at)?;
            if !rule.fits_steps(&request.inputs) {
                return None;
            }
            if rule.reads_text() {
                let text = rendered.get_or_insert_with(|| render(&request.messages));
                if !rule.fits_text(text) {
                    return None;
                }
            }
            let count = self.used.get(at)?;
            rule.take_one(count).then_some(rule)
        })
    }
}

/// The messages as one text, each with its role, as rules see them.
fn render(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        match message {
            Message::System(said) => push(&mut text, "system", said),
            Message::User(said) => push(&mut text, "user", said),
            Message::Assistant(said) => push(&mut text, "assistant", said),
            Message::ToolCall {
                name,
                arguments,
                thought,
                ..
            } => {
                push(&mut text, "call", &format!("{thought}\n{name} {arguments}"));
            }
            Message::ToolResult { name, content, .. } => {
                push(&mut text, "result", &format!("{name}\n{content}"));
            }
        }
    }
    text
}

fn push(text: &mut String, role: &str, said: &str) {
    text.push_str(role);
    text.push_str(": ");
    text.push_str(said);
    text.push('\n');
}

#[async_trait]
impl ChatModel for Scripted {
    fn describe(&self) -> String {
        "scripted".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: self.script.native_tools,
            reasons: true,
            metered: true,
        }
    }

    async fn chat(&self, request: ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        if let Some(count) = self.calls.get(&request.operation) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if self.script.recording {
            self.requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
        }
        let Some(rule) = self.matching(&request) else {
            let beginning: String = render(&request.messages).chars().take(BEGINNING).collect();
            return Err(Error::Unscripted {
                operation: request.operation.as_str(),
                beginning,
            });
        };
        rule.answer(sink).await
    }
}

/// A script is easily shared between the test that watches it and the fleet that uses it.
impl From<Script> for Arc<Scripted> {
    fn from(script: Script) -> Self {
        Self::new(Scripted::new(script))
    }
}

#[cfg(test)]
mod tests;
