//! `replay`: every step of a run worked again from its records, without a call to anything.

use super::records;
use crate::cli::Replay;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui;
use agentfleet_console::text;
use agentfleet_core::replay::{Divergence, Replayed};
use agentfleet_documents::Documents;
use agentfleet_orchestrator::replay::{ReplayError, Replayer, children, steps};
use agentfleet_schema::SessionId;
use agentfleet_schema::records::{OutcomeKind, StepRecord};
use serde::Serialize;
use std::collections::HashSet;

/// What came of one step.
#[derive(Debug, Serialize)]
struct Line {
    session: SessionId,
    step: u32,
    outcome: OutcomeKind,
    result: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    divergences: Vec<Divergence>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked: Vec<String>,
}

impl Line {
    fn of(record: &StepRecord, replayed: Replayed) -> Self {
        Self {
            session: record.session.clone(),
            step: record.step,
            outcome: record.outcome,
            result: match (
                replayed.divergences.is_empty(),
                replayed.unchecked.is_empty(),
            ) {
                (false, _) => "diverges",
                (true, false) => "same-as-far-as-checked",
                (true, true) => "same",
            },
            divergences: replayed.divergences,
            unchecked: replayed.unchecked,
        }
    }

    fn tell(&self) {
        outln!(
            "{}  step {}  {}  {}",
            self.session,
            self.step,
            self.outcome.as_str(),
            match self.result {
                "diverges" => "DIVERGES",
                "same" => "same",
                _ => "same, as far as it can be checked",
            }
        );
        for divergence in &self.divergences {
            outln!("    {}", text::line(&divergence.to_string()));
        }
        for unchecked in &self.unchecked {
            outln!("    not checked: {}", text::line(unchecked));
        }
    }
}

/// How many steps came out how.
#[derive(Debug, Default, Serialize)]
struct Summary {
    sessions: usize,
    steps: usize,
    diverging: usize,
    unchecked: usize,
}

pub(crate) async fn run(args: Replay, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let session = records::session(&store, &args.session).await?;
    let defaults = agentfleet_config::seed::embedded_snapshot()?;
    let documents = &*store.documents;
    let replayer = Replayer {
        documents,
        config: &*store.config,
        default_prompts: &defaults,
    };
    let mut lines = Vec::new();
    let mut summary = Summary::default();
    let below = !args.only && args.step.is_none();
    let mut seen = HashSet::from([session.clone()]);
    let mut open = vec![session.clone()];
    while let Some(next) = open.pop() {
        let mut found = begun(documents, &next, next == session).await?;
        if below {
            let mut more: Vec<SessionId> = children(&found)
                .filter(|child| seen.insert((*child).clone()))
                .cloned()
                .collect();
            more.reverse();
            open.extend(more);
        }
        if let Some(step) = args.step {
            let last = found.len().saturating_sub(1) as u32;
            found.retain(|record| record.step == step);
            if found.is_empty() {
                return Err(ReplayError::NoStep {
                    session: next,
                    step,
                    last,
                }
                .into());
            }
        }
        summary.sessions += usize::from(!found.is_empty());
        for record in &found {
            let line = Line::of(record, replayer.step(record).await?);
            summary.steps += 1;
            summary.diverging += usize::from(!line.divergences.is_empty());
            summary.unchecked += usize::from(!line.unchecked.is_empty());
            if args.output.json {
                lines.push(line);
            } else {
                line.tell();
            }
        }
    }
    let diverges = summary.diverging > 0;
    if args.output.json {
        ui::json(&serde_json::json!({"steps": lines, "summary": summary}))?;
    } else {
        let of = format!(
            "{} of {}",
            text::counted(summary.steps as u64, "step"),
            text::counted(summary.sessions as u64, "session")
        );
        let unchecked = match summary.unchecked {
            0 => String::new(),
            n => format!(", {n} could not be checked in full"),
        };
        match summary.diverging {
            0 => outln!("\n{of}: no divergence{unchecked}"),
            n => outln!("\n{of}: {n} diverging{unchecked}"),
        }
    }
    if diverges {
        return Err(Failure::told(Exit::Differs));
    }
    Ok(())
}

/// The steps of a session. A subagent that was never begun has none, nor has what was ended before.
async fn begun(
    documents: &dyn Documents,
    session: &SessionId,
    is_asked_for: bool,
) -> Result<Vec<StepRecord>, Failure> {
    match steps(documents, session).await {
        Err(ReplayError::Unknown(_)) if !is_asked_for => Ok(Vec::new()),
        Err(ReplayError::Closed(_)) => Ok(Vec::new()),
        found => Ok(found?),
    }
}
