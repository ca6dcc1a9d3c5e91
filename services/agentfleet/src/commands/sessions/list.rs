//! The runs there were, newest or dearest first.

use super::told;
use super::wanted::{Wanted, check_names};
use crate::cli::{ListSessions, SortBy, Which};
use crate::commands::spend;
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_core::provenance::date_time;
use agentfleet_graph::{Graph, QueryOptions};
use agentfleet_runs::Root;
use agentfleet_runtime::Records;
use agentfleet_runtime::records::AT_ONCE;
use agentfleet_schema::records::{AcceptedRecord, RunState};
use agentfleet_schema::{Cost, Millis, SessionId, keys, uris};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// What each tree took: one row for each, of the main nodes of its steps.
const TOOK: &str = "\
SELECT ?id (COUNT(?node) AS ?steps) (SUM(?in) AS ?read) (SUM(?out) AS ?written) (SUM(?price) AS ?cost)
  (SUM(?open) AS ?unpriced)
FROM <GRAPH> WHERE {
  ?node tg:stepRecord ?record ; prov:wasGeneratedBy ?session .
  ?session tg:rootSessionId ?id .
  OPTIONAL { ?node tg:inToken ?inToken }
  OPTIONAL { ?node tg:outToken ?outToken }
  OPTIONAL { ?node tg:cost ?paid }
  OPTIONAL { ?node tg:unpricedCalls ?calls }
  BIND (COALESCE(?inToken, 0) AS ?in)
  BIND (COALESCE(?outToken, 0) AS ?out)
  BIND (COALESCE(?paid, 0.0) AS ?price)
  BIND (IF(BOUND(?calls) || (!BOUND(?paid) && ?in + ?out > 0), 1, 0) AS ?open)
} GROUP BY ?id";

/// Most runs that are looked at, as `--limit` has it.
const MOST: usize = 10_000;

/// What a run and its subagents took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Took {
    steps: u64,
    tokens: u64,
    /// In billionths of the currency's unit.
    #[serde(skip)]
    parts: u64,
    #[serde(flatten)]
    cost: Cost,
    /// From its beginning to its end, or until now.
    ms: u64,
}

/// A run in the list.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    root: Root,
    /// Where it is sorted by that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    took: Option<Took>,
}

pub(super) async fn tell_list(
    store: &Store,
    args: ListSessions,
    settings: &Settings,
    ui: Ui,
) -> Result<(), Failure> {
    let json = args.output.json;
    let wanted = Wanted::of(args, store.now())?;
    let (listed, more) = list(store, settings, &wanted).await?;
    if json {
        return ui::json(&listed);
    }
    if listed.is_empty() {
        if wanted.which.is_given() {
            outln!("No such run.");
        } else {
            outln!("Nothing was asked yet. Try `{} demo`.", settings.program());
        }
        return Ok(());
    }
    let queued = listed.iter().any(|run| run.root.state == RunState::Queued);
    let mut headers = vec!["SESSION", "STATE", "STARTED"];
    if wanted.sort != SortBy::Started {
        headers.extend(["TIME", "STEPS", "TOKENS", "COST"]);
    }
    let whole = headers.len();
    headers.push("QUESTION");
    let rows = listed.into_iter().map(|Listed { root, took }| {
        let state = told(root.state, root.termination);
        let mut row = vec![root.session.to_string(), state, minute(&root.started)];
        row.extend(took.into_iter().flat_map(|took| {
            [
                text::duration(took.ms),
                took.steps.to_string(),
                took.tokens.to_string(),
                took.cost.told(|_| spend::money(took.parts)),
            ]
        }));
        row.push(root.question);
        row
    });
    ui.table(&headers, whole, rows);
    if queued {
        ui.note("`queued`: waits for a worker, or is at work on its first step.");
    }
    if more {
        let which = match wanted.sort {
            SortBy::Started => "newest",
            SortBy::Cost | SortBy::Time | SortBy::Steps => "first",
        };
        ui.note(&format!(
            "These are the {which} {}; there are more: `--limit` lists up to {MOST}.",
            wanted.limit
        ));
    }
    Ok(())
}

/// An instant as people say it: `2026-11-21 06:32`, in UTC.
fn minute(instant: &str) -> String {
    let minute: String = instant.chars().take(16).collect();
    minute.replace('T', " ")
}

/// Runs to begin again, the newest first, and whether there are more.
pub(crate) async fn to_retry(
    store: &Store,
    settings: &Settings,
    which: Which,
    limit: u64,
) -> Result<(Vec<Root>, bool), Failure> {
    let wanted = Wanted {
        left_alone: true,
        ..Wanted::which(which, limit, store.now())?
    };
    let (listed, more) = list(store, settings, &wanted).await?;
    Ok((listed.into_iter().map(|run| run.root).collect(), more))
}

/// The runs, and whether there are more than were asked for.
async fn list(
    store: &Store,
    settings: &Settings,
    wanted: &Wanted,
) -> Result<(Vec<Listed>, bool), Failure> {
    let mut roots = queued(store).await?;
    roots.retain(|run| wanted.has(run));
    let graph = graph_to_read(store, settings).await?;
    let (which, bindings) = wanted.in_graph();
    let most = match wanted.sort {
        SortBy::Started => wanted.limit,
        SortBy::Cost | SortBy::Time | SortBy::Steps => MOST,
    };
    let sparql = Root::query("", &which, &bindings, wanted.standing(), most + 1);
    let found = graph
        .select(&sparql, &bindings, QueryOptions::default())
        .await?;
    roots.extend((0..found.rows.len()).filter_map(|row| Root::of(&found, row)));
    // A run may have begun between the two looks: the graph, which came last, knows it better.
    let mut seen = HashSet::new();
    roots.reverse();
    roots.retain(|run| seen.insert(run.session.clone()));
    roots.sort_by(|a, b| b.started.cmp(&a.started));
    let roots = roots.into_iter();
    let mut listed: Vec<Listed> = roots.map(|root| Listed { root, took: None }).collect();
    if wanted.sort != SortBy::Started {
        let now = store.now();
        weigh(&mut listed, &*graph, now).await?;
        listed.sort_by_key(|run| std::cmp::Reverse(weight(run, wanted.sort)));
    }
    let more = listed.len() > wanted.limit;
    listed.truncate(wanted.limit);
    if listed.is_empty() {
        check_names(store, wanted).await?;
    }
    Ok((listed, more))
}

/// By what runs are sorted that took the most.
fn weight(run: &Listed, by: SortBy) -> (u64, u64) {
    let took = run.took.unwrap_or_default();
    match by {
        SortBy::Started => (0, 0),
        SortBy::Cost => (took.parts, took.tokens),
        SortBy::Time => (took.ms, 0),
        SortBy::Steps => (took.steps, 0),
    }
}

/// Finds out what each of the runs took, in one question to the graph.
async fn weigh(listed: &mut [Listed], graph: &dyn Graph, now: Millis) -> Result<(), Failure> {
    let sparql = TOOK.replace("GRAPH", uris::RETRIEVAL_GRAPH);
    let found = graph.select(&sparql, &[], QueryOptions::default()).await?;
    let mut took: HashMap<&str, Took> = HashMap::new();
    for row in 0..found.rows.len() {
        let text = |name: &str| found.text(row, name).unwrap_or_default();
        let number = |name: &str| text(name).parse::<u64>().unwrap_or_default();
        let parts = spend::amount(text("cost"));
        let of_run = Took {
            steps: number("steps"),
            tokens: number("read") + number("written"),
            parts,
            cost: Cost::of(spend::number(parts), number("unpriced") == 0),
            ms: 0,
        };
        took.insert(text("id"), of_run);
    }
    let at = |instant: &str| {
        let at = humantime::parse_rfc3339(instant).ok()?;
        let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
        Millis::try_from(since.as_millis()).ok()
    };
    for run in listed {
        let root = &run.root;
        let end = root.ended.as_deref().and_then(at).unwrap_or(now);
        let began = at(&root.started).unwrap_or(end);
        run.took = Some(Took {
            ms: (end - began).max(0).unsigned_abs(),
            ..took.get(root.session.as_str()).copied().unwrap_or_default()
        });
    }
    Ok(())
}

/// Runs that were taken in and have no record yet.
async fn queued(store: &Store) -> Result<Vec<Root>, Failure> {
    let keys = store.documents.list("sessions/").await?;
    let parts = keys.iter().filter_map(|key| {
        let (session, rest) = key.strip_prefix("sessions/")?.split_once('/')?;
        Some((session, rest))
    });
    let (mut accepted, mut begun) = (Vec::new(), HashSet::new());
    for (session, rest) in parts {
        if rest == "accepted" {
            accepted.push(SessionId::new(session));
        } else if rest.ends_with("/outcome") {
            begun.insert(session);
        }
    }
    accepted.retain(|session| !begun.contains(session.as_str()));
    let mut queued = Vec::new();
    let records = Records::new(&*store.documents);
    // Thousands may wait: not one by one.
    for some in accepted.chunks(AT_ONCE) {
        let keys: Vec<String> = some.iter().map(keys::accepted).collect();
        let asked = records.read_many::<AcceptedRecord>(&keys).await?;
        for (session, asked) in some.iter().zip(asked) {
            let Some(asked) = asked else { continue };
            let Some(request) = asked.asked() else {
                continue;
            };
            let conversation = request.conversation_id.to_string();
            queued.push(Root {
                state: RunState::Queued,
                termination: None,
                session: session.clone(),
                question: request.question,
                started: date_time(asked.accepted_at),
                ended: None,
                conversation: Some(conversation).filter(|id| !id.is_empty()),
                collection: Some(request.collection.to_string()),
                pattern: Some(request.pattern).filter(|name| !name.is_empty()),
                task_type: Some(request.task_type).filter(|name| !name.is_empty()),
            });
        }
    }
    Ok(queued)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_newest_runs_are_chosen_before_it_is_found_out_how_they_stand() {
        for state in RunState::ALL.into_iter().map(Some).chain([None]) {
            let wanted = Wanted {
                which: Which {
                    collection: Some("tea".to_owned()),
                    pattern: Some("react".to_owned()),
                    text: Some("why".to_owned()),
                    state,
                    ..Which::default()
                },
                began_before: Some(date_time(0)),
                left_alone: true,
                ..Wanted::default()
            };
            let (which, bindings) = wanted.in_graph();
            let sparql = Root::query("", &which, &bindings, wanted.standing(), 21);
            agentfleet_graph::check_query(&sparql, &bindings).unwrap();
            let first = sparql.split("OPTIONAL").next().unwrap();
            assert_eq!(first.contains("LIMIT 21"), state.is_none(), "{sparql}");
            assert_eq!(sparql.matches("LIMIT 21").count(), 1, "{sparql}");
        }
    }
}
