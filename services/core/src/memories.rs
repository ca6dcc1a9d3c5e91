//! What is remembered for a user or a tenant beyond a run: preferences and facts. Tools write and read it, and a
//! run is shown it where the context of a specialist asks for it.

use crate::say;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::Snapshot;

/// The section of a specialist's context.
pub const MEMORIES: &str = "memories";
/// Bytes of all that a run is shown.
pub const SHOWN: usize = 8_000;

/// Whether anybody of the config asks for what is remembered.
pub fn are_wanted(snapshot: &Snapshot) -> bool {
    let mut all = snapshot.specialists.values();
    all.any(|one| one.context.iter().any(|section| section == MEMORIES))
}

/// What is remembered, as a section of context.
pub(crate) fn listed(request: &AgentRequest) -> String {
    let told = request.control.memories.iter();
    let told = told.map(|one| {
        let (name, value) = (say::in_one_line(&one.name), say::in_one_line(&one.value));
        format!("{name} = {value}")
    });
    told.collect::<Vec<_>>().join("; ")
}
