//! `memory`: what is remembered for users and tenants beyond a run.

use crate::cli::{Memory, Whose};
use crate::error::Failure;
use crate::settings::{Settings, age};
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_core::provenance::date_time;
use agentfleet_schema::records::MemoryRecord;
use agentfleet_tools::Memories;

pub(crate) async fn run(command: Memory, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let of = |whose: &Whose| (whose.tenant.clone(), whose.user.clone());
    let (tenant, user) = match &command {
        Memory::List { whose, .. }
        | Memory::Set { whose, .. }
        | Memory::Forget { whose, .. }
        | Memory::Erase { whose, .. } => of(whose),
    };
    let memories = Memories {
        documents: &*store.documents,
        tenant: &tenant,
        user: &user,
    };
    let now = store.host.now();
    match command {
        Memory::List { output, .. } => {
            let all = memories.all(now).await?;
            if output.json {
                return ui::json(&all);
            }
            if all.is_empty() {
                outln!("Nothing is remembered for {}.", named(&tenant, &user));
                return Ok(());
            }
            let until = |at| match at {
                0 => "for ever".to_owned(),
                at => date_time(at),
            };
            let rows = all.into_iter().map(|one| {
                vec![
                    one.name,
                    one.value,
                    date_time(one.written_at),
                    until(one.expires_at),
                ]
            });
            ui.table(&["NAME", "VALUE", "WRITTEN AT", "UNTIL"], 1, rows);
        }
        Memory::Set {
            name, value, keep, ..
        } => {
            let keep = keep.map(|keep| age("--keep", &keep)).transpose()?;
            let record = MemoryRecord {
                name,
                value,
                tenant: tenant.clone(),
                user: user.clone(),
                written_at: now,
                session: String::new(),
                expires_at: keep.map_or(0, |keep| now + keep),
            };
            let told = record.name.clone();
            let writer = uuid::Uuid::new_v4().to_string();
            let set = memories.set(record, &writer).await?;
            set.map_err(|refused| Failure::usage(refused.to_string()))?;
            outln!("`{told}` is remembered for {}", named(&tenant, &user));
        }
        Memory::Forget { name, .. } => {
            if !memories.forget(&name).await? {
                let says = format!(
                    "nothing is remembered as `{name}` for {}",
                    named(&tenant, &user)
                );
                return Err(Failure::not_found(says).hint("`agentfleet memory list` shows what is"));
            }
            outln!("`{name}` is forgotten");
        }
        Memory::Erase { yes, .. } => {
            let all = memories.all(now).await?;
            if all.is_empty() {
                outln!("Nothing is remembered for {}.", named(&tenant, &user));
                return Ok(());
            }
            let what = text::counted(all.len() as u64, "name");
            if !yes {
                ui::agreed(
                    &format!("Forget {what} of {}?", named(&tenant, &user)),
                    "nothing was erased",
                )?;
            }
            memories.forget_all().await?;
            outln!("{what} forgotten");
        }
    }
    Ok(())
}

fn named(tenant: &str, user: &str) -> String {
    match (tenant, user) {
        ("", "") => "nobody in particular".to_owned(),
        ("", user) => format!("user `{user}`"),
        (tenant, "") => format!("all of tenant `{tenant}`"),
        (tenant, user) => format!("user `{user}` of tenant `{tenant}`"),
    }
}
