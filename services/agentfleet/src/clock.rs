//! Compares this machine's clock with those of the servers, before a role starts and while it works.

use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use agentfleet_runtime::clock::{TOO_FAR, offset};
use std::time::Duration;

/// Between two looks at the clocks.
const AGAIN: Duration = Duration::from_secs(60);

/// Refuses a clock by which nothing may be worked, and goes on to warn of one that is wrong.
pub(crate) async fn watch(settings: &Settings) -> Result<(), Failure> {
    let servers = servers(settings);
    if servers.is_empty() {
        return Ok(());
    }
    let found = offset(&servers).await;
    if let Some(found) = found.as_ref().filter(|found| found.is_too_far()) {
        let bound = TOO_FAR.as_secs();
        let says = format!("{found}; a worker may be wrong by {bound} s at most");
        return Err(Failure::new(Exit::Unavailable, says)
            .hint("set the clock, with NTP for example: deadlines of runs depend on it"));
    }
    tokio::spawn(async move {
        let mut found = found;
        loop {
            match &found {
                Some(found) if found.is_too_far() => {
                    tracing::error!("{found}; runs are cut short or end late");
                }
                Some(found) if found.is_wrong() => {
                    tracing::warn!("{found}; deadlines of runs are wrong by as much");
                }
                Some(_) | None => {}
            }
            tokio::time::sleep(AGAIN).await;
            found = offset(&servers).await;
        }
    });
    Ok(())
}

/// The servers that are asked for the time. PostgreSQL tells none over HTTP; `doctor` asks it.
fn servers(settings: &Settings) -> Vec<String> {
    let graph = match &settings.graph {
        Place::Embedded => None,
        Place::At(url) => Some(url.as_str()),
    };
    let all = [graph, settings.broker_admin.as_deref()];
    all.into_iter().flatten().map(str::to_owned).collect()
}
