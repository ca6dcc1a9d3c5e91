//! `verify`: whether what is stored of runs is what was committed, and where it is not.

use crate::cli::Verify;
use crate::engine::graph_to_read;
use crate::error::{Exit, Failure};
use crate::evidence::{self, Counts, Session};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui;
use agentfleet_console::text;
use agentfleet_core::audit::{self, About, Finding};
use agentfleet_core::provenance::{date_time, tell_as};
use agentfleet_graph::Graph;
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::tg;
use agentfleet_schema::{Digest, SessionId, Term, Triple, keys, uris};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Sessions whose nodes are asked for in one query.
const SESSIONS_AT_ONCE: usize = 40;
/// How long a graph may be behind the records of a run that is fresh.
const FRESH: Duration = Duration::from_secs(60);
/// How long it is looked at again meanwhile, however long a look takes, and how long between two looks.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

/// The last record of a session, and those of its subagents: what to keep where whoever owns the
/// stores cannot change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub session: SessionId,
    pub step: u32,
    /// Identity of the step's record.
    pub digest: Digest,
    /// When the step was committed.
    pub time: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<Head>,
}

#[derive(Debug, Serialize)]
struct Report {
    session: SessionId,
    /// Whether nothing is wrong.
    ok: bool,
    ended: bool,
    head: Option<Head>,
    checked: Counts,
    findings: Vec<Finding>,
}

/// The reports of several sessions.
#[derive(Debug, Serialize)]
struct Reports {
    ok: bool,
    runs: Vec<Report>,
}

pub(crate) async fn run(args: Verify, settings: &Settings) -> Result<(), Failure> {
    let against = args.against.as_deref().map(kept).transpose()?;
    if args.sessions.len() > 1 && (against.is_some() || args.export.is_some()) {
        return Err(Failure::usage(format!(
            "the heads in a file are of one session, and {} are named",
            args.sessions.len()
        ))
        .hint("`--export` and `--against` go with one session"));
    }
    let store = Store::open(settings).await?;
    store.seed().await?;
    let mut named = Vec::new();
    for session in &args.sessions {
        named.push(session_of(&store, session, against.as_ref()).await?);
    }
    let graph = graph_to_read(&store, settings).await?;
    let mut reports = Vec::new();
    for session in &named {
        let report = report(&store, &*graph, settings, session, against.as_ref()).await?;
        if !args.output.json {
            show(&report);
        }
        reports.push(report);
    }
    let ok = reports.iter().all(|report| report.ok);
    let exported = match (&args.export, reports.as_slice()) {
        (Some(file), [report]) if ok => {
            let head = serde_json::to_string_pretty(&report.head)
                .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            std::fs::write(file, head + "\n").map_err(|error| {
                Failure::usage(format!("cannot write `{}`: {error}", file.display()))
            })?;
            true
        }
        _ => false,
    };
    if args.output.json {
        match reports.as_slice() {
            [report] => ui::json(report)?,
            _ => ui::json(&Reports { ok, runs: reports })?,
        }
    }
    if ok {
        if let (true, Some(file)) = (exported, &args.export) {
            errln!("The head is in `{}`.", file.display());
        }
        return Ok(());
    }
    if args.export.is_some() {
        errln!("The head was not exported: what is wrong would be in it.");
    }
    Err(Failure::told(Exit::Differs))
}

/// The session that somebody named, which the head it is held against must be of.
async fn session_of(
    store: &Store,
    given: &str,
    against: Option<&Head>,
) -> Result<SessionId, Failure> {
    let session = match (evidence::named(store, given).await, against) {
        // The head proves that there was something.
        (Err(_), Some(head)) if head.session.as_str() == given => head.session.clone(),
        (named, _) => named?,
    };
    match against {
        Some(head) if head.session != session => Err(Failure::usage(format!(
            "the head is of session `{}`, not of `{session}`",
            head.session
        ))),
        _ => Ok(session),
    }
}

/// A head that was exported.
fn kept(file: &Path) -> Result<Head, Failure> {
    let text = std::fs::read(file)
        .map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", file.display())))?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(format!("`{}` is no exported head: {error}", file.display()))
            .hint("`agentfleet verify SESSION --export FILE` writes one")
    })
}

fn show(report: &Report) {
    let checked = &report.checked;
    outln!(
        "Session {}: {}, {}, {}, {} and {} checked.",
        report.session,
        text::counted(checked.sessions, "session"),
        text::counted(checked.records, "record"),
        text::counted(checked.documents, "document"),
        text::counted(checked.triples, "triple"),
        text::counted(checked.choices, "choice"),
    );
    if let Some(head) = &report.head {
        outln!("Head: step {} of {}, {}", head.step, head.time, head.digest);
    }
    if !report.ended {
        outln!("The session has not ended: what comes after the head is not known yet.");
    }
    if report.ok {
        outln!("All of it is as it was committed.");
        return;
    }
    let count = report.findings.len() as u64;
    outln!(
        "\n{}: something is not as it was committed.",
        text::counted(count, "finding")
    );
    for finding in &report.findings {
        outln!(
            "  {} {}\n      {}",
            finding.about.as_str(),
            text::line(&finding.what),
            text::line(&finding.problem)
        );
    }
}

async fn report(
    store: &Store,
    graph: &dyn Graph,
    settings: &Settings,
    top: &SessionId,
    against: Option<&Head>,
) -> Result<Report, Failure> {
    let documents = &*store.documents;
    let (sessions, mut findings) = evidence::gather(documents, top).await?;
    let mut checked = evidence::check(documents, &*store.config, &sessions, &mut findings).await?;
    let told: Vec<Triple> = sessions
        .iter()
        .flat_map(|session| &session.links)
        .flat_map(|link| tell_as(&link.record, &link.identity).triples)
        .collect();
    statements(store, graph, settings, &sessions, &told, &mut findings).await?;
    checked.triples = told.iter().collect::<HashSet<_>>().len() as u64;
    if let Some(head) = against {
        for head in [head].into_iter().chain(&head.subagents) {
            findings.extend(held_against(head, &sessions));
        }
    }
    findings.sort();
    findings.dedup();
    Ok(Report {
        session: top.clone(),
        ok: findings.is_empty(),
        ended: sessions.first().is_some_and(|one| one.end().is_some()),
        head: head(&sessions),
        checked,
        findings,
    })
}

/// The heads of a tree, the session's own with those of its subagents.
fn head(sessions: &[Session]) -> Option<Head> {
    let mut heads = sessions.iter().filter_map(|session| {
        let link = session.links.last()?;
        Some(Head {
            session: session.id.clone(),
            step: link.step,
            digest: link.identity.clone(),
            time: date_time(link.record.committed_at),
            subagents: Vec::new(),
        })
    });
    let mut head = heads.next()?;
    head.subagents = heads.collect();
    Some(head)
}

/// A run may have gone on since its head was exported; what was there then must still be.
fn held_against(head: &Head, sessions: &[Session]) -> Option<Finding> {
    let session = sessions.iter().find(|one| one.id == head.session);
    let link = session.and_then(|one| one.links.iter().find(|link| link.step == head.step));
    let now = link.map_or("no record", |link| link.identity.as_str());
    (now != head.digest.as_str()).then(|| {
        Finding::new(
            About::Head,
            keys::outcome(&head.session, head.step),
            format!(
                "was {} when the head was exported, and now there is {now}",
                head.digest
            ),
        )
    })
}

/// Every triple derived again, against those that the graph holds.
async fn statements(
    store: &Store,
    graph: &dyn Graph,
    settings: &Settings,
    sessions: &[Session],
    told: &[Triple],
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let ours: BTreeSet<&SessionId> = sessions.iter().map(|session| &session.id).collect();
    let own = |node: &str| uris::session_of(node).is_some_and(|id| ours.contains(&id));
    let late: BTreeSet<String> = sessions
        .iter()
        .filter(|session| session.late)
        .map(|session| uris::completion(&session.id))
        .collect();
    let newest = sessions
        .iter()
        .filter_map(|one| Some(one.links.last()?.record.committed_at));
    let newest = newest.max().unwrap_or_default();
    let began = Instant::now();
    loop {
        let held = held(graph, settings, sessions, told, own).await?;
        // The aggregator's mark on what came after a verdict; nobody else may write it.
        let of_records = held
            .iter()
            .filter(|triple| triple.p.iri != tg::LATE || !late.contains(&triple.s.iri));
        let found = audit::compare(told, of_records, own);
        // That mark comes after the last record, so it may be on its way, too.
        let marked = |session: &Session| {
            let completion = uris::completion(&session.id);
            held.iter()
                .any(|triple| triple.p.iri == tg::LATE && triple.s.iri == completion)
        };
        let mut expected = sessions
            .iter()
            .filter(|session| session.late && session.end().is_some());
        let behind =
            found.iter().any(|one| one.problem.contains("is missing")) || !expected.all(marked);
        let fresh = store.now() - newest < FRESH.as_millis() as i64;
        if behind && fresh && began.elapsed() < PATIENCE {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        if behind && fresh {
            errln!(
                "The run went on less than a minute ago: what the graph lacks may be on its way. Verify it again."
            );
        }
        findings.extend(found);
        return Ok(());
    }
}

/// What the graph holds of the nodes of a tree, and of the others that its records tell of.
async fn held(
    graph: &dyn Graph,
    settings: &Settings,
    sessions: &[Session],
    told: &[Triple],
    own: impl Fn(&str) -> bool,
) -> Result<Vec<Triple>, Failure> {
    let options = settings.query_options();
    let mut held = Vec::new();
    let mut keep = |subject: &str, predicate: Option<&str>, object: Option<&Term>| {
        if let (Some(predicate), Some(object)) = (predicate, object) {
            held.push(Triple::new(subject, predicate, object.clone()));
        }
    };
    for some in sessions.chunks(SESSIONS_AT_ONCE) {
        // By the beginning of the name: a node that nobody links to is to be found too.
        let names: Vec<String> = (0..some.len()).map(|n| format!("begin{n}")).collect();
        let tests: Vec<String> = names
            .iter()
            .map(|name| format!("STRSTARTS(STR(?s), ?{name})"))
            .collect();
        let sparql = format!(
            "SELECT ?s ?p ?o FROM <{RETRIEVAL_GRAPH}> WHERE {{ ?s ?p ?o . FILTER ({}) }}",
            tests.join(" || ")
        );
        let bindings: Vec<(&str, Term)> = names
            .iter()
            .zip(some)
            .map(|(name, session)| (name.as_str(), Term::text(uris::session(&session.id))))
            .collect();
        let found = graph.select(&sparql, &bindings, options.clone()).await?;
        let object = found.column("o");
        for (at, row) in found.rows.iter().enumerate() {
            let subject = found.text(at, "s").unwrap_or_default();
            // Another session's name may begin alike.
            if own(subject) {
                let object = object.and_then(|object| row.get(object)?.as_ref());
                keep(subject, found.text(at, "p"), object);
            }
        }
    }
    let others: BTreeSet<&str> = told
        .iter()
        .map(|triple| triple.s.iri.as_str())
        .filter(|subject| !own(subject))
        .collect();
    let sparql = format!("SELECT ?p ?o FROM <{RETRIEVAL_GRAPH}> WHERE {{ ?s ?p ?o }}");
    for subject in others {
        let bindings = [("s", Term::iri(subject))];
        let found = graph.select(&sparql, &bindings, options.clone()).await?;
        let object = found.column("o");
        for (at, row) in found.rows.iter().enumerate() {
            let object = object.and_then(|object| row.get(object)?.as_ref());
            keep(subject, found.text(at, "p"), object);
        }
    }
    Ok(held)
}
