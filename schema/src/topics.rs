//! The topics and subscriptions of the fleet, by role. Names here are the short ones; a broker that
//! has tenants and namespaces (Apache Pulsar) prefixes them.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A topic by its short name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topic(Cow<'static, str>);

impl Topic {
    pub const fn fixed(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }
    pub fn named(name: impl Into<String>) -> Self {
        Self(Cow::Owned(name.into()))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The topic that an item of the config names: in full, as `persistent://tenant/namespace/topic`, or by a queue
    /// id, as `request:tenant:topic`.
    pub fn of_queue(queue: &str) -> Result<Self, String> {
        let says = || {
            format!(
                "must be `CLASS:TENANT:TOPIC`, with the class `request`, `response`, `flow` or `notify`, or a topic in \
                 full, as `persistent://tenant/namespace/topic`; it is `{queue}`"
            )
        };
        let full = if queue.contains("://") {
            queue.to_owned()
        } else {
            let mut parts = queue.splitn(3, ':');
            let (class, tenant) = (parts.next(), parts.next());
            let domain = match class {
                Some("flow") => "persistent",
                Some("request" | "response" | "notify") => "non-persistent",
                _ => return Err(says()),
            };
            let (class, tenant) = (class.unwrap_or_default(), tenant.unwrap_or_default());
            let topic = parts.next().unwrap_or_default();
            format!("{domain}://{tenant}/{class}/{topic}")
        };
        let (domain, rest) = full.split_once("://").ok_or_else(says)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let is_part =
            |part: &&str| !part.is_empty() && !part.contains(|c: char| c.is_control() || c == ' ');
        let is_whole = parts.len() == 3 && parts.iter().all(is_part);
        if is_whole && ["persistent", "non-persistent"].contains(&domain) {
            Ok(Self::named(full))
        } else {
            Err(says())
        }
    }

    /// Whether its name, whatever lies before it, is that of a topic of the fleet, or of one that a broker makes
    /// beside it.
    pub fn is_of_fleet(&self) -> bool {
        let name = self.0.rsplit('/').next().unwrap_or_default();
        let is_beside = |own: &Self| {
            let rest = name.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        ALL.iter().any(is_beside)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Work: every `AgentRequest`, whether from a caller, a worker's next step, a fan-out or a verdict.
pub const AGENT_REQUEST: Topic = Topic::fixed("agent-request");
/// What callers read: `AgentResponse` chunks of every session, keyed by the root session.
pub const AGENT_RESPONSE: Topic = Topic::fixed("agent-response");
/// Provenance: one `Triples` message for each committed step.
pub const EXPLAINABILITY: Topic = Topic::fixed("explainability");
/// Delayed messages: fan-out joins, hard deadlines and approvals that nobody gave come due here.
pub const DEADLINE: Topic = Topic::fixed("agent-deadline");
/// Retained notices that the config has a new version, where it is kept among the documents.
pub const CONFIG_CHANGES: Topic = Topic::fixed("config-changes");
/// Deliveries that failed too often; the undertaker is its only consumer.
pub const DEAD_LETTER: Topic = Topic::fixed("dead-letter");

/// Every topic of the fleet.
pub const ALL: [Topic; 6] = [
    AGENT_REQUEST,
    AGENT_RESPONSE,
    EXPLAINABILITY,
    DEADLINE,
    CONFIG_CHANGES,
    DEAD_LETTER,
];

/// Subscription names: stable, so that replicas share them.
pub mod subscription {
    pub const ORCHESTRATOR: &str = "orchestrator";
    pub const AGGREGATOR: &str = "aggregator";
    pub const GRAPH_WRITER: &str = "graph-writer";
    pub const UNDERTAKER: &str = "undertaker";
}

/// Message properties. `ID` is the caller's own and returns on every message of the run.
pub mod property {
    pub const ID: &str = "id";
    pub const SESSION: &str = "session";
    pub const STEP: &str = "step";
    pub const ROOT: &str = "root";
    /// Whose run it is, on what is told to the graph; absent for the owner's.
    pub const TENANT: &str = "tenant";
    /// Token of an issuer that says for whom a producer asks.
    pub const CLAIM: &str = "claim";
    /// Shows that a request comes from the fleet itself.
    pub const SIGNATURE: &str = "signature";
    pub const CORRELATION: &str = "correlation";
    pub const PARENT: &str = "parent";
    pub const PARENT_STEP: &str = "parent-step";
    pub const INDEX: &str = "index";
    pub const KIND: &str = "kind";
    /// The topic a caller wants the responses of its run on.
    pub const REPLY_TO: &str = "reply-to";
    pub const TRACEPARENT: &str = "traceparent";
    /// Properties of a caller's that every message of its run carries on.
    pub const CARRIED: [&str; 3] = [ID, REPLY_TO, TRACEPARENT];
    /// Longest value of those, in bytes.
    pub const MAX_CARRIED: usize = 1024;
    /// Longest id of a message, in bytes: it becomes part of keys.
    pub const MAX_ID: usize = 256;
    pub const REASON: &str = "reason";
    pub const ORIGIN: &str = "origin-topic";
    /// Id of the message that this one is a copy of: one that was put back, or is a dead letter.
    pub const ORIGIN_MESSAGE: &str = "origin-message";
    /// When a message that was put back came first, in milliseconds since the epoch.
    pub const SINCE: &str = "since";
    /// The attempts that a message was put back for, each with what it said last, separated by commas.
    pub const WAITED_FOR: &str = "waited-for";
    /// How long the step of a message waits for its model, and why.
    pub const MODEL_AWAY: &str = "model-away";
    /// When the message must take effect, in milliseconds since the epoch.
    pub const DUE: &str = "due";
    /// The same on every try of a call, on requests to tool services.
    pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
    /// When nobody waits for an answer any more, in milliseconds since the epoch.
    pub const EXPIRES: &str = "expires";

    /// Values of [`KIND`].
    pub const KIND_STEP: &str = "step";
    pub const KIND_COMPLETION: &str = "completion";
    pub const KIND_JOIN: &str = "join";
    pub const KIND_HARD: &str = "hard";
    /// As [`KIND_HARD`], for a run that has no step yet; one that has sets its own.
    pub const KIND_UNBEGUN: &str = "unbegun";
    /// Ends the run of the session a message names, on the topic of requests and, from there, on that
    /// of deadlines.
    pub const KIND_CANCEL: &str = "cancel";
    /// Who cancels.
    pub const BY: &str = "by";
    pub const KIND_APPROVAL: &str = "approval";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_name_topics_in_full_or_by_an_id() {
        for (queue, topic) in [
            ("request:tg:sums", "non-persistent://tg/request/sums"),
            ("response:tg:a:b:c", "non-persistent://tg/response/a:b:c"),
            ("flow:tg:sums", "persistent://tg/flow/sums"),
            ("notify:tg:sums", "non-persistent://tg/notify/sums"),
            ("persistent://a/b/c", "persistent://a/b/c"),
        ] {
            assert_eq!(Topic::of_queue(queue), Ok(Topic::named(topic)));
        }
        for wrong in [
            "",
            "sums",
            "request:tg",
            "request::sums",
            "request:tg:",
            "task:tg:sums",
            "http://a/b/c",
            "persistent://a/b",
            "persistent://a/b/c/d",
            "persistent://a/b/c d",
        ] {
            let end = format!("it is `{wrong}`");
            let refused = Topic::of_queue(wrong);
            assert!(
                refused.as_ref().is_err_and(|says| says.ends_with(&end)),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn topics_of_the_fleet_are_known_wherever_they_lie() {
        for (name, expected) in [
            ("agent-request", true),
            ("persistent://public/default/agent-request", true),
            ("persistent://x/y/agent-request-delayed", true),
            ("persistent://x/y/agent-request-partition-0", true),
            ("persistent://x/y/dead-letter", true),
            ("persistent://agent-request/y/sums", false),
            ("non-persistent://tg/request/agent:default", false),
            ("persistent://x/y/agent-requests", false),
        ] {
            assert_eq!(Topic::named(name).is_of_fleet(), expected, "{name}");
        }
    }
}
