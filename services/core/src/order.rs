//! The values between the core and its driver: orders out, results in, and how a step ends.

use crate::react_format;
use agentfleet_schema::config::{JoinPolicy, ToolItem};
use agentfleet_schema::records::{
    Activity, Child, Decision, FailedTry, Routed, Source, Termination, Usage,
};
use agentfleet_schema::{
    AgentRequest, AgentStep, CorrelationId, ErrorBody, MessageType, Millis, Operation, Spent,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// An order to the driver. Exhaustive: the driver carries out each kind, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    AskModel(Box<ModelAsk>),
    CallTool(Box<ToolUse>),
    /// Texts of the librarian, by URI; answered in the same order.
    ReadDocuments(Vec<String>),
    /// The step is over.
    Finish(Box<Finish>),
}

/// A question to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAsk {
    pub operation: Operation,
    /// Variables of the operation's prompt.
    pub variables: Value,
    /// Steps to show as native tool calls and results, where the model has them.
    pub transcript: Vec<AgentStep>,
    /// Tools to offer natively; empty in the text format.
    pub tools: Vec<ToolItem>,
    /// JSON Schema the reply must match.
    pub schema: Option<Value>,
    /// Whether an agent replies: a thought, then a call or a text.
    pub is_agent: bool,
    /// Whether the reply may be the session's answer, and does not only serve one that is still to be
    /// written.
    pub may_answer: bool,
    pub stream: StreamAs,
    /// Set where the reply to the same question was cut or had no words: what is to come of it.
    pub cut: Option<AfterCut>,
}

impl ModelAsk {
    /// Asks for an object by which something is decided.
    pub(crate) fn choice(operation: Operation, variables: Value, schema: Value) -> Self {
        Self {
            schema: Some(schema),
            may_answer: false,
            stream: StreamAs::Nothing,
            ..Self::answer(operation, variables)
        }
    }

    /// Asks for the session's answer.
    pub(crate) fn answer(operation: Operation, variables: Value) -> Self {
        Self {
            operation,
            variables,
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: None,
            is_agent: false,
            may_answer: true,
            stream: StreamAs::Answer,
            cut: None,
        }
    }
}

impl From<ModelAsk> for Order {
    fn from(ask: ModelAsk) -> Self {
        Self::AskModel(Box::new(ask))
    }
}

/// What is asked of a model whose reply was cut at the limit of its length, or had no words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterCut {
    /// To go on behind this text.
    GoOn(String),
    /// To reply anew, and shorter: half an object says nothing.
    Anew,
    /// To reply at all. In the same words it would be silent again.
    Silence,
}

/// What the driver streams of a reply while it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAs {
    Nothing,
    /// Thought and final answer, told apart by the ReACT markers.
    React,
    /// The thought alone: what follows it may not be the answer.
    Thought,
    /// All of it, as one answer.
    Answer,
}

/// A tool to call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    pub tool: ToolItem,
    pub arguments: BTreeMap<String, String>,
}

/// What came of an order. The first input of a turn is [`Input::Begin`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Begin,
    ModelReplied(Reply),
    /// The model cannot answer, and asking again will not help.
    ModelFailed(ModelFailure),
    ToolReturned(ToolOutcome),
    DocumentsRead(Vec<Option<String>>),
}

/// A model's reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub text: String,
    /// Native tool calls: name and arguments.
    pub tool_calls: Vec<(String, BTreeMap<String, String>)>,
    pub usage: Usage,
    pub ms: u64,
    /// It was cut at the limit of its length.
    pub cut: bool,
    /// Models that were to reply before, and did not.
    pub tried: Vec<FailedTry>,
    /// Replies before it that were cut, and whose usage and time this one holds too.
    pub earlier: u32,
}

impl Reply {
    /// What it is on the account of its session.
    pub fn spent(&self) -> Spent {
        Spent {
            model_calls: 1 + u64::from(self.earlier),
            ..self.usage.spent()
        }
    }

    /// The native call that is made of it: the first. The last one of a reply that was cut may be half,
    /// and is none.
    pub fn call(&self) -> Option<&(String, BTreeMap<String, String>)> {
        let is_whole = !self.cut || self.tool_calls.len() > 1;
        self.tool_calls.first().filter(|_| is_whole)
    }

    /// Names of the tools that it calls natively and that are not called.
    pub(crate) fn others(&self) -> Vec<String> {
        let made = usize::from(self.call().is_some());
        let others = self.tool_calls.iter().skip(made);
        others.map(|(name, _)| name.clone()).collect()
    }

    /// The same, or, where an agent replies, those of its text.
    pub fn not_called(&self, is_agent: bool) -> Vec<String> {
        if self.tool_calls.is_empty() && is_agent {
            return react_format::parse(&self.text).others;
        }
        self.others()
    }
}

/// What the model calls of one step came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub spent: Spent,
    pub ms: u64,
}

impl Used {
    pub(crate) fn count(&mut self, reply: &Reply) {
        self.spent = self.spent + reply.spent();
        self.ms += reply.ms;
    }
}

/// A model call that failed for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFailure {
    pub message: String,
    pub hint: String,
    /// What it cost all the same.
    pub spent: Spent,
    /// Models that were to answer, and did not.
    pub tried: Vec<FailedTry>,
}

/// A tool's result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutcome {
    pub content: String,
    pub is_error: bool,
    pub sources: Vec<Source>,
    pub ms: u64,
    pub usage: Usage,
    /// Tries of it that failed around the tool.
    pub tried: Vec<FailedTry>,
    /// Set where another attempt's call was adopted instead of the one ordered: its tool and
    /// arguments.
    pub instead: Option<(String, BTreeMap<String, String>)>,
}

/// How a step ends, and what it leaves to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub outcome: Outcome,
    pub activity: Activity,
    pub routed: Option<Routed>,
    pub decisions: Vec<Decision>,
    /// Complete messages for the caller, in order.
    pub said: Vec<Said>,
}

impl Finish {
    /// The end of a step whose session goes on with another.
    pub(crate) fn goes_on(
        next: AgentRequest,
        activity: Activity,
        decisions: Vec<Decision>,
        said: Vec<Said>,
    ) -> Order {
        Order::Finish(Box::new(Self {
            outcome: Outcome::Continue(Box::new(next)),
            activity,
            routed: None,
            decisions,
            said,
        }))
    }
}

/// Exactly one of these ends a step (OR-1).
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The next step of the same session.
    Continue(Box<AgentRequest>),
    FanOut(Box<FanOut>),
    /// A call waits for a person; with the request that the answer is given to.
    Pause(Box<AgentRequest>),
    Answer(Answer),
    Cancelled(Answer),
    Fail {
        error: ErrorBody,
        termination: Termination,
    },
}

impl Outcome {
    /// Whether the session ends with it.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Answer(_) | Self::Cancelled(_) | Self::Fail { .. } => true,
            Self::Continue(_) | Self::FanOut(_) | Self::Pause(_) => false,
        }
    }
}

/// The final text of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub termination: Termination,
    /// Something is missing from it.
    pub partial: bool,
}

/// Subagents to start.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    pub correlation: CorrelationId,
    pub children: Vec<(Child, AgentRequest)>,
    pub policy: JoinPolicy,
    pub join_deadline: Millis,
    /// The synthesis request that the verdict releases.
    pub synthesis: AgentRequest,
}

/// One complete message of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub message_type: MessageType,
    pub text: String,
    /// Whether some of `text`, from its start, may have been streamed before the commit.
    pub streamed: bool,
    /// Where the collated text is stored; none for actions, which the graph holds, and for status messages.
    pub document: Option<String>,
}
