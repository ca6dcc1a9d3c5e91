//! `mcp-server` items: servers of the Model Context Protocol, whose tools are items of their own.

use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `mcp-server`: where a server is, or which program it is. It has either `url` or `command`.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct McpServer {
    pub name: String,
    /// What it is for.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Address of a server that speaks the protocol over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request. `${NAME}` stands for the secret of that name.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Program that speaks the protocol on its standard input and output. Workers start those that their
    /// setting `mcp_commands` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What the program is started with.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables of its environment. `${NAME}` stands for the secret of that name.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
