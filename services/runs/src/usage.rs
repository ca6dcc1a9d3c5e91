//! What tenants used in a month, summed up from what each of their steps left.

use agentfleet_core::quota;
use agentfleet_documents::{Documents, Error};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::Used;
use agentfleet_schema::{Millis, QuotaLeft, keys};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries read at once.
const PAGE: usize = 1_000;
/// What is older than this is summed up once. A step that is committed later than so long after its instant is
/// counted by processes that start afterwards only.
const SETTLED: Millis = 10 * 60_000;
/// Sums that are kept, of tenants and months.
const MOST_KEPT: usize = 10_000;

/// Sums up what tenants used. What it remembers is a matter of speed only.
pub struct Usage {
    documents: Arc<dyn Documents>,
    kept: Mutex<HashMap<String, Sum>>,
}

/// The sum of what lies at or before a key.
#[derive(Clone, Debug, Default)]
struct Sum {
    last: String,
    used: Used,
}

impl std::fmt::Debug for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Usage").finish_non_exhaustive()
    }
}

impl Usage {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self {
            documents,
            kept: Mutex::default(),
        }
    }

    /// What is left of a tenant's quota now; `None` where nothing bounds it.
    pub async fn left(
        &self,
        snapshot: &Snapshot,
        tenant: &str,
        now: Millis,
    ) -> Result<Option<QuotaLeft>, Error> {
        let Some(item) = snapshot.quota(tenant) else {
            return Ok(None);
        };
        let month = quota::month_of(now);
        let used = self.of(tenant, &month, now).await?;
        Ok(Some(quota::left(item, &used, &month)))
    }

    /// What a tenant used in a month, as `2026-11`.
    pub async fn of(&self, tenant: &str, month: &str, now: Millis) -> Result<Used, Error> {
        let folder = keys::used(tenant, month);
        let mut settled = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get(&folder).cloned().unwrap_or_default()
        };
        let horizon = format!("{folder}{:015}", (now - SETTLED).max(0));
        let (mut used, mut after) = (settled.used, settled.last.clone());
        loop {
            let entries = self.documents.entries(&folder, &after, PAGE).await?;
            let names: Vec<String> = entries.into_iter().map(|entry| entry.key).collect();
            let bodies = self.documents.get_many(&names).await?;
            for (key, body) in names.iter().zip(&bodies) {
                let one: Used = body
                    .as_ref()
                    .and_then(|body| serde_json::from_slice(body).ok())
                    .unwrap_or_default();
                used.add(one);
                if *key < horizon {
                    settled = Sum {
                        last: key.clone(),
                        used,
                    };
                }
            }
            match names.last() {
                Some(last) if names.len() == PAGE => after.clone_from(last),
                _ => break,
            }
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(folder, settled);
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_schema::{Money, SessionId};
    use agentfleet_storage::Database;

    const NOW: Millis = 1_795_000_000_000;

    async fn step(usage: &Usage, tenant: &str, at: Millis, n: u32, tokens: u64) {
        let key = keys::used_at(tenant, "2026-11", at, &SessionId::from("s"), n);
        let used = Used {
            runs: u64::from(n == 0),
            tokens,
            cost: Money::of(0.25),
        };
        let body = serde_json::to_vec(&used).unwrap();
        usage.documents.create(&key, body).await.unwrap();
    }

    #[tokio::test]
    async fn a_sum_counts_each_step_once_however_often_it_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let usage = Usage::new(Arc::new(documents));
        let old = NOW - 3 * SETTLED;
        for n in 0..2_500 {
            step(&usage, "acme", old + Millis::from(n), n, 2).await;
        }
        step(&usage, "bond", old, 0, 7).await;
        let of = |tenant: &'static str| usage.of(tenant, "2026-11", NOW);
        let used = of("acme").await.unwrap();
        assert_eq!(
            (used.runs, used.tokens, used.cost),
            (1, 5_000, Money::of(625.0))
        );
        // One that was committed meanwhile, and one whose instant is a little older than what was seen.
        step(&usage, "acme", NOW, 3_000, 10).await;
        step(&usage, "acme", NOW - SETTLED / 2, 3_001, 100).await;
        assert_eq!(of("acme").await.unwrap().tokens, 5_110);
        assert_eq!(of("acme").await.unwrap().tokens, 5_110);
        assert_eq!(of("bond").await.unwrap().tokens, 7);
        assert_eq!(
            usage.of("acme", "2026-12", NOW).await.unwrap(),
            Used::default()
        );
        assert_eq!(usage.kept.lock().unwrap().len(), 3);
    }
}
