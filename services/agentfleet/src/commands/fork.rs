//! `fork`: a new run that goes on where a step of another one began, and what `retry` has in common with it.

use super::ask::{Asking, can_be_had, detached};
use super::records;
use crate::cli::{Fork, Output};
use crate::error::Failure;
use crate::settings::{Settings, Source};
use crate::store::Store;
use crate::ui::Ui;
use agentfleet_console::diff::did;
use agentfleet_console::text;
use agentfleet_core::fork::{Otherwise, fork as forked};
use agentfleet_core::provenance::is_partial;
use agentfleet_core::task_types;
use agentfleet_orchestrator::replay::{ReplayError, steps, verdict};
use agentfleet_runtime::Records;
use agentfleet_schema::records::{CompletionStatus, Member, OutcomeKind, StepRecord};
use agentfleet_schema::{AgentRequest, SessionId};

/// Providers whose model has no name that a request could carry.
const NAMELESS: [&str; 2] = ["scripted", "offline"];

pub(crate) async fn fork(args: Fork, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let session = records::session(&store, &args.session).await?;
    let steps = steps(Records::new(&*store.documents), &session).await?;
    let record = at(&steps, args.at)?.clone();
    let task_type = match args.task_type {
        None => None,
        Some(name) => Some(framed(&store, name, args.config_version).await?),
    };
    let otherwise = Otherwise {
        question: args.question,
        pattern: args.pattern,
        task_type,
        model: model(settings),
        config_version: args.config_version,
        limits: settings.limits(),
    };
    let going = Going {
        record,
        otherwise,
        note: None,
    };
    going
        .on(&store, settings, ui, args.detach, args.output)
        .await
}

/// How to go on from the last good step of a run that came to nothing.
pub(crate) async fn again(
    store: &Store,
    settings: &Settings,
    session: &SessionId,
) -> Result<Going, Failure> {
    let steps = steps(Records::new(&*store.documents), session).await?;
    let Some(last) = steps.last() else {
        return Err(ReplayError::NotBegun(session.clone()).into());
    };
    let otherwise = Otherwise {
        model: model(settings),
        limits: settings.limits(),
        ..Otherwise::default()
    };
    let refused = |why: &str, hint: &str| {
        Err(Failure::usage(format!("session `{session}` {why}"))
            .hint(hint.replace("SESSION", session.as_str())))
    };
    match last.outcome {
        // Something is missing from it, which may be had this time.
        OutcomeKind::Answer if is_partial(last) => {}
        OutcomeKind::Answer => {
            return refused(
                "is answered",
                "`agentfleet fork SESSION --at N` goes on another way",
            );
        }
        OutcomeKind::Continue | OutcomeKind::FanOut | OutcomeKind::Pause => {
            return refused(
                "has not ended",
                "`agentfleet attach SESSION` watches it, `agentfleet cancel SESSION` ends it",
            );
        }
        OutcomeKind::Fail | OutcomeKind::Cancelled => {}
    }
    let LastGood { record, lacks } = last_good(store, &steps, last).await?;
    let note = format!(
        "Session {session} ended at step {}; it is worked anew from step {}.{}",
        last.step,
        record.step,
        lacks.map(|lacks| format!(" {lacks}")).unwrap_or_default()
    );
    Ok(Going {
        record: record.clone(),
        otherwise,
        note: Some(note),
    })
}

/// Where a retry goes on.
struct LastGood<'a> {
    record: &'a StepRecord,
    /// What the verdict that is read again lacks, and how to have it.
    lacks: Option<String>,
}

/// The step to work anew: the one that came to nothing, or the fan-out before it where its subagents
/// found nothing, as when they were cancelled with the run, or nobody concluded what they had found.
async fn last_good<'a>(
    store: &Store,
    steps: &'a [StepRecord],
    last: &'a StepRecord,
) -> Result<LastGood<'a>, Failure> {
    let request = request(store, last).await?;
    let whole = |record| LastGood {
        record,
        lacks: None,
    };
    let Some(fan_out) = request.control.fan_in_step else {
        return Ok(whole(last));
    };
    let (of, verdict) = verdict(Records::new(&*store.documents), last, &request).await?;
    let verdict = verdict.unwrap_or_default();
    let answered = |member: &&Member| member.status == CompletionStatus::Answered;
    let answers = verdict.members.iter().filter(answered).count();
    let started = verdict.members.len() + verdict.missing.len();
    let before = steps.iter().find(|record| record.step == fan_out);
    Ok(match before {
        Some(fan_out) if *of == last.session && answers == 0 => whole(fan_out),
        Some(_) | None if answers == started => whole(last),
        Some(_) | None => LastGood {
            record: last,
            lacks: Some(format!(
                "Of {} {answers} answered, and none is started again: `agentfleet fork {of} --at \
                 {fan_out}` does.",
                text::counted(started as u64, "subagent")
            )),
        },
    })
}

fn at(steps: &[StepRecord], step: u32) -> Result<&StepRecord, Failure> {
    let found = steps.iter().find(|record| record.step == step);
    found.ok_or_else(|| {
        let last = steps.last();
        ReplayError::NoStep {
            session: last
                .map(|record| record.session.clone())
                .unwrap_or_default(),
            step,
            last: last.map(|record| record.step).unwrap_or_default(),
        }
        .into()
    })
}

/// The model's name, where one was named for this command.
pub(crate) fn model(settings: &Settings) -> Option<String> {
    if settings.source("model") != Source::Flag {
        return None;
    }
    let (provider, name) = settings.model.split_once(':')?;
    (!NAMELESS.contains(&provider) && !name.is_empty()).then(|| name.to_owned())
}

/// A task type with its framing.
async fn framed(
    store: &Store,
    name: String,
    version: Option<u64>,
) -> Result<(String, String), Failure> {
    let config = match version {
        Some(version) => store.config.snapshot_at(version).await?,
        None => store.config.snapshot().await?,
    };
    let Some(task_type) = config.task_types.get(&name) else {
        return Err(Failure::unknown(
            "task type",
            &name,
            config.task_types.keys(),
        ));
    };
    let framing = task_type.framing_prompt.clone();
    Ok((name, framing))
}

async fn request(store: &Store, record: &StepRecord) -> Result<AgentRequest, Failure> {
    Ok(Records::new(&*store.documents).asked_of(record).await?)
}

/// Where a new run goes on, and how.
pub(crate) struct Going {
    record: StepRecord,
    otherwise: Otherwise,
    /// What is said before it.
    note: Option<String>,
}

impl Going {
    /// The new run's request. What is wrong with it is said here.
    pub(crate) async fn request(&self, store: &Store) -> Result<AgentRequest, Failure> {
        let message = request(store, &self.record).await?;
        let otherwise = self.otherwise.clone();
        let travels = otherwise.model.is_some();
        let (pattern, version) = (otherwise.pattern.clone(), otherwise.config_version);
        let mut request = forked(&self.record, &message, otherwise)
            .map_err(|error| Failure::usage(error.to_string()))?;
        request.streaming = true;
        let snapshot = match version {
            // Whether there is one is said now, not by a worker that cannot go on.
            Some(version) => store.config.snapshot_at(version).await.map_err(|error| {
                Failure::usage(format!("--config-version {version}: {error}"))
                    .hint("`agentfleet config history` lists versions")
            })?,
            None => store.config.snapshot().await?,
        };
        task_types::check_fork(&request, pattern.as_deref(), travels, &snapshot)
            .map_err(|why| Failure::usage(why).hint("leave it out, or name another --task-type"))?;
        store.intake().check(&request).await?;
        Ok(request)
    }

    pub(crate) async fn on(
        self,
        store: &Store,
        settings: &Settings,
        ui: Ui,
        detach: bool,
        output: Output,
    ) -> Result<(), Failure> {
        let travels = self.otherwise.model.is_some();
        // What is wrong is said first, and alone.
        let request = self.request(store).await?;
        let record = &self.record;
        if detach {
            let works = can_be_had(settings, travels).await?.is_some();
            if let (Some(note), false) = (&self.note, output.json) {
                ui.note(note);
            }
            return detached(store, settings, request, None, works, output.json).await;
        }
        let forked = format!(
            "Forked from session {}, step {} ({}).",
            record.session,
            record.step,
            text::line(&did(record))
        );
        let note = match self.note {
            Some(note) => format!("{note} {forked}"),
            None => forked,
        };
        let asking = Asking {
            request,
            key: None,
            json: output.json,
            hints: vec![agentfleet_console::lanes::Hint::new(
                "What came out otherwise:",
                format!("{} diff {} SESSION", settings.program(), record.session),
            )],
            model_travels: travels,
            note: Some(note),
        };
        asking.answered(store, settings, ui).await
    }
}
