//! `tool` items: what an agent may call, and on which terms.

use super::OAuth;
use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Kinds of tool this product knows: the `type` of a `tool` item.
pub mod tool_kind {
    pub const KNOWLEDGE_QUERY: &str = "knowledge-query";
    pub const DOCUMENT_SEARCH: &str = "document-search";
    pub const DOCUMENT_FETCH: &str = "document-fetch";
    pub const TEXT_COMPLETION: &str = "text-completion";
    pub const PROMPT: &str = "prompt";
    pub const HTTP: &str = "http";
    pub const READ_BACK: &str = "read-back";
    /// A SELECT of the graph that the item gives.
    pub const SPARQL: &str = "sparql-select";
    /// A tool or a resource of an MCP server.
    pub const MCP: &str = "mcp";
    pub const MEMORY_GET: &str = "memory-get";
    pub const MEMORY_SET: &str = "memory-set";
    pub const MEMORY_LIST: &str = "memory-list";
    pub const MEMORY_DELETE: &str = "memory-delete";
    /// Another agent: a call is a run of its own, and its answer is the result.
    pub const AGENT: &str = "agent";
    /// A service that is asked over the queue.
    pub const TOOL_SERVICE: &str = "tool-service";
    pub const ALL: &[&str] = &[
        KNOWLEDGE_QUERY,
        DOCUMENT_SEARCH,
        DOCUMENT_FETCH,
        TEXT_COMPLETION,
        PROMPT,
        HTTP,
        READ_BACK,
        SPARQL,
        MCP,
        MEMORY_GET,
        MEMORY_SET,
        MEMORY_LIST,
        MEMORY_DELETE,
        AGENT,
        TOOL_SERVICE,
    ];
}

/// `tool`: something an agent may call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolItem {
    /// The name the model uses.
    pub name: String,
    /// Which kind of tool: `knowledge-query`, `document-search`, `document-fetch`,
    /// `text-completion`, `prompt`, `http`, `read-back`, `sparql-select`, `mcp`, `memory-get`,
    /// `memory-set`, `memory-list`, `memory-delete`, `agent`, `tool-service`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Arguments of kinds that have no fixed ones, one by one.
    #[serde(default, deserialize_with = "null_default")]
    pub arguments: Vec<ToolArgument>,
    /// The same as JSON Schema of one object, where they are nested, bounded, or have defaults; instead of
    /// `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Other names that models give an argument, by its own.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, Vec<String>>,
    #[serde(default = "default_group")]
    pub group: Vec<String>,
    /// State after the tool ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(
        rename = "applicable-states",
        alias = "available_in_states",
        default = "any_state"
    )]
    pub applicable_states: Vec<String>,
    /// Prompt id, for `prompt` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Restricts the tool to one collection; absent means the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Most results to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Address, for `http` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Method, for `http` tools; `GET` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Headers of each request, for `http` tools. `${NAME}` stands for the secret of that name, and
    /// `${run.tenant}` for the tenant of the run.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How to get the token that the service wants, for `http` tools, instead of a header `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
    /// Body of each request, for `http` tools with `POST`, `PUT` or `PATCH`: JSON in which a text `{name}` stands for
    /// the argument of that name. Absent means all arguments as one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Hosts beside that of `url` that an `http` tool may be redirected to.
    #[serde(rename = "allow-hosts", default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_hosts: Vec<String>,
    /// JSON Pointer to the part of an answer that is the result, for `http` and `mcp` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What of a result that is JSON later calls may need: by the name under which it is kept, a JSON Pointer to a
    /// text, a number, `true` or `false`, such as `"contact_id": "/id"`. It is shown to the agent, and fills
    /// required arguments of later calls that are missing.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
    /// The query, for `sparql-select` tools; each argument is a variable of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparql: Option<String>,
    /// Key of the item of its server, for `mcp` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The name that the server knows it by, for `mcp` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// URI of the resource that an `mcp` tool reads, instead of `tool`. `{name}` is an argument, encoded;
    /// `{+name}` is one as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Key of the item of its service, for `tool-service` tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The pattern that an `agent` works by; `react` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The specialist that an `agent` is; absent means the one that calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub specialist: Option<String>,
    /// What a call does to the world outside; absent follows from `side-effects` and the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The older way to say that a call changes something outside: `effect` is `not-idempotent`.
    #[serde(rename = "side-effects", default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub side_effects: bool,
    /// What a principal must be permitted for a call, such as `blog.delete`; absent needs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
    /// How often a call that cannot be reached or is out of time is made again; 1 if absent. Only for
    /// effects `read-only` and `idempotent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// How many calls a tenant may make.
    #[serde(
        rename = "rate-limit",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub rate_limit: Option<RateLimit>,
    /// Whether the same call may answer otherwise the next time, so that repeating it is no loop.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub repeatable: bool,
    /// Longest a call may take, in milliseconds.
    #[serde(
        rename = "timeout-ms",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout_ms: Option<u64>,
    /// Set where a person must approve each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// What the service of a `tool-service` tool is given, by the names of its `config-params`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// How a person is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// How long a person may take, in milliseconds; a day unless given.
    #[serde(rename = "timeout-ms", default = "a_day")]
    pub timeout_ms: u64,
    /// What counts as the answer if nobody gives one in time.
    #[serde(default)]
    pub default: DefaultAnswer,
    /// Why a person is asked, in words for that person.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub reason: String,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            timeout_ms: a_day(),
            default: DefaultAnswer::Deny,
            reason: String::new(),
        }
    }
}

fn a_day() -> u64 {
    24 * 60 * 60 * 1_000
}

/// The answer that counts where no person gave one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAnswer {
    #[default]
    Deny,
    Approve,
}

impl DefaultAnswer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Approve => "approve",
        }
    }
}

/// One argument of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolArgument {
    pub name: String,
    #[serde(rename = "type", default = "string_type")]
    pub kind: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    #[serde(default = "super::yes")]
    pub required: bool,
}

impl ToolArgument {
    /// What an agent is asked with.
    fn of_agent() -> [Self; 2] {
        let argument = |name: &str, description: &str, required| Self {
            name: name.to_owned(),
            kind: string_type(),
            description: description.to_owned(),
            required,
        };
        let context = "what the agent must know beside the question: it sees nothing else";
        [
            argument("question", "what the agent is to find out or do", true),
            argument("context", context, false),
        ]
    }
}

fn string_type() -> String {
    "string".to_owned()
}
fn default_group() -> Vec<String> {
    vec!["default".to_owned()]
}
fn any_state() -> Vec<String> {
    vec!["*".to_owned()]
}

/// What a call does to the world outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing. It may be made again.
    #[default]
    ReadOnly,
    /// Something, once, however often the same call is made. It may be made again.
    Idempotent,
    /// Something, each time. It is started at most once.
    NotIdempotent,
    /// Something that cannot be undone. It is started at most once, after a person approved it.
    Destructive,
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Idempotent => "idempotent",
            Self::NotIdempotent => "not-idempotent",
            Self::Destructive => "destructive",
        }
    }

    /// Whether the same call may be made more than once.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Idempotent)
    }
}

/// How many calls a tenant may make of a tool within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    pub calls: u32,
    /// Within how long, in milliseconds.
    #[serde(rename = "per-ms")]
    pub per_ms: u64,
}

impl ToolItem {
    /// What a call does outside.
    pub fn effect(&self) -> Effect {
        if let Some(effect) = self.effect {
            return effect;
        }
        let method = self.method.as_deref().unwrap_or_default();
        let reads = ["", "get", "head"].contains(&method.to_ascii_lowercase().as_str());
        let writes = match self.kind.as_str() {
            tool_kind::HTTP => !reads,
            tool_kind::MCP => self.resource.is_none(),
            tool_kind::TOOL_SERVICE => true,
            tool_kind::MEMORY_SET | tool_kind::MEMORY_DELETE => return Effect::Idempotent,
            _ => false,
        };
        if self.side_effects || writes {
            Effect::NotIdempotent
        } else {
            Effect::ReadOnly
        }
    }

    /// How a person is asked before a call, if one must be: as the item says, and always where the call
    /// cannot be undone.
    pub fn confirmation(&self) -> Option<Approval> {
        let cannot_be_undone = || {
            (self.effect() == Effect::Destructive).then(|| Approval {
                reason: "it cannot be undone".to_owned(),
                ..Approval::default()
            })
        };
        self.approval.clone().or_else(cannot_be_undone)
    }

    /// How often a failed call is made again.
    pub fn retries(&self) -> u32 {
        if self.effect().may_repeat() {
            self.retries.unwrap_or(1)
        } else {
            0
        }
    }

    /// The arguments one by one, whichever way the item gives them.
    pub fn declared(&self) -> Vec<ToolArgument> {
        if self.kind == tool_kind::AGENT {
            return ToolArgument::of_agent().into();
        }
        let Some(schema) = &self.parameters else {
            return self.arguments.clone();
        };
        let required = schema["required"].as_array();
        let is_required = |name: &str| {
            let names = required.into_iter().flatten();
            names.filter_map(Value::as_str).any(|one| one == name)
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .map(|(name, property)| ToolArgument {
                name: name.clone(),
                kind: property["type"].as_str().unwrap_or("any").to_owned(),
                description: property["description"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                required: is_required(name) && property.get("default").is_none(),
            })
            .collect()
    }
}

/// Whether one of some permissions allows what is needed; `*` stands for any characters.
pub fn permits<'a>(permissions: impl IntoIterator<Item = &'a String>, needed: &str) -> bool {
    permissions.into_iter().any(|held| fits(held, needed))
}

/// Whether a name fits a glob in which `*` stands for any characters.
pub fn fits(glob: &str, name: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A tool's name as all providers take it: they know no dots.
pub fn portable_name(name: &str) -> String {
    name.replace('.', "_")
}
