//! `sessions`: which runs there were, and how one of them went.

use super::records::{self, Run};
use crate::cli::{ListSessions, RunState, Sessions};
use crate::engine::settled_graph;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_core::approval;
use agentfleet_core::provenance::date_time;
use agentfleet_graph::{QueryOptions, Solutions};
use agentfleet_schema::records::{Activity, OutcomeKind, StepRecord};
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Millis, SessionId, Term, keys, uris};
use serde::Serialize;
use std::collections::HashSet;

/// Root runs, newest first. The optional parts are there once a run has ended.
const LIST: &str = "\
SELECT ?id ?question ?started ?ended ?reason ?partial ?conversation ?collection ?pattern ?taskType
  ?waits
FROM <GRAPH> WHERE {
  ?session a tg:AgentQuestion ; tg:query ?question ; prov:startedAtTime ?started ;
    tg:rootSessionId ?id .
  FILTER NOT EXISTS { ?session tg:parentSessionId ?parent }
  OPTIONAL { ?session tg:conversationId ?conversation }
  OPTIONAL { ?session tg:collection ?collection }
  OPTIONAL { ?routing prov:wasGeneratedBy ?session ; tg:selectedPattern ?pattern .
    OPTIONAL { ?routing tg:taskType ?taskType } }
  OPTIONAL { ?session prov:endedAtTime ?ended .
    ?answer prov:wasGeneratedBy ?session ; a tg:Conclusion ; tg:terminationReason ?reason .
    OPTIONAL { ?answer tg:partial ?partial } }
  BIND(EXISTS { ?open a tg:ApprovalRequest ; prov:wasGeneratedBy/tg:rootSessionId ?id .
    FILTER NOT EXISTS { ?next prov:wasDerivedFrom ?open ; prov:generatedAtTime ?at } } AS ?waits)
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_type: Option<String>,
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
        Sessions::List(args) => {
            let json = args.output.json;
            let wanted = Wanted::of(args, store.now())?;
            let (listed, more) = list(&store, settings, &wanted).await?;
            if json {
                return ui::json(&listed);
            }
            if listed.is_empty() {
                if wanted.narrows() {
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
            if more {
                ui.note(&format!(
                    "These are the newest {}; there are more: `--limit` lists up to 10000.",
                    wanted.limit
                ));
            }
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
#[derive(Debug, Default)]
struct Wanted {
    collection: Option<String>,
    conversation: Option<String>,
    state: Option<RunState>,
    pattern: Option<String>,
    task_type: Option<String>,
    /// Instants as the graph writes them, which sort as they follow.
    began_before: Option<String>,
    began_after: Option<String>,
    limit: usize,
}

impl Wanted {
    fn of(args: ListSessions, now: Millis) -> Result<Self, Failure> {
        let ago = |flag: &str, age: Option<String>| -> Result<Option<String>, Failure> {
            let Some(text) = age else { return Ok(None) };
            let age = humantime::parse_duration(&text).map_err(|_| {
                Failure::usage(format!(
                    "`{flag}` is `{text}`, expected a time such as `2h` or `30d`"
                ))
            })?;
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            Ok(Some(date_time(now.saturating_sub(age).max(0))))
        };
        Ok(Self {
            collection: args.collection,
            conversation: args.conversation,
            state: args.state,
            pattern: args.pattern,
            task_type: args.task_type,
            began_before: ago("--older-than", args.older_than)?,
            began_after: ago("--newer-than", args.newer_than)?,
            limit: args.limit as usize,
        })
    }

    /// Whether it leaves anything out.
    fn narrows(&self) -> bool {
        let texts = [
            &self.collection,
            &self.conversation,
            &self.pattern,
            &self.task_type,
            &self.began_before,
            &self.began_after,
        ];
        self.state.is_some() || texts.into_iter().any(Option::is_some)
    }

    /// Whether a run that no worker has begun is among them.
    fn has(&self, run: &Listed) -> bool {
        let same = |wanted: &Option<String>, has: &Option<String>| {
            wanted.is_none() || wanted.as_deref() == has.as_deref()
        };
        let state = match self.state {
            None => true,
            Some(RunState::Queued) => run.state == "queued",
            Some(RunState::Cancelled) => run.state == "cancelled",
            Some(
                RunState::Running
                | RunState::Waiting
                | RunState::Answered
                | RunState::Partial
                | RunState::Failed
                | RunState::Timeout,
            ) => false,
        };
        state
            && same(&self.collection, &run.collection)
            && same(&self.conversation, &run.conversation)
            && same(&self.pattern, &run.pattern)
            && same(&self.task_type, &run.task_type)
            && self
                .began_before
                .as_ref()
                .is_none_or(|at| run.started < *at)
            && self
                .began_after
                .as_ref()
                .is_none_or(|at| run.started >= *at)
    }

    /// The same of the runs that the graph knows.
    fn in_graph(&self) -> (String, Vec<(&'static str, Term)>) {
        let instant = |at: &String| Term::typed(at.clone(), xsd::DATE_TIME);
        let parts = [
            (
                "wantedCollection",
                self.collection.as_ref().map(Term::text),
                "?session tg:collection ?wantedCollection . ",
            ),
            (
                "wantedConversation",
                self.conversation.as_ref().map(Term::text),
                "?session tg:conversationId ?wantedConversation . ",
            ),
            (
                "wantedPattern",
                self.pattern.as_deref().map(|p| Term::iri(uris::pattern(p))),
                "?byPattern prov:wasGeneratedBy ?session ; tg:selectedPattern ?wantedPattern . ",
            ),
            (
                "wantedType",
                self.task_type
                    .as_deref()
                    .map(|t| Term::iri(uris::task_type(t))),
                "?byType prov:wasGeneratedBy ?session ; tg:taskType ?wantedType . ",
            ),
            (
                "beganBefore",
                self.began_before.as_ref().map(instant),
                "FILTER(?started < ?beganBefore) ",
            ),
            (
                "beganAfter",
                self.began_after.as_ref().map(instant),
                "FILTER(?started >= ?beganAfter) ",
            ),
        ];
        let (mut which, mut bindings) = (String::new(), Vec::new());
        for (name, term, part) in parts {
            if let Some(term) = term {
                which.push_str(part);
                bindings.push((name, term));
            }
        }
        which.push_str(match self.state {
            None => "",
            // The graph knows none of these.
            Some(RunState::Queued) => "FILTER(false) ",
            Some(RunState::Running) => "FILTER(!BOUND(?ended)) ",
            Some(RunState::Waiting) => {
                "FILTER(!BOUND(?ended)) FILTER EXISTS { \
                 ?held a tg:ApprovalRequest ; prov:wasGeneratedBy/tg:rootSessionId ?id . \
                 FILTER NOT EXISTS { ?after prov:wasDerivedFrom ?held ; prov:generatedAtTime ?then } } "
            }
            Some(RunState::Answered) => "?given prov:wasGeneratedBy ?session ; a tg:Answer . ",
            Some(RunState::Partial) => {
                "?given prov:wasGeneratedBy ?session ; a tg:Answer ; tg:partial ?lacks . "
            }
            Some(RunState::Failed) => {
                "FILTER(BOUND(?reason) && ?reason != \"cancelled\" && ?reason != \"timeout\") \
                 FILTER NOT EXISTS { ?given prov:wasGeneratedBy ?session ; a tg:Answer } "
            }
            Some(RunState::Cancelled) => "FILTER(?reason = \"cancelled\") ",
            Some(RunState::Timeout) => "FILTER(?reason = \"timeout\") ",
        });
        (which, bindings)
    }
}

/// Refuses a name that no run can have: neither configured, nor found at any run.
async fn check_names(store: &Store, wanted: &Wanted) -> Result<(), Failure> {
    let config = store.config.snapshot().await?;
    let lists: [(&str, &Option<String>, Vec<&String>); 2] = [
        ("pattern", &wanted.pattern, config.patterns.keys().collect()),
        (
            "task type",
            &wanted.task_type,
            config.task_types.keys().collect(),
        ),
    ];
    for (what, name, known) in lists {
        if let Some(name) = name
            && !known.contains(&name)
        {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            return Err(Failure::usage(format!(
                "unknown {what} `{name}` (available: {})",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// The runs, and whether there are more than were asked for.
async fn list(
    store: &Store,
    settings: &Settings,
    wanted: &Wanted,
) -> Result<(Vec<Listed>, bool), Failure> {
    let mut listed = queued(store).await?;
    listed.retain(|run| wanted.has(run));
    let graph = settled_graph(store, settings).await?;
    let (which, bindings) = wanted.in_graph();
    let sparql = LIST
        .replace("WANTED", &which)
        .replace("GRAPH", uris::RETRIEVAL_GRAPH);
    let sparql = format!("{sparql}{}", wanted.limit + 1);
    let found = graph
        .select(&sparql, &bindings, QueryOptions::default())
        .await?;
    listed.extend((0..found.rows.len()).map(|row| self::listed(&found, row)));
    // A run may have begun between the two looks: the graph, which came last, knows it better.
    let mut seen = HashSet::new();
    listed.reverse();
    listed.retain(|run| seen.insert(run.session.clone()));
    listed.sort_by(|a, b| b.started.cmp(&a.started));
    let more = listed.len() > wanted.limit;
    listed.truncate(wanted.limit);
    if listed.is_empty() {
        check_names(store, wanted).await?;
    }
    Ok((listed, more))
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
            started: date_time(asked.at),
            ended: None,
            conversation: Some(conversation).filter(|id| !id.is_empty()),
            collection: Some(request.collection.to_string()),
            pattern: Some(request.pattern).filter(|name| !name.is_empty()),
            task_type: Some(request.task_type).filter(|name| !name.is_empty()),
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
    let name = |of| Some(text(of)?.rsplit(':').next()?.to_owned());
    let state = match (
        text("reason").as_deref(),
        found.text(row, "partial").is_some(),
    ) {
        (None, _) if found.text(row, "waits") == Some("true") => "waiting".to_owned(),
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
        pattern: name("pattern"),
        task_type: name("taskType"),
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
        | Activity::Executed(_)
        | Activity::Asked(_)
        | Activity::Decided(_) => None,
    };
    Ok(Shown {
        session: session.to_string(),
        root: last.root.to_string(),
        question: question.unwrap_or_default(),
        state: state(last).to_owned(),
        tokens: last.total.tokens,
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
                at: date_time(record.committed_at),
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
    let others = record.decisions.iter();
    for decision in others.filter(|decision| decision.subject != approval::SUBJECT) {
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
        Activity::Asked(asked) => {
            parts.push(format!(
                "asks for approval of {}, `{}`",
                asked.tool, asked.id
            ));
        }
        Activity::Decided(decided) => {
            parts.push(format!("{} {}", decided.tool, approval::who(decided)));
        }
        Activity::Concluded(end) => parts.push(format!("ended: {}", end.termination.as_str())),
    }
    parts.join(", ")
}
