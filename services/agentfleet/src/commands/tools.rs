//! `tools`: what agents may call, on which terms, and calling one by hand.

mod mcp;
mod serve;
mod test;

pub(super) use test::finding;

use super::{audit, person};
use crate::cli::{CallTool, ImportTools, Putting, Tools};
use crate::engine::Engine;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::Item;
use agentfleet_console::text;
use agentfleet_core::pipeline;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Effect, Fallbacks, Snapshot, ToolItem, item_type};
use agentfleet_tools::{CallContext, ToolCall, openapi};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A tool with what follows from its item.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    item: &'a ToolItem,
    /// What a call does outside, whether the item says so or its kind does.
    effect: Effect,
    needs_person: bool,
    retries: u32,
}

impl<'a> Shown<'a> {
    fn of(item: &'a ToolItem) -> Self {
        Self {
            item,
            effect: item.effect(),
            needs_person: item.confirmation().is_some(),
            retries: item.retries(),
        }
    }
}

pub(crate) async fn run(command: Tools, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let snapshot = store.config.snapshot().await?;
    match command {
        Tools::List { output } => list(&snapshot, output.json, ui),
        Tools::Show { name } => {
            let item = find(&snapshot, &name)?;
            let service = item.service.as_ref();
            let service = service.and_then(|name| snapshot.tool_services.get(name));
            let engine = Engine::open(store, settings, &|_, _| ()).await?;
            let mut value = serde_json::to_value(Shown::of(item)).unwrap_or_default();
            value["parameters"] = engine.tools.parameters(item);
            if let Some(service) = service {
                value["service-item"] = serde_json::to_value(service).unwrap_or_default();
            }
            ui::json(&value)
        }
        Tools::Import(ImportTools::Openapi {
            source,
            prefix,
            base,
            putting,
        }) => import(&store, &source, &prefix, base.as_deref(), putting).await,
        Tools::Import(ImportTools::Mcp(wanted)) => {
            Box::pin(mcp::import(&store, settings, &snapshot, wanted)).await
        }
        Tools::Test { names, output } => {
            Box::pin(test::test(
                store,
                settings,
                &snapshot,
                &names,
                output.json,
                ui,
            ))
            .await
        }
        Tools::Serve(wanted) => Box::pin(serve::serve(store, settings, &snapshot, wanted)).await,
        Tools::Call(wanted) => call(store, settings, &snapshot, wanted).await,
    }
}

fn list(snapshot: &Snapshot, json: bool, ui: Ui) -> Result<(), Failure> {
    let shown: Vec<Shown<'_>> = snapshot.tools.values().map(Shown::of).collect();
    if json {
        return ui::json(&shown);
    }
    let rows = shown.iter().map(|one| {
        vec![
            one.item.name.clone(),
            one.item.kind.clone(),
            one.effect.as_str().to_owned(),
            if one.needs_person { "yes" } else { "no" }.to_owned(),
            one.item.permission.clone().unwrap_or_default(),
            one.item.group.join(", "),
        ]
    });
    ui.table(
        &[
            "NAME",
            "TYPE",
            "EFFECT",
            "ASKS A PERSON",
            "PERMISSION",
            "GROUPS",
        ],
        1,
        rows,
    );
    Ok(())
}

/// Puts a tool for each operation of a description into the config.
async fn import(
    store: &Store,
    source: &str,
    prefix: &str,
    base: Option<&str>,
    putting: Putting,
) -> Result<(), Failure> {
    let Putting {
        only,
        group,
        dry_run,
        by,
    } = putting;
    let description = description(source).await?;
    let wanted = openapi::Wanted {
        prefix,
        only: &only,
        base,
    };
    let imported = openapi::tools(&description, wanted);
    let imported = imported.map_err(|says| Failure::usage(format!("`{source}`: {says}")))?;
    let items = imported.tools.into_iter().map(|mut tool| {
        tool.group.clone_from(&group);
        tool
    });
    let items: Vec<ToolItem> = items.collect();
    for says in &imported.left_out {
        errln!("left out: {says}");
    }
    if dry_run {
        return ui::json(&items);
    }
    if items.is_empty() {
        return Err(Failure::not_found("no operation became a tool"));
    }
    let author = person::name(by.as_deref())?;
    let names: Vec<String> = items.iter().map(|tool| tool.name.clone()).collect();
    let items = items.into_iter().map(|tool| Item {
        item_type: item_type::TOOL.to_owned(),
        key: tool.name.clone(),
        value: serde_json::to_value(tool).unwrap_or_default(),
    });
    let version = store.config.put(items.collect(), &author).await?;
    let about = format!("{source}: {}, version {version}", names.join(", "));
    audit::note(store, &author, "tools import", &about).await?;
    outln!(
        "{} at version {version}:",
        text::counted(names.len() as u64, "tool")
    );
    for name in names {
        outln!("  {name}");
    }
    Ok(())
}

/// Calls a tool as an agent would.
async fn call(
    store: Store,
    settings: &Settings,
    snapshot: &Arc<Snapshot>,
    wanted: CallTool,
) -> Result<(), Failure> {
    let given = wanted.set.into_iter().collect();
    let (item, arguments) = prepared(snapshot, &wanted.name, &given)?;
    if !item.effect().may_repeat() && !wanted.yes {
        let says = format!(
            "Call `{}`, whose effect is {}?",
            item.name,
            item.effect().as_str()
        );
        ui::agreed(&says, "nothing was called")?;
    }
    let now = store.host.now();
    let engine = Engine::open(store, settings, &|_, _| ()).await?;
    let call = ToolCall {
        tool: item,
        arguments,
        collection: wanted.collection.as_str().into(),
        context: CallContext {
            session: String::new(),
            root: String::new(),
            tenant: String::new(),
            user: wanted.user.unwrap_or_default(),
            now,
            lineage: Vec::new(),
            idempotency_key: uuid::Uuid::new_v4().to_string(),
            config: Arc::clone(snapshot),
            fallbacks: Fallbacks::All,
        },
    };
    let result = engine.tools.call(call).await?;
    if wanted.output.json {
        ui::json(&serde_json::json!({
            "content": result.content,
            "is_error": result.is_error,
            "trouble": result.trouble,
            "sources": result.sources,
        }))?;
    } else if !result.is_error {
        outln!("{}", result.content);
    }
    if result.is_error {
        let exit = if result.trouble.is_some() {
            Exit::Unavailable
        } else {
            Exit::Failed
        };
        return Err(Failure::new(exit, result.content));
    }
    Ok(())
}

/// A call as the stages before it would let it through.
fn prepared(
    snapshot: &Snapshot,
    name: &str,
    given: &BTreeMap<String, String>,
) -> Result<pipeline::Prepared, Failure> {
    let request = AgentRequest::default();
    let mut decided = Vec::new();
    let visible: Vec<ToolItem> = snapshot.tools.values().cloned().collect();
    let prepared = pipeline::prepare(&request, snapshot, &visible, name, given, &mut decided);
    for one in decided {
        errln!("{}: {}", one.subject, one.signal);
    }
    prepared
        .map_err(|stopped| Failure::usage(stopped.text.trim_start_matches("Error: ").to_owned()))
}

/// Largest description that is read, in bytes, and how long its service may take.
const MAX_DESCRIPTION: usize = 8 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

/// A description, from a file or an address, in JSON or YAML.
async fn description(source: &str) -> Result<serde_json::Value, Failure> {
    let is_address = source.starts_with("http://") || source.starts_with("https://");
    let text = if is_address {
        fetched(source).await.map_err(|says| {
            Failure::new(Exit::Unavailable, format!("cannot read `{source}`: {says}"))
        })?
    } else {
        std::fs::read_to_string(source)
            .map_err(|error| Failure::usage(format!("cannot read `{source}`: {error}")))?
    };
    if text.len() > MAX_DESCRIPTION {
        let says = format!("`{source}` has more than {MAX_DESCRIPTION} bytes");
        return Err(Failure::usage(says));
    }
    if let Ok(description) = serde_json::from_str(&text) {
        return Ok(description);
    }
    serde_saphyr::from_str(&text)
        .map_err(|error| Failure::usage(format!("`{source}` is neither JSON nor YAML: {error}")))
}

async fn fetched(source: &str) -> Result<String, String> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build();
    let client = client.map_err(|error| error.to_string())?;
    let response = client.get(source).send().await;
    let mut response = response
        .and_then(reqwest::Response::error_for_status)
        .map_err(|error| error.without_url().to_string())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| error.without_url().to_string())?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_DESCRIPTION {
            return Err(format!("it has more than {MAX_DESCRIPTION} bytes"));
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a ToolItem, Failure> {
    snapshot.tools.get(name).ok_or_else(|| {
        let names: Vec<String> = snapshot
            .tools
            .keys()
            .map(|one| format!("`{one}`"))
            .collect();
        Failure::not_found(format!("there is no tool `{name}`"))
            .hint(format!("there are {}", names.join(", ")))
    })
}
