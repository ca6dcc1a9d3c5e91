//! The producer of one topic: a task that takes messages and tells each one's sender what became of
//! it.
//!
//! Messages wait in order until the broker has stored them. When the producer's stream ends, for
//! whatever reason, it is opened again and everything unconfirmed is sent anew: a message may so be
//! stored twice, but none is lost that was confirmed. Each message has a deadline; when it passes,
//! its sender gets the last error. The broker's own deduplication is not used.

use super::cluster::{Backoff, Cluster, failed};
use super::commands;
use super::link::{Link, Receipt};
use crate::Error;
use agentfleet_schema::topics::Topic;
use futures::future::BoxFuture;
use prost::Message as _;
use pulsar::proto::MessageMetadata;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A producer that had nothing to do for so long is closed.
const IDLE: Duration = Duration::from_secs(300);
/// The broker confirms in milliseconds; after so long the message is sent anew.
const STALLED: Duration = Duration::from_secs(8);

/// A message to store.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) topic: Topic,
    pub(super) metadata: MessageMetadata,
    pub(super) data: Vec<u8>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<(), Error>>,
    /// The share of the bytes that may be on their way.
    pub(super) _share: Option<OwnedSemaphorePermit>,
}

struct Sent {
    sequence: u64,
    at: Instant,
    job: Job,
}

/// An open producer.
struct Open {
    link: Arc<Link>,
    id: u64,
    name: String,
    receipts: mpsc::UnboundedReceiver<Receipt>,
}

enum Line {
    Closed(Instant),
    Opening(BoxFuture<'static, Result<Open, Error>>),
    Open(Open),
}

pub(super) struct Producer {
    cluster: Arc<Cluster>,
    topic: String,
    line: Line,
    /// Unconfirmed messages in order.
    pending: VecDeque<Sent>,
    sequence: u64,
    backoff: Backoff,
    failure: Option<Error>,
    /// Who closes the broker waits for its end.
    _task: TaskTrackerToken,
}

impl Producer {
    pub(super) fn new(cluster: Arc<Cluster>, topic: String) -> Self {
        Self {
            backoff: cluster.backoff(),
            _task: cluster.tasks().token(),
            cluster,
            topic,
            line: Line::Closed(Instant::now()),
            pending: VecDeque::new(),
            sequence: 0,
            failure: None,
        }
    }

    /// Works until nobody can send any more, nothing was sent for long, or `stop`: then what was
    /// taken is still confirmed, or fails.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>, stop: CancellationToken) {
        let mut idle_since = Instant::now();
        let (mut taking, mut stopping) = (true, false);
        while taking || !self.pending.is_empty() {
            let wake = self.wake().unwrap_or(idle_since + IDLE);
            tokio::select! {
                job = jobs.recv(), if taking => match job {
                    Some(job) => self.take(job),
                    None => taking = false,
                },
                () = self.line.changed(&mut self.pending, &mut self.failure, &mut self.backoff) => {}
                () = sleep_until(wake) => {}
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    jobs.close();
                }
            }
            self.advance();
            if !self.pending.is_empty() {
                idle_since = Instant::now();
            } else if idle_since + IDLE <= Instant::now() {
                // What was sent just now is still taken; the next sender finds it closed.
                jobs.close();
            }
        }
        if let Line::Open(open) = &self.line {
            // Without an answer the connection is gone, and the producer with it.
            let _ = open.link.end_producer(open.id).await;
        }
    }

    fn take(&mut self, job: Job) {
        if let Line::Open(open) = &self.line {
            let size = job.metadata.encoded_len() + job.data.len();
            if size > open.link.max_message {
                let (topic, limit) = (job.topic.clone(), open.link.max_message);
                let _ = job.reply.send(Err(Error::TooLarge { topic, size, limit }));
                return;
            }
        }
        let sent = Sent {
            sequence: self.sequence,
            at: Instant::now(),
            job,
        };
        self.sequence += 1;
        if let Line::Open(open) = &self.line {
            open.send(&sent);
        }
        self.pending.push_back(sent);
    }

    /// When something must happen by itself.
    fn wake(&self) -> Option<Instant> {
        let first = self.pending.front()?;
        let due = match &self.line {
            Line::Closed(until) => *until,
            Line::Opening(_) => first.job.deadline,
            Line::Open(_) => first.at + STALLED,
        };
        Some(due.min(first.job.deadline))
    }

    /// Does what time and the state of the line ask for.
    fn advance(&mut self) {
        let now = Instant::now();
        while let Some(late) = self.pending.pop_front_if(|first| first.job.deadline <= now) {
            let failure = self.failure.clone().unwrap_or_else(|| Error::Unready {
                topic: self.topic.clone(),
                reason: "no confirmation came in time".to_owned(),
            });
            let _ = late.job.reply.send(Err(failure));
        }
        let Some(first) = self.pending.front() else {
            return;
        };
        match &self.line {
            Line::Closed(until) if *until <= now => {
                let opening = open(Arc::clone(&self.cluster), self.topic.clone());
                self.line = Line::Opening(Box::pin(opening));
            }
            Line::Open(open) if first.at + STALLED <= now => {
                tracing::warn!(topic = self.topic, "Pulsar confirms nothing; sending anew");
                open.link.close_producer(open.id);
                self.line = Line::Closed(now);
            }
            Line::Closed(_) | Line::Opening(_) | Line::Open(_) => {}
        }
    }
}

impl Line {
    /// Waits for something to happen, and takes it in. Cancel safe.
    async fn changed(
        &mut self,
        pending: &mut VecDeque<Sent>,
        failure: &mut Option<Error>,
        backoff: &mut Backoff,
    ) {
        match self {
            Self::Closed(_) => std::future::pending().await,
            Self::Opening(opening) => match opening.await {
                Ok(open) => {
                    for sent in pending.iter_mut() {
                        sent.at = Instant::now();
                        open.send(sent);
                    }
                    *failure = None;
                    *self = Self::Open(open);
                }
                Err(error) => {
                    if error.retry().is_none() {
                        for sent in pending.drain(..) {
                            let _ = sent.job.reply.send(Err(error.clone()));
                        }
                    }
                    *failure = Some(error);
                    *self = Self::Closed(Instant::now() + backoff.next());
                }
            },
            Self::Open(open) => match open.receipts.recv().await {
                Some(Receipt::Stored(sequence)) => {
                    *backoff = backoff.fresh();
                    while let Some(sent) = pending.pop_front_if(|first| first.sequence <= sequence)
                    {
                        let _ = sent.job.reply.send(Ok(()));
                    }
                }
                Some(Receipt::Refused(sequence, fault)) => {
                    tracing::warn!(url = open.link.url, %fault, "Pulsar refused a message");
                    let index = pending.iter().position(|sent| sent.sequence == sequence);
                    if let Some(sent) = index.and_then(|index| pending.get(index)) {
                        let topic = sent.job.topic.to_string();
                        let refusal = failed(&topic, &open.link, fault);
                        if refusal.retry().is_none()
                            && let Some(sent) = index.and_then(|index| pending.remove(index))
                        {
                            let _ = sent.job.reply.send(Err(refusal));
                            return;
                        }
                        *failure = Some(refusal);
                    }
                    open.link.close_producer(open.id);
                    *self = Self::Closed(Instant::now() + backoff.next());
                }
                None => {
                    *failure = Some(Error::Unreachable {
                        url: open.link.url.clone(),
                        reason: "the connection ended".to_owned(),
                    });
                    // The broker closed it, or the connection ended: the first try is at once.
                    *self = Self::Closed(Instant::now());
                }
            },
        }
    }
}

impl Open {
    fn send(&self, sent: &Sent) {
        let mut metadata = sent.job.metadata.clone();
        metadata.producer_name.clone_from(&self.name);
        metadata.sequence_id = sent.sequence;
        let data = sent.job.data.clone();
        self.link
            .send(commands::send(self.id, sent.sequence, metadata, data));
    }
}

/// Opens a producer with whoever serves the topic.
async fn open(cluster: Arc<Cluster>, topic: String) -> Result<Open, Error> {
    let link = cluster.serving(&topic).await?;
    let id = cluster.id();
    let lost = |fault| failed(&topic, &link, fault);
    let receipts = link.add_producer(id).map_err(lost)?;
    match link
        .ask(|request| commands::producer(request, id, &topic))
        .await
    {
        Ok(answer) => Ok(Open {
            name: answer.producer_success.unwrap_or_default().producer_name,
            id,
            receipts,
            link,
        }),
        Err(fault) => {
            link.close_producer(id);
            Err(lost(fault))
        }
    }
}
