//! `doctor`: what is configured, what can be reached, and what is wrong.

use crate::cli::Doctor;
use crate::error::{Exit, Failure};
use crate::fleet::{FleetLock, Store, choose_model, open_graph};
use crate::settings::{NAMES, Settings};
use crate::ui;
use agentfleet_broker::Broker as _;
use agentfleet_documents::Documents as _;
use agentfleet_schema::keys;
use serde::Serialize;

/// One finding of `doctor`.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    says: String,
}

pub(crate) async fn doctor(doctor: Doctor, settings: &Settings) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let mut add = |what, result: Result<String, String>| {
        let (ok, says) = match result {
            Ok(says) => (true, says),
            Err(says) => (false, says),
        };
        findings.push(Finding { what, ok, says });
    };
    let set: Vec<String> = NAMES
        .iter()
        .filter_map(|name| settings.sources.get(name).map(|source| (name, source)))
        .filter(|(_, source)| **source != crate::settings::Source::Default)
        .map(|(name, source)| format!("{name} ({})", source.as_str()))
        .collect();
    let set = if set.is_empty() {
        "all at their defaults".to_owned()
    } else {
        set.join(", ")
    };
    add("settings", Ok(set));
    match Store::open(settings) {
        Err(failure) => add("data directory", Err(failure.to_string())),
        Ok(store) => {
            let size = store.database.size().await?;
            let at = settings.data.display();
            add("data directory", Ok(format!("{at}, {} KiB", size / 1024)));
            let problems = store.database.problems()?;
            add(
                "database",
                if problems.is_empty() {
                    Ok("every page and index is sound".to_owned())
                } else {
                    Err(format!("{}; restore a backup", problems.join("; ")))
                },
            );
            store.prepare(settings).await?;
            let config = agentfleet_config::ConfigStore::snapshot(&store.config).await?;
            add(
                "config",
                Ok(format!(
                    "version {}: {} patterns, {} task types, {} tools, {} prompts",
                    config.version,
                    config.patterns.len(),
                    config.task_types.len(),
                    config.tools.len(),
                    config.prompts.len()
                )),
            );
            match open_graph(&store, settings, &|_, _| {}).await {
                Err(failure) => add("graph", Err(failure.to_string())),
                Ok(graph) => {
                    let health = graph.health();
                    add(
                        "graph",
                        if health.level == agentfleet_graph::Level::Fine {
                            Ok(format!(
                                "{} quads of at most {}",
                                health.quads, health.max_quads
                            ))
                        } else {
                            Err(health.advice)
                        },
                    );
                }
            }
            let backlog = store.broker.backlog().await?;
            let waiting: Vec<String> = backlog
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let none = "nothing waits".to_owned();
            add(
                "queue",
                Ok(if waiting.is_empty() {
                    none
                } else {
                    waiting.join(", ")
                }),
            );
            let parked = store.documents.list(&keys::parked("")).await?.len();
            add(
                "dead letters",
                if parked == 0 {
                    Ok("none".to_owned())
                } else {
                    Err(format!("{parked} parked: `agentfleet dlq list`"))
                },
            );
            let fleet = match FleetLock::try_take(settings)? {
                Some(_) => "none runs; `ask` starts its own",
                None => "one runs on this data directory",
            };
            add("fleet", Ok(fleet.to_owned()));
        }
    }
    match choose_model(settings).await {
        Ok(choice) => add("model", Ok(choice.reason)),
        Err(failure) => add("model", Err(failure.to_string())),
    }
    let bad = findings.iter().filter(|finding| !finding.ok).count();
    if doctor.output.json {
        ui::json(&findings)?;
    } else {
        for finding in &findings {
            let mark = if finding.ok { "ok " } else { "BAD" };
            outln!("{mark}  {:<15} {}", finding.what, finding.says);
        }
    }
    if bad == 0 {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Unavailable,
            format!("{bad} things need attention"),
        ))
    }
}
