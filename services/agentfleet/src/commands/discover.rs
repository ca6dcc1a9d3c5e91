//! `discover`: task types that past runs call for, proposed as config items that a person approves.

use crate::cli::{Decide, Discover, DiscoverCommand};
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::{ConfigStore, Item};
use agentfleet_console::text;
use agentfleet_core::discovery::{self, Found, Run};
use agentfleet_schema::config::{AgentTaskType, Snapshot, Status, item_type};
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Term, uris};
use serde_json::json;

/// Runs that are looked at, newest first: the work grows with their square.
const MOST: usize = 2_000;
/// Who proposes, in the history of the config.
const AUTHOR: &str = "discover";

/// Runs that are over, with what the router took them for.
const RUNS: &str = "\
SELECT DISTINCT ?activity ?question ?taskType ?by ?reason ?at FROM <urn:graph:retrieval> WHERE {
  ?end a tg:Conclusion ; tg:terminationReason ?reason ; prov:wasGeneratedBy ?activity ;
    prov:generatedAtTime ?at .
  ?activity tg:query ?question .
  FILTER NOT EXISTS { ?activity tg:parentSessionId ?parent }
  OPTIONAL { ?routing a tg:RoutingDecision ; prov:wasGeneratedBy ?activity ; tg:taskType ?taskType }
  OPTIONAL {
    ?decision a tg:Decision ; prov:wasGeneratedBy ?activity ; tg:decisionSubject \"task-type\" ;
      tg:decidedBy ?by
  }
  SINCE
}
ORDER BY DESC(?at) ?activity";

pub(crate) async fn run(args: Discover, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    match args.command {
        None => discover(&args, &store, settings, ui).await,
        Some(DiscoverCommand::List { output }) => list(&store, output.json, ui).await,
        Some(DiscoverCommand::Approve(decide)) => {
            decided(&store, &decide, discovery::approved, "approved").await
        }
        Some(DiscoverCommand::Reject(decide)) => {
            decided(&store, &decide, discovery::rejected, "rejected").await
        }
    }
}

async fn discover(
    args: &Discover,
    store: &Store,
    settings: &Settings,
    ui: Ui,
) -> Result<(), Failure> {
    let mut runs = runs(args, store, settings).await?;
    let all = runs.len();
    runs.truncate(MOST);
    if all > MOST {
        ui.note(&format!(
            "Of {all} runs only the newest {MOST} are looked at; `--since` narrows them."
        ));
    }
    let set = store.config.snapshot().await?;
    let min_runs = args.min_runs as usize;
    let bar = ui::bar("grouping runs {wide_bar} {pos}/{len}");
    let shown = bar.clone();
    let known = std::sync::Arc::clone(&set);
    let grouping = tokio::task::spawn_blocking(move || {
        discovery::propose(&runs, &known, min_runs, &mut |done, of| {
            shown.set_length(of as u64);
            shown.set_position(done as u64);
        })
    });
    let found = grouping
        .await
        .map_err(|error| Failure::new(crate::error::Exit::Failed, error.to_string()))?;
    bar.finish_and_clear();
    let version = put(&*store.config, &found.proposals, AUTHOR).await?;
    if args.output.json {
        let proposed: Vec<_> = found.proposals.iter().map(entry).collect();
        let known: Vec<_> = found
            .known
            .iter()
            .map(|(key, status)| json!({"key": key, "status": status}))
            .collect();
        return ui::json(&json!({
            "proposed": proposed,
            "known": known,
            "runs": all,
            "taken_for_general": found.fell_back,
            "other_types_gone_badly": found.went_badly,
            "largest_group_left": found.largest_left,
            "min_runs": min_runs,
            "config_version": version,
        }));
    }
    for (key, item) in &found.proposals {
        show(key, item, ui);
    }
    for (key, status) in &found.known {
        ui.note(&format!(
            "One group is that of `{key}`, which is {} already.",
            status.as_str()
        ));
    }
    closing(&found, all, min_runs, settings, ui);
    Ok(())
}

/// What to do next, or why there is nothing to do.
fn closing(found: &Found, all: usize, min_runs: usize, settings: &Settings, ui: Ui) {
    let program = settings.program();
    if !found.proposals.is_empty() {
        ui.note(
            "Names and framings are made of the questions' own terms, by no model. Routing uses none of \
             them until you approve it:",
        );
        for (key, _) in &found.proposals {
            errln!("{program} discover approve {key} --as YOUR-NAME");
        }
        errln!(
            "`{program} config get agent-task-type KEY` and `config put` change one before that."
        );
        return;
    }
    outln!("Nothing to propose.");
    ui.note(&format!(
        "{} looked at: {} taken for `general`, {} of other task types gone badly. A group needs {} \
         (`--min-runs`) with words in common; the largest that is too small has {}.",
        text::counted(all as u64, "run"),
        found.fell_back,
        found.went_badly,
        text::counted(min_runs as u64, "run"),
        found.largest_left,
    ));
}

async fn runs(args: &Discover, store: &Store, settings: &Settings) -> Result<Vec<Run>, Failure> {
    let since = super::cost::since(store, args.since.as_deref())?;
    let graph = graph_to_read(store, settings).await?;
    let mut bindings = Vec::new();
    let mut filter = "";
    if let Some(since) = since {
        bindings.push(("since", Term::typed(since, xsd::DATE_TIME)));
        filter = "FILTER (?at >= ?since)";
    }
    let options = settings.query_options();
    let sparql = RUNS.replace("SINCE", filter);
    let found = graph.select(&sparql, &bindings, options).await?;
    let mut runs: Vec<Run> = Vec::new();
    for row in 0..found.rows.len() {
        let text = |name: &str| found.text(row, name).unwrap_or_default();
        let Some(session) = uris::session_of(text("activity")) else {
            continue;
        };
        if runs
            .last()
            .is_some_and(|run| run.session == session.as_str())
        {
            continue;
        }
        runs.push(Run {
            session: session.to_string(),
            question: text("question").to_owned(),
            task_type: uris::config_name_of(text("taskType")).unwrap_or_default(),
            by_caller: text("by") == "caller",
            ended: text("reason").to_owned(),
        });
    }
    Ok(runs)
}

/// Stores items as one version, and says which.
async fn put(
    config: &dyn ConfigStore,
    items: &[(String, AgentTaskType)],
    author: &str,
) -> Result<u64, Failure> {
    let items = items.iter().map(|(key, item)| {
        Ok(Item {
            item_type: item_type::AGENT_TASK_TYPE.to_owned(),
            key: key.clone(),
            value: serde_json::to_value(item)?,
        })
    });
    let items = items.collect::<Result<Vec<_>, serde_json::Error>>();
    let items = items.map_err(|error| {
        Failure::new(
            crate::error::Exit::Failed,
            format!("a proposal cannot be written: {error}"),
        )
    })?;
    Ok(config.put(items, author).await?)
}

fn entry((key, item): &(String, AgentTaskType)) -> serde_json::Value {
    json!({"key": key, "item": item})
}

/// A proposal, with what speaks for it.
fn show(key: &str, item: &AgentTaskType, ui: Ui) {
    let what = if item.improves.is_empty() {
        "a new task type".to_owned()
    } else {
        format!("a framing for `{}`", item.improves)
    };
    outln!("{key}: {what}, {}", item.status.as_str());
    if !item.decided_by.is_empty() {
        outln!("    by {}", item.decided_by);
    }
    outln!("    {}", text::one_line(&item.description));
    outln!("    framing: {}", text::one_line(&item.framing_prompt));
    let Some(evidence) = &item.evidence else {
        return;
    };
    let ended: Vec<String> = evidence
        .ended
        .iter()
        .map(|(end, runs)| format!("{runs} {end}"))
        .collect();
    outln!(
        "    {}: {}",
        text::counted(u64::from(evidence.runs), "run"),
        ended.join(", ")
    );
    let rows = evidence.sessions.iter().map(|run| {
        let session: String = run.session.as_str().chars().take(8).collect();
        vec![session, run.ended.clone(), text::one_line(&run.question)]
    });
    ui.table(&["SESSION", "ENDED", "QUESTION"], 1, rows);
    outln!();
}

async fn list(store: &Store, as_json: bool, ui: Ui) -> Result<(), Failure> {
    let set = store.config.snapshot().await?;
    let discovered = set.task_types.iter().chain(&set.proposals);
    let discovered: Vec<(String, AgentTaskType)> = discovered
        .filter(|(_, item)| item.evidence.is_some())
        .map(|(key, item)| (key.clone(), item.clone()))
        .collect();
    if as_json {
        return ui::json(&discovered.iter().map(entry).collect::<Vec<_>>());
    }
    if discovered.is_empty() {
        outln!("Nothing was proposed yet.");
    }
    for (key, item) in &discovered {
        show(key, item, ui);
    }
    Ok(())
}

type Decides = fn(&str, &Snapshot, &str) -> Result<Vec<(String, AgentTaskType)>, String>;

async fn decided(store: &Store, decide: &Decide, how: Decides, told: &str) -> Result<(), Failure> {
    let set = store.config.snapshot().await?;
    let by = super::person::name(decide.by.as_deref())?;
    let items = how(&decide.key, &set, &by).map_err(|reason| {
        Failure::not_found(reason).hint("`agentfleet discover list` shows what was proposed")
    })?;
    let version = put(&*store.config, &items, &by).await?;
    let about = format!("{}, version {version}", decide.key);
    Box::pin(super::audit::note(store, &by, "discover", &about)).await?;
    if decide.output.json {
        let items: Vec<_> = items.iter().map(entry).collect();
        return ui::json(&json!({"config_version": version, "by": by, "items": items}));
    }
    outln!("{told} by {by}: {}, version {version}", decide.key);
    let applied = items
        .iter()
        .find(|(_, item)| item.status == Status::Applied);
    if let Some((_, item)) = applied {
        errln!(
            "Runs of `{}` have the new framing from now on.",
            item.improves
        );
    }
    Ok(())
}
