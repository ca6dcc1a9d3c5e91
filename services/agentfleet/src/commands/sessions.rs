//! `sessions`: which runs there were, and how one of them went.

use super::records::{self, Run, Started};
use super::spend;
use crate::cli::{ListSessions, Sessions, SortBy, Which};
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::evidence::AT_ONCE;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_core::approval;
use agentfleet_core::provenance::date_time;
use agentfleet_graph::{Graph, QueryOptions, Solutions};
use agentfleet_schema::records::{
    Activity, Concluded, OutcomeKind, RunState, StepRecord, Termination,
};
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Cost, Millis, SessionId, Term, keys, uris};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Root runs, newest first. The optional parts are there once a run has ended.
const LIST: &str = "\
SELECT ?id ?question ?started ?ended ?reason ?answered ?partial ?conversation ?collection ?pattern ?taskType
  ?waits
FROM <GRAPH> WHERE {
  ROOTS
  OPTIONAL { ?session tg:conversationId ?conversation }
  OPTIONAL { ?session tg:collection ?collection }
  OPTIONAL { ?routing prov:wasGeneratedBy ?session ; tg:selectedPattern ?pattern .
    OPTIONAL { ?routing tg:taskType ?taskType } }
  OPTIONAL { ?session prov:endedAtTime ?ended .
    ?answer prov:wasGeneratedBy ?session ; a tg:Conclusion ; tg:terminationReason ?reason .
    OPTIONAL { ?answer a tg:Answer ; prov:generatedAtTime ?answered }
    OPTIONAL { ?answer tg:partial ?partial } }
  BIND(EXISTS { ?open a tg:ApprovalRequest ; prov:wasGeneratedBy/tg:rootSessionId ?id .
    FILTER NOT EXISTS { ?next prov:wasDerivedFrom ?open ; prov:generatedAtTime ?at } } AS ?waits)
  WANTED
} ORDER BY DESC(?started) LIMIT ";

/// Which runs those are.
const ROOTS: &str = "\
?session a tg:AgentQuestion ; tg:query ?question ; prov:startedAtTime ?started ; tg:rootSessionId ?id .
  FILTER NOT EXISTS { ?session tg:parentSessionId ?parent } ";

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
pub(crate) struct Listed {
    pub session: String,
    pub question: String,
    pub state: RunState,
    /// Why it ended, where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    termination: Option<Termination>,
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
    /// Where it is sorted by that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    took: Option<Took>,
}

/// A run in full.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Shown {
    pub session: String,
    pub root: String,
    pub question: String,
    pub state: RunState,
    /// Why it ended, where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination: Option<Termination>,
    pub steps: Vec<ShownStep>,
    /// Of it and all below it.
    pub tokens: u64,
    /// How many of them came to no record. `show` leaves both to who reads the tree.
    pub wasted_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<agentfleet_schema::ErrorBody>,
    pub subagents: Vec<Subagent>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Subagent {
    pub session: SessionId,
    pub goal: String,
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
        Sessions::List(args) => tell_list(&store, args, settings, ui).await,
        Sessions::Show { session, output } => tell_one(&store, &session, output.json).await,
    }
}

async fn tell_list(
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
        if wanted.narrows() {
            outln!("No such run.");
        } else {
            outln!("Nothing was asked yet. Try `{} demo`.", settings.program());
        }
        return Ok(());
    }
    let queued = listed.iter().any(|run| run.state == RunState::Queued);
    let mut headers = vec!["SESSION", "STATE", "STARTED"];
    if wanted.sort != SortBy::Started {
        headers.extend(["TIME", "STEPS", "TOKENS", "COST"]);
    }
    let whole = headers.len();
    headers.push("QUESTION");
    let rows = listed
        .into_iter()
        .map(|run| {
            let state = told(run.state, run.termination);
            let mut row = vec![run.session, state, minute(&run.started)];
            row.extend(run.took.into_iter().flat_map(|took| {
                [
                    text::duration(took.ms),
                    took.steps.to_string(),
                    took.tokens.to_string(),
                    took.cost.told(|_| spend::money(took.parts)),
                ]
            }));
            row.push(run.question);
            row
        })
        .collect();
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

async fn tell_one(store: &Store, session: &str, json: bool) -> Result<(), Failure> {
    let (session, started) = records::session_or_started(store, session).await?;
    let mut shown = show(store, &session, started.as_ref()).await?;
    (shown.tokens, shown.wasted_tokens) = spent(store, &session).await?;
    if json {
        return ui::json(&shown);
    }
    outln!(
        "Session {}  {}  {}",
        shown.session,
        told(shown.state, shown.termination),
        text::tokens(shown.tokens, shown.wasted_tokens)
    );
    outln!("{}\n", text::line(&shown.question));
    if shown.state == RunState::Queued {
        outln!("  waits for a worker, or is at work on its first step");
    }
    for step in &shown.steps {
        let again = if step.attempt > 1 {
            format!("  (try {})", step.attempt)
        } else {
            String::new()
        };
        let what = text::line(&step.what);
        outln!("  step {}  {}  {what}{again}", step.step, step.at);
    }
    for subagent in &shown.subagents {
        outln!(
            "  subagent {}  {}",
            subagent.session,
            text::line(&subagent.goal)
        );
    }
    if let Some(error) = &shown.error {
        outln!("\nError `{}`: {}", error.code, text::line(&error.message));
    }
    if let Some(answer) = &shown.answer {
        outln!("\n{}", text::clean(answer));
    }
    Ok(())
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
    /// In small letters.
    text: Option<String>,
    sort: SortBy,
    limit: usize,
    /// Only runs that no later one went on from.
    left_alone: bool,
}

impl Wanted {
    fn of(args: ListSessions, now: Millis) -> Result<Self, Failure> {
        let mut wanted = Self::which(args.which, args.limit, now)?;
        if let Some(words) = args.words {
            wanted.text = Some(words.to_lowercase());
        }
        wanted.sort = args.sort;
        Ok(wanted)
    }

    fn which(args: Which, limit: u64, now: Millis) -> Result<Self, Failure> {
        let ago = |flag: &str, age: Option<String>| -> Result<Option<String>, Failure> {
            let Some(text) = age else { return Ok(None) };
            let age = crate::settings::age(flag, &text)?;
            Ok(Some(date_time((now - age).max(0))))
        };
        Ok(Self {
            collection: args.collection,
            conversation: args.conversation,
            state: args.state,
            pattern: args.pattern,
            task_type: args.task_type,
            began_before: ago("--older-than", args.older_than)?,
            began_after: ago("--newer-than", args.newer_than)?,
            text: args.text.map(|text| text.to_lowercase()),
            sort: SortBy::Started,
            limit: limit as usize,
            left_alone: false,
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
            &self.text,
        ];
        self.state.is_some() || texts.into_iter().any(Option::is_some)
    }

    /// Whether a run that has no record yet is among them.
    fn has(&self, run: &Listed) -> bool {
        let same = |wanted: &Option<String>, has: &Option<String>| {
            wanted.is_none() || wanted.as_deref() == has.as_deref()
        };
        self.state.is_none_or(|wanted| wanted == run.state)
            && same(&self.collection, &run.collection)
            && same(&self.conversation, &run.conversation)
            && same(&self.pattern, &run.pattern)
            && same(&self.task_type, &run.task_type)
            && (self.text.as_ref()).is_none_or(|text| run.question.to_lowercase().contains(text))
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
            (
                "wantedText",
                self.text.as_ref().map(Term::text),
                "FILTER(CONTAINS(LCASE(?question), ?wantedText)) ",
            ),
        ];
        let (mut which, mut bindings) = (String::new(), Vec::new());
        for (name, term, part) in parts {
            if let Some(term) = term {
                which.push_str(part);
                bindings.push((name, term));
            }
        }
        if self.left_alone {
            which.push_str(
                "FILTER NOT EXISTS { ?again prov:wasInformedBy ?session . \
                 FILTER NOT EXISTS { ?again tg:parentSessionId ?above } } ",
            );
        }
        which.push_str(match self.state {
            None => "",
            // The graph knows none of these.
            Some(RunState::Queued) => "FILTER(false) ",
            Some(RunState::Running) => "FILTER(!BOUND(?ended) && !?waits) ",
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
            Some(RunState::Cancelled) => "FILTER(?reason = \"cancelled\" && !BOUND(?answered)) ",
            Some(RunState::Timeout) => "FILTER(?reason = \"timeout\" && !BOUND(?answered)) ",
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

/// Runs to begin again, the newest first, and whether there are more.
pub(crate) async fn to_retry(
    store: &Store,
    settings: &Settings,
    which: Which,
    limit: u64,
) -> Result<(Vec<Listed>, bool), Failure> {
    let wanted = Wanted {
        left_alone: true,
        ..Wanted::which(which, limit, store.now())?
    };
    list(store, settings, &wanted).await
}

/// The runs, and whether there are more than were asked for.
async fn list(
    store: &Store,
    settings: &Settings,
    wanted: &Wanted,
) -> Result<(Vec<Listed>, bool), Failure> {
    let mut listed = queued(store).await?;
    listed.retain(|run| wanted.has(run));
    let graph = graph_to_read(store, settings).await?;
    let (which, bindings) = wanted.in_graph();
    let most = match wanted.sort {
        SortBy::Started => wanted.limit,
        SortBy::Cost | SortBy::Time | SortBy::Steps => MOST,
    };
    let sparql = query(wanted.state.is_none(), &which, &bindings, most + 1);
    let found = graph
        .select(&sparql, &bindings, QueryOptions::default())
        .await?;
    listed.extend((0..found.rows.len()).map(|row| self::listed(&found, row)));
    // A run may have begun between the two looks: the graph, which came last, knows it better.
    let mut seen = HashSet::new();
    listed.reverse();
    listed.retain(|run| seen.insert(run.session.clone()));
    listed.sort_by(|a, b| b.started.cmp(&a.started));
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

/// The list's query. Where nothing is asked of how a run stands, the newest are chosen before it is found out.
fn query(is_any_state: bool, which: &str, bindings: &[(&str, Term)], most: usize) -> String {
    // A value reaches into a sub-select only where that selects its variable.
    let given = bindings.iter().map(|(name, _)| format!(" ?{name}"));
    let given: String = given.collect();
    let newest = format!(
        "{{ SELECT ?session ?question ?started ?id{given} WHERE {{ {ROOTS}{which}}} \
         ORDER BY DESC(?started) LIMIT {most} }}"
    );
    let (roots, which) = if is_any_state {
        (newest.as_str(), "")
    } else {
        (ROOTS, which)
    };
    let sparql = LIST.replace("ROOTS", roots).replace("WANTED", which);
    sparql.replace("GRAPH", uris::RETRIEVAL_GRAPH) + &most.to_string()
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
        let end = run.ended.as_deref().and_then(at).unwrap_or(now);
        let began = at(&run.started).unwrap_or(end);
        run.took = Some(Took {
            ms: (end - began).max(0).unsigned_abs(),
            ..took.get(run.session.as_str()).copied().unwrap_or_default()
        });
    }
    Ok(())
}

/// Runs that were taken in and have no record yet.
async fn queued(store: &Store) -> Result<Vec<Listed>, Failure> {
    let keys = store.documents.list("sessions/").await?;
    let parts = keys.iter().filter_map(|key| {
        let (session, rest) = key.strip_prefix("sessions/")?.split_once('/')?;
        Some((session, rest))
    });
    let (mut accepted, mut begun, mut at_work) = (Vec::new(), HashSet::new(), HashSet::new());
    for (session, rest) in parts {
        if rest == "accepted" {
            accepted.push(SessionId::new(session));
        } else if rest.ends_with("/outcome") {
            begun.insert(session);
        } else if rest.starts_with("steps/") {
            at_work.insert(session);
        }
    }
    accepted.retain(|session| !begun.contains(session.as_str()));
    let mut queued = Vec::new();
    let intake = store.intake();
    // Thousands may wait: not one by one.
    for some in accepted.chunks(AT_ONCE) {
        let asked = intake.accepted_of(some).await?;
        let closed: Vec<String> = some.iter().map(keys::closed).collect();
        let closed = store.documents.get_many(&closed).await?;
        for ((session, asked), closed) in some.iter().zip(asked).zip(closed) {
            let Some(asked) = asked else { continue };
            let request = asked.request;
            let conversation = request.conversation_id.to_string();
            queued.push(Listed {
                state: not_begun(closed.is_some(), at_work.contains(session.as_str())),
                termination: None,
                session: session.to_string(),
                question: request.question,
                started: date_time(asked.at),
                ended: None,
                conversation: Some(conversation).filter(|id| !id.is_empty()),
                collection: Some(request.collection.to_string()),
                pattern: Some(request.pattern).filter(|name| !name.is_empty()),
                task_type: Some(request.task_type).filter(|name| !name.is_empty()),
                took: None,
            });
        }
    }
    Ok(queued)
}

/// The state of a session that has no record yet, of a tree that may be closed. It is at work once a worker
/// has noted a try or a call of its first step; where neither is noted, it still counts as queued.
fn not_begun(is_closed: bool, is_at_work: bool) -> RunState {
    match (is_closed, is_at_work) {
        (true, _) => RunState::Cancelled,
        (false, true) => RunState::Running,
        (false, false) => RunState::Queued,
    }
}

/// A state for people: with why the run ended, where the state does not say it.
fn told(state: RunState, termination: Option<Termination>) -> String {
    let more = termination.filter(|termination| match termination {
        Termination::FinalAnswer
        | Termination::SubagentsComplete
        | Termination::PlanComplete
        | Termination::Error => false,
        Termination::Cancelled => state != RunState::Cancelled,
        Termination::Timeout => state != RunState::Timeout,
        Termination::MaxIterations
        | Termination::MaxReplans
        | Termination::BudgetExhausted
        | Termination::RepeatedAction
        | Termination::ReplyCut
        | Termination::DeadLettered => true,
    });
    match more {
        None => state.as_str().to_owned(),
        Some(termination) => format!("{} ({})", state.as_str(), termination.as_str()),
    }
}

fn listed(found: &Solutions, row: usize) -> Listed {
    let text = |name| found.text(row, name).map(str::to_owned);
    let name = |of| Some(text(of)?.rsplit(':').next()?.to_owned());
    let reason = text("reason");
    let termination = reason.as_deref().and_then(Termination::named);
    let has = |name| found.text(row, name).is_some();
    let state = match reason {
        None if found.text(row, "waits") == Some("true") => RunState::Waiting,
        None => RunState::Running,
        Some(_) => RunState::ended(has("answered"), has("partial"), termination),
    };
    Listed {
        session: text("id").unwrap_or_default(),
        question: text("question").unwrap_or_default(),
        state,
        termination,
        started: text("started").unwrap_or_default(),
        ended: text("ended"),
        conversation: text("conversation"),
        collection: text("collection"),
        pattern: name("pattern"),
        task_type: name("taskType"),
        took: None,
    }
}

/// Tokens that were spent on a session and all below it, and how many of them came to no record.
async fn spent(store: &Store, session: &SessionId) -> Result<(u64, u64), Failure> {
    let tree = records::tree(&*store.documents, session).await?;
    let steps = || tree.iter().flat_map(|(_, run)| &run.steps);
    let wasted = steps().map(|record| record.wasted.tokens).sum();
    let used: u64 = steps().map(|record| record.usage.total()).sum();
    Ok((used + wasted, wasted))
}

/// Reads a run from its records: they are there before any triple is. `started` is what its parent
/// knows of a subagent that has none.
pub(crate) async fn show(
    store: &Store,
    session: &SessionId,
    started: Option<&Started>,
) -> Result<Shown, Failure> {
    let documents = &*store.documents;
    let run = Run::read(documents, session).await?;
    let asked = store.intake().accepted(session).await?;
    let Some(last) = run.steps.last() else {
        let (root, question) = match (started, asked) {
            (Some(started), _) => (&started.root, started.child.goal.clone()),
            (None, Some(asked)) => (session, asked.request.question),
            (None, None) => return Err(records::missing(store, session).await?),
        };
        let of_step = documents.list(&keys::step(session, 0)).await?;
        let closed = documents.get(&keys::closed(root)).await?;
        return Ok(Shown {
            session: session.to_string(),
            root: root.to_string(),
            question,
            state: not_begun(closed.is_some(), !of_step.is_empty()),
            ..Shown::default()
        });
    };
    let routed = run.steps.iter().find_map(|record| record.routed.as_ref());
    let question = asked.map(|asked| asked.request.question);
    let question = question.or_else(|| routed.map(|routed| routed.question.clone()));
    let children = run.fan_outs.iter().flat_map(|fan_out| &fan_out.children);
    let subagents = children
        .map(|child| Subagent {
            session: child.session.clone(),
            goal: child.goal.clone(),
        })
        .collect();
    let mut answer = None;
    if last.outcome.is_terminal() {
        let key = keys::document(&uris::answer_document(session));
        let body = documents.get(&key).await?;
        answer = body.map(|body| String::from_utf8_lossy(&body).into_owned());
    }
    let end = concluded(last);
    let error = end.and_then(|end| end.error.clone());
    Ok(Shown {
        session: session.to_string(),
        root: last.root.to_string(),
        question: question.unwrap_or_default(),
        state: RunState::of(Some(last)),
        termination: end.map(|end| end.termination),
        wasted_tokens: 0,
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

fn concluded(record: &StepRecord) -> Option<&Concluded> {
    match &record.activity {
        Activity::Concluded(end) => Some(end),
        Activity::None
        | Activity::Iterated(_)
        | Activity::FannedOut(_)
        | Activity::Planned(_)
        | Activity::Executed(_)
        | Activity::Asked(_)
        | Activity::Decided(_) => None,
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
            let subagents = text::counted(fan_out.children.len() as u64, "subagent");
            parts.push(format!("fan-out to {subagents}"));
        }
        Activity::Planned(plan) if plan.revision == 0 => {
            let steps = text::counted(plan.steps.len() as u64, "step");
            parts.push(format!("plan with {steps}"));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_newest_runs_are_chosen_before_it_is_found_out_how_they_stand() {
        for state in RunState::ALL.into_iter().map(Some).chain([None]) {
            let wanted = Wanted {
                collection: Some("tea".to_owned()),
                pattern: Some("react".to_owned()),
                began_before: Some(date_time(0)),
                text: Some("why".to_owned()),
                left_alone: true,
                state,
                ..Wanted::default()
            };
            let (which, bindings) = wanted.in_graph();
            let sparql = query(state.is_none(), &which, &bindings, 21);
            agentfleet_graph::check_query(&sparql, &bindings).unwrap();
            let limits = if state.is_none() { 2 } else { 1 };
            assert_eq!(sparql.matches("LIMIT 21").count(), limits, "{sparql}");
        }
    }

    #[test]
    fn a_run_is_shown_in_the_state_that_lists_it() {
        for (answered, partial, termination, expected) in [
            (true, false, Termination::PlanComplete, "answered"),
            (
                true,
                true,
                Termination::MaxIterations,
                "partial (max-iterations)",
            ),
            (true, true, Termination::Timeout, "partial (timeout)"),
            (false, false, Termination::Error, "failed"),
            (
                false,
                false,
                Termination::DeadLettered,
                "failed (dead-lettered)",
            ),
            (false, false, Termination::Cancelled, "cancelled"),
            (false, true, Termination::Timeout, "timeout"),
        ] {
            let state = RunState::ended(answered, partial, Some(termination));
            assert_eq!(told(state, Some(termination)), expected);
        }
    }

    #[test]
    fn states_have_the_names_that_are_typed() {
        for state in RunState::ALL {
            assert_eq!(RunState::named(state.as_str()), Some(state));
            assert_eq!(serde_json::json!(state), state.as_str());
        }
    }
}
