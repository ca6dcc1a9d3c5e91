//! `tools import mcp`: the tools of an MCP server as items of the config.

use super::super::{audit, person};
use crate::cli::ImportMcp;
use crate::engine::{mcp_commands, secrets};
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui;
use agentfleet_config::{Item, validate};
use agentfleet_schema::config::{McpServer, OAuth, Snapshot, ToolItem, fits, item_type, tool_kind};
use agentfleet_tools::mcp::{Servers, Wanted};

pub(super) async fn import(
    store: &Store,
    settings: &Settings,
    snapshot: &Snapshot,
    wanted: Box<ImportMcp>,
) -> Result<(), Failure> {
    let server = server(snapshot, &wanted)?;
    let name = &wanted.server;
    let prefix = wanted.prefix.clone().unwrap_or_else(|| format!("{name}."));
    let servers = Servers::new(secrets(settings), mcp_commands(settings))?;
    let chosen = Wanted {
        prefix: &prefix,
        only: &wanted.putting.only,
    };
    let offered = Box::pin(servers.offered(&server, chosen)).await;
    let mut offered = offered.map_err(|says| Failure::new(Exit::Unavailable, says))?;
    let mut items = Vec::new();
    let mut lines = Vec::new();
    for tool in offered.tools {
        let known = snapshot.tools.get(&tool.name);
        if known.is_some_and(|known| known.server.as_ref() != Some(name)) {
            let says = format!("{}: there is another tool of this name", tool.name);
            offered.left_out.push(says);
            continue;
        }
        let fresh = merged(known, tool.clone(), &wanted.putting.group);
        let item = item(&fresh);
        let problems = validate::items(std::slice::from_ref(&item));
        if let Some(problem) = problems.first() {
            offered
                .left_out
                .push(format!("{}: {}", fresh.name, problem.reason));
            continue;
        }
        let change = match known {
            None => "new",
            Some(known) if *known == fresh => "same",
            Some(_) => "changed",
        };
        lines.push(format!(
            "{change:<8} {} ({})",
            fresh.name,
            fresh.effect().as_str()
        ));
        if fresh.effect() != tool.effect() {
            errln!(
                "{}: the server says {}, and the item keeps {}",
                fresh.name,
                tool.effect().as_str(),
                fresh.effect().as_str()
            );
        }
        items.push(item);
    }
    let gone = gone(snapshot, name, &wanted.putting.only, &items);
    lines.extend(gone.iter().map(|name| format!("gone     {name}")));
    for says in &offered.left_out {
        errln!("left out: {says}");
    }
    if wanted.putting.dry_run {
        for line in &lines {
            errln!("{line}");
        }
        let values: Vec<_> = items.iter().map(|item| &item.value).collect();
        return ui::json(&values);
    }
    if items.is_empty() && gone.is_empty() {
        return Err(Failure::not_found("nothing of the server became a tool"));
    }
    let author = person::name(wanted.putting.by.as_deref())?;
    items.push(Item {
        item_type: item_type::MCP_SERVER.to_owned(),
        key: name.clone(),
        value: serde_json::to_value(&server).unwrap_or_default(),
    });
    let mut version = store.config.put(items, &author).await?;
    if wanted.prune {
        for name in &gone {
            let deleted = store.config.delete(item_type::TOOL, name, &author).await?;
            version = deleted.unwrap_or(version);
        }
    }
    let about = format!("mcp {name}: {}, version {version}", lines.join(", "));
    audit::note(store, &author, "tools import", &about).await?;
    outln!("MCP server `{name}` at version {version}:");
    for line in lines {
        outln!("  {line}");
    }
    if !gone.is_empty() && !wanted.prune {
        errln!("What is gone is kept; `--prune` deletes it.");
    }
    Ok(())
}

/// The tools of a server that are among the items no more.
fn gone(snapshot: &Snapshot, server: &str, only: &str, items: &[Item]) -> Vec<String> {
    let is_gone = |tool: &&ToolItem| {
        let is_own = tool.kind == tool_kind::MCP && tool.server.as_deref() == Some(server);
        let is_meant = fits(only, &tool.name);
        is_own && is_meant && !items.iter().any(|item| item.key == tool.name)
    };
    let tools = snapshot.tools.values().filter(is_gone);
    tools.map(|tool| tool.name.clone()).collect()
}

/// The server as the command line gives it, else as the config has it.
fn server(snapshot: &Snapshot, wanted: &ImportMcp) -> Result<McpServer, Failure> {
    let name = &wanted.server;
    let known = snapshot.mcp_servers.get(name);
    let mut command = wanted.command.iter().cloned();
    let program = command.next();
    if program.is_none() && wanted.server_url.is_none() {
        return known.cloned().ok_or_else(|| {
            Failure::not_found(format!("there is no MCP server `{name}`"))
                .hint("say where it is: `--server-url URL`, or `-- PROGRAM ARGUMENTS`")
        });
    }
    let mut server = McpServer {
        name: name.clone(),
        description: known.map_or_else(String::new, |known| known.description.clone()),
        url: wanted.server_url.clone(),
        headers: wanted.header.iter().cloned().collect(),
        oauth: oauth(wanted),
        command: program,
        args: command.collect(),
        env: wanted.env.iter().cloned().collect(),
    };
    // The same server as before: what is not said again stays.
    let same = |known: &&McpServer| known.url == server.url && known.command == server.command;
    if let Some(known) = known.filter(same) {
        if server.headers.is_empty() {
            server.headers.clone_from(&known.headers);
        }
        if server.oauth.is_none() {
            server.oauth.clone_from(&known.oauth);
        }
        if server.env.is_empty() {
            server.env.clone_from(&known.env);
        }
    }
    Ok(server)
}

fn oauth(wanted: &ImportMcp) -> Option<OAuth> {
    Some(OAuth {
        token_url: wanted.oauth_token_url.clone()?,
        client_id: wanted.oauth_client.clone()?,
        client_secret: format!("${{{}}}", wanted.oauth_secret.as_ref()?),
        scope: wanted.oauth_scope.clone().unwrap_or_default(),
    })
}

/// What the server says in place of what it said before; the rest is the operator's.
fn merged(known: Option<&ToolItem>, told: ToolItem, group: &[String]) -> ToolItem {
    match known {
        Some(known) => ToolItem {
            description: told.description,
            parameters: told.parameters,
            tool: told.tool,
            resource: told.resource,
            ..known.clone()
        },
        None => ToolItem {
            group: group.to_vec(),
            ..told
        },
    }
}

fn item(tool: &ToolItem) -> Item {
    Item {
        item_type: item_type::TOOL.to_owned(),
        key: tool.name.clone(),
        value: serde_json::to_value(tool).unwrap_or_default(),
    }
}
