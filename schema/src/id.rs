//! Newtypes for every id, so that a session is never passed where a correlation is meant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use std::fmt;
use uuid::Uuid;

/// Name space of every id this product derives; fixed for ever, because ids must be reproducible.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f3d_2c1e_8a47_5b90_9d4e_1f0a_7c26_b853);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id!(
    /// One agent execution: a root request or one subagent.
    SessionId
);
text_id!(
    /// Groups the siblings of one fan-out; the same on every replay.
    CorrelationId
);
text_id!(
    /// Groups requests of one conversation; made by the caller.
    ConversationId
);
text_id!(
    /// One streamed message of one attempt; groups chunks.
    MessageId
);
text_id!(
    /// One call that waits for a person; the same on every replay.
    ApprovalId
);
text_id!(
    /// Scopes what tools may see and where provenance is found.
    CollectionName
);

impl SessionId {
    /// Longest id a caller may choose, in bytes.
    pub const MAX: usize = 128;

    /// The session of a request that names none: the same for every redelivery of that request.
    ///
    /// `parts` are tenant, user and the caller's `id`, or topic and message id where it has none.
    pub fn derive(parts: &[&str]) -> Self {
        Self(derive("session", parts))
    }

    /// The session of a request that names none: from the caller's `id` where there is one, because
    /// a producer that publishes twice means one request; else from the message itself.
    pub fn unnamed(caller_id: Option<&str>, user: &str, topic: &str, message_id: &str) -> Self {
        match caller_id {
            Some(id) if !id.is_empty() => Self::derive(&["", user, id]),
            _ => Self::derive(&[topic, message_id]),
        }
    }

    /// Whether a caller may choose it: it becomes part of keys, URIs and URLs as it is.
    pub fn is_well_formed(&self) -> bool {
        let text = self.as_str();
        text.len() <= Self::MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.~:".contains(&b))
    }

    /// The session of the child at `index` of the fan-out committed at `step` of `parent` by the
    /// attempt with `nonce`. Nobody can post a request of that session before the fan-out is committed.
    /// Versions that took no nonce gave an empty one.
    pub fn child(parent: &SessionId, step: u32, index: u32, nonce: &str) -> Self {
        let (step, index) = (step.to_string(), index.to_string());
        let mut parts = vec![parent.as_str(), &step, &index];
        parts.extend(Some(nonce).filter(|nonce| !nonce.is_empty()));
        Self(derive("child", &parts))
    }
}

impl CorrelationId {
    /// The correlation of the fan-out at `step` of `session`: a re-iteration cannot collide.
    pub fn of_fan_out(session: &SessionId, step: u32) -> Self {
        Self(derive(
            "correlation",
            &[session.as_str(), &step.to_string()],
        ))
    }
}

impl ApprovalId {
    /// The approval of the call numbered `call` at `step` of `session`.
    pub fn of_call(session: &SessionId, step: u32, call: u32) -> Self {
        Self(derive(
            "approval",
            &[session.as_str(), &step.to_string(), &call.to_string()],
        ))
    }
}

impl MessageId {
    /// The message of one kind that one attempt at a step streams or says.
    pub fn of_attempt(nonce: &str, kind: &str) -> Self {
        Self(derive("message", &[nonce, kind]))
    }
}

fn derive(role: &str, parts: &[&str]) -> String {
    let mut name = role.to_owned();
    for part in parts {
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        name.push_str(&format!("\u{1f}{}:{part}", part.len()));
    }
    Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string()
}

/// Bytes in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// SHA-256 of some bytes, in lower-case hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&sha2::Sha256::digest(bytes)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_are_stable_and_do_not_collide() {
        let parent = SessionId::new("s");
        assert_eq!(
            SessionId::child(&parent, 1, 0, "n"),
            SessionId::child(&parent, 1, 0, "n")
        );
        assert_ne!(
            SessionId::child(&parent, 1, 0, "n"),
            SessionId::child(&parent, 1, 1, "n")
        );
        assert_ne!(
            SessionId::child(&parent, 1, 11, "n"),
            SessionId::child(&parent, 11, 1, "n")
        );
        assert_ne!(
            SessionId::child(&parent, 1, 0, "n"),
            SessionId::child(&parent, 1, 0, "m"),
            "another attempt has other children"
        );
        assert_ne!(
            SessionId::derive(&["a", "bc"]),
            SessionId::derive(&["ab", "c"])
        );
        assert_ne!(
            CorrelationId::of_fan_out(&parent, 1).as_str(),
            CorrelationId::of_fan_out(&parent, 2).as_str()
        );
    }

    #[test]
    fn digest_is_sha256_in_hex() {
        assert_eq!(
            Digest::of(b"abc").as_str(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
