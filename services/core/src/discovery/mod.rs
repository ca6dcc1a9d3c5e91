//! Task types that are missing, and framings that do not help: proposed from runs that are over.
//!
//! Runs that were taken for `general` are grouped by what they ask about; a large enough group is a
//! task type that nobody has written yet. Runs of another type that went badly are grouped likewise; a
//! group is a better framing of that type. Names, descriptions and framings are made of the
//! questions' own terms: no model is asked. A proposal is no task type until a person approves it.
//!
//! Pure: whoever asks for it reads runs and config, and stores what is proposed.

pub mod cluster;

use crate::routing::GENERAL;
use agentfleet_schema::config::{AgentTaskType, Evidence, EvidenceRun, Snapshot, Status};
use agentfleet_schema::records::Termination;
use std::collections::{BTreeMap, BTreeSet};

/// Runs that a proposal names; it counts all of them.
const NAMED: usize = 20;
/// Terms of a description.
const TERMS: usize = 5;
/// A proposal is the same as an earlier one where they share at least this much.
const SAME: f64 = 0.5;

/// A run that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub session: String,
    pub question: String,
    /// What the router took it for; empty if nobody asked the router.
    pub task_type: String,
    /// The caller named the task type.
    pub by_caller: bool,
    /// Why it ended, as provenance says it.
    pub ended: String,
}

impl Run {
    /// Whether the router found nothing better than `general`.
    fn fell_back(&self) -> bool {
        self.task_type == GENERAL && !self.by_caller
    }

    /// Whether it came to no good end. A cancelled run is a person's choice.
    fn went_badly(&self) -> bool {
        [
            Termination::Error,
            Termination::Timeout,
            Termination::MaxIterations,
            Termination::BudgetExhausted,
            Termination::DeadLettered,
        ]
        .iter()
        .any(|end| end.as_str() == self.ended)
    }
}

/// What came of looking at runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// New items by key.
    pub proposals: Vec<(String, AgentTaskType)>,
    /// Groups that were proposed before: the key of that proposal, and its status.
    pub known: Vec<(String, Status)>,
    /// Runs that were taken for `general`.
    pub fell_back: usize,
    /// Runs of other types that went badly.
    pub went_badly: usize,
    /// The largest group that is too small to propose.
    pub largest_left: usize,
}

/// Groups runs, and proposes what they call for. `tick` is told how many are dealt with, of how many.
pub fn propose(
    runs: &[Run],
    set: &Snapshot,
    min_runs: usize,
    tick: &mut dyn FnMut(usize, usize),
) -> Found {
    let mut found = Found::default();
    let general: Vec<&Run> = runs.iter().filter(|run| run.fell_back()).collect();
    let mut of_types: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.went_badly()) {
        if run.task_type != GENERAL && set.task_types.contains_key(&run.task_type) {
            of_types.entry(&run.task_type).or_default().push(run);
        }
    }
    found.fell_back = general.len();
    found.went_badly = of_types.values().map(Vec::len).sum();
    let groups = std::iter::once(("", general)).chain(of_types);
    for (improves, runs) in groups {
        let texts: Vec<String> = runs.iter().map(|run| run.question.clone()).collect();
        for group in cluster::clusters(&texts, cluster::ALIKE, tick) {
            let members: Vec<&Run> = group.members.iter().map(|at| runs[*at]).collect();
            let count = if improves.is_empty() {
                // One question that is asked again and again is no kind of question.
                let questions = members.iter().map(|run| run.question.trim());
                questions.collect::<BTreeSet<_>>().len()
            } else {
                members.len()
            };
            if count < min_runs || group.terms.is_empty() {
                found.largest_left = found.largest_left.max(count);
                continue;
            }
            let evidence = evidence(&members, &group.terms);
            let known = set.proposals.iter().chain(&set.task_types);
            let mut known = known.filter(|(_, item)| item.improves == improves);
            if let Some((key, item)) = known.find(|(_, item)| is_same(item, &evidence, &members)) {
                found.known.push((key.clone(), item.status));
                continue;
            }
            let is_taken = |key: &str| {
                set.task_types.contains_key(key)
                    || set.proposals.contains_key(key)
                    || found.proposals.iter().any(|(taken, _)| taken == key)
            };
            let key = key(improves, &group.terms, is_taken);
            let item = match set.task_types.get(improves) {
                Some(item) => framed_better(&key, improves, item, evidence),
                None => task_type(&key, set, evidence),
            };
            found.proposals.push((key, item));
        }
    }
    found
}

fn evidence(members: &[&Run], terms: &[String]) -> Evidence {
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    for run in members {
        *ended.entry(run.ended.clone()).or_default() += 1;
    }
    let named = members.iter().take(NAMED).map(|run| EvidenceRun {
        session: run.session.as_str().into(),
        question: run.question.chars().take(300).collect(),
        ended: run.ended.clone(),
    });
    Evidence {
        runs: members.len() as u32,
        terms: terms.iter().take(TERMS).cloned().collect(),
        ended,
        sessions: named.collect(),
    }
}

/// Whether an item was proposed for the same: it shares most of its terms, or most of its runs.
fn is_same(item: &AgentTaskType, evidence: &Evidence, members: &[&Run]) -> bool {
    let Some(before) = &item.evidence else {
        return false;
    };
    let stems = |terms: &[String]| cluster::stems(&terms.join(" "));
    let (old, new) = (stems(&before.terms), stems(&evidence.terms));
    let shared = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        let least = a.len().min(b.len()).max(1) as f64;
        a.intersection(b).count() as f64 / least
    };
    let sessions = |names: &mut dyn Iterator<Item = &str>| {
        names.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let before = sessions(&mut before.sessions.iter().map(|run| run.session.as_str()));
    let now = sessions(&mut members.iter().map(|run| run.session.as_str()));
    shared(&old, &new) >= SAME || shared(&before, &now) >= SAME
}

/// A key of the most telling terms that nothing has yet.
fn key(improves: &str, terms: &[String], is_taken: impl Fn(&str) -> bool) -> String {
    let mut parts: Vec<&str> = Vec::new();
    if !improves.is_empty() {
        parts.push(improves);
    }
    let mut terms = terms.iter();
    parts.extend(terms.by_ref().take(2).map(String::as_str));
    let mut key = parts.join("-");
    for term in terms {
        if !is_taken(&key) {
            return key;
        }
        key = format!("{key}-{term}");
    }
    let mut numbered = key.clone();
    let mut n = 2;
    while is_taken(&numbered) {
        numbered = format!("{key}-{n}");
        n += 1;
    }
    numbered
}

/// `a, b and c`.
fn listed(terms: &[String]) -> String {
    match terms {
        [] => String::new(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// A task type for questions that had none.
fn task_type(key: &str, set: &Snapshot, evidence: Evidence) -> AgentTaskType {
    let about = listed(&evidence.terms);
    let example = evidence.sessions.first().map(|run| run.question.as_str());
    let framing = format!(
        "The task is about {about}. Look each of these up in the sources before you conclude, say which \
         source a statement rests on, and say plainly what the sources do not cover. {}",
        advice(&evidence)
    );
    let general = set.task_types.get(GENERAL);
    AgentTaskType {
        name: key.to_owned(),
        description: format!("Questions about {about}"),
        framing_prompt: framing.trim_end().to_owned(),
        valid_patterns: general
            .map(|item| item.valid_patterns.clone())
            .unwrap_or_default(),
        when_to_use: format!(
            "The task is about {about}, such as: {}",
            example.unwrap_or_default().trim()
        ),
        status: Status::Proposed,
        evidence: Some(evidence),
        ..AgentTaskType::default()
    }
}

/// Another framing for a task type whose runs went badly.
fn framed_better(
    key: &str,
    improves: &str,
    item: &AgentTaskType,
    evidence: Evidence,
) -> AgentTaskType {
    let about = listed(&evidence.terms);
    let framing = format!(
        "{}\n\nWhere the task is about {about}: {}",
        item.framing_prompt,
        advice(&evidence)
    );
    AgentTaskType {
        name: key.to_owned(),
        description: format!("A framing of `{improves}` that says how to go about {about}"),
        framing_prompt: framing.trim().to_owned(),
        improves: improves.to_owned(),
        status: Status::Proposed,
        evidence: Some(evidence),
        ..AgentTaskType::default()
    }
}

/// What the ends of runs call for, most frequent first.
fn advice(evidence: &Evidence) -> String {
    let mut ends: Vec<(&str, u32)> = evidence
        .ended
        .iter()
        .map(|(end, runs)| (end.as_str(), *runs))
        .collect();
    ends.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let said = ends.into_iter().filter_map(|(end, _)| match end {
        "max-iterations" => Some(
            "settle first which few facts decide the task, look each of them up once, and answer with \
             what is there.",
        ),
        "timeout" => Some("one look-up for each part of the task is enough before the answer."),
        "budget-exhausted" => Some(
            "read excerpts before whole documents, and stop as soon as the task is answered.",
        ),
        "error" | "dead-lettered" => Some(
            "where a tool fails, go on without it and say what is missing.",
        ),
        _ => None,
    });
    let mut sentences: Vec<String> = Vec::new();
    for sentence in said {
        let mut letters = sentence.chars();
        let first = letters.next().map(|c| c.to_uppercase().to_string());
        let whole = format!("{}{}", first.unwrap_or_default(), letters.as_str());
        if !sentences.contains(&whole) {
            sentences.push(whole);
        }
    }
    sentences.join(" ")
}

/// What is stored when a person approves a proposal: the proposal with its new status, and the task
/// type whose framing it replaces, if it is about one. `Err` says why it cannot be.
pub fn approved(
    key: &str,
    set: &Snapshot,
    by: &str,
) -> Result<Vec<(String, AgentTaskType)>, String> {
    let mut item = proposed(key, set)?;
    by.clone_into(&mut item.decided_by);
    if item.improves.is_empty() {
        item.status = Status::Approved;
        return Ok(vec![(key.to_owned(), item)]);
    }
    let Some(mut improved) = set.task_types.get(&item.improves).cloned() else {
        return Err(format!(
            "`{key}` is a framing of task type `{}`, which is not there any more",
            item.improves
        ));
    };
    improved.framing_prompt.clone_from(&item.framing_prompt);
    item.status = Status::Applied;
    Ok(vec![
        (item.improves.clone(), improved),
        (key.to_owned(), item),
    ])
}

/// What is stored when a person rejects a proposal.
pub fn rejected(
    key: &str,
    set: &Snapshot,
    by: &str,
) -> Result<Vec<(String, AgentTaskType)>, String> {
    let mut item = proposed(key, set)?;
    item.status = Status::Rejected;
    by.clone_into(&mut item.decided_by);
    Ok(vec![(key.to_owned(), item)])
}

/// A proposal that is still open.
fn proposed(key: &str, set: &Snapshot) -> Result<AgentTaskType, String> {
    let open = |status: Status| status == Status::Proposed;
    match set.proposals.get(key) {
        Some(item) if open(item.status) => Ok(item.clone()),
        Some(item) => Err(format!("`{key}` is {} already", item.status.as_str())),
        None if set.task_types.contains_key(key) => Err(format!(
            "`{key}` is a task type that is in force, no proposal"
        )),
        None => {
            let keys = set.proposals.iter().filter(|(_, item)| open(item.status));
            let keys: Vec<String> = keys.map(|(key, _)| format!("`{key}`")).collect();
            Err(match keys.as_slice() {
                [] => format!("there is no proposal `{key}`, nor any other"),
                keys => format!(
                    "there is no proposal `{key}` (there are {})",
                    keys.join(", ")
                ),
            })
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
