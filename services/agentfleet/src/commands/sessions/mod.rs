//! `sessions`: which runs there were, and how one of them went.

mod list;
mod show;
mod wanted;

pub(crate) use list::to_retry;
pub(crate) use show::show;

use crate::cli::Sessions;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::Ui;
use agentfleet_schema::records::{RunState, Termination};

pub(crate) async fn run(command: Sessions, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    match command {
        Sessions::List(args) => list::tell_list(&store, args, settings, ui).await,
        Sessions::Show { session, output } => show::tell_one(&store, &session, output.json).await,
    }
}

/// A state for people: with why the run ended, where the state does not say it.
fn told(state: RunState, termination: Option<Termination>) -> String {
    let more = termination.filter(|termination| match termination {
        Termination::FinalAnswer
        | Termination::SubagentsComplete
        | Termination::PlanComplete
        | Termination::Error => false,
        Termination::Cancelled => state != RunState::Cancelled,
        Termination::Timeout => state != RunState::Timeout,
        Termination::MaxIterations
        | Termination::MaxReplans
        | Termination::BudgetExhausted
        | Termination::RepeatedAction
        | Termination::ReplyCut
        | Termination::NeedsClarification
        | Termination::DeadLettered => true,
    });
    match more {
        None => state.as_str().to_owned(),
        Some(termination) => format!("{} ({})", state.as_str(), termination.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_shown_in_the_state_that_lists_it() {
        for (answered, partial, termination, expected) in [
            (true, false, Termination::PlanComplete, "answered"),
            (
                true,
                true,
                Termination::MaxIterations,
                "partial (max-iterations)",
            ),
            (true, true, Termination::Timeout, "partial (timeout)"),
            (false, false, Termination::Error, "failed"),
            (
                false,
                false,
                Termination::DeadLettered,
                "failed (dead-lettered)",
            ),
            (false, false, Termination::Cancelled, "cancelled"),
            (false, true, Termination::Timeout, "timeout"),
        ] {
            let state = RunState::ended(answered, partial, Some(termination));
            assert_eq!(told(state, Some(termination)), expected);
        }
    }

    #[test]
    fn states_have_the_names_that_are_typed() {
        for state in RunState::ALL {
            assert_eq!(RunState::named(state.as_str()), Some(state));
            assert_eq!(serde_json::json!(state), state.as_str());
        }
    }
}
