//! Where the log goes: to standard error, except while lanes are drawn there. Lines are held then,
//! and whoever draws writes them between two drawings.

use crate::error::Failure;
use crate::settings::Settings;
use agentfleet_console::text;
use agentfleet_schema::redacted;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_subscriber::EnvFilter;

static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the log of this process as the settings say.
pub(crate) fn start(settings: &Settings) -> Result<(), Failure> {
    // What the MCP client logs quotes servers, before secrets are taken out; results and errors say it too.
    let filter = EnvFilter::try_new(format!("{},rmcp=off", settings.log))
        .map_err(|error| Failure::usage(format!("setting `log` is `{}`: {error}", settings.log)))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Line);
    match settings.log_format.as_str() {
        "text" => log.with_ansi(false).init(),
        "json" => log.json().init(),
        other => {
            return Err(Failure::usage(format!(
                "setting `log_format` is `{other}`, expected `text` or `json`"
            )));
        }
    }
    Ok(())
}

/// Holds the log back until it is dropped.
pub(crate) struct Held(());

impl Held {
    pub(crate) fn new() -> Self {
        held().get_or_insert_default();
        Self(())
    }

    /// What came since the last call.
    #[expect(
        clippy::unused_self,
        reason = "only who holds the log back may take of it"
    )]
    pub(crate) fn take(&self) -> Vec<u8> {
        held().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let rest = held().take().unwrap_or_default();
        // Standard error is gone: there is nobody to tell.
        io::stderr().write_all(&rest).ok();
    }
}

struct Line;

impl Write for Line {
    /// Takes one event: one line, whatever it quotes, without credentials.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let event = String::from_utf8_lossy(bytes);
        let event = redacted(event.trim_end_matches('\n'));
        let line = format!("{}\n", text::line(&event));
        match held().as_mut() {
            Some(held) => held.write_all(line.as_bytes())?,
            None => io::stderr().write_all(line.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
