//! What waits in the subscriptions that this process knows.
//!
//! A broker tells the backlog of a subscription to its consumers. So it is asked through the
//! consumers that this process has anyway. Where it has none, one that brings nothing is opened when
//! it is first asked for, and stays: opening and closing one each time would be work for the broker,
//! which deals a shared subscription anew whenever a consumer comes or goes.

use super::cluster::{Cluster, failed};
use super::names::{Carries, Lane, Names};
use super::stream::Stream;
use super::streams::Streams;
use crate::{Error, Waiting};
use agentfleet_schema::topics::Topic;
use futures::future::{join_all, try_join_all};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// A topic and a subscription of it.
type Place = (String, String);

pub(super) struct Backlog {
    cluster: Arc<Cluster>,
    names: Arc<Names>,
    streams: Arc<Streams>,
    known: Mutex<BTreeSet<(Topic, String)>>,
    /// Locked while somebody counts: who comes meanwhile waits, and asks no more at once.
    observers: tokio::sync::Mutex<HashMap<Place, Stream>>,
}

impl Backlog {
    pub(super) fn new(cluster: Arc<Cluster>, names: Arc<Names>, streams: Arc<Streams>) -> Self {
        Self {
            cluster,
            names,
            streams,
            known: Mutex::default(),
            observers: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn know(&self, topic: &Topic, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((topic.clone(), name.to_owned()));
    }

    /// Counts all of them.
    pub(super) async fn count(&self) -> Result<Vec<Waiting>, Error> {
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.clone()
        };
        let mut observers = self.observers.lock().await;
        let lanes = |(topic, name): (Topic, String)| async move {
            let lanes = self.names.lanes(&topic, &name);
            let parts = lanes.into_iter().map(|lane| self.parts(lane));
            let parts = try_join_all(parts).await?;
            Ok::<_, Error>((topic, name, parts.concat()))
        };
        let subscriptions = try_join_all(known.into_iter().map(lanes)).await?;
        let mut asked = Vec::new();
        for (index, (_, name, lanes)) in subscriptions.iter().enumerate() {
            for lane in lanes {
                let place = (lane.topic.clone(), name.clone());
                let observer = observers.remove(&place);
                asked.push(async move {
                    let counted = self.ask(&place, observer).await;
                    (index, lane.carries, place, counted)
                });
            }
        }
        let mut waiting: Vec<Waiting> = subscriptions
            .iter()
            .map(|(topic, name, _)| Waiting {
                queue: format!("{topic}/{name}"),
                ready: 0,
                delayed: 0,
            })
            .collect();
        let mut failure = None;
        for (index, carries, place, counted) in join_all(asked).await {
            match counted {
                Ok((count, observer)) => {
                    observers.extend(observer.map(|observer| (place, observer)));
                    match carries {
                        Carries::Work => waiting[index].ready += count,
                        Carries::Delayed | Carries::Copies => waiting[index].delayed += count,
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(waiting),
        }
    }

    async fn parts(&self, lane: Lane) -> Result<Vec<Lane>, Error> {
        let parts = self.cluster.parts(&lane.topic).await?;
        let carries = lane.carries;
        let part = |topic| Lane { topic, carries };
        Ok(parts.into_iter().map(part).collect())
    }

    /// Messages of one topic that a subscription has not acknowledged, and the observer to keep.
    async fn ask(
        &self,
        (topic, subscription): &Place,
        observer: Option<Stream>,
    ) -> Result<(u64, Option<Stream>), Error> {
        if let Some((link, consumer)) = self.streams.find(topic, subscription)
            && let Ok(stats) = link.consumer_stats(consumer).await
        {
            // An observer is not needed any more.
            return Ok((stats.waiting, None));
        }
        if let Some(observer) = observer
            && let Ok(stats) = observer.link.consumer_stats(observer.id).await
        {
            return Ok((stats.waiting, Some(observer)));
        }
        // None yet, or the topic has moved.
        let observer = Stream::open(&self.cluster, topic, subscription).await?;
        let stats = observer.link.consumer_stats(observer.id).await;
        let stats = stats.map_err(|fault| failed(topic, &observer.link, fault))?;
        Ok((stats.waiting, Some(observer)))
    }

    /// Closes what was opened to count.
    pub(super) async fn close(&self) {
        let observers = std::mem::take(&mut *self.observers.lock().await);
        join_all(observers.into_values().map(Stream::close)).await;
    }
}
