//! `mcp`: a tool or a resource of an MCP server, which has an item of its own in the config that the run is
//! pinned to.

use super::{Call, Failed, ToolKind, settled};
use crate::mcp::{Servers, parameters, read, told};
use crate::secrets::Used;
use crate::{Error, ToolResult};
use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::{McpServer, Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Trouble;
use agentfleet_schema::uris;
use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, ReadResourceRequestParams, RequestMetaObject};
use serde_json::{Map, Value};

pub(crate) struct Mcp(pub(crate) Servers);

/// What is sent beside the arguments: who asks, and the same key on every try of a call.
const SESSION: &str = "agentfleet/session";
const KEY: &str = "agentfleet/idempotency-key";

#[async_trait]
impl ToolKind for Mcp {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    async fn look(&self, tool: &ToolItem, config: &Snapshot) -> Result<String, String> {
        let mut used = Used::default();
        let looked = self.looked(tool, config, &mut used).await;
        looked.map_err(|failed| used.taken_out(&failed.says).into_owned())
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let mut used = Used::default();
        let tried = self.tried(&call, &mut used).await;
        Ok(settled(tried, &used))
    }
}

impl Mcp {
    async fn tried(&self, call: &Call, used: &mut Used) -> Result<ToolResult, Failed> {
        let item = &call.tool;
        let server = server(item, &call.context.config)?;
        let connection = self.0.connection(server, used).await?;
        let mut meta = RequestMetaObject::new();
        for (key, value) in [
            (SESSION, &call.context.session),
            (KEY, &call.context.idempotency_key),
        ] {
            if !value.is_empty() {
                meta.0.insert(key.to_owned(), value.as_str().into());
            }
        }
        let answered = match (&item.tool, &item.resource) {
            (Some(tool), _) => {
                let Value::Object(arguments) = call.arguments.to_value() else {
                    return Err(Failed::from("arguments are an object".to_owned()));
                };
                let mut params = CallToolRequestParams::new(tool.clone()).with_arguments(arguments);
                params.meta = Some(meta);
                let answer = connection.call(params).await;
                answer.map(|answer| told(item, &server.name, tool, answer))
            }
            (None, Some(template)) => {
                let uri = filled(template, &call.arguments)?;
                let mut params = ReadResourceRequestParams::new(uri);
                params.meta = Some(meta);
                let answer = connection.read(params).await;
                answer.map(|answer| read(item, answer))
            }
            (None, None) => {
                let says = format!("tool `{}` has neither `tool` nor `resource`", item.name);
                return Err(Failed::from(says));
            }
        };
        match answered {
            Ok(result) => Ok(result?),
            Err(failed) => {
                if failed.trouble == Some(Trouble::Unavailable) {
                    self.0.forget(&connection);
                    self.0.forget_tokens(used).await;
                }
                Err(failed)
            }
        }
    }

    async fn looked(
        &self,
        item: &ToolItem,
        config: &Snapshot,
        used: &mut Used,
    ) -> Result<String, Failed> {
        let server = server(item, config)?;
        let connection = self.0.connection(server, used).await?;
        let name = &server.name;
        let listed = connection.listed().await?;
        let who = connection.who();
        let Some(tool) = &item.tool else {
            return if listed.resources.is_empty() && listed.templates.is_empty() {
                Err(Failed::from(format!(
                    "MCP server `{name}` has no resources"
                )))
            } else {
                Ok(format!("MCP server `{name}` ({who}) has resources"))
            };
        };
        let Some(known) = listed.tools.iter().find(|one| one.name == *tool) else {
            let says = format!("MCP server `{name}` has no tool `{tool}`");
            return Err(Failed::from(says));
        };
        if item.parameters.is_some() && parameters(known).ok() != item.parameters {
            return Err(Failed::from(format!(
                "the parameters of `{tool}` at MCP server `{name}` are not those of the item: \
                 `agentfleet tools import mcp {name} --dry-run` shows them"
            )));
        }
        Ok(format!("MCP server `{name}` ({who}) has `{tool}`"))
    }
}

fn server<'a>(tool: &ToolItem, config: &'a Snapshot) -> Result<&'a McpServer, String> {
    let key = tool.server.as_deref().unwrap_or_default();
    config.mcp_servers.get(key).ok_or_else(|| {
        format!(
            "tool `{}` is of MCP server `{key}`, which is no item of the config",
            tool.name
        )
    })
}

/// A URI with arguments in the places of their names.
fn filled(template: &str, arguments: &Arguments) -> Result<String, String> {
    let given: Map<String, Value> = arguments
        .iter()
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    let mut uri = String::new();
    let mut left = template;
    while let Some((before, after)) = left.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(format!("`resource` is `{template}`: `{{` is not closed"));
        };
        uri.push_str(before);
        let (name, is_whole) = match name.strip_prefix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let text = match given.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => return Err(format!("`{name}` is part of the URI, and is missing")),
        };
        if is_whole {
            uri.push_str(&text);
        } else {
            uri.push_str(&uris::encode(&text));
        }
        left = behind;
    }
    uri.push_str(left);
    Ok(uri)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_uri_is_filled_with_arguments() {
        let declared = agentfleet_schema::arguments::text("day", "");
        let given = [("day".to_owned(), "a/b c".to_owned())].into();
        let arguments = Arguments::check(&[declared], &given).unwrap();
        for (template, expected) in [
            ("notes://x/{day}/all", Ok("notes://x/a%2Fb%20c/all")),
            ("{+day}", Ok("a/b c")),
            ("notes://x", Ok("notes://x")),
            (
                "notes://{hour}",
                Err("`hour` is part of the URI, and is missing"),
            ),
            (
                "notes://{day",
                Err("`resource` is `notes://{day`: `{` is not closed"),
            ),
        ] {
            let filled = filled(template, &arguments);
            let filled = filled.as_deref().map_err(String::as_str);
            assert_eq!(filled, expected);
        }
    }
}
