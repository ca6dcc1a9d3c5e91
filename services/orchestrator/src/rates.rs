//! How many calls of a tool a tenant made lately, in this process.

use agentfleet_schema::Millis;
use agentfleet_schema::config::ToolItem;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Windows kept before those that are over are dropped.
const MANY: usize = 10_000;

/// Counts calls in windows that begin with their first call.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<(String, String), Window>>);

#[derive(Clone, Copy, Debug)]
struct Window {
    until: Millis,
    calls: u32,
}

impl Rates {
    /// Takes one call from what a tenant may make; whether there was one left.
    pub(crate) fn take(&self, tenant: &str, tool: &ToolItem, now: Millis) -> bool {
        let Some(limit) = tool.rate_limit else {
            return true;
        };
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= MANY {
            windows.retain(|_, window| window.until > now);
        }
        let fresh = Window {
            until: now.saturating_add_unsigned(limit.per_ms),
            calls: 0,
        };
        let key = (tenant.to_owned(), tool.name.clone());
        let window = windows.entry(key).or_insert(fresh);
        if window.until <= now {
            *window = fresh;
        }
        if window.calls >= limit.calls {
            return false;
        }
        window.calls += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::config::RateLimit;

    #[test]
    fn each_tenant_has_its_own_calls_and_they_come_back() {
        let rates = Rates::default();
        let tool = ToolItem {
            name: "send".into(),
            rate_limit: Some(RateLimit {
                calls: 2,
                per_ms: 1_000,
            }),
            ..ToolItem::default()
        };
        let took = |tenant, now| rates.take(tenant, &tool, now);
        assert_eq!(
            [took("a", 0), took("a", 999), took("a", 999)],
            [true, true, false]
        );
        assert!(took("b", 999));
        assert!(took("a", 1_000));
    }
}
