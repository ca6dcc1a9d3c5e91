//! A model that says what it was told to say: for tests, demonstrations and benchmarks.
//!
//! A script is a list of rules; the first rule that matches a request answers it. Rules look at the
//! request alone (operation, number of past steps, text of the messages), never at a session, so one
//! script serves any number of sessions at once and any order of arrival. A request that no rule
//! matches is an error that names the operation and shows how its prompt begins.

use crate::error::{Error, Kind};
use crate::{Capabilities, ChatModel, Message, ModelReply, ModelRequest, TextSink};
use async_trait::async_trait;
use std::path::Path;
use std::sync::atomic::AtomicU64;
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
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        text.and_then(|text| file::parse(&text)).map_err(|reason| {
            let message = format!("script `{}` cannot be used: {reason}", path.display());
            Error::new(Kind::Misconfigured, message)
        })
    }
}

/// The scripted model.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    /// How often each rule has answered.
    used: Vec<AtomicU64>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Scripted {
    pub fn new(script: Script) -> Self {
        Self {
            used: script.rules.iter().map(|_| AtomicU64::new(0)).collect(),
            script,
            requests: Mutex::default(),
        }
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
        let mut rules = self.script.rules.iter().zip(&self.used);
        let found = rules.find(|(rule, used)| {
            rule.is_for(request.operation)
                && rule.fits_steps(&request.inputs)
                && (!rule.reads_text()
                    || rule.fits_text(rendered.get_or_insert_with(|| render(&request.messages))))
                && rule.take_one(used)
        });
        found.map(|(rule, _)| rule)
    }
}

/// The messages as one text, each with its role, as rules see them.
fn render(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        let written;
        let (role, said) = match message {
            Message::System(said) => ("system", said),
            Message::User(said) => ("user", said),
            Message::Assistant(said) => ("assistant", said),
            Message::ToolCall {
                name,
                arguments,
                thought,
                ..
            } => {
                written = format!("{thought}\n{name} {arguments}");
                ("call", &written)
            }
            Message::ToolResult { name, content, .. } => {
                written = format!("{name}\n{content}");
                ("result", &written)
            }
        };
        text += &format!("{role}: {said}\n");
    }
    text
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
        if self.script.recording {
            self.requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
        }
        let Some(rule) = self.matching(&request) else {
            let beginning: String = render(&request.messages).chars().take(BEGINNING).collect();
            let operation = request.operation.as_str();
            return Err(Error::new(
                Kind::Misconfigured,
                format!(
                    "no rule of the script answers operation `{operation}`, whose prompt begins: \
                     {beginning}"
                ),
            ));
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
