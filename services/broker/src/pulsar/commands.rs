//! The commands of Pulsar's protocol that we send, spelled out.

use pulsar::message::Message;
use pulsar::proto::base_command::Type;
use pulsar::proto::command_ack::AckType;
use pulsar::proto::command_subscribe::{InitialPosition, SubType};
use pulsar::proto::{self, BaseCommand, MessageIdData, MessageMetadata};

/// The version of the protocol that we speak: what a broker since Pulsar 2.4 understands.
const PROTOCOL: i32 = 15;

fn command(kind: Type, fill: impl FnOnce(&mut BaseCommand)) -> Message {
    let mut command = BaseCommand {
        r#type: kind as i32,
        ..BaseCommand::default()
    };
    fill(&mut command);
    Message {
        command,
        payload: None,
    }
}

/// Opens a connection; `proxied` is the broker that a proxy should pass it on to.
pub(super) fn connect(token: Option<&str>, proxied: Option<String>) -> Message {
    command(Type::Connect, |command| {
        command.connect = Some(proto::CommandConnect {
            client_version: concat!("agentfleet ", env!("CARGO_PKG_VERSION")).to_owned(),
            auth_method_name: token.map(|_| "token".to_owned()),
            auth_data: token.map(|token| token.as_bytes().to_vec()),
            protocol_version: Some(PROTOCOL),
            proxy_to_broker_url: proxied,
            feature_flags: Some(proto::FeatureFlags {
                supports_auth_refresh: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        });
    })
}

pub(super) fn authenticate(token: &str) -> Message {
    command(Type::AuthResponse, |command| {
        command.auth_response = Some(proto::CommandAuthResponse {
            response: Some(proto::AuthData {
                auth_method_name: Some("token".to_owned()),
                auth_data: Some(token.as_bytes().to_vec()),
            }),
            protocol_version: Some(PROTOCOL),
            ..Default::default()
        });
    })
}

pub(super) fn ping() -> Message {
    command(Type::Ping, |command| {
        command.ping = Some(proto::CommandPing {});
    })
}

pub(super) fn pong() -> Message {
    command(Type::Pong, |command| {
        command.pong = Some(proto::CommandPong {});
    })
}

pub(super) fn lookup(request_id: u64, topic: &str, authoritative: bool) -> Message {
    command(Type::Lookup, |command| {
        command.lookup_topic = Some(proto::CommandLookupTopic {
            topic: topic.to_owned(),
            request_id,
            authoritative: Some(authoritative),
            ..Default::default()
        });
    })
}

pub(super) fn partitions(request_id: u64, topic: &str) -> Message {
    command(Type::PartitionedMetadata, |command| {
        command.partition_metadata = Some(proto::CommandPartitionedTopicMetadata {
            topic: topic.to_owned(),
            request_id,
            ..Default::default()
        });
    })
}

pub(super) fn producer(request_id: u64, producer_id: u64, topic: &str) -> Message {
    command(Type::Producer, |command| {
        command.producer = Some(proto::CommandProducer {
            topic: topic.to_owned(),
            producer_id,
            request_id,
            ..Default::default()
        });
    })
}

pub(super) fn close_producer(request_id: u64, producer_id: u64) -> Message {
    command(Type::CloseProducer, |command| {
        command.close_producer = Some(proto::CommandCloseProducer {
            producer_id,
            request_id,
        });
    })
}

pub(super) fn send(
    producer_id: u64,
    sequence_id: u64,
    metadata: MessageMetadata,
    data: Vec<u8>,
) -> Message {
    let mut message = command(Type::Send, |command| {
        command.send = Some(proto::CommandSend {
            producer_id,
            sequence_id,
            num_messages: Some(metadata.num_messages_in_batch.unwrap_or(1)),
            ..Default::default()
        });
    });
    message.payload = Some(pulsar::Payload { metadata, data });
    message
}

/// Competing consumers on a durable subscription that begins with the first message there is.
pub(super) fn subscribe(
    request_id: u64,
    consumer_id: u64,
    topic: &str,
    subscription: &str,
) -> Message {
    command(Type::Subscribe, |command| {
        command.subscribe = Some(proto::CommandSubscribe {
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            sub_type: SubType::Shared as i32,
            consumer_id,
            request_id,
            // For people who look at the broker's statistics.
            consumer_name: Some(format!("agentfleet-{}-{consumer_id}", std::process::id())),
            durable: Some(true),
            initial_position: Some(InitialPosition::Earliest as i32),
            force_topic_creation: Some(true),
            ..Default::default()
        });
    })
}

/// A reader that leaves nothing behind and begins after `start`.
pub(super) fn read_from(
    request_id: u64,
    consumer_id: u64,
    topic: &str,
    name: &str,
    start: MessageIdData,
) -> Message {
    command(Type::Subscribe, |command| {
        command.subscribe = Some(proto::CommandSubscribe {
            topic: topic.to_owned(),
            subscription: name.to_owned(),
            sub_type: SubType::Exclusive as i32,
            consumer_id,
            request_id,
            durable: Some(false),
            start_message_id: Some(start),
            force_topic_creation: Some(true),
            ..Default::default()
        });
    })
}

pub(super) fn close_consumer(request_id: u64, consumer_id: u64) -> Message {
    command(Type::CloseConsumer, |command| {
        command.close_consumer = Some(proto::CommandCloseConsumer {
            consumer_id,
            request_id,
        });
    })
}

/// Lets the broker send that many messages more.
pub(super) fn flow(consumer_id: u64, message_permits: u32) -> Message {
    command(Type::Flow, |command| {
        command.flow = Some(proto::CommandFlow {
            consumer_id,
            message_permits,
        });
    })
}

pub(super) fn ack(consumer_id: u64, id: MessageIdData, kind: AckType) -> Message {
    command(Type::Ack, |command| {
        command.ack = Some(proto::CommandAck {
            consumer_id,
            ack_type: kind as i32,
            message_id: vec![id],
            ..Default::default()
        });
    })
}

/// Hands a message back: the broker gives it to any consumer, at once.
pub(super) fn redeliver(consumer_id: u64, id: MessageIdData) -> Message {
    command(Type::RedeliverUnacknowledgedMessages, |command| {
        command.redeliver_unacknowledged_messages =
            Some(proto::CommandRedeliverUnacknowledgedMessages {
                consumer_id,
                message_ids: vec![id],
                ..Default::default()
            });
    })
}

pub(super) fn consumer_stats(request_id: u64, consumer_id: u64) -> Message {
    command(Type::ConsumerStats, |command| {
        command.consumer_stats = Some(proto::CommandConsumerStats {
            request_id,
            consumer_id,
        });
    })
}

pub(super) fn last_message(request_id: u64, consumer_id: u64) -> Message {
    command(Type::GetLastMessageId, |command| {
        command.get_last_message_id = Some(proto::CommandGetLastMessageId {
            consumer_id,
            request_id,
        });
    })
}
