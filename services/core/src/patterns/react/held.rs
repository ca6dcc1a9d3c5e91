//! A call that was held: until a person decided, or until the agent that it asks has answered.

use super::Iteration;
use crate::order::{Order, ToolUse};
use crate::patterns::{delegate, fan_out};
use agentfleet_schema::HeldCall;

impl Iteration {
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
            Order::CallTool(_) => self.observed(outcome),
            order => order,
        }
    }

    /// Makes the call that a person was asked about, without asking the model again.
    pub(super) fn make(&mut self, held: HeldCall) -> Order {
        // What was thought is told with the call that waited.
        self.recalled = held.thought;
        self.not_run = held.not_run;
        match self.prepared(&held.tool, &held.arguments) {
            Ok((tool, arguments)) => {
                self.calling = Some((tool.clone(), arguments.clone()));
                Order::CallTool(Box::new(ToolUse { tool, arguments }))
            }
            Err(text) => self.retry(held.tool, held.arguments, text),
        }
    }
}
