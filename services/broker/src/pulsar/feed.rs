//! One topic's stream of messages into a subscription's intake.
//!
//! A feed lives as long as its consumer. Whenever its stream ends (the connection, a topic that
//! moved to another broker, a refusal) it opens it again, with growing pauses and without end: what
//! was not acknowledged comes again by itself. A stream that may receive and stays silent although
//! the broker says that something waits is opened again too.

use super::cluster::Cluster;
use super::commands;
use super::consumer::Intake;
use super::holdings::{Holdings, Terms};
use super::link::Arrival;
use super::parcel::{self, Unreadable};
use super::publisher::{self, Publisher};
use super::stream::Stream;
use super::streams::Streams;
use pulsar::proto::command_ack::AckType;
use pulsar::proto::{KeyValue, MessageMetadata};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What a feed works with.
pub(super) struct Feed {
    pub(super) cluster: Arc<Cluster>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) holdings: Arc<Holdings>,
    pub(super) intake: Arc<Intake>,
    pub(super) terms: Arc<Terms>,
    pub(super) topic: String,
    pub(super) subscription: String,
    pub(super) only: Option<(String, String)>,
    /// Whether it brings copies of what was handed back.
    pub(super) copies: bool,
    /// After so long without a message the broker is asked whether there is one; a topic of
    /// delayed messages always has some.
    pub(super) silence: Option<Duration>,
    /// Where it tells what becomes of its stream.
    pub(super) streams: Arc<Streams>,
    pub(super) stop: CancellationToken,
    /// Who closes the broker waits for its end.
    pub(super) _task: TaskTrackerToken,
}

impl Feed {
    /// Feeds until the consumer is dropped, or the broker is closed.
    pub(super) async fn run(self, mut stream: Stream) {
        let listed = self.streams.list(&self.topic, &self.subscription, &stream);
        let witness = self.cluster.outage.witness();
        loop {
            if self.serve(&mut stream).await {
                // Without an answer the connection is gone, and others have everything as well.
                let _ = stream.close().await;
                return;
            }
            // Everything that came this way and is not settled is with others soon.
            self.holdings.lost(stream.id);
            self.intake.lost(stream.id);
            listed.missing("its stream ended");
            drop(stream);
            let mut backoff = self.cluster.backoff();
            stream = loop {
                tokio::select! {
                    opened = Stream::open(&self.cluster, &self.topic, &self.subscription) => match opened {
                        Ok(stream) => break stream,
                        Err(error) => {
                            witness.failed(&error);
                            listed.missing(&error.to_string());
                        }
                    },
                    () = self.stop.cancelled() => return,
                }
                tokio::select! {
                    () = tokio::time::sleep(backoff.next()) => {}
                    () = self.stop.cancelled() => return,
                }
            };
            stream.reopened_at = Some(publisher::now());
            listed.opened(&stream);
            witness.well();
            // One line for each topic: the outage itself is told once for all of them.
            tracing::debug!(
                topic = self.topic,
                subscription = self.subscription,
                "receiving again"
            );
        }
    }

    /// Serves a stream until it ends; `true` if nobody wants it any more.
    async fn serve(&self, stream: &mut Stream) -> bool {
        let mut room = self.intake.room();
        let mut heard = Instant::now();
        let mut suspicious = false;
        loop {
            // Not in one expression: the borrow must end before the intake is looked at.
            let wanted = *room.borrow_and_update();
            self.permit(stream, wanted);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return true,
                arrival = stream.arrivals.recv() => match arrival {
                    Some(arrival) => {
                        (heard, suspicious) = (Instant::now(), false);
                        self.take(stream, arrival);
                    }
                    None => return false,
                },
                changed = room.changed() => if changed.is_err() {
                    return true;
                },
                () = quiet(heard, self.silence), if stream.permits > 0 => {
                    // Once may be a coincidence: others of the subscription work on the backlog.
                    if self.starves(stream).await {
                        if suspicious {
                            tracing::warn!(topic = self.topic, "silence although messages wait; opening anew");
                            return false;
                        }
                        suspicious = true;
                    } else {
                        suspicious = false;
                    }
                    heard = Instant::now();
                }
            }
        }
    }

    /// Lets the broker send as much as there is room for; half of it is not worth a command.
    fn permit(&self, stream: &mut Stream, room: usize) {
        let wanted = room.saturating_sub(self.intake.waiting());
        if wanted > 0 && stream.permits <= wanted / 2 {
            let more = wanted - stream.permits;
            stream.link.send(commands::flow(stream.id, more as u32));
            stream.permits = wanted;
        }
    }

    fn take(&self, stream: &mut Stream, arrival: Arrival) {
        if self.is_for_others(&arrival.payload.metadata) {
            // Neither copied nor unpacked.
            stream.permits = stream.permits.saturating_sub(1);
            let id = arrival.command.message_id;
            let link = &stream.link;
            link.send(commands::ack(stream.id, id, AckType::Individual));
            return;
        }
        match parcel::open(&stream.link, stream.id, arrival, self.copies) {
            Ok(messages) => {
                stream.permits = stream.permits.saturating_sub(messages.len());
                for mut message in messages {
                    message.reopened_at = stream.reopened_at;
                    let wanted = self.only.as_ref().is_none_or(|(key, value)| {
                        let found = message.properties.get(key);
                        found.is_none_or(|found| found == value)
                    });
                    if wanted {
                        self.intake.bring(message);
                    } else {
                        message.entry.settle();
                    }
                }
            }
            Err(unreadable) => {
                stream.permits = stream.permits.saturating_sub(1);
                self.park(*unreadable);
            }
        }
    }

    /// Whether an entry of one message says that this subscription does not want it.
    fn is_for_others(&self, metadata: &MessageMetadata) -> bool {
        let Some((key, value)) = &self.only else {
            return false;
        };
        let says_otherwise = |pair: &KeyValue| pair.key == *key && pair.value != *value;
        metadata.num_messages_in_batch.is_none() && metadata.properties.iter().any(says_otherwise)
    }

    /// What cannot be read goes to the dead-letter topic as it lies.
    fn park(&self, unreadable: Unreadable) {
        let (publisher, terms) = (Arc::clone(&self.publisher), Arc::clone(&self.terms));
        tokio::spawn(async move {
            let Unreadable { reason, arrived } = unreadable;
            match publisher.bury(&terms.topic, &arrived, &reason).await {
                Ok(()) => arrived.entry.settle(),
                Err(error) => {
                    tracing::warn!(%error, "cannot park a message that cannot be read");
                    arrived.entry.give_back();
                }
            }
        });
    }

    /// Whether the broker says that something waits for this stream.
    async fn starves(&self, stream: &Stream) -> bool {
        match stream.link.consumer_stats(stream.id).await {
            Ok(stats) => stats.waiting > stats.in_hands,
            // It does not answer, or does not know the consumer.
            Err(_) => true,
        }
    }
}

async fn quiet(since: Instant, silence: Option<Duration>) {
    match silence {
        Some(silence) => sleep_until(since + silence).await,
        None => std::future::pending().await,
    }
}
