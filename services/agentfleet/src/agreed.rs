//! What all processes of a fleet on servers have to say alike: whether they sign their requests and with which secret,
//! and whether they require claims. The first that says something puts it down, and others are held against that:
//! one process with another secret would refuse the messages of all others, and they its own.

use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use agentfleet_broker::FleetSecret;
use agentfleet_schema::keys;

/// Refuses a process that signs with another secret than the fleet, or with none.
pub(crate) async fn on_secret(store: &Store) -> Result<(), Failure> {
    if store.embedded.is_some() {
        return Ok(());
    }
    let own = store.secret.as_ref().map(FleetSecret::fingerprint);
    let own = own.map(String::into_bytes);
    let mut there = store.documents.get(keys::FLEET_SECRET).await?;
    if let (None, Some(own)) = (&there, &own) {
        let created = store
            .documents
            .create_or_get(keys::FLEET_SECRET, own.clone());
        // What another put there meanwhile, if that is another.
        there = created.await?;
    }
    let has = match (there, own) {
        (None, _) => return Ok(()),
        (Some(there), Some(own)) if *there == *own => return Ok(()),
        (Some(_), Some(_)) => "another",
        (Some(_), None) => "no",
    };
    Err(Failure::usage(format!(
        "the processes of this fleet sign their requests, and this one has {has} `fleet_secret`"
    ))
    .hint(
        "give all of them the same; to change it, stop all of them and let them agree anew: `agentfleet keys forget-secret`",
    ))
}

/// Refuses a worker that would take messages without a claim, where others require one.
pub(crate) async fn on_claims(store: &Store, settings: &Settings) -> Result<(), Failure> {
    if store.embedded.is_some() {
        return Ok(());
    }
    let key = keys::FLEET_CLAIMS;
    if settings.require_claims {
        return Ok(store.documents.ensure(key, b"required".to_vec()).await?);
    }
    if store.documents.get(key).await?.is_none() {
        return Ok(());
    }
    Err(Failure::usage(
        "workers of this fleet require claims, and this one has `require_claims` at `no`",
    )
    .hint("set it; for a fleet that no longer requires claims: `agentfleet keys forget-secret`"))
}

/// Lets the fleet agree anew.
pub(crate) async fn forget(store: &Store) -> Result<(), Failure> {
    let all = [keys::FLEET_SECRET, keys::FLEET_CLAIMS].map(str::to_owned);
    Ok(store.documents.delete(&all).await?)
}
