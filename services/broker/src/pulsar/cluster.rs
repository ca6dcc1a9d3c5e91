//! Which broker serves a topic, and the connections to all of them.
//!
//! Any broker of the cluster can be asked who serves a topic; the answer is a broker to talk to,
//! another one to ask, or the proxy itself. There is one connection to each broker.

use super::commands;
use super::dial::Dialler;
use super::link::{Fault, Link};
use super::options::{Endpoint, PulsarOptions};
use crate::{Error, Outage};
use pulsar::proto::ServerError;
use pulsar::proto::command_lookup_topic_response::LookupType;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A lookup passes from broker to broker at most so often.
const MAX_REDIRECTS: usize = 20;

/// Where to connect, and the broker to be passed on to if that is a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Address {
    endpoint: Endpoint,
    broker: Option<String>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Link>>>>;

pub(super) struct Cluster {
    url: String,
    endpoints: Vec<Endpoint>,
    dialler: Dialler,
    retry_delay: Duration,
    /// Told once for all topics of this process.
    pub(super) outage: Arc<Outage>,
    slots: Mutex<HashMap<Address, Slot>>,
    /// The endpoint that answered last.
    favourite: AtomicUsize,
    ids: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) fn new(options: &PulsarOptions, stop: CancellationToken) -> Result<Self, Error> {
        let endpoints = Endpoint::all(&options.url)?;
        let tls = endpoints.iter().any(|endpoint| endpoint.tls);
        Ok(Self {
            url: options.url.clone(),
            dialler: Dialler::new(options, tls)?,
            endpoints,
            retry_delay: options.retry_delay,
            outage: Outage::new("receiving from Pulsar"),
            slots: Mutex::default(),
            favourite: AtomicUsize::new(0),
            ids: AtomicU64::new(1),
            tasks: TaskTracker::new(),
            stop,
        })
    }

    /// An id for a producer or a consumer.
    pub(super) fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The producers and feeds at work: each has a token of it.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff {
            first: self.retry_delay,
            next: self.retry_delay,
        }
    }

    /// A connection to any broker of the cluster.
    pub(super) async fn any(&self) -> Result<Arc<Link>, Error> {
        let first = self.favourite.load(Ordering::Relaxed);
        let mut failure = None;
        for turn in 0..self.endpoints.len() {
            let index = (first + turn) % self.endpoints.len();
            let address = Address {
                endpoint: self.endpoints[index].clone(),
                broker: None,
            };
            match self.link(address).await {
                Ok(link) => {
                    self.favourite.store(index, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(error @ Error::Unreachable { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::ServiceUrl(self.url.clone())))
    }

    async fn link(&self, address: Address) -> Result<Arc<Link>, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(address.clone()).or_default())
        };
        // Whoever comes meanwhile waits for this attempt and shares what it brings.
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.alive()) {
            return Ok(Arc::clone(link));
        }
        let dialled = self
            .dialler
            .dial(&address.endpoint, address.broker.as_deref())
            .await?;
        let token = self.dialler.token.clone();
        let link = Link::start(dialled, self.dialler.patience, token, &self.stop);
        tracing::info!(url = link.url, "connected to Pulsar");
        *slot = Some(Arc::clone(&link));
        Ok(link)
    }

    /// The connections that are open.
    pub(super) async fn links(&self) -> Vec<Arc<Link>> {
        let slots: Vec<Slot> = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.values().cloned().collect()
        };
        let mut links = Vec::new();
        for slot in slots {
            if let Some(link) = slot.lock().await.as_ref().filter(|link| link.alive()) {
                links.push(Arc::clone(link));
            }
        }
        links
    }

    /// A connection to the broker that serves a topic.
    pub(super) async fn serving(&self, topic: &str) -> Result<Arc<Link>, Error> {
        let mut link = self.any().await?;
        let mut authoritative = false;
        for _ in 0..MAX_REDIRECTS {
            let answer = link
                .ask(|id| commands::lookup(id, topic, authoritative))
                .await
                .map_err(|fault| failed(topic, &link, fault))?;
            let unclear = || Error::Unready {
                topic: topic.to_owned(),
                reason: "nobody says which broker serves it".to_owned(),
            };
            let answer = answer.lookup_topic_response.ok_or_else(unclear)?;
            let proxied = answer.proxy_through_service_url();
            let url = if self.endpoints.iter().any(|endpoint| endpoint.tls) {
                answer.broker_service_url_tls
            } else {
                answer.broker_service_url
            };
            match answer.response.map(LookupType::try_from) {
                Some(Ok(LookupType::Connect)) => {
                    return self
                        .link(self.address(url, proxied).ok_or_else(unclear)?)
                        .await;
                }
                Some(Ok(LookupType::Redirect)) => {
                    authoritative = answer.authoritative.unwrap_or_default();
                    link = self
                        .link(self.address(url, proxied).ok_or_else(unclear)?)
                        .await?;
                }
                Some(Ok(LookupType::Failed) | Err(_)) | None => {
                    let error = answer
                        .error
                        .and_then(|error| ServerError::try_from(error).ok());
                    let fault = Fault::Server(
                        error.unwrap_or(ServerError::ServiceNotReady),
                        answer.message.unwrap_or_default(),
                    );
                    return Err(failed(topic, &link, fault));
                }
            }
        }
        Err(Error::Unready {
            topic: topic.to_owned(),
            reason: format!("brokers passed the question on {MAX_REDIRECTS} times"),
        })
    }

    fn address(&self, url: Option<String>, proxied: bool) -> Option<Address> {
        let url = url?;
        let endpoint = Endpoint::all(&url).ok()?.into_iter().next()?;
        if proxied {
            let proxy = self.favourite.load(Ordering::Relaxed) % self.endpoints.len();
            return Some(Address {
                broker: Some(format!("{}:{}", endpoint.host, endpoint.port)),
                endpoint: self.endpoints[proxy].clone(),
            });
        }
        Some(Address {
            endpoint,
            broker: None,
        })
    }

    /// The topics that a topic is made of: itself, or its partitions.
    pub(super) async fn parts(&self, topic: &str) -> Result<Vec<String>, Error> {
        let link = self.any().await?;
        let answer = link
            .ask(|id| commands::partitions(id, topic))
            .await
            .map_err(|fault| failed(topic, &link, fault))?;
        let answer = answer.partition_metadata_response.unwrap_or_default();
        if let Some(error) = answer
            .error
            .and_then(|error| ServerError::try_from(error).ok())
        {
            let fault = Fault::Server(error, answer.message.unwrap_or_default());
            return Err(failed(topic, &link, fault));
        }
        Ok(match answer.partitions.unwrap_or(0) {
            0 => vec![topic.to_owned()],
            count => (0..count)
                .map(|part| format!("{topic}-partition-{part}"))
                .collect(),
        })
    }

    /// Tries again, with growing pauses, what may work later; until `deadline`.
    pub(super) async fn patiently<T, F: Future<Output = Result<T, Error>>>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let mut backoff = self.backoff();
        loop {
            let error = match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let pause = backoff.next();
            if error.retry().is_none() || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::debug!(%error, "Pulsar failed; trying again");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return Err(Error::Closed),
            }
        }
    }
}

/// What a fault means to who wanted something of a topic.
pub(super) fn failed(topic: &str, link: &Link, fault: Fault) -> Error {
    let (topic, url) = (topic.to_owned(), link.url.clone());
    let reason = fault.to_string();
    match fault {
        Fault::Lost | Fault::Late(_) => Error::Unreachable { url, reason },
        Fault::Server(error, _) => match error {
            ServerError::AuthenticationError | ServerError::AuthorizationError => {
                Error::Unauthorized { url, reason }
            }
            ServerError::TopicNotFound | ServerError::SubscriptionNotFound => {
                Error::NoTopic { topic, reason }
            }
            ServerError::TopicTerminatedError
            | ServerError::InvalidTopicName
            | ServerError::IncompatibleSchema
            | ServerError::UnsupportedVersionError
            | ServerError::NotAllowedError
            | ServerError::InvalidTxnStatus
            | ServerError::TransactionConflict
            | ServerError::TransactionNotFound
            | ServerError::TransactionCoordinatorNotFound => Error::Refused { topic, reason },
            ServerError::UnknownError
            | ServerError::MetadataError
            | ServerError::PersistenceError
            | ServerError::ConsumerBusy
            | ServerError::ServiceNotReady
            | ServerError::ProducerBlockedQuotaExceededError
            | ServerError::ProducerBlockedQuotaExceededException
            | ServerError::ChecksumError
            | ServerError::ConsumerNotFound
            | ServerError::TooManyRequests
            | ServerError::ProducerBusy
            | ServerError::ConsumerAssignError
            | ServerError::ProducerFenced => Error::Unready { topic, reason },
        },
    }
}

/// Pauses between attempts: each twice as long as the one before, up to a limit.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.first * 10);
        pause
    }

    pub(super) fn fresh(&self) -> Self {
        Self {
            first: self.first,
            next: self.first,
        }
    }
}
