//! Runs that were erased: what is still on its way of them must not bring them back.

use crate::Error;
use agentfleet_broker::Delivery;
use agentfleet_documents::Documents;
use agentfleet_schema::topics::property;
use agentfleet_schema::{SessionId, keys};
use std::collections::BTreeSet;

/// The roots among some deliveries whose trees were erased.
pub async fn erased(
    documents: &dyn Documents,
    deliveries: &[Delivery],
) -> Result<BTreeSet<String>, Error> {
    let roots: BTreeSet<&String> = deliveries
        .iter()
        .filter_map(|delivery| delivery.properties.get(property::ROOT))
        .collect();
    let tombstones: Vec<String> = roots
        .iter()
        .map(|root| keys::tombstone(&SessionId::from(root.as_str())))
        .collect();
    let found = documents.get_many(&tombstones).await?;
    let erased = roots.into_iter().zip(found);
    Ok(erased
        .filter_map(|(root, tombstone)| tombstone.map(|_| root.clone()))
        .collect())
}
