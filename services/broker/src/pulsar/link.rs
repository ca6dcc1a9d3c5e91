//! One connection to a broker, shared by the producers and consumers of all topics it serves.
//!
//! A reader task hands every command to whom it concerns; a writer task writes what is queued, and
//! flushes when nothing more is. When the connection ends, for whatever reason, everyone who waits
//! on it is told by the end of their channel: nobody waits on a dead connection. A connection that
//! stays silent is asked for a sign of life, and ended if none comes.

use super::commands;
use super::dial::{Dialled, Wire};
use futures::{SinkExt, StreamExt};
use pulsar::Payload;
use pulsar::message::Message;
use pulsar::proto::{BaseCommand, CommandMessage, ServerError};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A connection is asked for a sign of life after so long a silence.
const QUIET: Duration = Duration::from_secs(5);

/// Why an operation on a connection failed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The connection ended.
    Lost,
    /// No answer came in time.
    Late(Duration),
    /// The broker answered with an error.
    Server(ServerError, String),
}

impl Fault {
    /// What a broker says, by the number that it gives an error.
    fn server(error: i32, text: String) -> Self {
        let error = ServerError::try_from(error).unwrap_or(ServerError::UnknownError);
        Self::Server(error, text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the connection ended"),
            Self::Late(limit) => write!(f, "no answer within {limit:?}"),
            Self::Server(error, text) => {
                let text = text.lines().next().unwrap_or_default();
                write!(f, "{}: {text}", error.as_str_name())
            }
        }
    }
}

/// What a broker tells a consumer of its subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats {
    /// Messages of the topic that the subscription has not acknowledged.
    pub(super) waiting: u64,
    /// Of them, those that this consumer has.
    pub(super) in_hands: u64,
}

/// What a consumer is told; the end of its channel means that it must be opened again.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) command: CommandMessage,
    pub(super) payload: Payload,
}

/// What a producer is told; the end of its channel means that it must be opened again.
#[derive(Debug)]
pub(super) enum Receipt {
    Stored(u64),
    Refused(u64, Fault),
}

/// Who waits for what. Gone when the connection has ended.
#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<BaseCommand>>,
    /// One for each sign of life that was asked for, in order.
    pongs: VecDeque<Option<oneshot::Sender<()>>>,
    consumers: HashMap<u64, mpsc::UnboundedSender<Arrival>>,
    producers: HashMap<u64, mpsc::UnboundedSender<Receipt>>,
}

pub(super) struct Link {
    /// The broker at the other end, for messages.
    pub(super) url: String,
    /// Largest message that the broker takes, properties included.
    pub(super) max_message: usize,
    out: mpsc::UnboundedSender<Message>,
    waiting: Mutex<Option<Waiting>>,
    requests: AtomicU64,
    patience: Duration,
    ended: CancellationToken,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Starts to serve a connection, until it ends or `stop` is cancelled.
    pub(super) fn start(
        dialled: Dialled,
        patience: Duration,
        token: Option<super::options::Token>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let (out, queue) = mpsc::unbounded_channel();
        let link = Arc::new(Self {
            url: dialled.url,
            max_message: dialled.max_message,
            out,
            waiting: Mutex::new(Some(Waiting::default())),
            requests: AtomicU64::new(1),
            patience,
            ended: stop.child_token(),
        });
        let (sink, stream) = dialled.wire.split();
        tokio::spawn(write(sink, queue, link.ended.clone()));
        tokio::spawn(read(stream, Arc::clone(&link), token));
        link
    }

    pub(super) fn alive(&self) -> bool {
        !self.ended.is_cancelled()
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command; it is lost if the connection ends first.
    pub(super) fn send(&self, message: Message) {
        // The writer is gone only when the connection has ended.
        let _ = self.out.send(message);
    }

    /// Sends a command that has an answer.
    pub(super) async fn ask(
        &self,
        build: impl FnOnce(u64) -> Message,
    ) -> Result<BaseCommand, Fault> {
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match &mut *self.waiting() {
            Some(waiting) => waiting.answers.insert(id, sender),
            None => return Err(Fault::Lost),
        };
        self.send(build(id));
        match timeout(self.patience, answer).await {
            Ok(Ok(answer)) => match answer.error {
                Some(error) => Err(Fault::server(error.error, error.message)),
                None => Ok(answer),
            },
            Ok(Err(_)) => Err(Fault::Lost),
            Err(_) => {
                if let Some(waiting) = &mut *self.waiting() {
                    waiting.answers.remove(&id);
                }
                Err(Fault::Late(self.patience))
            }
        }
    }

    /// Returns when the broker has taken everything that was queued before: it works in order.
    pub(super) async fn flush(&self) -> Result<(), Fault> {
        let (sender, answer) = oneshot::channel();
        self.ping(Some(sender));
        match timeout(self.patience, answer).await {
            Ok(answer) => answer.map_err(|_| Fault::Lost),
            Err(_) => Err(Fault::Late(self.patience)),
        }
    }

    /// Asks for a sign of life.
    fn ping(&self, asker: Option<oneshot::Sender<()>>) {
        if let Some(waiting) = &mut *self.waiting() {
            waiting.pongs.push_back(asker);
            self.send(commands::ping());
        }
    }

    pub(super) fn add_consumer(&self, id: u64) -> Result<mpsc::UnboundedReceiver<Arrival>, Fault> {
        let (sender, arrivals) = mpsc::unbounded_channel();
        match &mut *self.waiting() {
            Some(waiting) => waiting.consumers.insert(id, sender),
            None => return Err(Fault::Lost),
        };
        Ok(arrivals)
    }

    pub(super) fn add_producer(&self, id: u64) -> Result<mpsc::UnboundedReceiver<Receipt>, Fault> {
        let (sender, receipts) = mpsc::unbounded_channel();
        match &mut *self.waiting() {
            Some(waiting) => waiting.producers.insert(id, sender),
            None => return Err(Fault::Lost),
        };
        Ok(receipts)
    }

    /// Lets go of the channel of a consumer or producer; no two of them have the same id.
    fn forget(&self, id: u64) {
        if let Some(waiting) = &mut *self.waiting() {
            waiting.consumers.remove(&id);
            waiting.producers.remove(&id);
        }
    }

    /// Closes a consumer, and returns when the broker has: what it did not acknowledge is with
    /// others.
    pub(super) async fn end_consumer(&self, id: u64) -> Result<(), Fault> {
        self.forget(id);
        let closed = self.ask(|request| commands::close_consumer(request, id));
        closed.await.map(drop)
    }

    /// Closes a producer, and returns when the broker has.
    pub(super) async fn end_producer(&self, id: u64) -> Result<(), Fault> {
        self.forget(id);
        let closed = self.ask(|request| commands::close_producer(request, id));
        closed.await.map(drop)
    }

    /// What the broker knows of the subscription of an open consumer.
    pub(super) async fn consumer_stats(&self, id: u64) -> Result<Stats, Fault> {
        let answer = self
            .ask(|request| commands::consumer_stats(request, id))
            .await?;
        let stats = answer.consumer_stats_response.unwrap_or_default();
        // Mostly: the broker does not know the consumer, because the topic has moved.
        if let Some(error) = stats.error_code {
            let text = stats.error_message.unwrap_or_default();
            return Err(Fault::server(error, text));
        }
        Ok(Stats {
            waiting: stats.msg_backlog.unwrap_or_default(),
            in_hands: stats.unacked_messages.unwrap_or_default(),
        })
    }

    /// Closes a consumer without waiting: what it did not acknowledge goes to others.
    pub(super) fn close_consumer(&self, id: u64) {
        self.forget(id);
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        self.send(commands::close_consumer(request, id));
    }

    pub(super) fn close_producer(&self, id: u64) {
        self.forget(id);
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        self.send(commands::close_producer(request, id));
    }

    fn end(&self, why: &str) {
        if let Some(waiting) = self.waiting().take() {
            if !self.ended.is_cancelled() {
                tracing::warn!(url = self.url, why, "the connection to Pulsar ended");
            }
            drop(waiting);
        }
        self.ended.cancel();
    }

    /// Hands a command to whom it concerns; `false` if the connection is of no more use.
    fn dispatch(&self, message: Message, token: Option<&super::options::Token>) -> bool {
        let Message { command, payload } = message;
        if command.ping.is_some() {
            self.send(commands::pong());
            return true;
        }
        if command.auth_challenge.is_some() {
            // The token may have been replaced since.
            return match token.map(super::options::Token::read) {
                Some(Ok(token)) => {
                    self.send(commands::authenticate(&token));
                    true
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "cannot authenticate again");
                    false
                }
                None => false,
            };
        }
        let mut waiting = self.waiting();
        let Some(waiting) = &mut *waiting else {
            return false;
        };
        if command.pong.is_some() {
            if let Some(Some(asker)) = waiting.pongs.pop_front() {
                let _ = asker.send(());
            }
        } else if let (Some(arrived), Some(payload)) = (&command.message, payload) {
            if let Some(consumer) = waiting.consumers.get(&arrived.consumer_id) {
                let command = arrived.clone();
                // A consumer that was just closed lets go of its end: the message comes again.
                let _ = consumer.send(Arrival { command, payload });
            }
        } else if let Some(receipt) = &command.send_receipt {
            if let Some(producer) = waiting.producers.get(&receipt.producer_id) {
                let _ = producer.send(Receipt::Stored(receipt.sequence_id));
            }
        } else if let Some(refused) = &command.send_error {
            if let Some(producer) = waiting.producers.get(&refused.producer_id) {
                let fault = Fault::server(refused.error, refused.message.clone());
                let _ = producer.send(Receipt::Refused(refused.sequence_id, fault));
            }
        } else if let Some(closed) = &command.close_consumer {
            waiting.consumers.remove(&closed.consumer_id);
        } else if let Some(ended) = &command.reached_end_of_topic {
            waiting.consumers.remove(&ended.consumer_id);
        } else if let Some(closed) = &command.close_producer {
            waiting.producers.remove(&closed.producer_id);
        } else if let Some(id) = answered(&command)
            && let Some(answer) = waiting.answers.remove(&id)
        {
            let _ = answer.send(command);
        }
        true
    }
}

/// Which request a command answers.
fn answered(command: &BaseCommand) -> Option<u64> {
    let (topic, parts) = (
        &command.lookup_topic_response,
        &command.partition_metadata_response,
    );
    let last = &command.get_last_message_id_response;
    let ids = [
        command.success.as_ref().map(|it| it.request_id),
        command.error.as_ref().map(|it| it.request_id),
        command.producer_success.as_ref().map(|it| it.request_id),
        topic.as_ref().map(|it| it.request_id),
        parts.as_ref().map(|it| it.request_id),
        command
            .consumer_stats_response
            .as_ref()
            .map(|it| it.request_id),
        last.as_ref().map(|it| it.request_id),
    ];
    ids.into_iter().flatten().next()
}

async fn write(
    mut sink: futures::stream::SplitSink<Wire, Message>,
    mut queue: mpsc::UnboundedReceiver<Message>,
    ended: CancellationToken,
) {
    let writing = async {
        while let Some(first) = queue.recv().await {
            sink.feed(first).await?;
            while let Ok(next) = queue.try_recv() {
                sink.feed(next).await?;
            }
            sink.flush().await?;
        }
        Ok::<_, pulsar::error::ConnectionError>(())
    };
    tokio::select! {
        written = writing => if let Err(error) = written {
            tracing::debug!(%error, "writing to Pulsar failed");
        },
        () = ended.cancelled() => {}
    }
    ended.cancel();
}

async fn read(
    mut stream: futures::stream::SplitStream<Wire>,
    link: Arc<Link>,
    token: Option<super::options::Token>,
) {
    let mut asked = false;
    let why = loop {
        let limit = if asked { link.patience } else { QUIET };
        let next = tokio::select! {
            next = timeout(limit, stream.next()) => next,
            () = link.ended.cancelled() => break "it was closed".to_owned(),
        };
        match next {
            Ok(Some(Ok(message))) => {
                asked = false;
                if !link.dispatch(message, token.as_ref()) {
                    break "it is of no more use".to_owned();
                }
            }
            Ok(Some(Err(error))) => break error.to_string(),
            Ok(None) => break "the broker closed it".to_owned(),
            Err(_) if asked => break format!("no sign of life within {:?}", link.patience),
            Err(_) => {
                asked = true;
                link.ping(None);
            }
        }
    };
    link.end(&why);
}
