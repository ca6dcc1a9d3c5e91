//! What the roles of a caller allow, by the config in force.

use super::door::Known;
use crate::endpoint::Endpoint;
use crate::problem::{Code, Problem};
use agentfleet_schema::config::{RoleItem, Snapshot, permits};

/// What all roles of a caller allow together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
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
    pub(crate) fn of(names: &[String], config: &Snapshot) -> Self {
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

    pub(crate) fn approve(&self, tool: &str) -> bool {
        permits(&self.approves, tool)
    }

    /// Whether they see the data of a tenant that is not theirs. What has no tenant is the owner's.
    pub(crate) fn see(&self, tenant: &str) -> bool {
        !tenant.is_empty() && permits(&self.tenants, tenant)
    }

    /// Tenants beside their own that they see and that are named. A glob could stand for any graph, so it opens none.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        let names = self.tenants.iter().map(String::as_str);
        names.filter(|name| !name.contains('*'))
    }
}

/// Whether somebody may use an endpoint.
pub(super) fn permitted(
    endpoint: Endpoint,
    known: &Known,
    rights: &Rights,
    config: &Snapshot,
) -> Result<(), Problem> {
    let Some(needed) = endpoint.needs() else {
        let says = "the graph is written by the owner of the data directory only, with its token";
        return Err(Problem::new(Code::NotPermitted, says));
    };
    if permits(&rights.may, needed) {
        return Ok(());
    }
    let listed = |names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        match names.as_slice() {
            [] => "none".to_owned(),
            some => some.join(", "),
        }
    };
    let all = config.all_roles();
    let allowing = all.values().filter(|role| role.allows(needed));
    let allowing = listed(&mut allowing.map(|role| &role.name));
    let has = listed(&mut known.roles.iter());
    let says = format!(
        "this needs a role that allows `{needed}`, which are: {allowing}; the caller has: {has}"
    );
    Err(Problem::new(Code::NotPermitted, says)
        .hint("who runs the fleet gives roles; docs/identity.md says what each may do"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
