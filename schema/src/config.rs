//! Config items by type, and the consistent set of them that a run is pinned to.

mod access;
mod mcp_server;
mod task_type;
mod tool;
mod tool_policy;
mod tool_service;

use crate::records::Usage;
use crate::request::RunLimits;
use crate::tolerant::null_default;
pub use access::{ANY_TENANT, Rights, RoleItem, TenantItem, action};
pub use mcp_server::{McpServer, OAuth};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;
use std::collections::BTreeMap;
pub use task_type::{
    AgentTaskType, Constraint, Evidence, EvidenceRun, Gate, JoinPolicy, Status,
    TerminationCriteria, choice,
};
pub use tool::{
    Approval, DefaultAnswer, Effect, RateLimit, ToolArgument, ToolItem, fits, permits,
    portable_name, tool_kind,
};
pub use tool_policy::{AvailableTools, Condition, PolicyStep, ToolPolicy, condition_type};
pub use tool_service::{ConfigParam, NamedParam, ToolService};

/// Config item types this product reads. Others are refused: nobody would read them.
pub mod item_type {
    pub const AGENT_PATTERN: &str = "agent-pattern";
    pub const AGENT_TASK_TYPE: &str = "agent-task-type";
    pub const PROMPT: &str = "prompt";
    pub const TOOL: &str = "tool";
    pub const MODEL_PROFILE: &str = "model-profile";
    pub const INTENT: &str = "intent";
    pub const SPECIALIST: &str = "specialist";
    pub const QUERY: &str = "query";
    pub const MCP_SERVER: &str = "mcp-server";
    pub const ROLE: &str = "role";
    pub const TENANT: &str = "tenant";
    pub const TOOL_POLICY: &str = "tool-policy";
    pub const TOOL_SERVICE: &str = "tool-service";
    pub const ALL: &[&str] = &[
        AGENT_PATTERN,
        AGENT_TASK_TYPE,
        PROMPT,
        TOOL,
        MODEL_PROFILE,
        INTENT,
        SPECIALIST,
        QUERY,
        MCP_SERVER,
        ROLE,
        TENANT,
        TOOL_POLICY,
        TOOL_SERVICE,
    ];
}

/// `agent-pattern`: one way to work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentPattern {
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Criteria shown to the model that chooses.
    #[serde(default, deserialize_with = "null_default")]
    pub when_to_use: String,
    /// Whether steps of a plan that do not depend on each other are worked on at the same time, by
    /// subagents.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub parallel: bool,
    /// Who takes part in a debate.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reasoners: Vec<Reasoner>,
    /// Below this confidence, from 0 to 1, a router gives a message to `general`; 0.5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<f64>,
    /// Most exchanges of the conversation that its prompts show, the newest; 20 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<u32>,
    #[serde(flatten)]
    pub limits: RunLimits,
}

/// One who takes part in a debate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reasoner {
    pub name: String,
    /// How it goes about the question; put before it.
    #[serde(default, deserialize_with = "null_default")]
    pub stance: String,
    /// The pattern it works by; empty means `react`.
    #[serde(default, deserialize_with = "null_default")]
    pub pattern: String,
    /// Key of the model profile with its model and temperature; empty means those of the operations.
    #[serde(default, deserialize_with = "null_default")]
    pub profile: String,
}

/// `prompt`: a template, rendered in a sandbox with the variables of its operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PromptItem {
    /// Template of the user message.
    pub prompt: String,
    /// Template of the system message; may be empty.
    #[serde(default, deserialize_with = "null_default")]
    pub system: String,
    /// `text` or `json`.
    #[serde(
        rename = "response-type",
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub response_type: String,
}

fn text_type() -> String {
    parameter_type::TEXT.to_owned()
}
fn yes() -> bool {
    true
}

/// `model-profile`: which model serves which operation, and what its tokens cost.
#[apply(Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelProfile {
    /// Model name as the provider knows it; empty keeps the fleet's.
    #[serde(default, deserialize_with = "null_default")]
    pub model: String,
    pub temperature: Option<f64>,
    /// Models to go to where this one is away, each as `PROVIDER:MODEL`, the first that can be had.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    #[serde(rename = "max-tokens")]
    pub max_tokens: Option<u32>,
    /// Tokens that prompt and reply may have together; absent means the fleet's setting.
    #[serde(rename = "context-window")]
    pub context_window: Option<u32>,
    /// Price of a million input tokens.
    #[serde(rename = "input-price")]
    pub input_price: Option<f64>,
    /// Price of a million output tokens.
    #[serde(rename = "output-price")]
    pub output_price: Option<f64>,
}

impl ModelProfile {
    /// Whether it says what both kinds of tokens cost.
    pub fn has_prices(&self) -> bool {
        self.input_price.is_some() && self.output_price.is_some()
    }

    /// What a call came to under these prices, unless the provider told. What has no price is told as such.
    #[must_use]
    pub fn priced(&self, usage: Usage) -> Usage {
        if usage.cost > 0.0 {
            return usage;
        }
        let price = |tokens: u64, of_a_million: Option<f64>| {
            tokens as f64 * of_a_million.unwrap_or_default() / 1_000_000.0
        };
        Usage {
            cost: price(usage.input_tokens, self.input_price)
                + price(usage.output_tokens, self.output_price),
            unpriced_calls: usage.unpriced_calls.max(u64::from(!self.has_prices())),
            ..usage
        }
    }
}

/// `intent`: something a message may be about, for the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Intent {
    pub name: String,
    /// What belongs to it.
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
}

/// `specialist`: who the router may give a message to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Specialist {
    pub name: String,
    /// What it is good for.
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Put before the framing.
    #[serde(default, deserialize_with = "null_default")]
    pub prompt: String,
    /// Names of the tools it may see, as globs in which `*` stands for any characters.
    #[serde(default, deserialize_with = "null_default")]
    pub tools: Vec<String>,
    /// What it is told beside the message: `tenant_type`, `active_services`, `recent_topics`, or a
    /// field of the classification such as `entities`.
    #[serde(default, deserialize_with = "null_default")]
    pub context: Vec<String>,
    /// Key of its model profile; empty means those of the operations.
    #[serde(default, deserialize_with = "null_default")]
    pub profile: String,
    /// Key of the policy that says in which order it may use its tools; empty means the task type's. Comes
    /// before that and before the caller's.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_policy: String,
    /// Most exchanges of the conversation that its prompts show, the newest. Comes before the pattern's and
    /// the task type's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<u32>,
}

/// `query`: a question to the provenance graph that analysts ask again and again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueryItem {
    /// What it answers, in a sentence or two.
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Variables of the query that are given when it is run.
    #[serde(default, deserialize_with = "null_default")]
    pub parameters: Vec<QueryParameter>,
    /// The query. Each parameter is a variable of the same name.
    pub sparql: String,
}

/// One parameter of a saved query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueryParameter {
    /// The variable's name, without `?`.
    pub name: String,
    /// What its value becomes: `text`, `integer`, `decimal`, `boolean`, `date-time`, `iri`, `session`.
    #[serde(rename = "type", default = "text_type")]
    pub kind: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Whether the query cannot run without it. One that may be left out and has no default stays a
    /// variable, and so stands for everything.
    #[serde(default = "yes")]
    pub required: bool,
    /// Its value where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// Types a parameter of a saved query may have.
pub mod parameter_type {
    pub const TEXT: &str = "text";
    pub const INTEGER: &str = "integer";
    pub const DECIMAL: &str = "decimal";
    pub const BOOLEAN: &str = "boolean";
    pub const DATE_TIME: &str = "date-time";
    pub const IRI: &str = "iri";
    /// A session's id; the value is its IRI.
    pub const SESSION: &str = "session";
    pub const ALL: &[&str] = &[TEXT, INTEGER, DECIMAL, BOOLEAN, DATE_TIME, IRI, SESSION];
}

/// One consistent set of config items, by type and key. Workers never see half a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The store's version after its newest change.
    pub version: u64,
    pub patterns: BTreeMap<String, AgentPattern>,
    /// Those in force.
    pub task_types: BTreeMap<String, AgentTaskType>,
    /// Those that are not: nothing but `discover` reads them.
    pub proposals: BTreeMap<String, AgentTaskType>,
    pub prompts: BTreeMap<String, PromptItem>,
    pub tools: BTreeMap<String, ToolItem>,
    pub profiles: BTreeMap<String, ModelProfile>,
    pub intents: BTreeMap<String, Intent>,
    pub specialists: BTreeMap<String, Specialist>,
    pub queries: BTreeMap<String, QueryItem>,
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub roles: BTreeMap<String, RoleItem>,
    pub tenants: BTreeMap<String, TenantItem>,
    pub tool_policies: BTreeMap<String, ToolPolicy>,
    pub tool_services: BTreeMap<String, ToolService>,
}

/// Which fallbacks of a profile a call to its model may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallbacks {
    #[default]
    All,
    /// Those that have a price: the run is bounded in money.
    Priced,
    /// Nowhere: whoever asked named the model.
    Nowhere,
}

/// Key of the profile of every operation that has none of its own.
pub const DEFAULT_PROFILE: &str = "default";

impl Snapshot {
    /// The role of a name: its item, or else the one that is shipped.
    pub fn role(&self, name: &str) -> Option<RoleItem> {
        let shipped = || RoleItem::all_shipped().into_iter().find(|r| r.name == name);
        self.roles.get(name).cloned().or_else(shipped)
    }

    /// Every role there is, by name.
    pub fn all_roles(&self) -> BTreeMap<String, RoleItem> {
        let shipped = RoleItem::all_shipped().into_iter();
        let mut all: BTreeMap<_, _> = shipped.map(|role| (role.name.clone(), role)).collect();
        all.extend(self.roles.clone());
        all
    }

    /// What bounds the use of a tenant, if anything does. The owner of the data directory has no tenant.
    pub fn quota(&self, tenant: &str) -> Option<&TenantItem> {
        if tenant.is_empty() {
            return None;
        }
        let own = self.tenants.get(tenant);
        own.or_else(|| self.tenants.get(ANY_TENANT))
            .filter(|item| !item.bounds_nothing())
    }

    /// The first profile there is of these keys, else the default one, else an empty one.
    pub fn profile(&self, keys: &[&str]) -> ModelProfile {
        let mut found = keys
            .iter()
            .chain(&[DEFAULT_PROFILE])
            .filter_map(|key| self.profiles.get(*key));
        found.next().cloned().unwrap_or_default()
    }

    /// Where a call goes, in this order, if the model of its profile is away.
    pub fn fallbacks(&self, profile: &ModelProfile, may: Fallbacks) -> Vec<String> {
        let may = |name: &&String| match may {
            Fallbacks::All => true,
            Fallbacks::Priced => self.prices(ModelProfile::default(), name).has_prices(),
            Fallbacks::Nowhere => false,
        };
        profile.fallbacks.iter().filter(may).cloned().collect()
    }

    /// The profile whose prices count where one serves a call: its own, unless the caller names another
    /// model and a profile knows that, or only another profile has prices for its model.
    pub fn prices(&self, serving: ModelProfile, named: &str) -> ModelProfile {
        if named.is_empty() && serving.has_prices() {
            return serving;
        }
        let model = if named.is_empty() {
            &serving.model
        } else {
            named
        };
        let same = || self.profiles.values().filter(|one| one.model == model);
        let priced = same().find(|profile| profile.has_prices());
        priced.or_else(|| same().next()).cloned().unwrap_or(serving)
    }
}
