//! Where the responses of a run go: to the fleet's own topic, or to the one that the caller names in
//! the property `reply-to`, if operators allow it.
//!
//! A topic in the fleet's own tenant and namespace is known by its short name, however it is written.
//! A topic that the fleet works with itself is never allowed, whatever the patterns say: a response
//! there would be taken for work.

use crate::error::{Code, body};
use agentfleet_schema::ErrorBody;
use agentfleet_schema::topics::{self, Topic, property};
use std::collections::BTreeMap;

/// Longest name of a topic.
const MAX_TOPIC: usize = 256;
const SCHEMES: [&str; 2] = ["persistent://", "non-persistent://"];

/// The topics that callers may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyTopics {
    /// What a topic of ours begins with when it is written in full.
    home: String,
    patterns: Vec<String>,
    /// Every name of the topics that the fleet works with, short where they are at home.
    own: Vec<String>,
    /// Every name of the topic responses go to by default.
    default: Vec<String>,
}

impl ReplyTopics {
    /// `patterns` are names of topics in which `*` stands for any characters except `/`. `renamed`
    /// has the topics that are called otherwise on the server. `Err` is a pattern that is no name.
    pub fn new(
        tenant: &str,
        namespace: &str,
        patterns: &[String],
        renamed: &BTreeMap<Topic, String>,
    ) -> Result<Self, String> {
        let mut topics = Self {
            home: format!("persistent://{tenant}/{namespace}/"),
            ..Self::default()
        };
        for topic in topics::ALL {
            let names = [
                Some(topic.as_str()),
                renamed.get(&topic).map(String::as_str),
            ];
            let names = names.into_iter().flatten();
            let names: Vec<String> = names.map(|name| topics.short(name).to_owned()).collect();
            if topic == topics::AGENT_RESPONSE {
                topics.default.extend(names);
            } else {
                topics.own.extend(names);
            }
        }
        for pattern in patterns {
            let short = topics.short(pattern).to_owned();
            if !is_name(&short, true) {
                return Err(pattern.clone());
            }
            topics.patterns.push(short);
        }
        Ok(topics)
    }

    /// Where the responses to a message with these properties go.
    pub fn of(&self, properties: &BTreeMap<String, String>) -> Result<Topic, ErrorBody> {
        let named = properties.get(property::REPLY_TO).map(String::as_str);
        let Some(named) = named.filter(|name| !name.is_empty()) else {
            return Ok(topics::AGENT_RESPONSE);
        };
        let short = self.short(named);
        if self.default.iter().any(|name| name == short) {
            return Ok(topics::AGENT_RESPONSE);
        }
        let refused = |why: &str, hint: &str| body(Code::ReplyToNotAllowed, why, hint);
        if !is_name(short, false) {
            return Err(refused(
                "property `reply-to` is no name of a topic",
                "write `NAME` or `persistent://TENANT/NAMESPACE/NAME`",
            ));
        }
        let is_allowed = self.patterns.iter().any(|pattern| matches(pattern, short));
        if !is_allowed || self.is_own(short) {
            return Err(refused(
                &format!("property `reply-to` names `{named}`, which callers may not name"),
                "leave it out to read the fleet's own response topic, or have an operator allow it \
                 (setting `reply_to`)",
            ));
        }
        Ok(Topic::named(short))
    }

    fn short<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(self.home.as_str()).unwrap_or(name)
    }

    /// Whether the fleet works with it: by its name, as a partition, or as one of the topics that lie
    /// beside ours.
    fn is_own(&self, short: &str) -> bool {
        let whole = short
            .rsplit_once("-partition-")
            .map_or(short, |(whole, number)| {
                let is_partition = number.bytes().all(|byte| byte.is_ascii_digit());
                if is_partition { whole } else { short }
            });
        self.own.iter().chain(&self.default).any(|own| {
            whole.strip_prefix(own.as_str()).is_some_and(|rest| {
                rest.is_empty()
                    || (rest.starts_with('-')
                        && (rest.ends_with("-delayed") || rest.ends_with("-retry")))
            })
        })
    }
}

/// `NAME`, or a scheme with tenant, namespace and name.
fn is_name(text: &str, is_pattern: bool) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| {
                b.is_ascii_alphanumeric() || b"-_.=:%~".contains(&b) || (is_pattern && b == b'*')
            })
    };
    let scheme = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    text.len() <= MAX_TOPIC
        && match scheme {
            Some(path) => path.split('/').count() == 3 && path.split('/').all(is_part),
            None => is_part(text),
        }
}

/// Whether a name matches a pattern: `*` stands for any characters except `/`.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(before) else {
        return false;
    };
    let within = rest.find('/').unwrap_or(rest.len());
    (0..=within).any(|skip| rest.is_char_boundary(skip) && matches(after, &rest[skip..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::topics::AGENT_REQUEST;

    fn topics(patterns: &[&str]) -> ReplyTopics {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        let renamed = [(AGENT_REQUEST, "work".to_owned())].into();
        ReplyTopics::new("acme", "agents", &patterns, &renamed).unwrap()
    }

    fn of(topics: &ReplyTopics, name: &str) -> Option<String> {
        let properties = [(property::REPLY_TO.to_owned(), name.to_owned())].into();
        let named = topics.of(&properties);
        if let Err(error) = &named {
            assert_eq!(error.code, "reply-to-not-allowed");
        }
        named.ok().map(|topic| topic.as_str().to_owned())
    }

    #[test]
    fn without_the_property_responses_go_to_the_fleets_own_topic() {
        for topics in [topics(&[]), topics(&["*"]), ReplyTopics::default()] {
            assert_eq!(topics.of(&BTreeMap::new()).unwrap(), topics::AGENT_RESPONSE);
            assert_eq!(of(&topics, "").unwrap(), "agent-response");
        }
    }

    #[test]
    fn a_topic_is_allowed_by_a_pattern_however_it_is_written() {
        let allowed = topics(&["replies-*", "persistent://other/in*/answers", "*.one"]);
        let table = [
            ("replies-a", Some("replies-a")),
            ("replies-", Some("replies-")),
            ("persistent://acme/agents/replies-a", Some("replies-a")),
            ("a.one", Some("a.one")),
            (
                "persistent://other/in-7/answers",
                Some("persistent://other/in-7/answers"),
            ),
            ("agent-response", Some("agent-response")),
            (
                "persistent://acme/agents/agent-response",
                Some("agent-response"),
            ),
            ("replies", None),
            ("my-replies-a", None),
            ("persistent://other/in-7/else", None),
            ("persistent://other/in/more/answers", None),
            ("non-persistent://acme/agents/replies-a", None),
            ("acme/agents/replies-a", None),
            ("replies-a b", None),
            ("replies-\u{e9}", None),
        ];
        for (name, expected) in table {
            assert_eq!(of(&allowed, name).as_deref(), expected, "{name}");
        }
        assert_eq!(of(&topics(&[]), "replies-a"), None);
        assert_eq!(of(&ReplyTopics::default(), "replies-a"), None);
    }

    #[test]
    fn what_the_fleet_works_with_is_never_allowed() {
        let all = topics(&["*", "persistent://acme/agents/*"]);
        for name in [
            "agent-request",
            "work",
            "persistent://acme/agents/work",
            "work-partition-3",
            "work-delayed",
            "agent-request-orchestrator-retry",
            "agent-request-orchestrator-retry-partition-0",
            "explainability",
            "agent-deadline",
            "dead-letter",
            "config-changes",
        ] {
            assert_eq!(of(&all, name), None, "{name}");
        }
        for name in ["work-partition-x", "worker", "work-answers"] {
            assert_eq!(of(&all, name).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_pattern_that_is_no_name_is_refused() {
        for wrong in [
            "",
            "a b",
            "tenant/ns/name",
            "http://a/b/c",
            "persistent://a/b",
        ] {
            let patterns = [wrong.to_owned()];
            let made = ReplyTopics::new("t", "n", &patterns, &BTreeMap::new());
            assert_eq!(made.unwrap_err(), wrong);
        }
    }
}
