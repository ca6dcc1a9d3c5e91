//! `tools test`, and what `doctor` says of tools: whether each could be called.

use crate::engine::Engine;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_schema::config::{Snapshot, ToolItem, fits};
use agentfleet_schema::redacted;
use serde::Serialize;
use std::collections::BTreeMap;

/// What was found of one tool.
#[derive(Serialize)]
struct Looked {
    name: String,
    ok: bool,
    says: String,
}

pub(super) async fn test(
    store: Store,
    settings: &Settings,
    snapshot: &Snapshot,
    names: &[String],
    json: bool,
    ui: Ui,
) -> Result<(), Failure> {
    let all = snapshot.tools.values();
    let is_meant = |name: &str| names.is_empty() || names.iter().any(|glob| fits(glob, name));
    let tools: Vec<&ToolItem> = all.filter(|tool| is_meant(&tool.name)).collect();
    for name in names {
        if !tools.iter().any(|tool| fits(name, &tool.name)) {
            let says = format!("there is no tool `{name}`");
            return Err(Failure::not_found(says).hint("agentfleet tools list"));
        }
    }
    let engine = Engine::open(store, settings, &|_, _| ()).await?;
    let looked = look(&engine, tools, snapshot).await;
    if json {
        ui::json(&looked)?;
    } else {
        let rows = looked.iter().map(|one| {
            let mark = if one.ok { "ok" } else { "BAD" };
            vec![
                one.name.clone(),
                mark.to_owned(),
                text::line(&one.says).to_string(),
            ]
        });
        ui.table(&["TOOL", "", "FOUND"], 3, rows);
    }
    let bad = looked.iter().filter(|one| !one.ok).count();
    if bad > 0 {
        let says = format!("{} cannot be called", text::counted(bad as u64, "tool"));
        return Err(Failure::new(Exit::Failed, says));
    }
    Ok(())
}

/// What `doctor` says of all tools.
pub(in crate::commands) async fn finding(
    engine: &Engine,
    snapshot: &Snapshot,
) -> Result<String, Failure> {
    let looked = look(engine, snapshot.tools.values().collect(), snapshot).await;
    // A server that is away takes all of its tools with it.
    let mut bad: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in looked.iter().filter(|one| !one.ok) {
        bad.entry(&one.says).or_default().push(&one.name);
    }
    if bad.is_empty() {
        let counted = text::counted(looked.len() as u64, "tool");
        return Ok(format!("{counted}, and what they need is there"));
    }
    let told = bad.into_iter().map(|(says, names)| match names[..] {
        [one] => format!("{one}: {says}"),
        [first, ..] => format!("{first} and {} more: {says}", names.len() - 1),
        [] => String::new(),
    });
    let told = told.collect::<Vec<_>>().join("; ");
    Err(Failure::new(Exit::Unavailable, told).hint("agentfleet tools test"))
}

async fn look(engine: &Engine, tools: Vec<&ToolItem>, snapshot: &Snapshot) -> Vec<Looked> {
    let looked = Box::pin(engine.toolbox.look(tools, snapshot)).await;
    let looked = looked.into_iter().map(|(tool, found)| Looked {
        name: tool.name.clone(),
        ok: found.is_ok(),
        says: redacted(&found.unwrap_or_else(|says| says)).into_owned(),
    });
    looked.collect()
}
