//! `settings`: what is in force, and where it was said.

use crate::cli::Output;
use crate::error::Failure;
use crate::settings::Settings;
use crate::ui::{self, Ui};

pub(crate) fn settings(output: Output, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let in_force = settings.in_force();
    let sourced = in_force
        .iter()
        .map(|(name, value)| (*name, value, settings.source(name).as_str()));
    if output.json {
        let all: serde_json::Map<_, _> = sourced
            .map(|(name, value, source)| {
                let told = serde_json::json!({ "value": value, "source": source });
                (name.to_owned(), told)
            })
            .collect();
        return ui::json(&all);
    }
    let rows = sourced
        .map(|(name, value, source)| vec![name.to_owned(), value.clone(), source.to_owned()]);
    ui.table(&["SETTING", "VALUE", "FROM"], 1, rows);
    if let Some(file) = &settings.file {
        errln!("The settings file is `{}`.", file.display());
    }
    errln!(
        "`{} help settings` says what each is for.",
        settings.program()
    );
    Ok(())
}
