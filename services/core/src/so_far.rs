//! What a session knows before it has an answer. It is told where a run ends without one, so that what
//! was paid for is not lost: by `broke`, where a budget is used up, and here, where its time is.

use crate::history;
use crate::order::{Finish, Outcome};
use crate::patterns;
use crate::say;
use agentfleet_schema::records::{CompletionStatus, FanInRecord, Termination};
use agentfleet_schema::{AgentRequest, AgentStep};

/// Observations that are told, the newest.
const MOST_OBSERVATIONS: usize = 3;
/// What stands between the reason of an end and what was found until then.
const PARTIAL: &str = "\n\n**Partial answer.** ";
/// Longest text of each thing found, in characters.
const LONGEST: usize = 2_000;

/// Something found out: what was asked or called, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub of: String,
    pub text: String,
}

impl Found {
    pub fn new(of: impl Into<String>, text: &str) -> Self {
        let text: String = text.chars().take(LONGEST).collect();
        Self {
            of: of.into(),
            text: text.trim().to_owned(),
        }
    }
}

/// The newest of what tools returned, without errors and what is no longer carried in full.
pub fn observed(history: &[AgentStep]) -> Vec<Found> {
    let useful = history
        .iter()
        .filter(|step| history::is_iteration(step))
        .filter(|step| !step.observation.is_empty() && !history::is_error(&step.observation))
        .filter(|step| !history::is_left_out(&step.observation));
    let mut found: Vec<Found> = useful
        .rev()
        .take(MOST_OBSERVATIONS)
        .map(|step| {
            Found::new(
                say::action(&step.action, &step.arguments),
                &step.observation,
            )
        })
        .collect();
    // Of what was found twice, the newest.
    let mut seen = Vec::new();
    found.retain(|one| {
        let is_new = !seen.contains(&one.text);
        seen.push(one.text.clone());
        is_new
    });
    found.reverse();
    found
}

/// What a request brings with it: the results of its plan, else what its tools returned.
pub fn carried(request: &AgentRequest) -> Vec<Found> {
    let planned = patterns::results_of_plan(request);
    let results: Vec<Found> = planned
        .map(|(goal, result)| Found::new(goal, result))
        .collect();
    if results.is_empty() {
        observed(&request.history)
    } else {
        results
    }
}

/// Goals of the subagents whose answers a verdict took in, and the documents that hold those.
pub fn answers_of(verdict: &FanInRecord) -> (Vec<String>, Vec<String>) {
    let members = verdict.members.iter();
    let answered = members.filter(|member| member.status == CompletionStatus::Answered);
    answered
        .map(|member| (member.goal.clone(), member.document.clone()))
        .unzip()
}

/// The same, once the documents are read.
pub fn answers(goals: Vec<String>, texts: Vec<Option<String>>) -> Vec<Found> {
    let read = goals.into_iter().zip(texts);
    read.filter_map(|(goal, text)| Some(Found::new(goal, &text?)))
        .collect()
}

/// Whether an end is one that tells what was found.
pub fn is_told(finish: &Finish) -> bool {
    matches!(&finish.outcome, Outcome::Cancelled(end) if end.termination == Termination::Timeout)
}

/// An end with what was found below its reason.
#[must_use]
pub fn with(mut finish: Finish, found: &[Found]) -> Finish {
    if let (Outcome::Cancelled(end), false) = (&mut finish.outcome, found.is_empty()) {
        end.text.push_str(PARTIAL);
        end.text.push_str(&told(found));
    }
    finish
}

/// What an end tells as found, if anything.
pub fn of(text: &str) -> Option<&str> {
    text.split_once(PARTIAL).map(|(_, found)| found)
}

/// What was found, below one heading.
pub fn told(found: &[Found]) -> String {
    let mut text = "What had been found:\n".to_owned();
    for Found { of, text: part } in found {
        text.push_str(&format!("\n### {of}\n\n{part}\n"));
    }
    text
}

/// Why a run ended, without what it had found.
pub fn reason(text: &str) -> &str {
    text.split_once("\n\n").map_or(text, |(reason, _)| reason)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use agentfleet_schema::PlanStep;

    fn iteration(action: &str, observation: &str) -> AgentStep {
        AgentStep {
            action: action.into(),
            observation: observation.into(),
            ..AgentStep::default()
        }
    }

    #[test]
    fn a_run_out_of_time_tells_the_newest_that_it_found() {
        let mut request = AgentRequest {
            history: vec![
                iteration("search", "oldest"),
                iteration("search", "old"),
                iteration("search", "Error: timed out"),
                iteration("read", &"x".repeat(LONGEST + 1)),
                iteration("search", "new"),
                AgentStep {
                    step_type: "supervise".into(),
                    ..iteration("decompose", "two goals")
                },
            ],
            ..AgentRequest::default()
        };
        let of = |found: &[Found]| -> Vec<String> {
            let texts = found
                .iter()
                .map(|found| found.text.chars().take(9).collect());
            texts.collect()
        };
        assert_eq!(of(&carried(&request)), ["old", "xxxxxxxxx", "new"]);
        let finish = with(say::time_used_up(), &carried(&request));
        assert!(is_told(&finish));
        let Outcome::Cancelled(end) = &finish.outcome else {
            panic!("{finish:?}");
        };
        assert_eq!(reason(&end.text), "Stopped: its time was used up.");
        assert!(end.text.contains("### read()\n\nxxx"), "{}", end.text);
        assert_eq!(end.text.matches('x').count(), LONGEST);

        // Results of a plan are more than what its steps were made of.
        let step = |goal: &str, status: &str| PlanStep {
            goal: goal.into(),
            status: status.into(),
            result: format!("result of {goal}"),
            ..PlanStep::default()
        };
        request.history.push(AgentStep {
            plan: Some(vec![step("a", "complete"), step("b", "failed")]),
            ..AgentStep::default()
        });
        assert_eq!(carried(&request), [Found::new("a", "result of a")]);
    }

    #[test]
    fn what_found_nothing_or_was_cancelled_says_only_why() {
        let nothing = with(say::time_used_up(), &[]);
        assert_eq!(nothing, say::time_used_up());
        let cancelled = say::cancelled("somebody cancelled it", Termination::Cancelled);
        assert!(!is_told(&cancelled));
    }
}
