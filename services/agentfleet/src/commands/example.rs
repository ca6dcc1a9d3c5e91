//! `example`: services to try the fleet on. What starts one puts its items into the config, as `config seed` does.

use super::{audit, fallbacks, person};
use crate::cli::{ExampleDoing, Examples, StartExample};
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::{Error as NotChanged, Item, SeedReport, Seeder, seed};
use agentfleet_examples::{self as examples, Example, Service};
use agentfleet_schema::config::item_type;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use tokio::net::TcpListener;

pub(crate) async fn run(command: Examples, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let (example, doing) = match command {
        Examples::List(output) => return list(output.json, settings, ui),
        Examples::Business { doing } => (examples::BUSINESS, doing),
        Examples::Crm { doing } => (examples::CRM, doing),
    };
    match doing {
        ExampleDoing::Start(how) => start(example, &how, settings).await,
        ExampleDoing::Unload => unload(example, settings).await,
        ExampleDoing::Reset => {
            let (name, file) = (example.name, file(example, settings));
            if !file.exists() {
                let says = format!("the example `{name}` has no data in this data directory");
                let hint = format!("{} example {name} start", settings.program());
                return Err(Failure::not_found(says).hint(hint));
            }
            examples::reset(example, &file)?;
            outln!("The data of the example `{name}` is as it was at first.");
            Ok(())
        }
    }
}

fn list(json: bool, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    if json {
        let told = examples::ALL.map(|one| {
            json!({"name": one.name, "about": one.about, "port": one.port, "tries": one.tries,
                "items": by_type(&items(one, one.port).unwrap_or_default())})
        });
        return ui::json(&told);
    }
    let rows = examples::ALL.map(|one| {
        vec![
            one.name.to_owned(),
            one.port.to_string(),
            one.about.to_owned(),
        ]
    });
    ui.table(&["NAME", "PORT", "ABOUT"], 2, rows);
    errln!(
        "`{} example NAME start` serves one of them.",
        settings.program()
    );
    Ok(())
}

/// The database of an example: its own file, beside those of the fleet.
fn file(example: &Example, settings: &Settings) -> PathBuf {
    let folder = settings.data.join("examples");
    folder.join(format!("{}.sqlite", example.name))
}

/// The config items of an example that listens at a port.
fn items(example: &Example, port: u16) -> Result<Vec<Item>, Failure> {
    let files = example.items(port);
    let files = files
        .iter()
        .map(|(item_type, name, text)| (*item_type, *name, text.as_str()));
    Ok(seed::of_files(files)?)
}

fn by_type(items: &[Item]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item.item_type.as_str()).or_default() += 1;
    }
    counts
}

async fn start(
    example: &'static Example,
    how: &StartExample,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let port = how.port.unwrap_or(example.port);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.map_err(|error| {
        let says = format!("cannot listen on 127.0.0.1:{port}: {error}");
        Failure::new(Exit::Unavailable, says)
            .hint("choose another port with `--port`, or any free one with `--port 0`")
    })?;
    let port = listener.local_addr()?.port();
    let items = items(example, port)?;
    let report = load(example, items.clone(), settings).await?;
    let file = file(example, settings);
    let service = Service::open(example, &file)?;
    let url = example.address(port);
    if how.output.json {
        let loaded = by_type(&items);
        outln!(
            "{}",
            json!({"url": url, "loaded": loaded, "config": report})
        );
    } else {
        tell(example, &url, &by_type(&items), &report, settings);
    }
    let stop = async move {
        signals.next().await;
    };
    service.serve(listener, stop).await?;
    if !how.output.json {
        outln!("Stopped. What was changed stays in `{}`.", file.display());
    }
    Ok(())
}

/// Puts the items into the config, in the name of the example.
async fn load(
    example: &Example,
    items: Vec<Item>,
    settings: &Settings,
) -> Result<SeedReport, Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    fallbacks::check(&items, settings).await?;
    let report = store.config.seed(items, &seeder(example)).await?;
    if report.changed() {
        let by = by(example);
        let about = format!("{}: {report}", example.name);
        audit::note(&store, &by, "example start", &about).await?;
    }
    Ok(report)
}

/// Who the items are signed by: what people put is told apart from it.
fn seeder(example: &Example) -> Seeder {
    Seeder::Person(format!("example {}", example.name))
}

/// Who did it, for the audit log.
fn by(example: &Example) -> String {
    person::of_system().unwrap_or_else(|| seeder(example).author())
}

/// Types in the order in which their items can be deleted: what others need comes last.
const LAST_NEEDED: [&str; 5] = [
    item_type::AGENT_TASK_TYPE,
    item_type::SPECIALIST,
    item_type::TOOL_POLICY,
    item_type::TOOL,
    item_type::MODEL_PROFILE,
];

/// Takes the items of an example out of the config, as far as they are still its own.
async fn unload(example: &Example, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let config = &*store.config;
    let author = seeder(example).author();
    let (mut own, mut kept) = (Vec::new(), 0);
    for item in items(example, example.port)? {
        match config.get(&item.item_type, &item.key).await? {
            Some(found) if found.author == author => own.push(item),
            Some(found) if !seed::is_product(&found.author) => kept += 1,
            _ => {}
        }
    }
    let name = |item: &Item| (item.item_type.clone(), item.key.clone());
    let mut shipped = seed::embedded()?;
    shipped.retain(|item| own.iter().any(|one| name(one) == name(item)));
    own.retain(|item| shipped.iter().all(|one| name(one) != name(item)));
    own.sort_by_key(|item| LAST_NEEDED.iter().position(|one| *one == item.item_type));
    let (count, mut deleted) = (shipped.len(), 0);
    if count > 0 {
        let release = seed::Release::this().author();
        config.put(shipped, &release).await?;
    }
    for item in &own {
        match config.delete(&item.item_type, &item.key, &author).await {
            Ok(gone) => deleted += usize::from(gone.is_some()),
            // What a person changed may need it.
            Err(NotChanged::Invalid(problems)) => {
                for problem in &problems {
                    errln!("{} {} stays: {problem}", item.item_type, item.key);
                }
            }
            Err(other) => return Err(other.into()),
        }
    }
    let told = format!(
        "{deleted} deleted, {count} as they come with the program, {kept} left as changed by people"
    );
    if count + deleted > 0 {
        let about = format!("{}: {told}", example.name);
        audit::note(&store, &by(example), "example unload", &about).await?;
    }
    outln!("{told}");
    Ok(())
}

fn tell(
    example: &Example,
    url: &str,
    loaded: &BTreeMap<&str, usize>,
    report: &SeedReport,
    settings: &Settings,
) {
    let loaded: Vec<String> = loaded
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    outln!("Config {report}\n  of {}", loaded.join(", "));
    outln!(
        "Serving the example `{}` on {url}: {}",
        example.name,
        example.about
    );
    outln!("Try in another terminal:");
    for line in example.tries {
        outln!("  {} {line}", settings.program());
    }
    outln!("Ctrl-C stops it.");
}
