//! What sessions spent, each and with all below it.

use super::super::model::{Session, Spent, Step, Work};
use agentfleet_schema::{Cost, SessionId};
use std::collections::{BTreeMap, HashMap};

/// What a session itself spent: what each of its nodes states. A step states its usage once, on its
/// main node, whatever kind of node that is.
pub(super) fn spent(session: &Session) -> Spent {
    let mut total = Spent::default();
    let works = || {
        let routing = session.routing.iter().map(|routing| &routing.work);
        routing
            .chain(session.steps.iter().map(Step::work))
            .chain(session.conclusion.iter().map(|end| &end.work))
    };
    for work in works() {
        let (input, output) = (work.input_tokens, work.output_tokens);
        total.input_tokens = total.input_tokens.saturating_add(input.unwrap_or(0));
        total.output_tokens = total.output_tokens.saturating_add(output.unwrap_or(0));
        total.cost = total.cost + work.known_cost();
        total.model_ms = total.model_ms.saturating_add(work.model_ms.unwrap_or(0));
        let wasted = work.wasted_tokens.unwrap_or(0);
        total.wasted_tokens = total.wasted_tokens.saturating_add(wasted);
        total.cost = total.cost + Cost::of(work.wasted_cost.unwrap_or(0.0), true);
    }
    let mut called = 0;
    for iteration in session.iterations() {
        let Some(seen) = &iteration.observation else {
            continue;
        };
        called += u64::from(iteration.sent_back.is_none());
        total.tool_ms = total.tool_ms.saturating_add(seen.tool_ms.unwrap_or(0));
    }
    // By record: a step states what it called once, on its main node. What was answered without a call,
    // such as one made before, is none.
    let records: BTreeMap<&str, u64> = works()
        .filter_map(|work| Some((work.record.as_deref()?, work.tool_calls.unwrap_or(0))))
        .collect();
    total.steps = match records.len() {
        // A peer's nodes, which name no records.
        0 => steps_by_kind(session),
        named => named as u64,
    };
    total.tool_calls = if works().any(|work| work.tool_calls.is_some()) {
        records.values().sum()
    } else {
        called
    };
    total
}

/// The steps of a session, by what its nodes are.
fn steps_by_kind(session: &Session) -> u64 {
    let mut steps = u64::from(session.conclusion.is_some());
    for step in &session.steps {
        steps += match step {
            Step::Decision(_) | Step::Synthesis(_) => 0,
            Step::FanOut(_) | Step::Iteration(_) => 1,
            // A step's result was a step of the session only where no call of it is told.
            Step::Note(step) => u64::from(step.work.model_ms.is_some()),
        };
    }
    if let Some(routing) = &session.routing {
        // A run whose pattern was given is routed and worked in one step.
        let mut others = session.steps.iter().map(Step::work);
        let end = session.conclusion.as_ref().map(|end| &end.work);
        let alone = |work: &Work| work.at.is_none() || work.at != routing.work.at;
        steps += u64::from(others.all(alone) && end.is_none_or(alone));
    }
    steps
}

/// Takes usage off the routing where it is that of the step the routing was committed with: a run
/// whose pattern was given is routed and worked in one step, and both nodes state the step's usage.
pub(super) fn tell_usage_once(session: &mut Session) {
    let Some(routing) = &session.routing else {
        return;
    };
    let same = |work: &Work| {
        work.at == routing.work.at
            && work.input_tokens == routing.work.input_tokens
            && work.output_tokens == routing.work.output_tokens
    };
    let twice = session.conclusion.as_ref().is_some_and(|c| same(&c.work))
        || session.steps.iter().any(|step| match step {
            Step::Synthesis(_) => false,
            other => same(other.work()),
        });
    if let Some(routing) = session.routing.as_mut().filter(|_| twice) {
        routing.work.input_tokens = None;
        routing.work.output_tokens = None;
        routing.work.cost = None;
        routing.work.unpriced_calls = None;
    }
}

/// Adds up what lies below each session. Sessions come after their parents.
pub(super) fn sum_up(sessions: &mut [Session]) {
    let mut sums: HashMap<SessionId, Spent> = HashMap::new();
    for session in sessions.iter_mut().rev() {
        session.spent_in_tree = session.spent;
        for child in &session.children {
            if let Some(below) = sums.get(child) {
                session.spent_in_tree.add(below);
            }
        }
        sums.insert(session.id.clone(), session.spent_in_tree);
    }
}
