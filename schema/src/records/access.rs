//! Who may come in, what was refused, and what is remembered for whom.

use crate::{Digest, Millis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do at a door.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Ask, and read what became of it.
    Producer,
    /// All that a producer may, and end runs and see the fleet.
    Operator,
    /// Read traces, texts and the graph.
    Analyst,
    /// Answer calls that wait for a person.
    Approver,
}

impl Role {
    pub const ALL: [Self; 4] = [
        Self::Producer,
        Self::Operator,
        Self::Analyst,
        Self::Approver,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Operator => "operator",
            Self::Analyst => "analyst",
            Self::Approver => "approver",
        }
    }
}

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
    pub roles: Vec<Role>,
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
