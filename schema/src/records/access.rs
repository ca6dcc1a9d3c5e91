//! Who may come in, what was refused, and what is remembered for whom.

use crate::{Digest, Millis, Money};
use serde::{Deserialize, Serialize};

/// `api-keys/{id}`: a key to a door. The secret itself is nowhere: only its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyRecord {
    /// The part of the key that is no secret.
    pub id: String,
    /// SHA-256 of the whole key.
    pub digest: Digest,
    /// Who it is given to.
    pub name: String,
    pub tenant: String,
    /// Names of roles; those that there are no more allow nothing.
    pub roles: Vec<String>,
    /// Which tools with a permission its runs may call, as globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<String>,
    /// Most requests a minute that it may send; absent means the gateway's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    pub created_at: Millis,
    /// When it stops to count; 0 means never.
    #[serde(default)]
    pub expires_at: Millis,
    /// When it was revoked; 0 means it was not. It is read from the record that a revocation leaves beside this one.
    #[serde(skip)]
    pub revoked_at: Millis,
}

/// `api-keys/{id}/revoked`: an API key counts no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedRecord {
    pub at: Millis,
    pub by: String,
}

/// `audit/{instant}-{id}`: something refused, changed or answered, and by whom. The id is the beginning of the
/// entry's own hash, and each entry names the hash of the one before it that its writer knew: so one that is
/// changed or lost shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Millis,
    /// Who, as the door knows them; `nobody` where it does not.
    pub principal: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// What was done or asked for, such as `GET /sessions/{id}`, `config put`, `approve`.
    pub action: String,
    /// What it was about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// `allowed` or `refused`.
    pub outcome: String,
    /// Why, where it was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// SHA-256 of the entry before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
}

/// `memories/...`: a preference or a fact that outlives a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRecord {
    pub name: String,
    pub value: String,
    #[serde(default)]
    pub tenant: String,
    /// Empty for what all of the tenant share.
    #[serde(default)]
    pub user: String,
    pub written_at: Millis,
    /// The session that had it remembered; empty if a person did.
    #[serde(default)]
    pub session: String,
    /// When it is forgotten; 0 means never.
    #[serde(default)]
    pub expires_at: Millis,
}

/// `usage/...`: what one step of a tenant used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// 1 of the first step of a root, else 0.
    pub runs: u64,
    pub tokens: u64,
    pub cost: Money,
}

impl Used {
    pub fn add(&mut self, other: Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.tokens = self.tokens.saturating_add(other.tokens);
        let cost = self.cost.as_millionths();
        self.cost = Money::millionths(cost.saturating_add(other.cost.as_millionths()));
    }
}
