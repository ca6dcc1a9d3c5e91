//! What is made of a call that came back: which tries of it failed, and what people read instead of that.

use crate::order::ToolOutcome;
use crate::say;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{Decision, FailedTry, Trouble};

/// Subject of the decision on a try that failed.
const SUBJECT: &str = "tool-retry";
/// Subject of the decision to ask no more.
const FAILURE: &str = "model-failure";
/// Subject of the decision to ask another model.
const FAILOVER: &str = "model-failover";

/// What was decided after each try that failed: to make the call again, or to give it up; and, where the tool asked
/// a model, to ask another one.
pub(crate) fn tried(tool: &ToolItem, outcome: &ToolOutcome) -> Vec<Decision> {
    let (tried, of_models): (Vec<_>, Vec<_>) =
        outcome.tried.iter().partition(|one| one.of.is_empty());
    let is_answered = !outcome.is_error || !tried.is_empty();
    let whose = format!("the model profile of tool `{}`", tool.name);
    let mut decided = failovers(of_models, &whose, is_answered);
    let allowed = format!(
        "effect `{}`, and {} retries",
        tool.effect().as_str(),
        tool.retries()
    );
    let count = tried.len();
    let decision = |(at, failed): (usize, &FailedTry)| {
        let is_last = at + 1 == count;
        let chosen = if is_last && outcome.is_error {
            "give-up"
        } else {
            "again"
        };
        let signal = format!(
            "`{}` {}: {}",
            tool.name,
            failed.why.as_str(),
            say::in_one_line(&failed.error)
        );
        say::only(SUBJECT, chosen, &*allowed, signal)
    };
    decided.extend(tried.into_iter().enumerate().map(decision));
    decided
}

/// That a call went on to another model, for each that did not answer; or that there was no other.
pub(crate) fn passed_on(tried: &[FailedTry], is_answered: bool) -> Vec<Decision> {
    failovers(tried.iter().collect(), "the model profile", is_answered)
}

fn failovers(tried: Vec<&FailedTry>, whose: &str, is_answered: bool) -> Vec<Decision> {
    let count = tried.len();
    let decision = |(at, failed): (usize, &FailedTry)| {
        let is_last = at + 1 == count;
        let chosen = if is_last && !is_answered {
            "give-up"
        } else {
            "next"
        };
        let signal = format!(
            "{}: {}",
            failed.why.as_str(),
            say::in_one_line(&failed.error)
        );
        let narrowed_by = format!("the fallbacks of {whose}, after `{}`", failed.of);
        say::only(FAILOVER, chosen, narrowed_by, signal)
    };
    tried.into_iter().enumerate().map(decision).collect()
}

/// That no model was asked on, with what the provider said: people read other words.
pub(crate) fn gave_up(message: &str) -> Decision {
    let allowed = "the tries that a model call has";
    say::only(FAILURE, "give-up", allowed, say::in_one_line(message))
}

/// What a call that came to nothing tells: in words for people of that language, without the words of what failed.
pub fn words(tool: &ToolItem, why: Trouble, locale: &str) -> String {
    let name = &tool.name;
    let may_repeat = tool.effect().may_repeat();
    let (what, tell) = match why {
        Trouble::RateLimited => {
            let limit = tool.rate_limit.unwrap_or_default();
            let seconds = limit.per_ms.div_ceil(1_000);
            let calls = limit.calls;
            let what = format!("was not called: 0 of {calls} calls in {seconds} s remain");
            (what, "rate-limited")
        }
        Trouble::Unavailable | Trouble::Timeout | Trouble::PassedOver if may_repeat => {
            let what = "could not be had, as often as it may be asked".to_owned();
            (what, "not-fetched")
        }
        Trouble::Unavailable | Trouble::Timeout | Trouble::PassedOver => {
            let what = "did not do this, as far as is known. Whether the call took effect is not known, and it is not \
                        made again by itself";
            (what.to_owned(), "not-done")
        }
    };
    let tell = crate::words::say(locale, tell, &[]);
    format!("Error: `{name}` {what}. Tell the person: {tell}")
}
