//! `replay`: every step of runs worked again from their records, without a call to anything.

use super::records;
use crate::cli::Replay;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui;
use agentfleet_console::text;
use agentfleet_core::replay::{Divergence, Replayed};
use agentfleet_orchestrator::replay::{ReplayError, Replayer, steps};
use agentfleet_runtime::Records;
use agentfleet_schema::SessionId;
use agentfleet_schema::records::{OutcomeKind, StepRecord};
use serde::Serialize;

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

/// What was found in all, and told already where nobody wants JSON.
#[derive(Default)]
struct Found {
    lines: Vec<Line>,
    summary: Summary,
}

pub(crate) async fn run(args: Replay, settings: &Settings) -> Result<(), Failure> {
    if let (Some(step), [_, _, ..]) = (args.step, args.sessions.as_slice()) {
        return Err(Failure::usage(format!(
            "`--step {step}` is of one session, and {} are named",
            args.sessions.len()
        )));
    }
    let store = Store::open(settings).await?;
    let mut named = Vec::new();
    for session in &args.sessions {
        named.push(records::session(&store, session).await?);
    }
    let defaults = agentfleet_config::seed::embedded_snapshot()?;
    let replayer = Replayer {
        documents: &*store.documents,
        config: &*store.config,
        default_prompts: &defaults,
    };
    let mut found = Found::default();
    for session in &named {
        one(&store, &replayer, session, &args, &mut found).await?;
    }
    let Found { lines, summary } = found;
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

/// Works a session again, and those below it unless only it is wanted.
async fn one(
    store: &Store,
    replayer: &Replayer<'_>,
    session: &SessionId,
    args: &Replay,
    all: &mut Found,
) -> Result<(), Failure> {
    let records = Records::new(&*store.documents);
    let below = !args.only && args.step.is_none();
    let mut walk = records.walk(session);
    while let Some(mut walked) = walk.next().await? {
        if walked.depth == 0 && walked.steps.is_empty() {
            match steps(records, session).await {
                Err(ReplayError::Closed(_)) => {}
                found => walked.steps = found?,
            }
        }
        let mut found = walked.steps;
        if let Some(step) = args.step {
            let last = found.len().saturating_sub(1) as u32;
            found.retain(|record| record.step == step);
            if found.is_empty() {
                return Err(ReplayError::NoStep {
                    session: session.clone(),
                    step,
                    last,
                }
                .into());
            }
        }
        let summary = &mut all.summary;
        summary.sessions += usize::from(!found.is_empty());
        for record in &found {
            let line = Line::of(record, replayer.step(record).await?);
            summary.steps += 1;
            summary.diverging += usize::from(!line.divergences.is_empty());
            summary.unchecked += usize::from(!line.unchecked.is_empty());
            if args.output.json {
                all.lines.push(line);
            } else {
                line.tell();
            }
        }
        if !below {
            break;
        }
    }
    Ok(())
}
