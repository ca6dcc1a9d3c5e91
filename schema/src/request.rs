//! `AgentRequest` and its parts, as the orchestration spec names them, plus optional fields of ours.

use crate::Millis;
use crate::carried::{Brief, Exchange, Known, Memory, PolicyPosition};
use crate::config::JoinPolicy;
use crate::history::AgentStep;
use crate::id::{ApprovalId, CollectionName, ConversationId, CorrelationId, Digest, SessionId};
use crate::records::DecidedBy;
use crate::spent::{Money, Spent};
use crate::tolerant::{count, instant, null_default};
use crate::worked::{ForkedFrom, QuotaLeft};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;
use std::collections::BTreeMap;

fn default_collection() -> CollectionName {
    CollectionName::from("default")
}

fn collection<'de, D: serde::Deserializer<'de>>(d: D) -> Result<CollectionName, D::Error> {
    Ok(Option::<CollectionName>::deserialize(d)?.unwrap_or_else(default_collection))
}

/// A task, or the next step of one: the only work message of the fleet.
///
/// Routing, iterations, subagents and synthesis triggers are all `AgentRequest`s with different
/// field values. Encoded with every field of the spec; fields of ours are absent when unused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRequest {
    /// The task in plain text.
    #[serde(default, deserialize_with = "null_default")]
    pub question: String,
    /// Tool state; empty means `undefined`.
    #[serde(default, deserialize_with = "null_default")]
    pub state: String,
    /// Tool groups this run may use. `null` means `["default"]`, `[]` none, `["*"]` all.
    #[serde(default)]
    pub group: Option<Vec<String>>,
    /// Steps done so far; empty on a new task.
    #[serde(default, deserialize_with = "null_default")]
    pub history: Vec<AgentStep>,
    /// Who asks; empty if unknown.
    #[serde(default, deserialize_with = "null_default")]
    pub user: String,
    /// Scopes what tools may see and where provenance is found.
    #[serde(default = "default_collection", deserialize_with = "collection")]
    pub collection: CollectionName,
    /// Whether answers arrive in chunks while the model talks.
    #[serde(default, deserialize_with = "null_default")]
    pub streaming: bool,
    /// The run's id; empty on a new task unless the caller chose one.
    #[serde(default, deserialize_with = "null_default")]
    pub session_id: SessionId,
    /// Groups related requests of one caller.
    #[serde(default, deserialize_with = "null_default")]
    pub conversation_id: ConversationId,
    /// `react`, `plan-then-execute`, `supervisor`, ...; empty on a new task lets the router choose.
    #[serde(default, deserialize_with = "null_default")]
    pub pattern: String,
    /// Name of the task type identified by the router. A chat may call it `context_type`.
    #[serde(default, deserialize_with = "null_default", alias = "context_type")]
    pub task_type: String,
    /// Framing prompt of the task type.
    #[serde(default, deserialize_with = "null_default", alias = "framing_prompt")]
    pub framing: String,
    /// Shared by all siblings of one fan-out, and by the synthesis that its verdict releases.
    #[serde(default, deserialize_with = "null_default")]
    pub correlation_id: CorrelationId,
    /// The parent's session, on subagents.
    #[serde(default, deserialize_with = "null_default")]
    pub parent_session_id: SessionId,
    /// The focused goal, on subagents.
    #[serde(default, deserialize_with = "null_default")]
    pub subagent_goal: String,
    /// How many siblings the fan-out has, on subagents.
    #[serde(default, deserialize_with = "count")]
    pub expected_siblings: u32,

    /// Name of a model to use instead of those of the model profiles, as the fleet's provider
    /// knows it. Ours; absent leaves the choice to the profiles.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub model: String,
    /// Key of the policy that says in which order tools may be used; that of the specialist or of the task type
    /// comes before it. A conversation keeps it. Ours; absent means none.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_policy: String,
    /// The step this message asks for, from 0. Ours; absent means 0.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub step: u32,
    /// What a router may know of the caller beside the message. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub routing: RoutingContext,
    /// The language of sentences that the fleet itself writes, such as `sk`; English unless the task type says
    /// otherwise. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub locale: String,
    /// When fan-outs of the run may conclude. Ours; absent leaves it to the task type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinPolicy>,
    /// Bounds the caller sets for the whole run. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub limits: RunLimits,
    /// What one step hands to the next; written by workers only. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub control: RunControl,
}

impl Default for AgentRequest {
    fn default() -> Self {
        Self {
            question: String::new(),
            state: String::new(),
            group: None,
            history: Vec::new(),
            user: String::new(),
            collection: default_collection(),
            streaming: false,
            session_id: SessionId::default(),
            conversation_id: ConversationId::default(),
            pattern: String::new(),
            task_type: String::new(),
            framing: String::new(),
            correlation_id: CorrelationId::default(),
            parent_session_id: SessionId::default(),
            subagent_goal: String::new(),
            expected_siblings: 0,
            model: String::new(),
            tool_policy: String::new(),
            locale: String::new(),
            step: 0,
            routing: RoutingContext::default(),
            join: None,
            limits: RunLimits::default(),
            control: RunControl::default(),
        }
    }
}

impl AgentRequest {
    /// The root of the tree this run belongs to: its own session unless it is a subagent.
    pub fn root(&self) -> &SessionId {
        if self.control.root.is_empty() {
            &self.session_id
        } else {
            &self.control.root
        }
    }

    /// The tenant whose run it is; empty where nobody was asked who they are.
    pub fn tenant(&self) -> &str {
        let principal = self.control.principal.as_ref();
        principal.map_or("", |principal| &principal.tenant)
    }

    /// Who asks: the principal where there is one, else as the caller says.
    pub fn asker(&self) -> &str {
        let principal = self.control.principal.as_ref();
        principal.map_or(&self.user, |principal| &principal.name)
    }

    pub fn is_subagent(&self) -> bool {
        !self.parent_session_id.is_empty()
    }
}

/// The little that is needed to tell what a message is about.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "String::is_empty")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutingContext {
    /// What kind of customer asks, such as `food_bakery`.
    pub tenant_type: String,
    /// Services the customer has.
    pub active_services: Vec<String>,
    /// What was talked about before.
    pub recent_topics: Vec<String>,
}

/// Bounds on a run. Every field is optional: what is absent comes from the task type, then the
/// pattern, then the fleet's settings.
#[apply(Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLimits {
    /// Iterations of one session before it must end with its best partial answer.
    pub max_iterations: Option<u32>,
    /// Subagents of one fan-out.
    pub max_subagents: Option<u32>,
    /// Levels of fan-out below this session; 0 forbids it.
    pub max_depth: Option<u32>,
    /// Sessions that may still be created in this tree, below this session.
    pub max_sessions: Option<u32>,
    /// Model tokens, input and output together, for this session and all below it.
    pub max_tokens: Option<u64>,
    /// Money for this session and all below it, in the currency of the model profiles' prices.
    pub max_cost: Option<Money>,
    /// Model calls of this session and all below it.
    pub max_model_calls: Option<u64>,
    /// Tool calls of this session and all below it.
    pub max_tool_calls: Option<u64>,
    /// How often a plan may be revised.
    pub max_replan_depth: Option<u32>,
    /// How often a critique may send an agent back.
    pub max_reflections: Option<u32>,
    /// How long a fan-out waits for its subagents, in milliseconds.
    pub subagent_timeout_ms: Option<u64>,
    /// How long the whole run may take, in milliseconds.
    pub run_timeout_ms: Option<u64>,
}

/// What one step hands to the next beside the spec's fields. Callers leave it out; what a gateway
/// receives in it from outside is dropped.
#[apply(
    SessionId => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "SessionId::is_empty")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
    String => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "String::is_empty")],
    u32 => #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")],
    Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")],
    Millis => #[serde(default, deserialize_with = "instant")]
        #[serde(skip_serializing_if = "is_zero_millis")],
)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunControl {
    /// The root session of the tree; empty on the root itself before its first step.
    pub root: SessionId,
    /// For whom the tree is worked, as the door found out; absent where whoever holds the data directory
    /// asked, who may do everything.
    pub principal: Option<Principal>,
    /// The fan-outs above this session, the parent's last: whichever has its verdict ends this
    /// session's work.
    pub ancestors: Vec<Ancestor>,
    /// What the parent found relevant for this subagent.
    pub context: String,
    /// Position among the siblings, from 0.
    pub index: u32,
    /// Step of the fan-out whose verdict this synthesis answers.
    pub fan_in_step: Option<u32>,
    /// The session whose fan-out that is, if not this one: it was forked from it.
    pub fan_in_session: SessionId,
    /// Where this session goes on from another; on its first step only.
    pub forked_from: Option<ForkedFrom>,
    /// The config version this run's decisions are taken under.
    pub config_version: Option<u64>,
    /// When the session's first step was committed.
    pub started_at: Millis,
    /// When the step before was committed. What follows from it is never told as earlier, whatever
    /// a worker's clock says.
    pub after: Millis,
    /// After this instant only a model-free outcome is committed; 0 means none.
    pub hard_deadline: Millis,
    /// What this session has spent so far, its finished children included.
    #[serde(flatten, with = "crate::spent::so_far")]
    #[schemars(with = "crate::spent::so_far::Named")]
    pub spent: Spent,
    /// Rounds of fan-out done by this session.
    pub rounds: u32,
    /// What the session's pattern hands to its own next step, by `of`: `react` has `retries`, `repeats` and
    /// `reflections`, `plan` has `replans` and `replan`. What is anything else counts as nothing.
    #[serde(default, deserialize_with = "state")]
    #[serde(skip_serializing_if = "PatternState::is_nothing")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub state: PatternState,
    /// The specialist that works this session; empty if none.
    pub specialist: String,
    /// The reasoner of a debate that this session is; empty if it is none.
    pub reasoner: String,
    /// How the fan-out above came by the pattern of this subagent.
    pub pattern_by: Option<DecidedBy>,
    /// Key of the model profile that comes before those of the operations; empty if none.
    pub profile: String,
    /// A call that waits for a person, or that one approved.
    pub held: Option<HeldCall>,
    /// What tools gave so far that later calls may need, each name once.
    pub known: Vec<Known>,
    /// Where the run stands in its tool policy; absent before its first call, and where there is none.
    pub position: Option<Box<PolicyPosition>>,
    /// What the gate of the task type made of the message; absent where it has none, and before it.
    pub brief: Option<Box<Brief>>,
    /// Tools that who asks does not want to be used, as globs in which `*` stands for any characters.
    pub without: Vec<String>,
    /// What was asked and answered before in the conversation, the oldest first; on a root, and on those
    /// who debate its question.
    pub conversation: Vec<Exchange>,
    /// What is remembered for who asks, where a specialist's context asks for it; on a root only.
    pub memories: Vec<Memory>,
    /// What was left of the tenant's quota when the run began; on a root only.
    pub quota: Option<QuotaLeft>,
    /// Whose iterations the history begins with, where they are not this session's own.
    pub lineage: Vec<Lineage>,
    /// What this session and those below it took results from so far.
    pub sources: Vec<Source>,
    /// SHA-256 of the record of the step before.
    pub previous: Option<Digest>,
    /// URI of the provenance node the next one derives from.
    pub derives_from: String,
}

/// Somebody who was let in at a door, or on whose behalf a trusted producer asks.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    pub name: String,
    /// Whose data it sees; never another's.
    pub tenant: String,
    /// Which tools with a permission it may call, as globs in which `*` stands for any characters.
    pub permissions: Vec<String>,
}

/// What a pattern hands to its own next step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum PatternState {
    #[default]
    None,
    React(ReactState),
    Plan(PlanState),
}

/// Of a loop of thoughts and calls, with critiques or without.
#[apply(u32 => #[serde(default, deserialize_with = "count")])]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactState {
    /// Replies of the model in a row that could not be used.
    pub retries: u32,
    /// How often the session was told that it repeats a call.
    pub repeats: u32,
    /// How often a critique sent it back.
    pub reflections: u32,
}

/// Of a plan.
#[apply(u32 => #[serde(default, deserialize_with = "count")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanState {
    /// How often it was revised.
    pub replans: u32,
    /// Why the rest of it is to be revised next; empty if it is not.
    pub replan: String,
}

impl PatternState {
    /// What another pattern left, counts as nothing.
    pub fn react(&self) -> ReactState {
        match self {
            Self::React(state) => *state,
            Self::None | Self::Plan(_) => ReactState::default(),
        }
    }

    /// Changes that of ReACT.
    pub fn set_react(&mut self, change: impl FnOnce(&mut ReactState)) {
        let mut state = self.react();
        change(&mut state);
        *self = Self::React(state);
    }

    /// As [`react`](Self::react).
    pub fn plan(&self) -> PlanState {
        match self {
            Self::Plan(state) => state.clone(),
            Self::None | Self::React(_) => PlanState::default(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.react() == ReactState::default() && self.plan() == PlanState::default()
    }
}

/// A state that this program does not know is none: the message may be of a pattern that it does not run.
fn state<'de, D: serde::Deserializer<'de>>(d: D) -> Result<PatternState, D::Error> {
    let state = Option::<serde_json::Map<_, _>>::deserialize(d)?.unwrap_or_default();
    Ok(serde_json::from_value(state.into()).unwrap_or_default())
}

/// Something a tool's result was taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    #[serde(default, deserialize_with = "null_default")]
    pub uri: String,
    #[serde(default, deserialize_with = "null_default")]
    pub title: String,
}

/// A call that a session does not make without a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldCall {
    #[serde(default, deserialize_with = "null_default")]
    pub approval: ApprovalId,
    #[serde(default, deserialize_with = "null_default")]
    pub tool: String,
    #[serde(default, deserialize_with = "null_default")]
    pub arguments: BTreeMap<String, String>,
    /// What the agent thought when it decided on the call.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub thought: String,
    /// Tools that the model wanted beside it.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub not_run: Vec<String>,
    /// Whether it may be made now: the step before is the person's decision.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub approved: bool,
}

/// Whose iterations a history has, up to a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lineage {
    /// The session that made them; empty if the caller brought them along.
    #[serde(default)]
    pub session: SessionId,
    /// Number of the last one, from 1.
    #[serde(default, deserialize_with = "count")]
    pub iterations: u32,
}

/// A fan-out above a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ancestor {
    pub session: SessionId,
    #[serde(deserialize_with = "count")]
    pub step: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_millis(n: &Millis) -> bool {
    *n == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
