//! Whether the roles of a caller allow what they want.

use super::door::Known;
use crate::endpoint::Endpoint;
use crate::problem::{Code, Problem};
use agentfleet_schema::config::{Rights, Snapshot};

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
    if rights.allow(needed) {
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
