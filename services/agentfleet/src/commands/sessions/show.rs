//! How one run went, from its records.

use super::told;
use crate::commands::records;
use crate::error::Failure;
use crate::store::Store;
use crate::ui;
use agentfleet_console::text;
use agentfleet_core::approval;
use agentfleet_core::provenance::date_time;
use agentfleet_runs::Started;
use agentfleet_runtime::Records;
use agentfleet_schema::records::{Activity, OutcomeKind, RunState, StepRecord, Termination};
use agentfleet_schema::{SessionId, keys, uris};
use serde::Serialize;

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

pub(super) async fn tell_one(store: &Store, session: &str, json: bool) -> Result<(), Failure> {
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
        let closed = keys::closed(&SessionId::new(shown.root.as_str()));
        if Records::new(&*store.documents).has(&closed).await? {
            outln!("  is closed, and ends where its first step would begin");
        } else {
            outln!("  waits for a worker, or is at work on its first step");
        }
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

/// Tokens that were spent on a session and all below it, and how many of them came to no record.
async fn spent(store: &Store, session: &SessionId) -> Result<(u64, u64), Failure> {
    let (mut used, mut wasted) = (0, 0);
    let mut walk = Records::new(&*store.documents).walk(session);
    while let Some(found) = walk.next().await? {
        for record in found.steps {
            used += record.usage.total();
            wasted += record.wasted.tokens;
        }
    }
    Ok((used + wasted, wasted))
}

/// Reads a run from its records: they are there before any triple is. `started` is what its parent
/// knows of a subagent that has none.
pub(crate) async fn show(
    store: &Store,
    session: &SessionId,
    started: Option<&Started>,
) -> Result<Shown, Failure> {
    let records = Records::new(&*store.documents);
    let steps = records.steps(session).await?;
    let asked = records.accepted(session).await?;
    let asked = asked.and_then(|accepted| accepted.asked());
    let Some(last) = steps.last() else {
        let (root, question) = match (started, asked) {
            (Some(started), _) => (&started.root, started.child.goal.clone()),
            (None, Some(asked)) => (session, asked.question),
            (None, None) => return Err(records::missing(store, session).await?),
        };
        return Ok(Shown {
            session: session.to_string(),
            root: root.to_string(),
            question,
            ..Shown::default()
        });
    };
    let routed = steps.iter().find_map(|record| record.routed.as_ref());
    let question = asked.map(|asked| asked.question);
    let question = question.or_else(|| routed.map(|routed| routed.question.clone()));
    let children = steps.iter().flat_map(StepRecord::children);
    let subagents = children
        .map(|child| Subagent {
            session: child.session.clone(),
            goal: child.goal.clone(),
        })
        .collect();
    let mut answer = None;
    if last.outcome.is_terminal() {
        answer = records.text(&uris::answer_document(session)).await?;
    }
    let end = last.concluded();
    let error = end.and_then(|end| end.error.clone());
    Ok(Shown {
        session: session.to_string(),
        root: last.root.to_string(),
        question: question.unwrap_or_default(),
        state: RunState::of(Some(last)),
        termination: end.map(|end| end.termination),
        answer: answer.filter(|_| error.is_none()),
        error,
        subagents,
        steps: steps
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
        ..Shown::default()
    })
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
