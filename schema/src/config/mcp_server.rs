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
    /// How to get the token that the server wants, instead of a header `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
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

/// How to get a bearer token with the credentials of this client, where a service wants OAuth 2.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct OAuth {
    /// Address of the token endpoint.
    #[serde(rename = "token-url")]
    pub token_url: String,
    /// `${NAME}` stands for the secret of that name.
    #[serde(rename = "client-id")]
    pub client_id: String,
    /// `${NAME}`: a secret is not written into the config.
    #[serde(rename = "client-secret")]
    pub client_secret: String,
    /// What the token is for, as the service names it; several with spaces between them.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scope: String,
}
