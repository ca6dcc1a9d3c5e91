//! A call that was held: until a person decided, or until the agent that it asks has answered.

use super::Iteration;
use crate::order::{Order, ToolUse};
use crate::patterns::delegate;
use agentfleet_schema::HeldCall;

impl Iteration {
    /// Takes what the agent that was called brought as the result of the call.
    pub(super) fn answered(&mut self, texts: &[Option<String>]) -> Order {
        let brought = delegate::brought(&mut self.request, &self.situation, texts);
        let (Some((outcome, after)), Some(held)) = (brought, self.held.clone()) else {
            return self.begin();
        };
        self.after = Some(after);
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
            Err(stopped) => self.retry(held.tool, held.arguments, stopped.text),
        }
    }
}
