//! The patterns this binary implements, one file each. A new one is its file and its line in [`IMPLEMENTED`].

mod answer;
mod assign;
mod dag;
mod debate;
pub(crate) mod delegate;
mod fan_out;
mod plan;
mod plan_step;
mod react;
mod reflexion;
mod repeats;
mod router;
#[cfg(test)]
mod second_look_tests;
mod supervisor;

use crate::approval::Asker;
use crate::error::Rejection;
pub(crate) use crate::history::iterations;
use crate::limits::Limits;
use crate::order::{Input, Order};
use crate::turn::Situation;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::Decision;
use agentfleet_schema::{AgentRequest, Operation};
pub(crate) use answer::unanswered;
pub(crate) use assign::{ALL, GROUP, PATTERN};
pub(crate) use dag::{COMPLETE, FAILED, REVISED, current as current_plan, results_of_plan};
pub(crate) use react::REACT;
pub(crate) use reflexion::{ANSWER, is_carried};
pub(crate) use router::{GENERAL_CHAT, intents};
use std::fmt::Debug;

/// What can be run. What is configured beyond these is never offered.
const IMPLEMENTED: &[&dyn Pattern] = &[
    &react::React,
    &plan::PlanThenExecute,
    &reflexion::Reflexion,
    &supervisor::Supervisor,
    &debate::Debate,
    &router::Router,
    #[cfg(test)]
    &second_look_tests::SecondLook,
];

/// A way to work a session, one step a message.
pub(crate) trait Pattern: Sync {
    /// The name in requests and config.
    fn name(&self) -> &'static str;

    /// The turn of a request that names the pattern.
    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun;

    /// Whether it works by a plan, which travels in the history.
    fn has_plan(&self) -> bool {
        false
    }

    /// Whether it needs subagents, and so room below it.
    fn fans_out(&self) -> bool {
        false
    }

    /// The operations whose prompts show the history: it has to fit into the windows of their models.
    fn shows_history_in(&self) -> &'static [Operation] {
        &[Operation::React]
    }

    /// Why the router cannot choose it for a request, if so.
    fn closed_to(&self, _: &AgentRequest, _: &Snapshot) -> Option<&'static str> {
        None
    }
}

/// A turn, or why there is none.
pub(crate) type Begun = Result<Box<dyn PatternTurn>, Rejection>;

/// One step by a pattern. [`Turn`](crate::Turn) drives it: it counts what is spent, asks on where a reply
/// was cut, and holds calls that a person must approve.
pub(crate) trait PatternTurn: Debug + Send + Sync {
    /// Feeds what came of the last order, and answers with the next one.
    fn resume(&mut self, input: Input) -> Order;

    /// Ends the step without the call that was ordered last, because nothing is left to pay it with: with
    /// what is known so far, and `why`. It orders no other call that costs.
    fn broke(&mut self, why: &str) -> Order;

    /// Goes on without the model call that was ordered last, because `why` says that what is left is for
    /// the answer.
    fn spare(&mut self, why: &str) -> Instead {
        Instead::Order(self.broke(why))
    }

    /// What the stages before a call changed or stopped since it was last asked for.
    fn decided(&mut self) -> Vec<Decision> {
        Vec::new()
    }

    /// What a turn that calls tools says of its call.
    fn asker(&self) -> Option<Asker<'_>> {
        None
    }
}

/// What a turn does instead of a model call that only serves an answer.
pub(crate) enum Instead {
    Order(Order),
    /// Another turn takes over.
    Turn(Box<dyn PatternTurn>),
}

pub(crate) fn by_name(name: &str) -> Option<&'static dyn Pattern> {
    IMPLEMENTED
        .iter()
        .copied()
        .find(|pattern| pattern.name() == name)
}

/// Whether a pattern of that name can be run.
pub fn is_implemented(name: &str) -> bool {
    by_name(name).is_some()
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    IMPLEMENTED.iter().map(|pattern| pattern.name())
}
