//! Replay and verification as oracles: what a world committed comes out of its records again, and they
//! agree with everything that was stored beside them.

use crate::world::World;
use agentfleet::error::Failure;
use agentfleet::evidence;
use agentfleet_config::{ConfigStore, Error as ConfigError, Item, ItemVersion, SeedReport, Seeder};
use agentfleet_core::audit::Finding;
use agentfleet_core::replay::Replayed;
use agentfleet_documents::{Created, Documents, Entry, Error as DocumentsError};
use agentfleet_orchestrator::replay::{ReplayError, Replayer};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::{SessionId, keys};
use async_trait::async_trait;
use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a world stored, after the event: read, and never written.
#[derive(Clone, Debug)]
pub struct Archive {
    pub documents: BTreeMap<String, Arc<[u8]>>,
    configs: Vec<Arc<Snapshot>>,
}

impl Archive {
    pub fn of(world: &World) -> Self {
        Self {
            documents: world.documents.clone(),
            configs: world.configs.clone(),
        }
    }

    /// Every committed step, from what is stored.
    pub fn records(&self) -> impl Iterator<Item = StepRecord> {
        let stored = self.documents.iter();
        let outcomes = stored.filter(|(key, _)| key.ends_with("/outcome"));
        outcomes.map(|(key, body)| serde_json::from_slice(body).expect(key))
    }

    pub fn record(&self, session: &SessionId, step: u32) -> StepRecord {
        serde_json::from_slice(&self.documents[&keys::outcome(session, step)]).unwrap()
    }

    /// Puts another record in the place of one, as nobody of the fleet would.
    pub fn tamper(&mut self, record: &StepRecord) {
        let key = keys::outcome(&record.session, record.step);
        let body = serde_json::to_vec(record).unwrap();
        self.documents.insert(key, body.into());
    }

    /// What `verify` finds in the records of a tree.
    pub fn verify(&self, root: &SessionId) -> Vec<Finding> {
        let checked = async {
            let (sessions, mut findings) = evidence::gather(self, root).await?;
            evidence::check(self, self, &sessions, &mut findings).await?;
            Ok::<_, Failure>(findings)
        };
        let checked = checked.now_or_never().expect("nothing here waits");
        checked.unwrap_or_else(|failure| panic!("{}", failure.message))
    }

    pub fn replay(&self, record: &StepRecord) -> Result<Replayed, ReplayError> {
        let replayer = Replayer {
            documents: self,
            config: self,
            default_prompts: &self.configs[0],
        };
        let replayed = replayer.step(record).now_or_never();
        replayed.expect("nothing here waits")
    }
}

impl World {
    /// Every committed step comes out of its records again.
    pub(crate) fn steps_come_out_again(&self) -> Result<(), String> {
        let archive = Archive::of(self);
        for record in archive.records() {
            let place = format!("step {} of session {}", record.step, record.session);
            let replayed = archive
                .replay(&record)
                .map_err(|error| format!("{place} cannot be replayed: {error}"))?;
            if let Some(divergence) = replayed.divergences.first() {
                return Err(format!("{place} diverges at {divergence}"));
            }
            if let Some(unchecked) = replayed.unchecked.first() {
                return Err(format!("{place} cannot be checked: {unchecked}"));
            }
        }
        Ok(())
    }

    /// Nothing that is stored of a run speaks against it.
    pub(crate) fn what_is_stored_agrees(&self) -> Result<(), String> {
        let archive = Archive::of(self);
        let roots: BTreeSet<SessionId> = archive.records().map(|record| record.root).collect();
        for root in &roots {
            if let Some(found) = archive.verify(root).first() {
                let (about, what) = (found.about.as_str(), &found.what);
                return Err(format!("{about} {what}: {}", found.problem));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Documents for Archive {
    async fn create(&self, key: &str, _: Vec<u8>) -> Result<Created, DocumentsError> {
        panic!("replay writes `{key}`")
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, DocumentsError> {
        Ok(self.documents.get(key).cloned())
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, DocumentsError> {
        Ok(keys
            .iter()
            .map(|key| self.documents.get(key).cloned())
            .collect())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, DocumentsError> {
        let keys = self.documents.keys();
        let below = keys.filter(|key| key.starts_with(prefix));
        Ok(below.cloned().collect())
    }

    async fn entries(&self, _: &str, _: &str, _: usize) -> Result<Vec<Entry>, DocumentsError> {
        Ok(Vec::new())
    }

    async fn delete(&self, keys: &[String]) -> Result<(), DocumentsError> {
        panic!("replay deletes {keys:?}")
    }
}

#[async_trait]
impl ConfigStore for Archive {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, ConfigError> {
        panic!("replay works under the version of the record")
    }

    async fn snapshot_at(&self, version: u64) -> Result<Arc<Snapshot>, ConfigError> {
        let mut configs = self.configs.iter();
        let found = configs.find(|config| config.version == version);
        Ok(Arc::clone(found.unwrap_or(&self.configs[0])))
    }

    async fn get(&self, _: &str, _: &str) -> Result<Option<ItemVersion>, ConfigError> {
        Ok(None)
    }

    async fn list(&self, _: Option<&str>) -> Result<Vec<ItemVersion>, ConfigError> {
        Ok(Vec::new())
    }

    async fn history(&self, _: &str, _: &str) -> Result<Vec<ItemVersion>, ConfigError> {
        Ok(Vec::new())
    }

    async fn put(&self, _: Vec<Item>, _: &str) -> Result<u64, ConfigError> {
        panic!("replay changes the config")
    }

    async fn seed(&self, _: Vec<Item>, _: &Seeder) -> Result<SeedReport, ConfigError> {
        panic!("replay changes the config")
    }

    async fn delete(&self, _: &str, _: &str, _: &str) -> Result<Option<u64>, ConfigError> {
        panic!("replay changes the config")
    }
}
