//! `config`: typed, versioned items, read and changed.

use crate::cli::Config;
use crate::error::Failure;
use crate::fleet::Store;
use crate::settings::Settings;
use crate::ui::{self, Ui};
use agentfleet_config::{ConfigStore, Item, ItemVersion, seed};
use agentfleet_core::provenance::date_time;
use agentfleet_schema::config::item_type;
use std::io::Read as _;
use std::path::Path;

pub(crate) async fn run(command: Config, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let config = &store.config;
    match command {
        Config::List { item_type, output } => {
            let items = config.list(item_type.as_deref()).await?;
            if output.json {
                return ui::json(&items);
            }
            ui.table(
                &["TYPE", "KEY", "VERSION", "BY", "SINCE"],
                2,
                items.iter().map(row).collect(),
            );
            Ok(())
        }
        Config::Get { item_type, key } => match config.get(&item_type, &key).await? {
            Some(version) => ui::json(&version.item.value),
            None => Err(missing(config, &item_type, &key).await?),
        },
        Config::History {
            item_type,
            key,
            output,
        } => {
            let history = config.history(&item_type, &key).await?;
            if history.is_empty() {
                return Err(missing(config, &item_type, &key).await?);
            }
            if output.json {
                return ui::json(&history);
            }
            let rows = history
                .iter()
                .map(|version| {
                    let what = if version.deleted { "deleted" } else { "put" };
                    vec![
                        version.version.to_string(),
                        what.to_owned(),
                        version.author.clone(),
                        date_time(version.at),
                    ]
                })
                .collect();
            ui.table(&["VERSION", "WHAT", "BY", "AT"], 1, rows);
            Ok(())
        }
        Config::Put {
            item_type,
            key,
            file,
        } => {
            let text = read(&file)?;
            let value = serde_json::from_str(&text).map_err(|error| {
                Failure::usage(format!("`{}` is not JSON: {error}", file.display()))
            })?;
            let version = config
                .put(
                    vec![Item {
                        item_type,
                        key,
                        value,
                    }],
                    &author(),
                )
                .await?;
            outln!("version {version}");
            Ok(())
        }
        Config::Delete { item_type, key } => {
            match config.delete(&item_type, &key, &author()).await? {
                Some(version) => {
                    outln!("version {version}");
                    Ok(())
                }
                None => Err(missing(config, &item_type, &key).await?),
            }
        }
        Config::Seed { directory } => {
            let items = match directory {
                Some(directory) => seed::directory(&directory)?,
                None => seed::embedded()?,
            };
            let report = seed::seed(config, items).await?;
            outln!("{report}");
            Ok(())
        }
    }
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

/// Who changes the config from here.
fn author() -> String {
    std::env::var("USER")
        .ok()
        .filter(|user| !user.is_empty())
        .unwrap_or_else(|| "cli".to_owned())
}

async fn missing(
    config: &impl ConfigStore,
    item_type: &str,
    key: &str,
) -> Result<Failure, Failure> {
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
