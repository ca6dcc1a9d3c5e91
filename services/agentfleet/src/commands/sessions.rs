//! `sessions`: which runs there were, and how one of them went.

use super::records::{self, Run};
use crate::cli::Sessions;
use crate::engine::settled_graph;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_graph::{QueryOptions, Solutions};
use agentfleet_schema::records::{Activity, OutcomeKind, StepRecord};
use agentfleet_schema::{SessionId, Term, keys, uris};
use serde::Serialize;
use std::collections::HashSet;

/// Root runs, newest first. The optional parts are there once a run has ended.
const LIST: &str = "\
SELECT ?id ?question ?started ?ended ?reason ?partial ?conversation ?collection FROM <GRAPH> WHERE {
  ?session a tg:AgentQuestion ; tg:query ?question ; prov:startedAtTime ?started ;
    tg:rootSessionId ?id .
  FILTER NOT EXISTS { ?session tg:parentSessionId ?parent }
  OPTIONAL { ?session tg:conversationId ?conversation }
  OPTIONAL { ?session tg:collection ?collection }
  OPTIONAL { ?session prov:endedAtTime ?ended .
    ?answer prov:wasGeneratedBy ?session ; a tg:Conclusion ; tg:terminationReason ?reason .
    OPTIONAL { ?answer tg:partial ?partial } }
  WANTED
} ORDER BY DESC(?started) LIMIT ";

/// A run in the list.
#[derive(Debug, Serialize)]
struct Listed {
    session: String,
    question: String,
    state: String,
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
}

/// A run in full.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Shown {
    pub session: String,
    pub root: String,
    pub question: String,
    pub state: String,
    pub steps: Vec<ShownStep>,
    pub tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<agentfleet_schema::ErrorBody>,
    pub subagents: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownStep {
    pub step: u32,
    pub outcome: OutcomeKind,
    pub what: String,
    pub attempt: u32,
    pub tokens: u64,
    pub at: String,
}

pub(crate) async fn run(command: Sessions, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    match command {
        Sessions::List {
            collection,
            conversation,
            limit,
            output,
        } => {
            let wanted = Wanted {
                collection,
                conversation,
                limit,
            };
            let listed = list(&store, settings, &wanted).await?;
            if output.json {
                return ui::json(&listed);
            }
            if listed.is_empty() {
                if wanted.collection.is_some() || wanted.conversation.is_some() {
                    outln!("No such run.");
                } else {
                    outln!("Nothing was asked yet. Try `{} demo`.", settings.program());
                }
                return Ok(());
            }
            let rows = listed
                .into_iter()
                .map(|run| vec![run.session, run.state, minute(&run.started), run.question])
                .collect();
            ui.table(&["SESSION", "STATE", "STARTED", "QUESTION"], 3, rows);
            Ok(())
        }
        Sessions::Show { session, output } => {
            let shown = show(&store, &records::session(&store, &session).await?).await?;
            if output.json {
                return ui::json(&shown);
            }
            outln!(
                "Session {}  {}  {} tokens",
                shown.session,
                shown.state,
                shown.tokens
            );
            outln!("{}\n", text::clean(&shown.question));
            for step in &shown.steps {
                let again = if step.attempt > 1 {
                    format!("  (try {})", step.attempt)
                } else {
                    String::new()
                };
                outln!("  step {}  {}  {}{again}", step.step, step.at, step.what);
            }
            for subagent in &shown.subagents {
                outln!("  subagent {subagent}");
            }
            if let Some(error) = &shown.error {
                outln!("\nError `{}`: {}", error.code, error.message);
            }
            if let Some(answer) = &shown.answer {
                outln!("\n{}", text::clean(answer));
            }
            Ok(())
        }
    }
}

/// An instant as people say it: `2026-11-21 06:32`, in UTC.
fn minute(instant: &str) -> String {
    let minute: String = instant.chars().take(16).collect();
    minute.replace('T', " ")
}

/// Which runs to list, and how many.
struct Wanted {
    collection: Option<String>,
    conversation: Option<String>,
    limit: usize,
}

impl Wanted {
    fn has(&self, run: &Listed) -> bool {
        let same = |wanted: &Option<String>, has: &Option<String>| {
            wanted.is_none() || wanted.as_deref() == has.as_deref()
        };
        same(&self.collection, &run.collection) && same(&self.conversation, &run.conversation)
    }
}

async fn list(store: &Store, settings: &Settings, wanted: &Wanted) -> Result<Vec<Listed>, Failure> {
    let mut listed = queued(store).await?;
    listed.retain(|run| wanted.has(run));
    let graph = settled_graph(store, settings).await?;
    let (mut which, mut bindings) = (String::new(), Vec::new());
    if let Some(collection) = &wanted.collection {
        which.push_str("?session tg:collection ?wantedCollection . ");
        bindings.push(("wantedCollection", Term::text(collection)));
    }
    if let Some(conversation) = &wanted.conversation {
        which.push_str("?session tg:conversationId ?wantedConversation . ");
        bindings.push(("wantedConversation", Term::text(conversation)));
    }
    let sparql = LIST
        .replace("WANTED", &which)
        .replace("GRAPH", uris::RETRIEVAL_GRAPH);
    let sparql = format!("{sparql}{}", wanted.limit);
    let found = graph
        .select(&sparql, &bindings, QueryOptions::default())
        .await?;
    listed.extend((0..found.rows.len()).map(|row| self::listed(&found, row)));
    // A run may have begun between the two looks: the graph, which came last, knows it better.
    let mut seen = HashSet::new();
    listed.reverse();
    listed.retain(|run| seen.insert(run.session.clone()));
    listed.sort_by(|a, b| b.started.cmp(&a.started));
    listed.truncate(wanted.limit);
    Ok(listed)
}

/// Runs that were taken in and that no worker has begun.
async fn queued(store: &Store) -> Result<Vec<Listed>, Failure> {
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
    let mut queued = Vec::new();
    for session in accepted {
        if begun.contains(session.as_str()) {
            continue;
        }
        let Some(asked) = store.intake().accepted(&session).await? else {
            continue;
        };
        let request = asked.request;
        let conversation = request.conversation_id.to_string();
        queued.push(Listed {
            state: not_begun(store, &session).await?.to_owned(),
            session: session.to_string(),
            question: request.question,
            started: agentfleet_core::provenance::date_time(asked.at),
            ended: None,
            conversation: Some(conversation).filter(|id| !id.is_empty()),
            collection: Some(request.collection.to_string()),
        });
    }
    Ok(queued)
}

/// The state of a run that no worker has begun.
async fn not_begun(store: &Store, session: &SessionId) -> Result<&'static str, Failure> {
    let closed = store.documents.get(&keys::closed(session)).await?;
    Ok(if closed.is_some() {
        "cancelled"
    } else {
        "queued"
    })
}

fn listed(found: &Solutions, row: usize) -> Listed {
    let text = |name| found.text(row, name).map(str::to_owned);
    let state = match (
        text("reason").as_deref(),
        found.text(row, "partial").is_some(),
    ) {
        (None, _) => "running".to_owned(),
        (Some("final-answer" | "subagents-complete"), false) => "answered".to_owned(),
        (Some("final-answer" | "subagents-complete"), true) => "answered (partial)".to_owned(),
        (Some(reason), _) => reason.to_owned(),
    };
    Listed {
        session: text("id").unwrap_or_default(),
        question: text("question").unwrap_or_default(),
        state,
        started: text("started").unwrap_or_default(),
        ended: text("ended"),
        conversation: text("conversation"),
        collection: text("collection"),
    }
}

/// There is no such run.
pub(crate) fn unknown(session: &SessionId) -> Failure {
    Failure::not_found(format!("there is no session `{session}`"))
        .hint("`agentfleet sessions list` shows the runs")
}

/// Reads a run from its records: they are there before any triple is.
pub(crate) async fn show(store: &Store, session: &SessionId) -> Result<Shown, Failure> {
    let documents = &*store.documents;
    let run = Run::read(documents, session).await?;
    let asked = store.intake().accepted(session).await?;
    let Some(last) = run.steps.last() else {
        let Some(asked) = asked else {
            return Err(unknown(session));
        };
        return Ok(Shown {
            session: session.to_string(),
            root: session.to_string(),
            question: asked.request.question,
            state: not_begun(store, session).await?.to_owned(),
            ..Shown::default()
        });
    };
    let routed = run.steps.iter().find_map(|record| record.routed.as_ref());
    let question = asked.map(|asked| asked.request.question);
    let question = question.or_else(|| routed.map(|routed| routed.question.clone()));
    let children = run.fan_outs.iter().flat_map(|fan_out| &fan_out.children);
    let subagents = children
        .map(|child| format!("{}  {}", child.session, child.goal))
        .collect();
    let mut answer = None;
    if last.outcome.is_terminal() {
        let key = keys::document(&uris::answer_document(session));
        let body = documents.get(&key).await?;
        answer = body.map(|body| String::from_utf8_lossy(&body).into_owned());
    }
    let error = match &last.activity {
        Activity::Concluded(end) => end.error.clone(),
        Activity::None
        | Activity::Iterated(_)
        | Activity::FannedOut(_)
        | Activity::Planned(_)
        | Activity::Executed(_) => None,
    };
    Ok(Shown {
        session: session.to_string(),
        root: last.root.to_string(),
        question: question.unwrap_or_default(),
        state: state(last).to_owned(),
        tokens: last.tokens_total,
        answer: answer.filter(|_| error.is_none()),
        error,
        subagents,
        steps: run
            .steps
            .iter()
            .map(|record| ShownStep {
                step: record.step,
                outcome: record.outcome,
                what: what(record),
                attempt: record.attempt,
                tokens: record.usage.total(),
                at: agentfleet_core::provenance::date_time(record.committed_at),
            })
            .collect(),
    })
}

fn state(last: &StepRecord) -> &'static str {
    match last.outcome {
        OutcomeKind::Continue => "running",
        OutcomeKind::FanOut => "waiting for subagents",
        OutcomeKind::Pause => "waiting for a person",
        OutcomeKind::Answer => "answered",
        OutcomeKind::Cancelled => "cancelled",
        OutcomeKind::Fail => "failed",
    }
}

fn what(record: &StepRecord) -> String {
    let mut parts = Vec::new();
    if let Some(routed) = &record.routed {
        parts.push(format!("pattern `{}`", routed.pattern));
    }
    for decision in &record.decisions {
        parts.push(format!("{}: {}", decision.subject, decision.chosen));
    }
    match &record.activity {
        Activity::None => {}
        Activity::Iterated(it) => parts.push(format!("iteration {}: {}", it.n, it.action)),
        Activity::FannedOut(fan_out) => {
            parts.push(format!("fan-out to {} subagents", fan_out.children.len()));
        }
        Activity::Planned(plan) if plan.revision == 0 => {
            parts.push(format!("plan with {} steps", plan.steps.len()));
        }
        Activity::Planned(plan) => parts.push(format!("revision {} of the plan", plan.revision)),
        Activity::Executed(executed) => {
            if let Some(call) = &executed.call {
                parts.push(format!("iteration {}: {}", call.n, call.action));
            }
            let steps = executed.steps.iter();
            parts.extend(steps.map(|step| format!("step {} {}", step.index, step.status)));
        }
        Activity::Concluded(end) => parts.push(format!("ended: {}", end.termination.as_str())),
    }
    parts.join(", ")
}
