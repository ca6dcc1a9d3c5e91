//! `backup` and `restore`: a data directory as one file, and back.

use crate::cli::{Backup, Restore};
use crate::error::Failure;
use crate::settings::Settings;
use agentfleet_storage::{Database, Progress};
use indicatif::ProgressBar;

pub(crate) fn backup(backup: &Backup, settings: &Settings) -> Result<(), Failure> {
    let database = Database::open(&settings.data)?;
    let bar = ProgressBar::new(0);
    database.backup(&backup.file, |progress| show(&bar, progress))?;
    bar.finish_and_clear();
    outln!(
        "{} holds a consistent copy of {}.",
        backup.file.display(),
        settings.data.display()
    );
    Ok(())
}

pub(crate) fn restore(restore: &Restore, settings: &Settings) -> Result<(), Failure> {
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
    Ok(())
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.copied);
}
