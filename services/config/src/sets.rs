//! Items to typed sets.
//!
//! An item that this program cannot read is left out and warned about, so that one item of another
//! version does not stop the fleet.

use crate::Item;
use agentfleet_schema::config::{Snapshot, Status, item_type};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A set of items that lies in no store.
pub(crate) fn of(items: &[Item]) -> Snapshot {
    let mut set = Snapshot::default();
    for item in items {
        put(&mut set, item);
    }
    set
}

/// Puts an item into a set, in place of the one with its key.
pub(crate) fn put(set: &mut Snapshot, item: &Item) {
    match item.item_type.as_str() {
        item_type::AGENT_PATTERN => read_into(&mut set.patterns, item),
        item_type::AGENT_TASK_TYPE => {
            // The one place that tells what may be offered from what may not.
            set.proposals.remove(&item.key);
            read_into(&mut set.task_types, item);
            let key = &item.key;
            let open = set.task_types.get(key).map(|it| it.status);
            if open.is_some_and(|status| status != Status::Approved)
                && let Some((key, task_type)) = set.task_types.remove_entry(key)
            {
                set.proposals.insert(key, task_type);
            }
        }
        item_type::PROMPT => read_into(&mut set.prompts, item),
        item_type::TOOL => read_into(&mut set.tools, item),
        item_type::MODEL_PROFILE => read_into(&mut set.profiles, item),
        item_type::INTENT => read_into(&mut set.intents, item),
        item_type::SPECIALIST => read_into(&mut set.specialists, item),
        item_type::QUERY => read_into(&mut set.queries, item),
        item_type::MCP_SERVER => read_into(&mut set.mcp_servers, item),
        item_type::ROLE => read_into(&mut set.roles, item),
        item_type::TENANT => read_into(&mut set.tenants, item),
        item_type::TOOL_POLICY => read_into(&mut set.tool_policies, item),
        item_type::TOOL_SERVICE => read_into(&mut set.tool_services, item),
        // Stored for others.
        _ => (),
    }
}

fn read_into<T: DeserializeOwned>(map: &mut BTreeMap<String, T>, item: &Item) {
    match serde_json::from_value(item.value.clone()) {
        Ok(value) => {
            map.insert(item.key.clone(), value);
        }
        Err(error) => {
            map.remove(&item.key);
            tracing::warn!(
                item_type = item.item_type,
                key = item.key,
                %error,
                "config item cannot be read and is left out"
            );
        }
    }
}
