//! `retry`: a run that came to nothing, or many of them, from the last good step of each.

use super::ask::can_be_had;
use super::fork::{Going, again, model};
use super::records;
use super::sessions;
use crate::cli::Retry;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_runs::Root;
use agentfleet_schema::SessionId;
use agentfleet_schema::records::RunState;
use serde::Serialize;
use std::collections::BTreeMap;

/// What became of one of many.
#[derive(Debug, Serialize)]
struct Retried {
    session: SessionId,
    question: String,
    /// The run that goes on from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    begun_as: Option<SessionId>,
    /// Why none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn retry(args: Retry, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let Some(named) = &args.session else {
        return many(args, settings).await;
    };
    if args.which.is_given() || args.dry_run || args.yes {
        return Err(Failure::usage(
            "a SESSION is one run: `--dry-run`, `--yes` and what says which runs go without it",
        ));
    }
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let session = records::session(&store, named).await?;
    let going = again(&store, settings, &session).await?;
    going
        .on(&store, settings, ui, args.detach, args.output)
        .await
}

async fn many(args: Retry, settings: &Settings) -> Result<(), Failure> {
    match args.which.state {
        Some(RunState::Failed | RunState::Timeout | RunState::Cancelled | RunState::Partial) => {}
        None => {
            return Err(Failure::usage(
                "name a SESSION, or say which runs: `agentfleet retry --state failed --newer-than 2h`",
            ));
        }
        Some(RunState::Queued | RunState::Running | RunState::Waiting | RunState::Answered) => {
            return Err(Failure::usage(
                "only runs that came to nothing are begun again: `--state` `failed`, `timeout`, \
                 `cancelled` or `partial`",
            ));
        }
    }
    let json = args.output.json;
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let (listed, more) = sessions::to_retry(&store, settings, args.which, args.limit).await?;
    let (runs, left_out) = able(&store, settings, listed).await;
    if !json {
        for (why, count) in left_out {
            let count = text::counted(count, "run");
            errln!(
                "Left out, as no retry can help: {count} ({}).",
                text::line(&why)
            );
        }
    }
    if runs.is_empty() && !json {
        outln!("No such run.");
        return Ok(());
    }
    if args.dry_run && json {
        return ui::json(&runs);
    }
    if !json {
        show(&runs, more);
    }
    let count = text::counted(runs.len() as u64, "run");
    if args.dry_run {
        outln!("{count} would be begun again.");
        return Ok(());
    }
    if !args.yes {
        agreed(&count, json)?;
    }
    let works = can_be_had(settings, model(settings).is_some())
        .await?
        .is_some();
    let mut retried = Vec::new();
    for run in runs {
        let one = begin(&store, settings, run).await;
        if !json {
            match (&one.begun_as, &one.error) {
                (Some(session), _) => outln!("{}  {session}", one.session),
                (None, why) => errln!(
                    "{}: not begun again: {}",
                    one.session,
                    text::line(why.as_deref().unwrap_or_default())
                ),
            }
        }
        retried.push(one);
    }
    let failed = retried.iter().filter(|one| one.error.is_some()).count() as u64;
    if json {
        ui::json(&retried)?;
    } else if !works && !settings.on_servers() {
        errln!("No fleet runs; they wait for `{} up`.", settings.program());
    }
    if failed > 0 {
        let whole = text::counted(failed, "run");
        return Err(Failure::new(
            Exit::Failed,
            format!("{whole} could not be begun again"),
        ));
    }
    Ok(())
}

/// Those that can be begun again, and how many cannot, by the reason: what was refused before its first
/// step would be refused once more.
async fn able(
    store: &Store,
    settings: &Settings,
    listed: Vec<Root>,
) -> (Vec<Root>, BTreeMap<String, u64>) {
    let mut runs = Vec::new();
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for run in listed {
        let request = match again(store, settings, &run.session).await {
            Ok(going) => going.request(store).await.map(drop),
            Err(failure) => Err(failure),
        };
        match request {
            Err(failure) if failure.exit == Exit::Usage => {
                *left_out.entry(failure.message).or_default() += 1;
            }
            // What cannot be read now may be had soon: its own try says so.
            Ok(()) | Err(_) => runs.push(run),
        }
    }
    (runs, left_out)
}

fn show(runs: &[Root], more: bool) {
    errln!("From the last good step of each:");
    for run in runs {
        let question = text::preview(&run.question, 80);
        errln!("  {}  {}  {question}", run.session, run.state.as_str());
    }
    if more {
        errln!("There are more: `--limit` takes up to 1000 at a time.");
    }
}

/// Asks whether it is meant.
fn agreed(count: &str, json: bool) -> Result<(), Failure> {
    let undone = "nothing was begun again";
    if json {
        let says = format!("{undone}, because nobody said `yes`");
        return Err(Failure::usage(says).hint("give `--yes`"));
    }
    ui::agreed(&format!("Type `yes` to begin {count} again"), undone)
}

async fn begin(store: &Store, settings: &Settings, run: Root) -> Retried {
    let begun = match again(store, settings, &run.session).await {
        // The same run is not begun twice, however often this is said.
        Ok(going) => published(&going, store, format!("retry-of-{}", run.session)).await,
        Err(failure) => Err(failure),
    };
    let (begun_as, error) = match begun {
        Ok(session) => (Some(session), None),
        Err(failure) => (None, Some(failure.message)),
    };
    Retried {
        session: run.session,
        question: run.question,
        begun_as,
        error,
    }
}

async fn published(going: &Going, store: &Store, key: String) -> Result<SessionId, Failure> {
    let request = going.request(store).await?;
    Ok(store.intake().take_in(request, Some(key)).await?.session)
}
