//! `usage`: what tenants used in a month, beside their quota.

use crate::cli::UsageOf;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_core::quota;
use agentfleet_documents::{Documents, Error};
use agentfleet_runs::Usage;
use agentfleet_schema::config::TenantItem;
use agentfleet_schema::keys;
use agentfleet_schema::records::Used;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// After all keys that begin as this one does.
const LAST: char = char::MAX;

pub(crate) async fn run(of: UsageOf, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let now = store.host.now();
    let month = match of.month {
        Some(month) => checked(month)?,
        None => quota::month_of(now),
    };
    let config = store.config.snapshot().await?;
    let tenants = match of.tenant {
        Some(tenant) => BTreeSet::from([tenant]),
        None => counted(&*store.documents).await?,
    };
    let usage = Usage::new(Arc::clone(&store.documents));
    let mut rows = Vec::new();
    for tenant in tenants {
        let used = usage.of(&tenant, &month, now).await?;
        let item = config.quota(&tenant).cloned().unwrap_or_default();
        rows.push((tenant, used, item));
    }
    if of.output.json {
        let shown = rows.iter().map(|(tenant, used, item)| {
            json!({
                "tenant": tenant,
                "month": month,
                "used": used,
                "quota": {
                    "runs": item.runs_per_month,
                    "tokens": item.tokens_per_month,
                    "cost": item.cost_per_month,
                },
            })
        });
        return ui::json(&shown.collect::<Vec<_>>());
    }
    if rows.is_empty() {
        outln!("No tenant used anything yet.");
        return Ok(());
    }
    let columns = ["TENANT", "MONTH", "RUNS", "TOKENS", "COST"];
    ui.table(&columns, 1, rows.iter().map(|row| shown(row, &month)));
    Ok(())
}

fn shown((tenant, used, item): &(String, Used, TenantItem), month: &str) -> Vec<String> {
    let of = |used: String, most: Option<String>| match most {
        Some(most) => format!("{used} of {most}"),
        None => used,
    };
    let count = |most: Option<u64>| most.map(|most| most.to_string());
    vec![
        tenant.clone(),
        month.to_owned(),
        of(used.runs.to_string(), count(item.runs_per_month)),
        of(used.tokens.to_string(), count(item.tokens_per_month)),
        of(
            used.cost.to_string(),
            item.cost_per_month.map(|most| most.to_string()),
        ),
    ]
}

/// Every tenant that ever used something. Keys of one tenant are passed over together.
async fn counted(documents: &dyn Documents) -> Result<BTreeSet<String>, Error> {
    let mut tenants = BTreeSet::new();
    let mut after = String::new();
    loop {
        let found = documents.entries(keys::USAGE, &after, 1).await?;
        let Some((tenant, _)) = found.first().and_then(|entry| keys::used_of(&entry.key)) else {
            return Ok(tenants);
        };
        after = format!("{}{tenant}/{LAST}", keys::USAGE);
        tenants.insert(tenant.to_owned());
    }
}

fn checked(month: String) -> Result<String, Failure> {
    let is_month = month.split_once('-').is_some_and(|(year, number)| {
        let number = number.parse::<u32>().ok().filter(|_| number.len() == 2);
        year.len() == 4 && year.parse::<u32>().is_ok() && matches!(number, Some(1..=12))
    });
    if is_month {
        return Ok(month);
    }
    Err(Failure::usage(format!(
        "`--month` is `{month}`: expected a year and a month, as `2026-11`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_a_year_and_a_number() {
        for (text, is_right) in [
            ("2026-11", true),
            ("2026-13", false),
            ("2026-1", false),
            ("26-11", false),
            ("november", false),
        ] {
            assert_eq!(checked(text.to_owned()).is_ok(), is_right, "{text}");
        }
    }
}
