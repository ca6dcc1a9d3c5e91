//! `purge`, `backup`, `restore`, `doctor`: keeping a data directory in order.

use crate::cli::{Backup, Doctor, Purge, Restore};
use crate::error::{Exit, Failure};
use crate::fleet::{Engine, Fleet, FleetLock, Roles, Store, choose_model, open_graph};
use crate::settings::{NAMES, Settings};
use crate::ui;
use agentfleet_broker::Broker as _;
use agentfleet_documents::Documents as _;
use agentfleet_graph::{Answer, EraseBy, Graph as _, QueryOptions};
use agentfleet_schema::records::{FanOutRecord, StepRecord};
use agentfleet_schema::{CollectionName, SessionId, Term, keys, uris};
use agentfleet_storage::{Database, Progress};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeSet;

pub(crate) async fn purge(purge: Purge, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let engine = Engine::open(store.clone(), settings, &|_, _| {}).await?;
    settle(&engine, settings).await?;
    let roots = wanted(&engine, &purge).await?;
    let mut erased = 0;
    let mut running = Vec::new();
    for root in &roots {
        match ended(&store, root).await? {
            false => running.push(root.clone()),
            true if purge.dry_run => erased += 1,
            true => {
                erase(&engine, root).await?;
                erased += 1;
            }
        }
    }
    let verb = if purge.dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    outln!("{erased} runs {verb}.");
    for root in &running {
        outln!("{root} has not ended: `agentfleet cancel {root}` first.");
    }
    if let Some(collection) = &purge.collection {
        let name = CollectionName::from(collection.as_str());
        if purge.dry_run {
            let documents = engine
                .library
                .documents(&name, usize::MAX >> 1)
                .await?
                .len();
            outln!("{documents} documents of collection `{collection}` would be deleted.");
        } else {
            let removed = engine.library.remove_collection(&name).await?;
            engine
                .graph
                .erase(EraseBy::Collection(collection.clone()))
                .await?;
            outln!("{removed} documents of collection `{collection}` deleted.");
        }
    }
    if running.is_empty() || purge.session.is_none() {
        Ok(())
    } else {
        Err(Failure::new(Exit::Failed, "the run has not ended"))
    }
}

/// Writes what is still on its way to the graph, so that nothing of an erased run comes after.
async fn settle(engine: &Engine, settings: &Settings) -> Result<(), Failure> {
    let Some(_lock) = FleetLock::try_take(settings)? else {
        // A fleet runs and does it.
        return Ok(());
    };
    let mut changes = engine.store.database.changes();
    let writer = Fleet::start(engine, settings, Roles::GraphWriter)?;
    loop {
        changes.mark_unchanged();
        let waiting = engine.store.broker.backlog().await?;
        if !waiting
            .iter()
            .any(|(name, count)| name.ends_with("/graph-writer") && *count > 0)
        {
            break;
        }
        if changes.changed().await.is_err() {
            break;
        }
    }
    writer.drain().await;
    Ok(())
}

async fn wanted(engine: &Engine, purge: &Purge) -> Result<Vec<SessionId>, Failure> {
    if let Some(session) = &purge.session {
        let session = SessionId::from(session.as_str());
        let key = keys::outcome(&session, 0);
        let body = engine.store.documents.get(&key).await?;
        let record: Option<StepRecord> = body.and_then(|body| serde_json::from_slice(&body).ok());
        let Some(record) = record else {
            return Err(
                Failure::not_found(format!("there is no session `{session}`"))
                    .hint("`agentfleet sessions list` shows the runs"),
            );
        };
        if record.root != session {
            return Err(Failure::usage(format!(
                "session `{session}` is a subagent: name its root, `{}`",
                record.root
            )));
        }
        return Ok(vec![session]);
    }
    let (condition, bindings) = if let Some(conversation) = &purge.conversation {
        (
            "?session tg:conversationId ?wanted .",
            vec![("wanted", Term::text(conversation))],
        )
    } else if let Some(collection) = &purge.collection {
        (
            "?session tg:collection ?wanted .",
            vec![("wanted", Term::text(collection))],
        )
    } else {
        let text = purge.older_than.as_deref().unwrap_or_default();
        let age = humantime::parse_duration(text).map_err(|_| {
            Failure::usage(format!(
                "`--older-than` is `{text}`, expected a time such as `30d`"
            ))
        })?;
        let before = engine.host.now() - age.as_millis() as i64;
        let instant = agentfleet_core::provenance::date_time(before);
        let term = Term::typed(instant, agentfleet_schema::vocabulary::xsd::DATE_TIME);
        (
            "?session prov:endedAtTime ?ended . FILTER(?ended < ?wanted)",
            vec![("wanted", term)],
        )
    };
    let sparql = format!(
        "SELECT DISTINCT ?id WHERE {{ ?session a tg:AgentQuestion ; tg:rootSessionId ?id . \
         FILTER NOT EXISTS {{ ?session tg:parentSessionId ?parent }} {condition} }}"
    );
    let answer = engine
        .graph
        .query(&sparql, &bindings, QueryOptions::default())
        .await?;
    let Answer::Solutions(found) = answer else {
        return Ok(Vec::new());
    };
    Ok((0..found.rows.len())
        .filter_map(|row| found.text(row, "id"))
        .map(SessionId::from)
        .collect())
}

async fn ended(store: &Store, root: &SessionId) -> Result<bool, Failure> {
    let mut step = 0;
    loop {
        let Some(body) = store.documents.get(&keys::outcome(root, step)).await? else {
            return Ok(false);
        };
        match serde_json::from_slice::<StepRecord>(&body) {
            Ok(record) if record.outcome.is_terminal() => return Ok(true),
            _ => step += 1,
        }
    }
}

/// Erases a run. The tombstone comes first and stays: late messages of the run are dropped by it.
async fn erase(engine: &Engine, root: &SessionId) -> Result<(), Failure> {
    let documents = &engine.store.documents;
    let mut sessions = BTreeSet::from([root.clone()]);
    let mut open = vec![root.clone()];
    while let Some(session) = open.pop() {
        for key in documents
            .list(&format!("sessions/{session}/steps/"))
            .await?
        {
            if !key.ends_with("/fanout") {
                continue;
            }
            let body = documents.get(&key).await?;
            if let Some(fan_out) =
                body.and_then(|body| serde_json::from_slice::<FanOutRecord>(&body).ok())
            {
                for child in fan_out.children {
                    if sessions.insert(child.session.clone()) {
                        open.push(child.session);
                    }
                }
            }
        }
    }
    documents.create(&keys::tombstone(root), Vec::new()).await?;
    for session in &sessions {
        documents
            .delete_prefix(&format!("sessions/{session}/"))
            .await?;
        documents
            .delete_prefix(&keys::document(&format!("{}/", uris::session(session))))
            .await?;
    }
    documents.delete(&[keys::closed(root)]).await?;
    documents
        .delete_prefix(&format!("trees/{root}/unknown/"))
        .await?;
    engine.store.broker.forget(root.as_str()).await?;
    engine.graph.erase(EraseBy::Root(root.to_string())).await?;
    Ok(())
}

pub(crate) fn backup(backup: &Backup, settings: &Settings) -> Result<(), Failure> {
    let database = Database::open(&settings.data)?;
    let bar = ProgressBar::new(0);
    database.backup(&backup.file, |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    outln!(
        "{} holds a consistent copy of {}.",
        backup.file.display(),
        settings.data.display()
    );
    Ok(())
}

pub(crate) fn restore(restore: &Restore, settings: &Settings) -> Result<(), Failure> {
    let bar = ProgressBar::new(0);
    Database::restore(&restore.file, &settings.data, |progress| {
        show(&bar, progress);
    })?;
    bar.finish_and_clear();
    outln!(
        "{} was restored into {}.",
        restore.file.display(),
        settings.data.display()
    );
    Ok(())
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.copied);
}

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
