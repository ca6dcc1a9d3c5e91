//! A call that is not made: the agent is told why, and tries again.

use super::Iteration;
use crate::order::{Order, ToolOutcome};
use crate::say;
use agentfleet_schema::records::Termination;
use std::collections::BTreeMap;

impl Iteration {
    /// Tells the agent that it repeats itself, instead of calling.
    pub(super) fn told_of_repeating(
        &mut self,
        name: String,
        arguments: BTreeMap<String, String>,
        mut content: String,
    ) -> Order {
        (self.request.control.state).set_react(|state| state.repeats += 1);
        say::name_not_run(&mut content, &self.not_run);
        let outcome = ToolOutcome {
            content,
            is_error: true,
            ..ToolOutcome::default()
        };
        self.next(name, arguments, outcome, 0)
    }

    pub(super) fn retry(
        &mut self,
        action: String,
        arguments: BTreeMap<String, String>,
        mut text: String,
    ) -> Order {
        say::name_not_run(&mut text, &self.not_run);
        let retries = self.request.control.state.react().retries + 1;
        if self.must_end() {
            return self.partial(if self.is_last() {
                Termination::MaxIterations
            } else {
                Termination::Error
            });
        }
        let outcome = ToolOutcome {
            content: text,
            is_error: true,
            ..ToolOutcome::default()
        };
        self.next(action, arguments, outcome, retries)
    }
}
