//! `explain`: every decision of a run in order, with what else could have been chosen.
//!
//! It reads the records, which are there before any triple is, and the config as it was at the
//! version of the run: an option is described in the words that it had then.

mod page;

use super::records;
use crate::cli::Steps;
use crate::error::Failure;
use crate::evidence;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::ConfigStore;
use agentfleet_console::style::paint_all;
use agentfleet_console::text;
use agentfleet_core::approval;
use agentfleet_core::history::{CONTEXT, SUMMARY};
use agentfleet_core::provenance::date_time;
use agentfleet_orchestrator::replay::ReplayError;
use agentfleet_runtime::Records;
use agentfleet_runtime::records::SessionSteps;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, ApprovalAnswer, Asked, Call, Decided, DecidedBy, Decision, Iterated, StepRecord,
    Usage,
};
use agentfleet_schema::{Cost, Money, Operation, SessionId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A run explained.
#[derive(Debug, Serialize)]
struct Explained {
    session: SessionId,
    sessions: Vec<OfSession>,
}

/// The decisions of one session, in order.
#[derive(Debug, Serialize)]
struct OfSession {
    session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<SessionId>,
    /// How many sessions are above it here.
    depth: usize,
    /// What it was asked, or its goal.
    question: String,
    decisions: Vec<Choice>,
    /// What else there is to know of its steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<Remark>,
    /// How it ended; absent while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

/// What went otherwise than it should with the model of a step.
#[derive(Debug, Serialize)]
struct Remark {
    step: u32,
    text: String,
}

/// One decision.
#[derive(Debug, Default, Serialize)]
struct Choice {
    step: u32,
    at: String,
    /// What was decided: `task-type`, `pattern`, `tool`, `fan-out`, ...
    subject: String,
    chosen: String,
    decided_by: &'static str,
    /// Every option, the chosen one included.
    options: Vec<Choosable>,
    narrowed_by: String,
    signal: String,
    /// The chooser's words.
    rationale: String,
    /// The models that were asked.
    models: Vec<String>,
    tokens_in: u64,
    tokens_out: u64,
    #[serde(flatten)]
    cost: Cost,
    config_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<BTreeMap<String, String>>,
    /// What is notable about what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

/// An option, and what choosing it means.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Choosable {
    name: String,
    /// In the words of the config at that version; empty where it says nothing.
    description: String,
    chosen: bool,
}

pub(crate) async fn run(args: Steps, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    let session = evidence::named(&store, &args.session).await?;
    let below = !args.only && args.step.is_none();
    let mut sets = Sets {
        config: &*store.config,
        known: BTreeMap::new(),
    };
    let mut sessions = Vec::new();
    let mut walk = Records::new(&*store.documents).walk(&session);
    while let Some(found) = walk.next().await? {
        let steps = found.steps.len() as u32;
        if found.depth == 0 && steps == 0 {
            return Err(records::untold(&store, session.as_str()).await?);
        }
        if let Some(step) = args.step.filter(|step| *step >= steps) {
            let last = steps - 1;
            return Err(ReplayError::NoStep {
                session,
                step,
                last,
            }
            .into());
        }
        let mut told = of_session(found, &mut sets).await?;
        if let Some(step) = args.step {
            told.decisions.retain(|choice| choice.step == step);
            told.remarks.retain(|remark| remark.step == step);
        }
        sessions.push(told);
        if !below {
            break;
        }
    }
    let explained = Explained { session, sessions };
    if args.output.json {
        return ui::json(&explained);
    }
    ui::painted(&paint_all(&page::lines(&explained, ui.width), ui.color));
    Ok(())
}

/// The config at the versions of a run.
struct Sets<'a> {
    config: &'a dyn ConfigStore,
    known: BTreeMap<u64, Arc<Snapshot>>,
}

impl Sets<'_> {
    async fn at(&mut self, version: u64) -> Result<Arc<Snapshot>, Failure> {
        if let Some(set) = self.known.get(&version) {
            return Ok(Arc::clone(set));
        }
        let set = match self.config.snapshot_at(version).await {
            Ok(set) => set,
            // An end from outside names none. What cannot be described is still a decision.
            Err(agentfleet_config::Error::UnknownVersion { .. }) => Arc::default(),
            Err(error) => return Err(error.into()),
        };
        self.known.insert(version, Arc::clone(&set));
        Ok(set)
    }
}

async fn of_session(found: SessionSteps, sets: &mut Sets<'_>) -> Result<OfSession, Failure> {
    let mut decisions = Vec::new();
    let mut decided = None;
    for record in &found.steps {
        let set = sets.at(record.config_version).await?;
        decisions.extend(of_step(record, decided, &set));
        decided = match &record.activity {
            Activity::Decided(decided) => Some(decided),
            _ => None,
        };
    }
    let first = found.steps.first();
    let asked = first.and_then(|record| record.routed.as_ref());
    let ended = found.end().map(|record| {
        let outcome = record.outcome.as_str();
        record.concluded().map_or_else(
            || outcome.to_owned(),
            |end| {
                let partial = if end.partial { ", in part" } else { "" };
                format!("{outcome} ({}{partial})", end.termination.as_str())
            },
        )
    });
    Ok(OfSession {
        depth: found.depth,
        question: asked
            .map(|routed| routed.question.clone())
            .unwrap_or_default(),
        decisions,
        remarks: found.steps.iter().flat_map(remarks).collect(),
        ended,
        session: found.session,
        parent: found.parent,
    })
}

/// Waits for a model, replies that were cut, and calls that were not made.
fn remarks(record: &StepRecord) -> Vec<Remark> {
    let mut texts = Vec::new();
    if let Some(waited) = &record.worked.waited {
        texts.push(format!(
            "waited {} for the model, which could not answer: {}",
            text::duration(waited.ms),
            waited.reason
        ));
    }
    for call in &record.calls {
        let Call::Model {
            operation,
            cut,
            ignored,
            ..
        } = call
        else {
            continue;
        };
        if *cut {
            texts.push(format!(
                "the reply for `{operation}` was cut at the limit of its length"
            ));
        }
        if !ignored.is_empty() {
            texts.push(format!(
                "the reply for `{operation}` also called {}: not called",
                ignored.join(", ")
            ));
        }
    }
    let step = record.step;
    let told = |text| Remark { step, text };
    texts.into_iter().map(told).collect()
}

/// The decisions of a step, in the order they were made. `decided` is what became of the call that
/// waited just before it.
fn of_step(record: &StepRecord, decided: Option<&Decided>, set: &Snapshot) -> Vec<Choice> {
    let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
    let mut choices: Vec<Choice> = routed
        .chain(&record.decisions)
        .map(|decision| of_decision(record, decision, set))
        .collect();
    match &record.activity {
        Activity::Iterated(it) => choices.push(of_tool(record, it, decided, set)),
        Activity::Executed(executed) => {
            let calls = executed.call.iter();
            choices.extend(calls.map(|it| of_tool(record, it, decided, set)));
        }
        Activity::Asked(asked) => choices.push(of_asked(record, asked, set)),
        Activity::None
        | Activity::FannedOut(_)
        | Activity::Planned(_)
        // The decision of the record tells it.
        | Activity::Decided(_)
        | Activity::Concluded(_) => {}
    }
    choices
}

fn bare(record: &StepRecord, subject: &str, chosen: &str, by: DecidedBy) -> Choice {
    Choice {
        step: record.step,
        at: date_time(record.committed_at),
        subject: subject.to_owned(),
        chosen: chosen.to_owned(),
        decided_by: by.as_str(),
        config_version: record.config_version,
        ..Choice::default()
    }
}

fn of_decision(record: &StepRecord, decision: &Decision, set: &Snapshot) -> Choice {
    let subject = decision.subject.as_str();
    let mut choice = bare(record, subject, &decision.chosen, decision.decided_by);
    choice.options = options(subject, &decision.options, &decision.chosen, set);
    choice.narrowed_by.clone_from(&decision.narrowed_by);
    choice.signal.clone_from(&decision.signal);
    choice.rationale.clone_from(&decision.rationale);
    if let Activity::Decided(decided) = &record.activity {
        choice.outcome = Some(approval::who(decided));
    }
    if let (Activity::FannedOut(fanned_out), "fan-out" | "next-round") = (&record.activity, subject)
    {
        let goals = fanned_out.children.iter();
        let goals = goals.map(|child| format!("{}. {}", child.index + 1, child.goal));
        choice.outcome = Some(goals.collect::<Vec<_>>().join("; "));
    }
    let operation = match subject {
        "task-type" => Some(Operation::ClassifyTaskType),
        "pattern" => Some(Operation::SelectPattern),
        "next-round" => Some(Operation::Review),
        "fan-out" => Some(Operation::Decompose),
        _ => None,
    };
    match operation {
        Some(operation) => paid(&mut choice, record, operation),
        // The only decision of its step was what its models were asked for.
        None if record.decisions.len() == 1 => spent(&mut choice, record, |_| true),
        None => {}
    }
    choice
}

/// The tool of an iteration: chosen by the model, of those that were visible; where a person changed what
/// the model had chosen, by that person.
fn of_tool(
    record: &StepRecord,
    it: &Iterated,
    decided: Option<&Decided>,
    set: &Snapshot,
) -> Choice {
    let edited = decided.filter(|decided| {
        decided.answer == ApprovalAnswer::Edit
            && (&decided.tool, &decided.arguments) == (&it.action, &it.arguments)
    });
    let by = match edited {
        Some(_) => DecidedBy::Person,
        None => DecidedBy::Model,
    };
    let mut choice = bare(record, "tool", &it.action, by);
    if let Some(decided) = edited {
        choice.signal = format!("the call was {}", approval::who(decided));
    }
    choice.options = options("tool", &it.candidates, &it.action, set);
    "the tools of the run's groups, in its state".clone_into(&mut choice.narrowed_by);
    choice.rationale.clone_from(&it.thought);
    choice.arguments = Some(it.arguments.clone());
    if it.is_error {
        let short: String = it.observation.chars().take(200).collect();
        choice.outcome = Some(short);
    }
    paid(&mut choice, record, Operation::React);
    choice
}

/// The same of a call that waits for a person before it is made.
fn of_asked(record: &StepRecord, asked: &Asked, set: &Snapshot) -> Choice {
    let mut choice = bare(record, "tool", &asked.tool, DecidedBy::Model);
    choice.options = options("tool", &asked.candidates, &asked.tool, set);
    "the tools of the run's groups, in its state".clone_into(&mut choice.narrowed_by);
    choice.rationale.clone_from(&asked.thought);
    choice.arguments = Some(asked.arguments.clone());
    choice.outcome = Some(format!(
        "waits for a person until {}, then `{}`",
        date_time(asked.expires_at),
        asked.default.as_str()
    ));
    spent(&mut choice, record, |_| true);
    choice
}

/// What the replies to an operation cost.
fn paid(choice: &mut Choice, record: &StepRecord, operation: Operation) {
    spent(choice, record, |name| name == operation.as_str());
}

fn spent(choice: &mut Choice, record: &StepRecord, counts: impl Fn(&str) -> bool) {
    let mut usage = Usage::default();
    for call in &record.calls {
        if let Call::Model {
            operation,
            model,
            usage: of_it,
            ..
        } = call
            && counts(operation)
        {
            usage.add(*of_it);
            if !choice.models.contains(model) {
                choice.models.push(model.clone());
            }
        }
    }
    choice.tokens_in = usage.input_tokens;
    choice.tokens_out = usage.output_tokens;
    // What is beyond millionths is made by adding.
    let cost = usage.known_cost();
    choice.cost = cost.map(|amount| Money::of(amount).as_f64());
}

fn options(subject: &str, names: &[String], chosen: &str, set: &Snapshot) -> Vec<Choosable> {
    names
        .iter()
        .map(|name| Choosable {
            name: name.clone(),
            description: meaning(subject, name, set),
            chosen: name == chosen,
        })
        .collect()
}

/// What choosing an option means.
fn meaning(subject: &str, name: &str, set: &Snapshot) -> String {
    let both = |description: &str, when: &str| match (description.trim(), when.trim()) {
        ("", when) => when.to_owned(),
        (description, "") => description.to_owned(),
        (description, when) => {
            let end = if description.ends_with(['.', '!', '?']) {
                ""
            } else {
                "."
            };
            format!("{description}{end} When to use: {when}")
        }
    };
    match (subject, name) {
        ("task-type", _) => {
            let item = set.task_types.get(name);
            item.map_or_else(String::new, |it| both(&it.description, &it.when_to_use))
        }
        (CONTEXT, "lines") => {
            "the oldest steps of the history in a line each, what they observed left out".to_owned()
        }
        (CONTEXT, SUMMARY) => "the oldest steps of the history in one summary".to_owned(),
        (of, _) if of == "pattern" || of.starts_with("subagent-pattern") => {
            let item = set.patterns.get(name);
            item.map_or_else(String::new, |it| both(&it.description, &it.when_to_use))
        }
        ("tool", _) => {
            let item = set.tools.values().find(|tool| tool.name == name);
            item.map_or_else(String::new, |it| it.description.clone())
        }
        ("fan-out", "fan-out") => {
            "Splits the task into goals, each for a subagent of its own.".into()
        }
        ("fan-out", "alone") => "Works on without subagents.".into(),
        ("next-round", "answer") => "Answers from the results there are.".into(),
        ("next-round", "investigate") => "Starts more subagents before it answers.".into(),
        _ => String::new(),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_option_is_and_when_it_is_used_are_sentences_of_their_own() {
        for (description, when, told) in [
            (
                "Acts in turns",
                "for one thing",
                "Acts in turns. When to use: for one thing",
            ),
            (
                "Acts in turns.",
                "for one thing",
                "Acts in turns. When to use: for one thing",
            ),
            ("Acts in turns", "", "Acts in turns"),
            ("", "for one thing", "for one thing"),
        ] {
            let mut set = Snapshot::default();
            let pattern = agentfleet_schema::config::AgentPattern {
                description: description.into(),
                when_to_use: when.into(),
                ..Default::default()
            };
            set.patterns.insert("react".into(), pattern);
            assert_eq!(meaning("pattern", "react", &set), told);
        }
    }
}
