//! The verdict on a fan-out: whether its siblings are done, and who they were.
//!
//! Level-triggered: the same completions give the same answer, in whatever order and however often
//! they are looked at (FI-1 to FI-3).

use crate::limits::allotted;
use crate::provenance::{completion_status, is_partial};
use agentfleet_schema::records::{
    CompletionStatus, FanInRecord, FanOutRecord, JoinCause, Member, StepRecord,
};
use agentfleet_schema::{AgentRequest, Millis, SessionId, Source, Spent, uris};
use std::collections::BTreeMap;

/// A completion as the graph tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub session: SessionId,
    pub status: CompletionStatus,
    /// Whether something is missing from its answer.
    pub partial: bool,
    pub document: String,
    /// What its answer rests on, sorted by URI.
    pub sources: Vec<Source>,
    pub spent: Spent,
}

impl Completion {
    /// What the record that ended a session tells, as its completion does.
    pub fn of(end: &StepRecord) -> Self {
        Self {
            session: end.session.clone(),
            status: completion_status(end),
            partial: is_partial(end),
            document: uris::answer_document(&end.session),
            sources: Vec::new(),
            spent: end.total,
        }
    }
}

/// The verdict if the fan-in may conclude now, else `None`.
///
/// Completions of sessions that are no children of this fan-out are ignored; repeats count once.
pub fn decide(
    fan_out: &FanOutRecord,
    completions: &[Completion],
    now: Millis,
) -> Option<FanInRecord> {
    let by_session: BTreeMap<&SessionId, &Completion> = completions
        .iter()
        .map(|completion| (&completion.session, completion))
        .collect();
    let mut members = Vec::new();
    let mut missing = Vec::new();
    for child in &fan_out.children {
        match by_session.get(&child.session) {
            Some(completion) => members.push(Member {
                index: child.index,
                session: child.session.clone(),
                goal: child.goal.clone(),
                status: completion.status,
                partial: completion.partial,
                document: completion.document.clone(),
                sources: completion.sources.clone(),
                spent: completion.spent,
            }),
            None => missing.push(child.clone()),
        }
    }
    let answered = members
        .iter()
        .filter(|m| m.status == CompletionStatus::Answered)
        .count();
    let enough = fan_out.policy.enough(fan_out.children.len());
    let enough = enough.is_some_and(|enough| answered >= enough);
    let cause = if missing.is_empty() {
        JoinCause::Complete
    } else if enough {
        JoinCause::Enough
    } else if now >= fan_out.join_deadline {
        JoinCause::Deadline
    } else {
        return None;
    };
    let each = allotted(&fan_out.allotment);
    Some(FanInRecord {
        correlation: fan_out.correlation.clone(),
        missing_spent: each.times(missing.len() as u64),
        members,
        missing,
        cause,
        policy: fan_out.policy,
        nonce: String::new(),
    })
}

/// The session whose fan-out a synthesis request reads the verdict of.
pub fn session_of(request: &AgentRequest) -> &SessionId {
    let named = &request.control.fan_in_session;
    if named.is_empty() {
        &request.session_id
    } else {
        named
    }
}

/// The verdict as a request's session reads it. What the subagents of a session that it was forked
/// from spent is that session's, and counts once.
pub fn read_by(request: &AgentRequest, mut verdict: FanInRecord) -> FanInRecord {
    if !request.control.fan_in_session.is_empty() {
        verdict.missing_spent = Spent::default();
        for member in &mut verdict.members {
            member.spent = Spent::default();
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::config::JoinPolicy;
    use agentfleet_schema::records::Child;
    use proptest::prelude::*;

    fn fan_out(children: u32, policy: JoinPolicy) -> FanOutRecord {
        FanOutRecord {
            children: (0..children)
                .map(|index| Child {
                    index,
                    session: SessionId::new(format!("c{index}")),
                    ..Child::default()
                })
                .collect(),
            policy,
            join_deadline: 1_000,
            ..FanOutRecord::default()
        }
    }

    fn done(index: u32, status: CompletionStatus) -> Completion {
        Completion {
            session: SessionId::new(format!("c{index}")),
            status,
            partial: false,
            document: String::new(),
            sources: Vec::new(),
            spent: Spent::default(),
        }
    }

    use CompletionStatus::{Answered, Error};

    #[test]
    fn concludes_when_the_rule_is_met_and_not_before() {
        let all = JoinPolicy::All;
        let two = JoinPolicy::AtLeast(2);
        let (quorum, by_then) = (JoinPolicy::Quorum, JoinPolicy::Deadline);
        let cases: &[(
            u32,
            JoinPolicy,
            &[CompletionStatus],
            Millis,
            Option<JoinCause>,
        )] = &[
            (2, all, &[], 0, None),
            (2, all, &[Answered], 0, None),
            (2, all, &[Answered, Error], 0, Some(JoinCause::Complete)),
            (2, all, &[Answered], 999, None),
            (2, all, &[Answered], 1_000, Some(JoinCause::Deadline)),
            (2, all, &[], 1_000, Some(JoinCause::Deadline)),
            (4, quorum, &[Answered, Answered], 0, None),
            (
                4,
                quorum,
                &[Answered, Error, Answered, Answered],
                0,
                Some(JoinCause::Complete),
            ),
            (
                5,
                quorum,
                &[Answered, Answered, Answered],
                0,
                Some(JoinCause::Enough),
            ),
            (2, by_then, &[Answered], 999, None),
            (2, by_then, &[Answered], 1_000, Some(JoinCause::Deadline)),
            (2, by_then, &[Answered, Error], 0, Some(JoinCause::Complete)),
            // A fast failure must not close an at-least-k join ...
            (3, two, &[Error], 0, None),
            (3, two, &[Answered], 0, None),
            (3, two, &[Answered, Answered], 0, Some(JoinCause::Enough)),
            // ... and failures that make k unreachable must not hang it.
            (
                3,
                two,
                &[Error, Error, Answered],
                0,
                Some(JoinCause::Complete),
            ),
        ];
        for (children, policy, states, now, expected) in cases {
            let completions: Vec<_> = states
                .iter()
                .zip(0..)
                .map(|(status, index)| done(index, *status))
                .collect();
            let verdict = decide(&fan_out(*children, *policy), &completions, *now);
            assert_eq!(verdict.map(|v| v.cause), *expected, "{states:?} at {now}");
        }
    }

    proptest! {
        #[test]
        fn any_order_and_any_repeats_give_the_same_verdict(
            states in proptest::collection::vec((0u32..12, any::<bool>()), 0..40),
            seed in any::<u64>(),
            now in 0i64..2_000,
        ) {
            // A child states its terminal status once; repeats say the same.
            let status = |index: u32| if index.is_multiple_of(3) { Error } else { Answered };
            let mut completions: Vec<_> =
                states.iter().map(|(index, _)| done(*index, status(*index))).collect();
            let fan_out = fan_out(10, JoinPolicy::AtLeast(4));
            let first = decide(&fan_out, &completions, now);
            let mut state = seed;
            for at in (1..completions.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                completions.swap(at, (state >> 33) as usize % (at + 1));
            }
            let duplicate = completions.clone();
            completions.extend(duplicate);
            prop_assert_eq!(&decide(&fan_out, &completions, now), &first);
            if let Some(verdict) = first {
                prop_assert_eq!(verdict.members.len() + verdict.missing.len(), 10);
                let mut seen: Vec<_> = verdict.members.iter().map(|m| m.index)
                    .chain(verdict.missing.iter().map(|c| c.index)).collect();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), 10, "each child is counted once (FI-3)");
            }
        }
    }
}
