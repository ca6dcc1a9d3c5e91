//! `audit`: what was refused, answered and changed, and whether all of it is still there.

use crate::cli::Audit as Command;
use crate::error::{Exit, Failure};
use crate::settings::{self, Settings};
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_core::provenance::date_time;
use agentfleet_gateway::{self as gateway, Audit, Logged};
use agentfleet_schema::keys;
use agentfleet_schema::records::AuditEntry;
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn run(command: Command, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    match command {
        Command::List { since, output } => {
            let since = since
                .map(|text| settings::age("--since", &text))
                .transpose()?;
            let since = since.map_or(0, |age| store.host.now() - age);
            let found = gateway::logged(&*store.documents, since).await?;
            if output.json {
                return ui::json(&found.iter().map(shown).collect::<Vec<_>>());
            }
            let columns = ["AT", "WHO", "TENANT", "ACTION", "OUTCOME", "ABOUT", "WHY"];
            ui.table(&columns, 3, found.iter().map(row));
            if found.iter().any(|one| one.entry.is_none()) {
                errln!("`{} audit verify` says what is damaged", settings.program());
            }
            Ok(())
        }
        Command::Verify(output) => verify(&store, output.json).await,
    }
}

async fn verify(store: &Store, json: bool) -> Result<(), Failure> {
    let report = gateway::verify(&*store.documents).await?;
    if json {
        ui::json(&json!({
            "entries": report.entries,
            "branches": report.branches,
            "newest": report.newest,
            "findings": report.findings,
        }))?;
    } else {
        for finding in &report.findings {
            outln!("{finding}");
        }
        let newest = report
            .newest
            .as_ref()
            .map_or("none", |digest| digest.as_str());
        let (entries, branches) = (report.entries, report.branches);
        outln!("{entries} entries, {branches} branches; the newest has the SHA-256 {newest}");
    }
    match report.findings.len() {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Differs,
            format!("{n} things are not as they were written"),
        )),
    }
}

/// Writes down what a person did by command line.
pub(super) async fn note(
    store: &Store,
    by: &str,
    action: &str,
    subject: &str,
) -> Result<(), Failure> {
    let entry = AuditEntry {
        principal: by.to_owned(),
        action: action.to_owned(),
        subject: subject.to_owned(),
        outcome: "allowed".to_owned(),
        ..AuditEntry::default()
    };
    let audit = Audit::new(Arc::clone(&store.documents));
    Ok(audit.write(entry, store.host.now()).await?)
}

fn shown(one: &Logged) -> serde_json::Value {
    json!({ "key": one.key, "digest": one.digest, "entry": one.entry })
}

fn row(one: &Logged) -> Vec<String> {
    let Some(entry) = one.entry.clone() else {
        let at = keys::audit_entry_of(&one.key).map(|(at, _)| date_time(at));
        let mut row = vec![at.unwrap_or_default()];
        row.extend(["", "", "", "damaged"].map(str::to_owned));
        row.extend([one.key.clone(), "this entry cannot be read".to_owned()]);
        return row;
    };
    vec![
        date_time(entry.at),
        entry.principal,
        entry.tenant,
        entry.action,
        entry.outcome,
        entry.subject,
        entry.reason,
    ]
}
