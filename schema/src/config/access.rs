//! `role` and `tenant` items: who may do what at a door, and how much a tenant may use.

use super::{Snapshot, permits};
use crate::Money;
use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;

/// What a role may allow at a door.
pub mod action {
    pub const ASK: &str = "ask";
    pub const SESSION_READ: &str = "session.read";
    pub const SESSION_EVENTS: &str = "session.events";
    pub const SESSION_LIST: &str = "session.list";
    pub const SESSION_CANCEL: &str = "session.cancel";
    pub const CONVERSATION_READ: &str = "conversation.read";
    pub const TRACE_READ: &str = "trace.read";
    pub const DOCUMENT_READ: &str = "document.read";
    pub const APPROVAL_LIST: &str = "approval.list";
    pub const APPROVAL_ANSWER: &str = "approval.answer";
    pub const GRAPH_QUERY: &str = "graph.query";
    pub const ALL: &[&str] = &[
        ASK,
        SESSION_READ,
        SESSION_EVENTS,
        SESSION_LIST,
        SESSION_CANCEL,
        CONVERSATION_READ,
        TRACE_READ,
        DOCUMENT_READ,
        APPROVAL_LIST,
        APPROVAL_ANSWER,
        GRAPH_QUERY,
    ];
}

/// `role`: what its holders may do. In each list `*` stands for any characters of a name.
#[apply(
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleItem {
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Actions at a door: `ask`, `session.read`, `session.events`, `session.list`, `session.cancel`,
    /// `conversation.read`, `trace.read`, `document.read`, `approval.list`, `approval.answer`, `graph.query`.
    pub may: Vec<String>,
    /// Permissions that runs of its holders have, beside those of their key or token.
    pub permissions: Vec<String>,
    /// Tools whose calls its holders may approve, deny or edit.
    pub approves: Vec<String>,
    /// Tenants whose data its holders see, beside their own.
    pub tenants: Vec<String>,
}

impl RoleItem {
    fn shipped(name: &str, description: &str, may: &[&str], approves: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            may: owned(may),
            approves: owned(approves),
            ..Self::default()
        }
    }

    /// The roles that are there without any item. An item of the same name takes the place of one.
    pub fn all_shipped() -> [Self; 4] {
        use action::{
            APPROVAL_ANSWER, APPROVAL_LIST, ASK, CONVERSATION_READ, DOCUMENT_READ, GRAPH_QUERY,
            SESSION_CANCEL, SESSION_EVENTS, SESSION_LIST, SESSION_READ, TRACE_READ,
        };
        [
            Self::shipped(
                "producer",
                "Asks, and reads what became of it",
                &[ASK, SESSION_READ, SESSION_EVENTS, CONVERSATION_READ],
                &[],
            ),
            Self::shipped(
                "operator",
                "Asks, sees all runs of the tenant, and ends them",
                &[
                    ASK,
                    SESSION_READ,
                    SESSION_EVENTS,
                    SESSION_LIST,
                    SESSION_CANCEL,
                    CONVERSATION_READ,
                ],
                &[],
            ),
            Self::shipped(
                "analyst",
                "Reads traces and texts, and queries the graph of the tenant",
                &[
                    SESSION_READ,
                    SESSION_LIST,
                    CONVERSATION_READ,
                    TRACE_READ,
                    DOCUMENT_READ,
                    GRAPH_QUERY,
                ],
                &[],
            ),
            Self::shipped(
                "approver",
                "Answers calls that wait for a person",
                &[APPROVAL_LIST, APPROVAL_ANSWER],
                &["*"],
            ),
        ]
    }

    pub fn allows(&self, action: &str) -> bool {
        permits(&self.may, action)
    }
}

/// What all roles of a caller allow together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    may: Vec<String>,
    /// Tools whose calls they may answer, as globs.
    approves: Vec<String>,
    /// Tenants that they see beside their own, as globs.
    tenants: Vec<String>,
    /// Permissions that their runs have beside their own.
    pub permissions: Vec<String>,
}

impl Rights {
    /// A role that there is no more allows nothing.
    pub fn of(names: &[String], config: &Snapshot) -> Self {
        let mut all = Self::default();
        for role in names.iter().filter_map(|name| config.role(name)) {
            let RoleItem {
                may,
                approves,
                tenants,
                permissions,
                ..
            } = role;
            all.may.extend(may);
            all.approves.extend(approves);
            all.tenants.extend(tenants);
            all.permissions.extend(permissions);
        }
        all
    }

    pub fn allow(&self, action: &str) -> bool {
        permits(&self.may, action)
    }

    pub fn approve(&self, tool: &str) -> bool {
        permits(&self.approves, tool)
    }

    /// Whether they see the data of a tenant that is not theirs. What has no tenant is the owner's.
    pub fn see(&self, tenant: &str) -> bool {
        !tenant.is_empty() && permits(&self.tenants, tenant)
    }

    /// Tenants beside their own that they see and that are named. A glob could stand for any graph, so it opens none.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let names = self.tenants.iter().map(String::as_str);
        names.filter(|name| !name.contains('*'))
    }
}

/// Key of the `tenant` item of every tenant that has none of its own.
pub const ANY_TENANT: &str = "*";

/// `tenant`: what a tenant may use in a calendar month of UTC. Absent means without bound.
#[apply(Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantItem {
    /// The tenant, or `*` for every one without an item of its own.
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Runs that begin.
    #[serde(rename = "runs-per-month")]
    pub runs_per_month: Option<u64>,
    /// Model tokens, input and output together.
    #[serde(rename = "tokens-per-month")]
    pub tokens_per_month: Option<u64>,
    /// Money, in the currency of the model profiles' prices.
    #[serde(rename = "cost-per-month")]
    pub cost_per_month: Option<Money>,
}

impl TenantItem {
    pub fn bounds_nothing(&self) -> bool {
        self.runs_per_month.is_none()
            && self.tokens_per_month.is_none()
            && self.cost_per_month.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_roles_allow_what_there_is_and_nothing_else() {
        for role in RoleItem::all_shipped() {
            for name in &role.may {
                assert!(action::ALL.contains(&name.as_str()), "{name}");
            }
        }
        let [producer, _, analyst, approver] = RoleItem::all_shipped();
        assert!(producer.allows(action::ASK) && !producer.allows(action::GRAPH_QUERY));
        assert!(analyst.allows(action::GRAPH_QUERY) && !analyst.allows(action::ASK));
        assert!(approver.approves.contains(&"*".to_owned()));
    }

    #[test]
    fn a_role_of_the_config_takes_the_place_of_the_one_that_is_shipped() {
        let mut config = Snapshot::default();
        let rights =
            |config: &Snapshot| Rights::of(&["approver".to_owned(), "gone".to_owned()], config);
        assert!(rights(&config).approve("mail.send") && !rights(&config).see("acme"));
        let narrowed = RoleItem {
            name: "approver".to_owned(),
            approves: vec!["blog.*".to_owned()],
            tenants: vec!["acme".to_owned()],
            ..RoleItem::default()
        };
        config.roles.insert("approver".to_owned(), narrowed);
        let now = rights(&config);
        assert!(now.approve("blog.delete") && !now.approve("mail.send"));
        assert!(now.see("acme") && !now.see("bond") && !now.see(""));
        assert_eq!(now.named().collect::<Vec<_>>(), ["acme"]);
    }
}
