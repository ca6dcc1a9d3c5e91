//! A committer whose commit is one transaction, as the embedded engine's is. The other engine's
//! committer is the shipped one.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use crate::world::World;
use agentfleet_broker::Delivery;
use agentfleet_documents::Created;
use agentfleet_runtime::effects;
use agentfleet_runtime::{Adoption, Committed, Committer, Error, StepCommit, outgoing};
use agentfleet_schema::records::{IntentRecord, Publication};
use async_trait::async_trait;

/// Commits in one transaction.
#[derive(Clone, Debug)]
pub struct AtomicCommitter {
    pub seam: Seam,
}

impl AtomicCommitter {
    async fn transaction<T>(
        &self,
        what: &str,
        act: impl FnOnce(&mut World) -> T,
    ) -> Result<T, Error> {
        let effect = Effect::new(Verb::Commit, what);
        self.seam
            .act(effect, |world, fault| match fault {
                Some(Fault::Refused) => Err(busy().into()),
                fault => {
                    let result = act(world);
                    if fault == Some(Fault::ReplyLost) {
                        Err(busy().into())
                    } else {
                        Ok(result)
                    }
                }
            })
            .await
    }
}

fn publish(world: &mut World, publications: Vec<Publication>) {
    for publication in publications {
        world.publish(&outgoing(publication));
    }
}

#[async_trait]
impl Committer for AtomicCommitter {
    async fn commit(
        &self,
        commit: StepCommit,
        delivery: Option<&Delivery>,
    ) -> Result<Committed, Error> {
        let key = commit.record.0.clone();
        self.transaction(&key, |world| {
            let (key, record) = commit.record;
            let mut fence = None;
            if let Some(place) = commit.without_call {
                let there = world.documents.get(&place);
                let there = there.map(|body| serde_json::from_slice(body).expect("an intent"));
                if there.is_some_and(|there: IntentRecord| !there.fence) {
                    return Committed::Called;
                }
                fence = Some((place, effects::fence(&commit.nonce, None)));
            }
            if world.create(&key, record) == Created::Exists {
                return Committed::Lost;
            }
            for (key, body) in fence.into_iter().chain(commit.objects) {
                world.create(&key, body);
            }
            world.create(&commit.marker, Vec::new());
            publish(world, commit.publications);
            if let Some(delivery) = delivery {
                world.queues.ack(delivery.receipt);
            }
            Committed::Won
        })
        .await
    }

    async fn adopt(&self, adoption: Adoption, delivery: Option<&Delivery>) -> Result<(), Error> {
        let Adoption {
            publications,
            marker,
            ..
        } = adoption;
        self.transaction(&marker.clone(), |world| {
            if world.create(&marker, Vec::new()) == Created::New {
                publish(world, publications);
            }
            if let Some(delivery) = delivery {
                world.queues.ack(delivery.receipt);
            }
        })
        .await
    }
}
