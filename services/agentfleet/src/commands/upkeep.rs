//! `backup` and `restore`: a data directory as one file, and back, also onto servers. A fleet on servers is
//! backed up by the servers' own tools; `restore` without a file sets its runs going again.

use super::migrate::migrate;
use super::retell::retell;
use crate::cli::{Backup, Restore};
use crate::error::Failure;
use crate::settings::Settings;
use agentfleet_storage::{Database, Progress};
use indicatif::ProgressBar;

pub(crate) fn backup(backup: &Backup, settings: &Settings) -> Result<(), Failure> {
    if settings.on_servers() {
        let says = "`backup` copies a data directory, and this fleet is on servers";
        return Err(Failure::usage(says).hint(
            "back up the graph's server, then the database (`pg_dump --format=custom`): \"Backup and \
             restore\" in docs/operations.md has the commands",
        ));
    }
    let bar = ProgressBar::new(0);
    Database::open(&settings.data)?.backup(&backup.file, |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    let (file, data) = (backup.file.display(), settings.data.display());
    outln!("{file} holds a consistent copy of {data}.");
    Ok(())
}

pub(crate) async fn restore(restore: &Restore, settings: &Settings) -> Result<(), Failure> {
    let Some(file) = &restore.file else {
        if settings.on_servers() {
            return retell(settings).await;
        }
        return Err(Failure::usage("name the file that `backup` wrote"));
    };
    let bar = ProgressBar::new(0);
    Database::restore(file, &settings.data, |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    let (file, data) = (file.display(), settings.data.display());
    outln!("{file} was restored into {data}.");
    if settings.on_servers() {
        migrate(settings).await?;
    }
    Ok(())
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.copied);
}
