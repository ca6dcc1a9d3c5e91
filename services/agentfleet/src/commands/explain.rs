//! `explain`: every decision of a run in order, with what else could have been chosen.
//!
//! It reads the records, which are there before any triple is, and the config as it was at the
//! version of the run: an option is described in the words that it had then.

use super::records::{self, Run};
use crate::cli::Explain;
use crate::error::Failure;
use crate::evidence;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::ConfigStore;
use agentfleet_console::style::{Line, paint_all};
use agentfleet_console::text;
use agentfleet_core::approval;
use agentfleet_core::history::{CONTEXT, SUMMARY};
use agentfleet_core::provenance::date_time;
use agentfleet_orchestrator::replay::ReplayError;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, ApprovalAnswer, Asked, Call, Decided, DecidedBy, Decision, Iterated, StepRecord,
    Usage,
};
use agentfleet_schema::{Cost, Money, Operation, SessionId};
use anstyle::Style;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

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
#[derive(Debug, Serialize)]
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

pub(crate) async fn run(args: Explain, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    let session = evidence::named(&store, &args.session).await?;
    let below = !args.only && args.step.is_none();
    let runs: HashMap<SessionId, Run> = if below {
        let tree = records::tree(&*store.documents, &session).await?;
        tree.into_iter().collect()
    } else {
        let run = Run::read(&*store.documents, &session).await?;
        HashMap::from([(session.clone(), run)])
    };
    if runs.values().all(|run| run.steps.is_empty()) {
        return Err(records::untold(&store, session.as_str()).await?);
    }
    if let Some(step) = args.step {
        let steps = runs.get(&session).map_or(0, |run| run.steps.len() as u32);
        if step >= steps {
            return Err(ReplayError::NoStep {
                session,
                step,
                last: steps.saturating_sub(1),
            }
            .into());
        }
    }
    let mut sets = Sets {
        config: &*store.config,
        known: BTreeMap::new(),
    };
    let mut sessions = Vec::new();
    // Depth first, siblings in the order of their goals: as it would be told.
    let mut open = vec![(session.clone(), None, 0)];
    while let Some((id, parent, depth)) = open.pop() {
        let Some(run) = runs.get(&id) else { continue };
        let mut children: Vec<SessionId> = run.children().collect();
        children.reverse();
        for child in children {
            open.push((child, Some(id.clone()), depth + 1));
        }
        let mut told = of_session(id, parent, depth, run, &mut sets).await?;
        if let Some(step) = args.step {
            told.decisions.retain(|choice| choice.step == step);
            told.remarks.retain(|remark| remark.step == step);
        }
        sessions.push(told);
    }
    let explained = Explained { session, sessions };
    if args.output.json {
        return ui::json(&explained);
    }
    ui::painted(&paint_all(&lines(&explained, ui.width), ui.color));
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

async fn of_session(
    session: SessionId,
    parent: Option<SessionId>,
    depth: usize,
    run: &Run,
    sets: &mut Sets<'_>,
) -> Result<OfSession, Failure> {
    let mut decisions = Vec::new();
    let mut decided = None;
    for record in &run.steps {
        let set = sets.at(record.config_version).await?;
        decisions.extend(of_step(record, decided, &set));
        decided = match &record.activity {
            Activity::Decided(decided) => Some(decided),
            _ => None,
        };
    }
    let first = run.steps.first();
    let asked = first.and_then(|record| record.routed.as_ref());
    let ended = run.end().map(|record| match &record.activity {
        Activity::Concluded(end) => {
            let partial = if end.partial { ", in part" } else { "" };
            format!(
                "{} ({}{partial})",
                record.outcome.as_str(),
                end.termination.as_str()
            )
        }
        _ => record.outcome.as_str().to_owned(),
    });
    Ok(OfSession {
        session,
        parent,
        depth,
        question: asked
            .map(|routed| routed.question.clone())
            .unwrap_or_default(),
        decisions,
        remarks: run.steps.iter().flat_map(remarks).collect(),
        ended,
    })
}

/// Waits for a model, replies that were cut, and calls that were not made.
fn remarks(record: &StepRecord) -> Vec<Remark> {
    let mut texts = Vec::new();
    let worked = record.worked.as_ref();
    if let Some(waited) = worked.and_then(|worked| worked.waited.as_ref()) {
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
        options: Vec::new(),
        narrowed_by: String::new(),
        signal: String::new(),
        rationale: String::new(),
        models: Vec::new(),
        tokens_in: 0,
        tokens_out: 0,
        cost: Cost::default(),
        config_version: record.config_version,
        arguments: None,
        outcome: None,
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
    let cost = usage.known_cost(record.telling());
    choice.cost = cost.map(|amount| Money::of(amount).as_f64());
}

/// A reason as it is told to people: what a model wrote as an object, part by part.
fn in_words(rationale: &str) -> String {
    fn said(value: &Value) -> String {
        let joined = |parts: Vec<String>, between| {
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(between)
        };
        match value {
            Value::Null => String::new(),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            Value::Array(list) => joined(list.iter().map(said).collect(), ", "),
            Value::Object(map) => {
                let parts = map.iter().map(|(name, value)| match said(value) {
                    value if value.is_empty() => value,
                    value => format!("{} {value}", name.replace('_', " ")),
                });
                joined(parts.collect(), "; ")
            }
        }
    }
    match serde_json::from_str(rationale) {
        Ok(object @ Value::Object(_)) => said(&object),
        _ => rationale.to_owned(),
    }
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

/// An explanation for people, as it is written. What an option means is told where it is first open.
struct Page<'e> {
    width: usize,
    lines: Vec<Line>,
    described: HashSet<(&'e str, &'e str)>,
}

fn lines(explained: &Explained, width: usize) -> Vec<Line> {
    let mut page = Page {
        width,
        lines: Vec::new(),
        described: HashSet::new(),
    };
    for (n, session) in explained.sessions.iter().enumerate() {
        if n > 0 {
            page.push(0, "", PLAIN);
        }
        page.session(session);
    }
    page.lines
}

fn is_offline(models: &[String]) -> bool {
    !models.is_empty() && models.iter().all(|model| model == "offline")
}

impl<'e> Page<'e> {
    fn push(&mut self, indent: usize, text: &str, style: Style) {
        let indent = " ".repeat(indent);
        let room = self.width.saturating_sub(indent.len()).max(30);
        for line in Line::of(&text::clean(text), style).wrapped(room) {
            let mut whole = Line::of(&indent, PLAIN);
            whole.append(&line);
            self.lines.push(whole);
        }
    }

    fn session(&mut self, session: &'e OfSession) {
        let indent = session.depth * 2;
        let what = if session.depth == 0 {
            "Session"
        } else {
            "Subagent"
        };
        self.push(indent, &format!("{what} {}", session.session), BOLD);
        self.push(indent, &text::one_line(&session.question), PLAIN);
        for choice in &session.decisions {
            self.choice(choice, indent);
        }
        self.push(0, "", PLAIN);
        for remark in &session.remarks {
            let text = format!("step {}: {}", remark.step, text::one_line(&remark.text));
            self.push(indent + 2, &text, PLAIN);
        }
        let ended = match &session.ended {
            Some(ended) => format!("ended: {ended}"),
            None => "has not ended".to_owned(),
        };
        self.push(indent + 2, &ended, DIM);
    }

    fn choice(&mut self, choice: &'e Choice, indent: usize) {
        self.push(0, "", PLAIN);
        let by = match choice.decided_by {
            "model" if is_offline(&choice.models) => "chosen by the offline model",
            "model" => "chosen by the model",
            "only-option" => "the only option",
            "fallback" => "fallen back to",
            "person" => "decided by a person",
            _ => "given by the caller",
        };
        let head = format!(
            "step {}  {}: {}  ({by})",
            choice.step, choice.subject, choice.chosen
        );
        self.push(indent + 2, &head, BOLD);
        if let Some(arguments) = &choice.arguments {
            for (name, value) in arguments {
                self.push(
                    indent + 4,
                    &format!("{name} = {}", text::one_line(value)),
                    PLAIN,
                );
            }
        }
        let rationale = in_words(&choice.rationale);
        for (label, said) in [
            ("because", &choice.signal),
            ("in its words", &rationale),
            ("from", &choice.narrowed_by),
        ] {
            if !said.is_empty() {
                self.push(
                    indent + 4,
                    &format!("{label}: {}", text::one_line(said)),
                    PLAIN,
                );
            }
        }
        let mut again = Vec::new();
        for option in &choice.options {
            let meaning = option.description.as_str();
            let is_new = self.described.insert((option.name.as_str(), meaning));
            if !is_new && !option.chosen {
                again.push(option.name.as_str());
                continue;
            }
            let mark = if option.chosen { "●" } else { "○" };
            let style = if option.chosen { PLAIN } else { DIM };
            let named = if meaning.is_empty() || !is_new {
                option.name.clone()
            } else {
                format!("{}: {}", option.name, text::one_line(meaning))
            };
            self.push(indent + 4, &format!("{mark} {named}"), style);
        }
        if !again.is_empty() {
            self.push(indent + 4, &format!("○ {}", again.join(", ")), DIM);
        }
        if let Some(outcome) = &choice.outcome {
            self.push(
                indent + 4,
                &format!("then: {}", text::one_line(outcome)),
                PLAIN,
            );
        }
        if !choice.models.is_empty() {
            let mut cost = format!(
                "{}, {} in, {} out",
                choice.models.join(", "),
                text::counted(choice.tokens_in, "token"),
                choice.tokens_out
            );
            if !choice.cost.is_nothing() {
                let told = choice.cost.told(|amount| format!("{amount:.6}"));
                cost.push_str(&format!(", cost {told}"));
            }
            self.push(indent + 4, &cost, DIM);
        }
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

    #[test]
    fn what_a_model_wrote_as_an_object_is_told_in_words() {
        let routed = r#"{"intent": "analytics", "confidence": 0.92, "services": ["blog", "chat"],
            "entities": [], "action_required": false, "time_scope": null,
            "steps": [{"specialist": "blog", "task": "read", "depends_on": []}]}"#;
        assert_eq!(
            in_words(routed),
            "intent analytics; confidence 0.92; services blog, chat; action required no; \
             steps specialist blog; task read"
        );
        for plain in ["they are apart", "0.5", "[1]", ""] {
            assert_eq!(in_words(plain), plain);
        }
    }
}
