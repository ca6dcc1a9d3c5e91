//! The librarian: create if absent, with the ambiguous replies that real stores give.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use agentfleet_documents::{Created, Documents, Entry, Error};
use async_trait::async_trait;
use std::sync::Arc;

impl Seam {
    /// Stores several objects as one, if the first is new.
    async fn create_all(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Created, Error> {
        self.act(Effect::new(Verb::Create, key), |world, fault| match fault {
            Some(Fault::Refused) => Err(Error::Storage(busy())),
            Some(Fault::FalseExists) => Ok(Created::Exists),
            fault => {
                let created = world.create(key, body);
                if created == Created::New {
                    for (key, body) in others {
                        world.create(key, body.clone());
                    }
                }
                match fault {
                    Some(Fault::ReplyLost) => Err(Error::Storage(busy())),
                    Some(Fault::OwnExists) => Ok(Created::Exists),
                    _ => Ok(created),
                }
            }
        })
        .await
    }
}

#[async_trait]
impl Documents for Seam {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        self.create_all(key, body, &[]).await
    }

    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, Error> {
        loop {
            if self.create_all(key, body.clone(), others).await? == Created::New {
                return Ok(None);
            }
            if let Some(there) = self.get(key).await? {
                return Ok((*there != *body).then_some(there));
            }
        }
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
