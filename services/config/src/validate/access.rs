//! What is wrong with `role` and `tenant` items.

use super::{Check, nearest};
use agentfleet_schema::config::{ANY_TENANT, RoleItem, TenantItem, action, fits};
use agentfleet_schema::names::{MAX_PLAIN, is_plain, is_tenant};
use agentfleet_schema::worked::LEAST_TOKENS;

impl Check<'_> {
    pub(super) fn role(&mut self, role: &RoleItem) {
        self.named(&role.name);
        if !is_plain(&role.name) {
            self.misnamed("-_.@+");
        }
        for (index, glob) in role.may.iter().enumerate() {
            if !action::ALL.iter().any(|name| fits(glob, name)) {
                let reason = nearest("action", glob, action::ALL.iter().copied());
                self.problem(format!("/may/{index}"), reason);
            }
        }
        let lists = [
            ("permissions", &role.permissions),
            ("approves", &role.approves),
            ("tenants", &role.tenants),
        ];
        for (field, list) in lists {
            for (index, glob) in list.iter().enumerate() {
                if glob.trim().is_empty() {
                    self.problem(format!("/{field}/{index}"), "must not be empty");
                }
            }
        }
    }

    pub(super) fn tenant(&mut self, tenant: &TenantItem) {
        self.named(&tenant.name);
        if tenant.name != ANY_TENANT && !is_tenant(&tenant.name) {
            self.misnamed("-_@+");
        }
        if tenant
            .tokens_per_month
            .is_some_and(|most| most < LEAST_TOKENS)
        {
            let reason = format!("must be at least {LEAST_TOKENS}: with fewer no run could begin");
            self.problem("/tokens-per-month", reason);
        }
        if tenant.bounds_nothing() {
            self.problem(
                "",
                "bounds nothing: give `runs-per-month`, `tokens-per-month` or `cost-per-month`",
            );
        }
    }

    fn misnamed(&mut self, signs: &str) {
        let reason = format!("must have 1 to {MAX_PLAIN} letters, digits and `{signs}`");
        self.problem("/name", reason);
    }
}
