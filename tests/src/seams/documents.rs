//! The librarian: create if absent, with the ambiguous replies that real stores give.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use agentfleet_documents::{Created, Documents, Entry, Error};
use async_trait::async_trait;
use std::sync::Arc;

#[async_trait]
impl Documents for Seam {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        self.act(Effect::new(Verb::Create, key), |world, fault| match fault {
            Some(Fault::Refused) => Err(Error::Storage(busy())),
            Some(Fault::FalseExists) => Ok(Created::Exists),
            fault => {
                let created = world.create(key, body);
                match fault {
                    Some(Fault::ReplyLost) => Err(Error::Storage(busy())),
                    Some(Fault::OwnExists) => Ok(Created::Exists),
                    _ => Ok(created),
                }
            }
        })
        .await
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let keys = [key.to_owned()];
        Ok(self.get_many(&keys).await?.pop().flatten())
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        let effect = Effect::new(Verb::Read, keys.join(", "));
        self.act(effect, |world, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            let found: Vec<_> = keys
                .iter()
                .map(|key| world.documents.get(key).cloned())
                .collect();
            world.on_read(keys, &found);
            Ok(found)
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.act(Effect::new(Verb::List, prefix), |world, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            let from = world.documents.range(prefix.to_owned()..);
            Ok(from
                .map(|(key, _)| key.clone())
                .take_while(|k| k.starts_with(prefix))
                .collect())
        })
        .await
    }

    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        let keys = self.list(prefix).await?.into_iter();
        let later = keys.filter(|key| key.as_str() > after).take(max);
        Ok(later.map(|key| Entry { key, created_at: 0 }).collect())
    }

    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        self.shared.with(|world| {
            for key in keys {
                world.documents.remove(key);
            }
        });
        Ok(())
    }
}
