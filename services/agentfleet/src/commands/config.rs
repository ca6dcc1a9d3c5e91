//! `config`: typed, versioned items, read and changed.

use super::{audit, fallbacks, person, tool_policy};
use crate::cli::Config;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::{ConfigStore, Item, ItemVersion, Seeder, seed};
use agentfleet_console::text;
use agentfleet_core::provenance::date_time;
use agentfleet_gateway as gateway;
use agentfleet_schema::config::{Snapshot, item_type};
use agentfleet_schema::records::ApiKeyRecord;
use std::io::Read as _;
use std::path::Path;

pub(crate) async fn run(command: Config, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    let config = &*store.config;
    match command {
        Config::List { item_type, output } => {
            let items = config.list(item_type.as_deref()).await?;
            if output.json {
                return ui::json(&items);
            }
            let columns = ["TYPE", "KEY", "VERSION", "BY", "SINCE"];
            ui.table(&columns, 2, items.iter().map(row));
            Ok(())
        }
        Config::Get {
            item_type,
            key,
            version,
        } => {
            let found = match version {
                None => config.get(&item_type, &key).await?,
                Some(version) => Some(at(config, &item_type, &key, version).await?),
            };
            match found {
                Some(found) => ui::json(&found.item.value),
                None => Err(missing(config, &item_type, &key).await?),
            }
        }
        Config::Explain {
            item_type,
            key,
            output,
        } => explain(config, &item_type, &key, output.json).await,
        Config::History {
            item_type,
            key,
            output,
        } => {
            let history = config.history(&item_type, &key).await?;
            if history.is_empty() {
                return Err(missing(config, &item_type, &key).await?);
            }
            show_history(&history, output.json, &settings.program(), ui)
        }
        Config::Put {
            item_type,
            key,
            file,
            by,
        } => {
            let author = person::name(by.as_deref())?;
            let item = read_item(item_type, key, &file)?;
            fallbacks::check(std::slice::from_ref(&item), settings).await?;
            put(&store, "config put", item, &author).await
        }
        Config::Prices { key: None, .. } => {
            show_prices(&*config.snapshot().await?, ui);
            Ok(())
        }
        Config::Prices {
            key: Some(key),
            model,
            input,
            output,
            by,
        } => {
            let author = person::name(by.as_deref())?;
            let item = priced(&*config.snapshot().await?, key, model, (input, output));
            put(&store, "config prices", item, &author).await
        }
        Config::Restore {
            item_type,
            key,
            version,
            by,
        } => {
            let author = person::name(by.as_deref())?;
            let item = at(config, &item_type, &key, version).await?.item;
            fallbacks::check(std::slice::from_ref(&item), settings).await?;
            put(&store, "config restore", item, &author).await
        }
        Config::Reset { item_type, key } => {
            reset(&store, item_type, key, &settings.program()).await
        }
        Config::Delete { item_type, key, by } => {
            let author = person::name(by.as_deref())?;
            delete(&store, &item_type, &key, &author, &settings.program()).await
        }
        Config::Seed { directory, by } => {
            seed_from(&store, directory.as_deref(), by.as_deref(), settings).await
        }
    }
}

/// A model profile with prices.
fn priced(
    set: &Snapshot,
    key: String,
    model: Option<String>,
    (input, output): (Option<f64>, Option<f64>),
) -> Item {
    let mut profile = set.profiles.get(&key).cloned().unwrap_or_default();
    profile.model = model.unwrap_or(profile.model);
    profile.input_price = input.or(profile.input_price);
    profile.output_price = output.or(profile.output_price);
    Item {
        item_type: item_type::MODEL_PROFILE.to_owned(),
        key,
        value: serde_json::to_value(profile).unwrap_or_default(),
    }
}

/// Draws a tool policy.
async fn explain(
    config: &dyn ConfigStore,
    item_type: &str,
    key: &str,
    json: bool,
) -> Result<(), Failure> {
    if item_type != item_type::TOOL_POLICY {
        let says = format!(
            "only items of type `{}` are drawn, not `{item_type}`",
            item_type::TOOL_POLICY
        );
        let hint = format!("agentfleet config get {item_type} {key}");
        return Err(Failure::usage(says).hint(hint));
    }
    let snapshot = config.snapshot().await?;
    match snapshot.tool_policies.get(key) {
        Some(policy) if json => ui::json(policy),
        Some(policy) => {
            outln!("{}", tool_policy::drawn(policy).trim_end());
            Ok(())
        }
        None => Err(missing(config, item_type, key).await?),
    }
}

fn read_item(item_type: String, key: String, file: &Path) -> Result<Item, Failure> {
    let text = read(file)?;
    let value = seed::value(&item_type, &text)
        .map_err(|error| Failure::usage(format!("`{}`: {error}", file.display())))?;
    Ok(Item {
        item_type,
        key,
        value,
    })
}

/// Seeds from a directory, or what comes with this version.
async fn seed_from(
    store: &Store,
    directory: Option<&Path>,
    by: Option<&str>,
    settings: &Settings,
) -> Result<(), Failure> {
    let (config, program) = (&*store.config, settings.program());
    let (report, author) = match directory {
        None => {
            let report = seed::seed(config, seed::embedded()?).await?;
            let by = person::of_system();
            (report, by.unwrap_or_else(|| seed::Release::this().author()))
        }
        Some(directory) => {
            let author = person::name(by)?;
            let by = Seeder::Person(author.clone());
            let items = seed::directory(directory)?;
            fallbacks::check(&items, settings).await?;
            (config.seed(items, &by).await?, author)
        }
    };
    let what = directory.map_or("what comes with the program".to_owned(), |directory| {
        directory.display().to_string()
    });
    audit::note(store, &author, "config seed", &format!("{what}: {report}")).await?;
    outln!("{report}");
    if report.newer > 0 {
        errln!(
            "`{program} config reset TYPE KEY` puts one of them back to what comes with this version."
        );
    }
    Ok(())
}

fn show_history(history: &[ItemVersion], json: bool, program: &str, ui: Ui) -> Result<(), Failure> {
    if json {
        return ui::json(&history);
    }
    let Some(Item { item_type, key, .. }) = history.first().map(|version| &version.item) else {
        return Ok(());
    };
    let rows = history.iter().map(|version| {
        let what = if version.deleted { "deleted" } else { "put" };
        vec![
            version.version.to_string(),
            what.to_owned(),
            version.author.clone(),
            date_time(version.at),
        ]
    });
    ui.table(&["VERSION", "WHAT", "BY", "AT"], 1, rows);
    errln!("`{program} config get {item_type} {key} --version N` shows one of them,");
    errln!("`{program} config restore {item_type} {key} N` brings it back.");
    Ok(())
}

fn show_prices(set: &Snapshot, ui: Ui) {
    let told = |price: Option<f64>| price.map_or("unknown".to_owned(), |n| n.to_string());
    let rows = set.profiles.iter().map(|(key, profile)| {
        let (input, output) = (told(profile.input_price), told(profile.output_price));
        vec![key.clone(), profile.model.clone(), input, output]
    });
    ui.table(&["PROFILE", "MODEL", "INPUT", "OUTPUT"], 1, rows);
    errln!("Prices are of a million tokens. A profile without a MODEL serves the fleet's.");
}

/// Brings an item back to what comes with the program.
async fn reset(
    store: &Store,
    item_type: String,
    key: String,
    program: &str,
) -> Result<(), Failure> {
    let Some(item) = shipped(&item_type, &key)? else {
        let says = format!("no `{item_type}` item `{key}` comes with the program");
        let hint = format!("{program} config delete {item_type} {key}");
        return Err(Failure::not_found(says).hint(hint));
    };
    let author = seed::Release::this().author();
    put(store, "config reset", item, &author).await
}

async fn delete(
    store: &Store,
    item_type: &str,
    key: &str,
    author: &str,
    program: &str,
) -> Result<(), Failure> {
    let config = &*store.config;
    let Some(version) = config.delete(item_type, key, author).await? else {
        return Err(missing(config, item_type, key).await?);
    };
    let about = format!("{item_type} {key}, version {version}");
    audit::note(store, author, "config delete", &about).await?;
    outln!("version {version}");
    if item_type == item_type::ROLE {
        tell_holders(store, key, program).await?;
    }
    if shipped(item_type, key)?.is_some() {
        if item_type == item_type::PROMPT {
            errln!("Workers use the prompt `{key}` that comes with the program instead.");
        }
        errln!("`{program} config reset {item_type} {key}` brings the item back.");
    }
    Ok(())
}

/// Says what becomes of keys that have a role whose item is gone.
async fn tell_holders(store: &Store, role: &str, program: &str) -> Result<(), Failure> {
    let (keys, now) = (gateway::keys(&*store.documents).await?, store.host.now());
    let counts =
        |key: &&ApiKeyRecord| key.revoked_at == 0 && (key.expires_at == 0 || key.expires_at > now);
    let holders = keys.iter().filter(counts);
    let holders: Vec<String> = holders
        .filter(|key| key.roles.iter().any(|one| one == role))
        .map(|key| format!("`{}` of `{}`", key.id, key.name))
        .collect();
    let so_many = text::counted(holders.len() as u64, "API key");
    let named = holders.join(", ");
    if holders.is_empty() {
        return Ok(());
    }
    if store.config.snapshot().await?.role(role).is_some() {
        errln!(
            "The role `{role}` that comes with the program counts again, for {so_many}: {named}."
        );
        return Ok(());
    }
    errln!(
        "{so_many} had the role `{role}`, and may no longer do what it allowed: {named}. They count on with \
         their other roles; `{program} keys revoke ID` ends one, and `{program} config restore role {role} N` \
         brings the role back."
    );
    Ok(())
}

/// The item that comes with the program.
fn shipped(item_type: &str, key: &str) -> Result<Option<Item>, Failure> {
    let mut items = seed::embedded()?.into_iter();
    Ok(items.find(|item| item.item_type == item_type && item.key == key))
}

async fn put(store: &Store, action: &str, item: Item, author: &str) -> Result<(), Failure> {
    let config = &*store.config;
    let about = format!("{} {}", item.item_type, item.key);
    let before = config.snapshot().await?.version;
    let version = config.put(vec![item], author).await?;
    if version == before {
        outln!("version {version}, unchanged");
    } else {
        // A reset is written in the name of the version it comes with; a person did it all the same.
        let by = person::of_system().filter(|_| action == "config reset");
        let by = by.as_deref().unwrap_or(author);
        audit::note(store, by, action, &format!("{about}, version {version}")).await?;
        outln!("version {version}");
    }
    Ok(())
}

/// An item as it was put at a version.
async fn at(
    config: &dyn ConfigStore,
    item_type: &str,
    key: &str,
    version: u64,
) -> Result<ItemVersion, Failure> {
    let history = config.history(item_type, key).await?;
    if history.is_empty() {
        return Err(missing(config, item_type, key).await?);
    }
    let versions: Vec<String> = history
        .iter()
        .filter(|known| !known.deleted)
        .map(|known| known.version.to_string())
        .collect();
    let found = history
        .into_iter()
        .find(|known| known.version == version && !known.deleted);
    found.ok_or_else(|| {
        Failure::not_found(format!(
            "`{item_type}` item `{key}` was not put at version {version}"
        ))
        .hint(format!("its versions are {}", versions.join(", ")))
    })
}

fn row(version: &ItemVersion) -> Vec<String> {
    vec![
        version.item.item_type.clone(),
        version.item.key.clone(),
        version.version.to_string(),
        version.author.clone(),
        date_time(version.at),
    ]
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", file.display())))?;
    Ok(text)
}

async fn missing(config: &dyn ConfigStore, item_type: &str, key: &str) -> Result<Failure, Failure> {
    let keys: Vec<String> = config
        .list(Some(item_type))
        .await?
        .into_iter()
        .map(|version| format!("`{}`", version.item.key))
        .collect();
    let failure = Failure::not_found(format!("there is no `{item_type}` item `{key}`"));
    Ok(if !item_type::ALL.contains(&item_type) {
        failure.hint(format!("types are {}", item_type::ALL.join(", ")))
    } else if keys.is_empty() {
        failure.hint(format!("there is no `{item_type}` item at all"))
    } else {
        failure.hint(format!("there are {}", keys.join(", ")))
    })
}
