//! `AgentRequest` and its parts, as the orchestration spec names them, plus optional fields of ours.

use crate::Millis;
use crate::config::JoinPolicy;
use crate::id::{ApprovalId, CollectionName, ConversationId, CorrelationId, Digest, SessionId};
use crate::records::DecidedBy;
use crate::spent::{Money, Spent};
use crate::tolerant::{count, instant, null_default, string_map};
use crate::worked::ForkedFrom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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
    /// Name of the task type identified by the router.
    #[serde(default, deserialize_with = "null_default")]
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

    pub fn is_subagent(&self) -> bool {
        !self.parent_session_id.is_empty()
    }
}

/// One step in the history of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentStep {
    #[serde(default, deserialize_with = "null_default")]
    pub thought: String,
    /// Tool name, or what the step did.
    #[serde(default, deserialize_with = "null_default")]
    pub action: String,
    #[serde(default, deserialize_with = "string_map")]
    pub arguments: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_default")]
    pub observation: String,
    #[serde(default, deserialize_with = "null_default")]
    pub user: String,
    /// `react`, `plan`, `execute`, `supervise`, `synthesise`, `summary`; empty reads as `react`.
    #[serde(default, deserialize_with = "null_default")]
    pub step_type: String,
    /// The structured plan, on plan-then-execute steps.
    #[serde(default)]
    pub plan: Option<Vec<PlanStep>>,
    /// Goal to result (a document URI or a status), on synthesise steps.
    #[serde(default)]
    pub subagent_results: Option<BTreeMap<String, serde_json::Value>>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    #[serde(default, deserialize_with = "null_default")]
    pub goal: String,
    /// Suggested tool: advice, not a rule.
    #[serde(default, deserialize_with = "null_default")]
    pub tool_hint: String,
    /// Indices of the steps this one needs.
    #[serde(default, deserialize_with = "null_default")]
    pub depends_on: Vec<u32>,
    /// `pending`, `complete`, `failed` or `revised`.
    #[serde(default = "pending", deserialize_with = "status")]
    pub status: String,
    #[serde(default, deserialize_with = "null_default")]
    pub result: String,
    /// Who is to work on it; empty if it does not matter. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub specialist: String,
    /// Whether something is missing from its result. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub partial: bool,
}

impl Default for PlanStep {
    fn default() -> Self {
        Self {
            goal: String::new(),
            tool_hint: String::new(),
            depends_on: Vec::new(),
            status: pending(),
            result: String::new(),
            specialist: String::new(),
            partial: false,
        }
    }
}

fn pending() -> String {
    "pending".to_owned()
}

fn status<'de, D: serde::Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(d)?
        .filter(|s| !s.is_empty())
        .unwrap_or_else(pending))
}

/// The little that is needed to tell what a message is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutingContext {
    /// What kind of customer asks, such as `food_bakery`.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tenant_type: String,
    /// Services the customer has.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub active_services: Vec<String>,
    /// What was talked about before.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub recent_topics: Vec<String>,
}

/// Bounds on a run. Every field is optional: what is absent comes from the task type, then the
/// pattern, then the fleet's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLimits {
    /// Iterations of one session before it must end with its best partial answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Subagents of one fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_subagents: Option<u32>,
    /// Levels of fan-out below this session; 0 forbids it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Sessions that may still be created in this tree, below this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,
    /// Model tokens, input and output together, for this session and all below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Money for this session and all below it, in the currency of the model profiles' prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
    /// Model calls of this session and all below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u64>,
    /// Tool calls of this session and all below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// How often a plan may be revised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replan_depth: Option<u32>,
    /// How often a critique may send an agent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reflections: Option<u32>,
    /// How long a fan-out waits for its subagents, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_timeout_ms: Option<u64>,
    /// How long the whole run may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
}

/// What one step hands to the next beside the spec's fields. Callers leave it out; what a gateway
/// receives in it from outside is dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunControl {
    /// The root session of the tree; empty on the root itself before its first step.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "SessionId::is_empty"
    )]
    pub root: SessionId,
    /// The fan-outs above this session, the parent's last: whichever has its verdict ends this
    /// session's work.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ancestors: Vec<Ancestor>,
    /// What the parent found relevant for this subagent.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub context: String,
    /// Position among the siblings, from 0.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub index: u32,
    /// Step of the fan-out whose verdict this synthesis answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_in_step: Option<u32>,
    /// The session whose fan-out that is, if not this one: it was forked from it.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "SessionId::is_empty"
    )]
    pub fan_in_session: SessionId,
    /// Where this session goes on from another; on its first step only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The config version this run's decisions are taken under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u64>,
    /// When the session's first step was committed.
    #[serde(
        default,
        deserialize_with = "instant",
        skip_serializing_if = "is_zero_millis"
    )]
    pub started_at: Millis,
    /// When the step before was committed. What follows from it is never told as earlier, whatever
    /// a worker's clock says.
    #[serde(
        default,
        deserialize_with = "instant",
        skip_serializing_if = "is_zero_millis"
    )]
    pub after: Millis,
    /// After this instant only a model-free outcome is committed; 0 means none.
    #[serde(
        default,
        deserialize_with = "instant",
        skip_serializing_if = "is_zero_millis"
    )]
    pub hard_deadline: Millis,
    /// What this session has spent so far, its finished children included.
    #[serde(flatten, with = "crate::spent::so_far")]
    #[schemars(with = "crate::spent::so_far::Named")]
    pub spent: Spent,
    /// Rounds of fan-out done by this session.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// Replies of the model in a row that could not be used.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// How often this session revised its plan.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub replans: u32,
    /// Why the rest of the plan is to be revised next; empty if it is not.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub replan: String,
    /// How often this session was told that it repeats a call.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub repeats: u32,
    /// How often a critique sent this session back.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub reflections: u32,
    /// The specialist that works this session; empty if none.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub specialist: String,
    /// The reasoner of a debate that this session is; empty if it is none.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub reasoner: String,
    /// How the fan-out above came by the pattern of this subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern_by: Option<DecidedBy>,
    /// Key of the model profile that comes before those of the operations; empty if none.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub profile: String,
    /// A call that waits for a person, or that one approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldCall>,
    /// Whose iterations the history begins with, where they are not this session's own.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub lineage: Vec<Lineage>,
    /// What this session and those below it took results from so far; absent where workers of an older
    /// version kept no account of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<Source>>,
    /// SHA-256 of the record of the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// URI of the provenance node the next one derives from.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub derives_from: String,
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
