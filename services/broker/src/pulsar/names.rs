//! What our topics are called on Pulsar.
//!
//! Beside every topic lie two that we make ourselves, so that what waits for its time does not
//! count as work to be done (operators scale workers on the backlog of the topic itself):
//! - `<topic>-delayed`: what was published with a time of delivery. Every subscription reads it
//!   too. The deadline topic has none: all its messages are delayed.
//! - `<topic>-<subscription>-retry`: what was handed back, for that subscription alone.

use super::options::PulsarOptions;
use agentfleet_schema::topics::{self, DEADLINE, Topic};
use std::collections::BTreeMap;

/// What lies on a topic that a subscription reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// What can be worked now.
    Work,
    /// What waits for its time, or came to it.
    Delayed,
    /// What the subscription handed back.
    Copies,
}

/// A topic that a subscription reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) topic: String,
    pub(super) carries: Carries,
}

#[derive(Debug)]
pub(super) struct Names {
    tenant: String,
    namespace: String,
    own: BTreeMap<Topic, String>,
}

impl Names {
    pub(super) fn new(options: &PulsarOptions) -> Self {
        Self {
            tenant: options.tenant.clone(),
            namespace: options.namespace.clone(),
            own: options.names.clone(),
        }
    }

    /// The full name: one that already has a domain is taken as it is.
    pub(super) fn full(&self, topic: &Topic) -> String {
        let name = self.own.get(topic).map_or(topic.as_str(), String::as_str);
        if name.contains("://") {
            return name.to_owned();
        }
        format!("persistent://{}/{}/{name}", self.tenant, self.namespace)
    }

    /// Whether a full name is that of a topic of the fleet, or of one beside it.
    pub(super) fn is_own(&self, full: &str) -> bool {
        topics::ALL.iter().any(|own| {
            let rest = full.strip_prefix(&self.full(own));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }

    /// Where messages with a time of delivery go.
    pub(super) fn delayed(&self, topic: &Topic) -> String {
        let full = self.full(topic);
        if *topic == DEADLINE {
            full
        } else {
            format!("{full}-delayed")
        }
    }

    /// Where messages go that a subscription handed back.
    pub(super) fn retry(&self, topic: &Topic, subscription: &str) -> String {
        format!("{}-{}-retry", self.full(topic), escaped(subscription))
    }

    /// Every topic that a subscription reads.
    pub(super) fn lanes(&self, topic: &Topic, subscription: &str) -> Vec<Lane> {
        let lane = |topic, carries| Lane { topic, carries };
        let (full, delayed) = (self.full(topic), self.delayed(topic));
        let mut lanes = Vec::new();
        if delayed != full {
            lanes.push(lane(full, Carries::Work));
        }
        lanes.push(lane(delayed, Carries::Delayed));
        lanes.push(lane(self.retry(topic, subscription), Carries::Copies));
        lanes
    }
}

/// Topics may not have every character that subscriptions may.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("={byte:02x}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::topics::{AGENT_REQUEST, EXPLAINABILITY};

    #[test]
    fn topics_are_named_by_tenant_and_namespace_or_as_the_operator_says() {
        let mut options = PulsarOptions::new("pulsar://one");
        options.tenant = "acme".to_owned();
        options.namespace = "agents".to_owned();
        options.names = [
            (EXPLAINABILITY, "provenance".to_owned()),
            (DEADLINE, "persistent://other/place/due".to_owned()),
        ]
        .into();
        let names = Names::new(&options);
        let base = "persistent://acme/agents";
        let table = [
            (names.full(&AGENT_REQUEST), format!("{base}/agent-request")),
            (
                names.delayed(&AGENT_REQUEST),
                format!("{base}/agent-request-delayed"),
            ),
            (names.full(&EXPLAINABILITY), format!("{base}/provenance")),
            (
                names.delayed(&DEADLINE),
                "persistent://other/place/due".to_owned(),
            ),
            (
                names.retry(&AGENT_REQUEST, "only a=b"),
                format!("{base}/agent-request-only=20a=3db-retry"),
            ),
            (
                names.full(&Topic::named("persistent://callers/one/replies")),
                "persistent://callers/one/replies".to_owned(),
            ),
        ];
        for (named, expected) in table {
            assert_eq!(named, expected);
        }
        for own in [
            "persistent://acme/agents/provenance",
            "persistent://other/place/due-x-retry",
        ] {
            assert!(names.is_own(own), "{own}");
        }
        assert!(!names.is_own("persistent://acme/agents/provenances"));
    }

    #[test]
    fn a_subscription_reads_its_topic_and_beside_it_what_was_delayed_and_handed_back() {
        let names = Names::new(&PulsarOptions::new("pulsar://one"));
        let told = |topic: &Topic| -> Vec<String> {
            let lanes = names.lanes(topic, "workers").into_iter();
            let told = |lane: Lane| {
                let name = lane.topic.rsplit('/').next().unwrap_or_default().to_owned();
                format!("{name}: {:?}", lane.carries)
            };
            lanes.map(told).collect()
        };
        assert_eq!(
            told(&AGENT_REQUEST),
            [
                "agent-request: Work",
                "agent-request-delayed: Delayed",
                "agent-request-workers-retry: Copies"
            ]
        );
        let deadline = DEADLINE.to_string();
        assert_eq!(
            told(&DEADLINE),
            [
                format!("{deadline}: Delayed"),
                format!("{deadline}-workers-retry: Copies")
            ]
        );
    }
}
