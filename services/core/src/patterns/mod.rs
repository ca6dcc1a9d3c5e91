//! The patterns this binary implements, one file each.

mod answer;
mod assign;
mod dag;
mod debate;
mod fan_out;
mod plan;
mod plan_step;
mod react;
mod reflexion;
mod repeats;
mod router;
mod supervisor;

pub(crate) use answer::unanswered;
pub(crate) use assign::{ALL, GROUP, PATTERN};
pub(crate) use dag::{COMPLETE, FAILED, REVISED, current as current_plan, results_of_plan};
pub use debate::{CloseRound, OpenDebate};
pub use plan::Plan;
pub use react::React;
pub(crate) use react::{is_iteration, iterations};
pub(crate) use reflexion::{ANSWER, is_critique};
pub use router::Dispatch;
pub(crate) use router::{GENERAL_CHAT, intents};
pub use supervisor::{Decompose, Synthesise};

/// A pattern this binary can run. What is configured beyond these is never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implemented {
    React,
    Reflexion,
    PlanThenExecute,
    Supervisor,
    Debate,
    Router,
}

impl Implemented {
    pub const ALL: [Self; 6] = [
        Self::React,
        Self::PlanThenExecute,
        Self::Reflexion,
        Self::Supervisor,
        Self::Debate,
        Self::Router,
    ];

    /// The name in requests and config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::React => "react",
            Self::Reflexion => "reflexion",
            Self::PlanThenExecute => "plan-then-execute",
            Self::Supervisor => "supervisor",
            Self::Debate => "debate",
            Self::Router => "router",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|pattern| pattern.as_str() == name)
    }

    /// Whether it works by a plan, which travels in the history.
    pub fn has_plan(self) -> bool {
        match self {
            Self::PlanThenExecute => true,
            Self::React | Self::Reflexion | Self::Supervisor | Self::Debate | Self::Router => false,
        }
    }

    /// Whether it needs subagents, and so room below it.
    pub fn fans_out(self) -> bool {
        match self {
            Self::React | Self::Reflexion | Self::PlanThenExecute | Self::Router => false,
            Self::Supervisor | Self::Debate => true,
        }
    }
}
