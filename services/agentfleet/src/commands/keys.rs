//! `keys`: who may come in at the HTTP door.

use super::{audit, person};
use crate::agreed;
use crate::cli::{Keys, NewKey, Output};
use crate::error::Failure;
use crate::settings::{self, Settings};
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_core::provenance::date_time;
use agentfleet_gateway as gateway;
use agentfleet_schema::Millis;
use agentfleet_schema::config::RoleItem;
use agentfleet_schema::names::{MAX_PLAIN, is_plain, is_tenant};
use agentfleet_schema::records::ApiKeyRecord;
use serde_json::{Value, json};

pub(crate) async fn run(command: Keys, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = match &command {
        // What it forgets would keep it out.
        Keys::ForgetSecret { .. } => Store::connect(settings).await?,
        _ => Store::open(settings).await?,
    };
    match command {
        Keys::ForgetSecret { by } => {
            let by = person::name(by.as_deref())?;
            agreed::forget(&store).await?;
            audit::note(&store, &by, "keys forget-secret", "the fleet agrees anew").await?;
            outln!("The next process that starts says which secret the fleet has.");
            Ok(())
        }
        Keys::Create(new) => create(&store, new).await,
        Keys::List(output) => {
            let keys = gateway::keys(&*store.documents).await?;
            let now = store.host.now();
            if output.json {
                return ui::json(&keys.iter().map(|key| shown(key, now)).collect::<Vec<_>>());
            }
            let columns = ["ID", "NAME", "TENANT", "ROLES", "STATE", "SINCE", "UNTIL"];
            ui.table(&columns, 1, keys.iter().map(|key| row(key, now)));
            Ok(())
        }
        Keys::Roles(output) => roles(&store, &output, ui).await,
        Keys::Revoke { id, by } => {
            let by = person::name(by.as_deref())?;
            let now = store.host.now();
            let revoked = gateway::revoke_key(&*store.documents, &id, &by, now).await?;
            let Some(key) = revoked else {
                let hint = format!("`{} keys list` shows them", settings.program());
                return Err(Failure::not_found(format!("there is no API key `{id}`")).hint(hint));
            };
            let about = format!("key {id} of {} for tenant {}", key.name, key.tenant);
            audit::note(&store, &by, "keys revoke", &about).await?;
            outln!(
                "API key `{id}` of `{}` is revoked; gateways know it within 5 s",
                key.name
            );
            Ok(())
        }
    }
}

async fn create(store: &Store, new: NewKey) -> Result<(), Failure> {
    let by = person::name(new.by.as_deref())?;
    checked("NAME", &new.name, is_plain(&new.name), "-_.@+")?;
    checked("--tenant", &new.tenant, is_tenant(&new.tenant), "-_@+")?;
    let now = store.host.now();
    let expires = new.expires.as_deref();
    let expires = expires.map(|text| settings::age("--expires", text));
    let known = store.config.snapshot().await?.all_roles();
    let mut roles: Vec<String> = Vec::new();
    for role in new.role {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    if let Some(unknown) = roles.iter().find(|role| !known.contains_key(*role)) {
        let known: Vec<_> = known.keys().map(String::as_str).collect();
        let says = format!(
            "there is no role `{unknown}`: there are {}",
            known.join(", ")
        );
        return Err(Failure::usage(says));
    }
    let wanted = gateway::NewKey {
        name: new.name,
        tenant: new.tenant,
        roles,
        permissions: new.permission,
        per_minute: new.per_minute,
        expires_at: expires.transpose()?.map_or(0, |age| now + age),
    };
    let (key, secret) = gateway::create_key(&*store.documents, wanted, now).await?;
    let roles = names(&key.roles);
    let about = format!(
        "key {} of {} for tenant {}: {roles}",
        key.id, key.name, key.tenant
    );
    audit::note(store, &by, "keys create", &about).await?;
    if new.output.json {
        let mut shown = shown(&key, now);
        shown["key"] = secret.into();
        return ui::json(&shown);
    }
    outln!("{secret}");
    errln!(
        "This is shown once: the store has its hash only. Its id is `{}`.",
        key.id
    );
    Ok(())
}

/// Names stand in logs, in paths of the shell and in tables.
fn checked(what: &str, name: &str, is_right: bool, signs: &str) -> Result<(), Failure> {
    if is_right {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "`{what}` is `{name}`: expected 1 to {MAX_PLAIN} letters, digits and `{signs}`"
    )))
}

/// Which roles there are, and what each allows.
async fn roles(store: &Store, output: &Output, ui: Ui) -> Result<(), Failure> {
    let config = store.config.snapshot().await?;
    let all = config.all_roles();
    let from = |role: &RoleItem| {
        if config.roles.contains_key(&role.name) {
            "config"
        } else {
            "shipped"
        }
    };
    if output.json {
        let shown = all.values().map(|role| {
            let mut shown = serde_json::to_value(role).unwrap_or_default();
            shown["from"] = from(role).into();
            shown
        });
        return ui::json(&shown.collect::<Vec<_>>());
    }
    let rows = all.values().map(|role| {
        vec![
            role.name.clone(),
            role.may.join(" "),
            role.approves.join(" "),
            role.tenants.join(" "),
            from(role).to_owned(),
        ]
    });
    let columns = ["ROLE", "MAY", "APPROVES", "SEES TENANTS", "FROM"];
    ui.table(&columns, 1, rows);
    Ok(())
}

fn names(roles: &[String]) -> String {
    roles.join(",")
}

fn state(key: &ApiKeyRecord, now: Millis) -> &'static str {
    if key.revoked_at != 0 {
        "revoked"
    } else if key.expires_at != 0 && key.expires_at <= now {
        "expired"
    } else {
        "in force"
    }
}

fn instant(at: Millis) -> Option<String> {
    (at != 0).then(|| date_time(at))
}

fn shown(key: &ApiKeyRecord, now: Millis) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "roles": key.roles,
        "permissions": key.permissions,
        "per_minute": key.per_minute,
        "state": state(key, now),
        "created_at": date_time(key.created_at),
        "expires_at": instant(key.expires_at),
        "revoked_at": instant(key.revoked_at),
    })
}

fn row(key: &ApiKeyRecord, now: Millis) -> Vec<String> {
    vec![
        key.id.clone(),
        key.name.clone(),
        key.tenant.clone(),
        names(&key.roles),
        state(key, now).to_owned(),
        date_time(key.created_at),
        instant(key.expires_at).unwrap_or_default(),
    ]
}
