//! A call that was held: until a person decided, or until the agent that it asks has answered.

use super::Execute;
use crate::order::Order;
use crate::patterns::delegate;
use agentfleet_schema::HeldCall;

impl Execute {
    pub(super) fn make(&mut self, held: HeldCall) -> Order {
        self.not_run = held.not_run;
        self.act(&held.tool, held.arguments)
    }

    /// Takes what the agent that was called brought as the result of the call.
    pub(super) fn answered(&mut self, texts: &[Option<String>]) -> Order {
        let brought = delegate::brought(&mut self.request, &self.situation, texts);
        let (Some((outcome, after)), Some(held)) = (brought, self.held.clone()) else {
            return self.begin();
        };
        self.after = Some(after);
        match self.make(held) {
            Order::CallTool(_) => self.returned(outcome),
            order => order,
        }
    }
}
