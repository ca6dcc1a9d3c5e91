//! `tool-service` items: services that are asked over the queue.

use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `tool-service`: which topics a service takes requests from and answers on. Its tools are items of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolService {
    /// The key of the item; may be left out.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What it is for.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it takes requests: a topic in full, or `request:TENANT:TOPIC`.
    #[serde(rename = "request-queue")]
    pub request_queue: String,
    /// Where it answers: a topic in full, or `response:TENANT:TOPIC`.
    #[serde(rename = "response-queue")]
    pub response_queue: String,
    /// What each of its tools may or must give it, beside the arguments of a call.
    #[serde(
        rename = "config-params",
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub config_params: Vec<NamedParam>,
}

/// A parameter, or its name alone where it may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NamedParam {
    Name(String),
    Param(ConfigParam),
}

/// What a tool gives its service: the value of the field of that name in the tool's item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigParam {
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub required: bool,
}

impl NamedParam {
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Param(param) => &param.name,
        }
    }

    pub fn is_required(&self) -> bool {
        matches!(self, Self::Param(param) if param.required)
    }
}
