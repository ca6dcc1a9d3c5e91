//! A call that was held: until a person decided, or until the agent that it asks has answered.

use super::Execute;
use crate::order::Order;
use crate::patterns::{delegate, fan_out};
use agentfleet_schema::HeldCall;

impl Execute {
    pub(super) fn make(&mut self, held: HeldCall) -> Order {
        self.not_run = held.not_run;
        self.act(&held.tool, held.arguments)
    }

    /// Takes what the agent that was called brought as the result of the call.
    pub(super) fn answered(&mut self, texts: &[Option<String>]) -> Order {
        let verdict = delegate::answered(&self.request, &self.situation);
        let (Some(verdict), Some(held)) = (verdict.cloned(), self.held.clone()) else {
            return self.begin();
        };
        let waited = self.situation.now - self.request.control.after;
        let outcome = delegate::outcome(&verdict, texts, waited);
        self.after = Some(fan_out::summary(&verdict));
        self.request.control.fan_in_step = None;
        match self.make(held) {
            Order::CallTool(_) => self.returned(outcome),
            order => order,
        }
    }
}
