//! `backup` and `restore`: a fleet as one file, and back. A fleet on servers is brought home first, and
//! moved there again when it was restored.

use super::gather::gather;
use super::migrate::migrate;
use crate::cli::{Backup, Restore};
use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use agentfleet_storage::{Database, Progress};
use indicatif::ProgressBar;
use std::path::Path;

/// Whether a part of the fleet lies on a server.
fn on_servers(settings: &Settings) -> bool {
    [&settings.broker, &settings.documents, &settings.graph]
        .iter()
        .any(|place| **place != Place::Embedded)
}

pub(crate) async fn backup(backup: &Backup, settings: &Settings) -> Result<(), Failure> {
    let file = &backup.file;
    if !on_servers(settings) {
        copy(&Database::open(&settings.data)?, file)?;
        let data = settings.data.display();
        outln!("{} holds a consistent copy of {data}.", file.display());
        return Ok(());
    }
    if file.exists() {
        let says = format!("`{}` is there already", file.display());
        return Err(Failure::usage(says).hint("name a file that does not exist"));
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let here = tempfile::Builder::new()
        .prefix(".agentfleet-backup-")
        .tempdir_in(folder.unwrap_or(Path::new(".")))
        .map_err(|error| {
            let says = format!("cannot write beside `{}`: {error}", file.display());
            Failure::new(Exit::Unavailable, says)
        })?;
    copy(&gather(settings, here.path()).await?, file)?;
    outln!(
        "\n{} holds a consistent copy of the fleet. It can be restored to servers, or into a data directory.",
        file.display()
    );
    Ok(())
}

fn copy(database: &Database, file: &Path) -> Result<(), Failure> {
    let bar = ProgressBar::new(0);
    database.backup(file, |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    Ok(())
}

pub(crate) async fn restore(restore: &Restore, settings: &Settings) -> Result<(), Failure> {
    let bar = ProgressBar::new(0);
    Database::restore(&restore.file, &settings.data, |progress| {
        show(&bar, progress);
    })?;
    bar.finish_and_clear();
    outln!(
        "{} was restored into {}.",
        restore.file.display(),
        settings.data.display()
    );
    if on_servers(settings) {
        migrate(settings).await?;
    }
    Ok(())
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.copied);
}
