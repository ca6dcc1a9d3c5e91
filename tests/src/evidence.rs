//! What a fleet on servers leaves behind, once it is left alone: its records, and the graph. Waits
//! until both are complete, within reason, and says what is missing then.

use crate::callers::Callers;
use crate::place::Place;
use agentfleet::evidence;
use agentfleet_config::{DocumentsConfig, seed};
use agentfleet_core::commit::read_whole;
use agentfleet_documents::Documents;
use agentfleet_graph::{Answer, Graph, QueryOptions};
use agentfleet_orchestrator::replay::Replayer;
use agentfleet_schema::records::{CompletionStatus, FanInRecord, FanOutRecord, JoinCause};
use agentfleet_schema::{Term, Triple, Triples};
use agentfleet_storage::Database;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long what is owed after the last answer may take: more than any lease, back-off and redelivery.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs whose traces are validated by one process.
const BATCH: usize = 20;

/// How many syntheses the graph has of each fan-out.
const SYNTHESES: &str = "SELECT ?correlation (COUNT(DISTINCT ?synthesis) AS ?n) \
     FROM <urn:graph:retrieval> WHERE { \
       ?fanout a tg:FanOut ; tg:correlationId ?correlation . \
       OPTIONAL { ?synthesis a tg:Synthesis ; tg:correlationId ?correlation } \
     } GROUP BY ?correlation";

const TRACES: &str = "CONSTRUCT { ?s ?p ?o } FROM <urn:graph:retrieval> WHERE { ?s ?p ?o }";

/// Records and graph, when they were complete or patience was at its end.
#[derive(Debug, Default)]
pub struct Evidence {
    pub steps: usize,
    /// Steps that a later attempt committed.
    pub worked_again: usize,
    pub fan_outs: usize,
    /// Fan-outs of eight.
    pub full_fan_outs: usize,
    /// Steps that were recorded and never marked as published.
    pub unpublished: Vec<String>,
    /// Fan-outs without a verdict, or whose verdict lacks an answer.
    pub incomplete: Vec<String>,
    /// Syntheses of each fan-out in the graph, where they are not one.
    pub syntheses: BTreeMap<String, String>,
    /// Fan-outs that the graph knows.
    pub fan_outs_told: usize,
    /// What a record tells and the graph does not.
    pub untold: Vec<String>,
    pub statements: usize,
    pub parked: Vec<String>,
    /// Steps that were worked again from their records, and runs whose records were checked.
    pub replayed: usize,
    pub verified: usize,
    /// What came out otherwise, or is not as it was committed.
    pub diverging: Vec<String>,
}

impl Evidence {
    pub fn gather(place: &Place, callers: &Callers) -> Self {
        callers.block_on(Self::when_complete(place))
    }

    async fn when_complete(place: &Place) -> Self {
        let (documents, graph) = (place.documents().await, place.graph().await);
        let mut found = Self::default();
        // The last answer is out before its step is marked as published, and the mark may be left
        // to a delivery that comes again.
        let patience = Instant::now() + PATIENCE;
        let keys = loop {
            let keys: BTreeSet<String> = documents
                .list("sessions/")
                .await
                .unwrap()
                .into_iter()
                .collect();
            let missing = |key: &&String| !keys.contains(&key.replace("/outcome", "/published"));
            let outcomes = keys.iter().filter(|key| key.ends_with("/outcome"));
            found.unpublished = outcomes.filter(missing).cloned().collect();
            if found.unpublished.is_empty() || Instant::now() > patience {
                break keys;
            }
        };
        found.parked = documents.list("parked/").await.unwrap();
        let ending = |end: &str| {
            keys.iter()
                .filter(|key| key.ends_with(end))
                .cloned()
                .collect()
        };
        let (outcomes, fan_outs): (Vec<String>, Vec<String>) =
            (ending("/outcome"), ending("/fanout"));
        found.joins(&*documents, &fan_outs).await;
        let told = found.told(&*documents, &outcomes).await;
        found.follows(&documents, &outcomes).await;
        // Provenance may still be on its way when the last answer is out.
        let options = QueryOptions {
            timeout: PATIENCE,
            max_rows: usize::MAX,
            ..QueryOptions::default()
        };
        let patience = Instant::now() + PATIENCE;
        loop {
            let rows = graph.select(SYNTHESES, &[], options.clone()).await.unwrap();
            found.fan_outs_told = rows.rows.len();
            let counts = (0..rows.rows.len()).filter_map(|row| {
                let count = rows.text(row, "n").unwrap_or_default();
                let correlation = rows.text(row, "correlation").unwrap_or_default();
                (count != "1").then(|| (correlation.to_owned(), count.to_owned()))
            });
            found.syntheses = counts.collect();
            let Answer::Triples(stored) = graph.query(TRACES, &[], options.clone()).await.unwrap()
            else {
                panic!("CONSTRUCT gives triples");
            };
            found.statements = stored.len();
            let stored: HashSet<u64> = stored.iter().map(digest).collect();
            let untold = told.iter().filter(|(digest, _)| !stored.contains(digest));
            found.untold = untold.map(|(_, record)| record.clone()).collect();
            let complete = found.untold.is_empty()
                && found.syntheses.is_empty()
                && found.fan_outs_told == fan_outs.len();
            if complete || Instant::now() > patience {
                return found;
            }
        }
    }

    /// Reads fan-outs and their verdicts.
    async fn joins(&mut self, documents: &dyn Documents, fan_outs: &[String]) {
        self.fan_outs = fan_outs.len();
        for key in fan_outs {
            let body = documents.get(key).await.unwrap().unwrap();
            let fan_out: FanOutRecord = serde_json::from_slice(&body).unwrap();
            self.full_fan_outs += usize::from(fan_out.children.len() == 8);
            let verdict = key.replace("/fanout", "/fanin");
            let Some(body) = documents.get(&verdict).await.unwrap() else {
                self.incomplete.push(format!("LV-1: {key} has no verdict"));
                continue;
            };
            let verdict: FanInRecord = serde_json::from_slice(&body).unwrap();
            let answered: BTreeSet<u32> = verdict
                .members
                .iter()
                .filter(|member| member.status == CompletionStatus::Answered)
                .map(|member| member.index)
                .collect();
            let whole = answered.len() == fan_out.children.len()
                && verdict.members.len() == fan_out.children.len()
                && verdict.missing.is_empty()
                && verdict.cause == JoinCause::Complete;
            if !whole {
                self.incomplete.push(format!("FI-3: {key}: {verdict:?}"));
            }
        }
    }

    /// Everything that the records tell the graph, each with its record.
    async fn told(&mut self, documents: &dyn Documents, outcomes: &[String]) -> Vec<(u64, String)> {
        self.steps = outcomes.len();
        let mut told = Vec::new();
        for some in outcomes.chunks(100) {
            let bodies = documents.get_many(some).await.unwrap();
            for (key, body) in some.iter().zip(bodies) {
                let record = read_whole(&body.unwrap()).unwrap();
                self.worked_again += usize::from(record.attempt > 1);
                let before = told.len();
                for message in record.provenance() {
                    let message: Triples = serde_json::from_str(&message.body).unwrap();
                    let triples = message.triples.iter();
                    told.extend(triples.map(|one| (digest(one), format!("{key}: {}", shown(one)))));
                }
                assert!(told.len() > before, "{key} tells nothing");
            }
        }
        told
    }

    /// Replays every step, and verifies every run.
    async fn follows(&mut self, documents: &Arc<dyn Documents>, outcomes: &[String]) {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let config = DocumentsConfig::new(Arc::clone(documents), Arc::new(database), || 0);
        let replayer = Replayer {
            documents: &**documents,
            config: &config,
            default_prompts: &seed::embedded_snapshot().unwrap(),
        };
        let mut roots = BTreeSet::new();
        for some in outcomes.chunks(100) {
            let bodies = documents.get_many(some).await.unwrap();
            for (key, body) in some.iter().zip(bodies) {
                let record = read_whole(&body.unwrap()).unwrap();
                let found = replayer.step(&record).await.unwrap();
                let divergences = found.divergences.iter().map(ToString::to_string);
                let all = divergences.chain(found.unchecked);
                self.diverging
                    .extend(all.map(|what| format!("{key}: {what}")));
                self.replayed += 1;
                roots.insert(record.root);
            }
        }
        for root in &roots {
            let gathered = evidence::gather(&**documents, root).await;
            let (sessions, mut findings) = gathered.unwrap_or_else(|failure| panic!("{failure}"));
            let checked = evidence::check(&**documents, &config, &sessions, &mut findings).await;
            checked.unwrap_or_else(|failure| panic!("{failure}"));
            let findings = findings.iter().map(|found| format!("{root}: {found:?}"));
            self.diverging.extend(findings);
            self.verified += 1;
        }
    }

    /// What is missing, or there twice.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut note = |what: &str, found: &dyn fmt::Debug, is_so: bool| {
            if is_so {
                broken.push(format!("{what}: {found:?}"));
            }
        };
        let unpublished = &self.unpublished;
        note(
            "OR-2: never published",
            unpublished,
            !unpublished.is_empty(),
        );
        note("fan-in", &self.incomplete, !self.incomplete.is_empty());
        let told = (self.fan_outs_told, self.fan_outs);
        note("fan-outs told, and all", &told, told.0 != told.1);
        let syntheses = &self.syntheses;
        note("FI-1: not one synthesis", syntheses, !syntheses.is_empty());
        let untold: Vec<&String> = self.untold.iter().take(20).collect();
        let all = self.untold.len();
        note("the graph lacks statements", &(all, untold), all > 0);
        let diverging: Vec<&String> = self.diverging.iter().take(20).collect();
        note("replay and verify", &diverging, !diverging.is_empty());
        note("dead-lettered", &self.parked, !self.parked.is_empty());
        broken
    }
}

fn digest(triple: &Triple) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&triple.s, &triple.p, value(&triple.o)).hash(&mut hasher);
    hasher.finish()
}

fn shown(triple: &Triple) -> String {
    let object = format!("{}{}", triple.o.iri, triple.o.value);
    format!("{} {} {object:.60}", triple.s.iri, triple.p.iri)
}

/// A term by what it means: stores may write an instant without the zeros at its end.
fn value(term: &Term) -> Term {
    let mut term = term.clone();
    if let Some((seconds, fraction)) = term.value.split_once('.')
        && term.datatype.ends_with("#dateTime")
        && let Some(fraction) = fraction.strip_suffix('Z')
    {
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        term.value = format!("{seconds}{point}{fraction}Z");
    }
    term
}

/// Has the traces of these runs validated by software that knows nothing of this project (see
/// `tests/validators`), on two processors. Fails if one is not valid.
pub fn validate(place: &Place, roots: &[String]) {
    let validators = Path::new(env!("CARGO_MANIFEST_DIR")).join("validators");
    let python = Command::new(validators.join("venv.sh")).output().unwrap();
    assert!(
        python.status.success(),
        "{}",
        String::from_utf8_lossy(&python.stderr)
    );
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    let folder = place.path("traces");
    std::fs::create_dir_all(&folder).unwrap();
    let batches = Mutex::new(roots.chunks(BATCH.min(roots.len().div_ceil(2)).max(1)));
    let work = || {
        loop {
            let Some(batch) = batches.lock().unwrap().next() else {
                return;
            };
            let files = batch.iter().map(|root| {
                let file = folder.join(format!("{root}.ttl"));
                std::fs::write(&file, place.trace(root)).unwrap();
                file
            });
            let files: Vec<PathBuf> = files.collect();
            let output = Command::new(&python)
                .args(["-W", "ignore"])
                .arg(validators.join("validate.py"))
                .args(&files)
                .output()
                .unwrap();
            let (said, problems) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            assert!(output.status.success(), "not valid: {said}{problems}");
            let valid = said
                .lines()
                .filter(|line| line.starts_with("valid "))
                .count();
            assert_eq!(valid, files.len(), "{said}");
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().expect("a trace is not valid");
    });
}
