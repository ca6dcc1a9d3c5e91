//! Fan-outs and verdicts against the step records on both sides of them.

use super::{About, Finding};
use crate::limits::allotted;
use crate::provenance::{completion_status, is_partial};
use agentfleet_schema::records::{
    Activity, FanInRecord, FanInSummary, FanOutRecord, FannedOut, StepRecord,
};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys, uris};
use std::collections::BTreeMap;

/// What is wrong with a fan-out as the aggregator reads it. `next` is the step that its verdict
/// released, if that was worked already.
pub fn fan_out(
    record: &StepRecord,
    fanned_out: &FannedOut,
    stored: Option<&FanOutRecord>,
    next: Option<&StepRecord>,
) -> Vec<Finding> {
    let key = keys::fan_out(&record.session, record.step);
    let mut findings = Vec::new();
    let mut found = |problem: String| findings.push(Finding::new(About::FanOut, &key, problem));
    let Some(stored) = stored else {
        // It is there before its verdict is, and so before the next step.
        if next.is_some() {
            found("is missing, and the session went on after it".to_owned());
        }
        return findings;
    };
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let same: [(&str, String, String); 7] = [
        ("session", text(&stored.session), text(&record.session)),
        ("step", text(&stored.step), text(&record.step)),
        ("root", text(&stored.root), text(&record.root)),
        (
            "correlation",
            text(&stored.correlation),
            text(&fanned_out.correlation),
        ),
        ("policy", text(&stored.policy), text(&fanned_out.policy)),
        (
            "deadline",
            text(&stored.join_deadline),
            text(&fanned_out.join_deadline),
        ),
        (
            "synthesis step",
            text(&stored.synthesis_step),
            text(&(record.step + 1)),
        ),
    ];
    for (what, stored, recorded) in same {
        if stored != recorded {
            found(format!(
                "has the {what} {stored}, and the record of its step has {recorded}"
            ));
        }
    }
    if stored.children != fanned_out.children {
        found(format!(
            "lists other subagents than the record of its step, or in other words: {} and {}",
            stored.children.len(),
            fanned_out.children.len()
        ));
    }
    if let Some(next) = next
        && !next.request.is_empty()
        && Digest::of(stored.synthesis.body.as_bytes()) != next.request
    {
        found(format!(
            "releases a request with the digest {}, and step {} answered one with {}",
            Digest::of(stored.synthesis.body.as_bytes()),
            next.step,
            next.request
        ));
    }
    let bounds = child_request(
        record,
        fanned_out.children.first().map(|child| &child.session),
    );
    if let Some(request) = bounds
        && allotted(&request.limits) != allotted(&stored.allotment)
    {
        found(format!(
            "allots {:?} to each subagent, and what was published allots {:?}",
            allotted(&stored.allotment),
            allotted(&request.limits)
        ));
    }
    findings
}

/// The request a record published for a subagent.
pub(super) fn child_request(
    record: &StepRecord,
    child: Option<&SessionId>,
) -> Option<AgentRequest> {
    published(record, child?).and_then(|body| serde_json::from_str(body).ok())
}

fn published<'a>(record: &'a StepRecord, session: &SessionId) -> Option<&'a str> {
    use agentfleet_schema::topics::{AGENT_REQUEST, property};
    let mut requests = record.publications.iter().filter(|publication| {
        publication.topic == AGENT_REQUEST.as_str()
            && publication
                .properties
                .get(property::SESSION)
                .map(String::as_str)
                == Some(session.as_str())
    });
    requests.next().map(|publication| publication.body.as_str())
}

/// What is wrong with a verdict. `ends` are the terminal records of the subagents that have one;
/// `next` is the step that the verdict released, if that was worked already.
pub fn verdict(
    record: &StepRecord,
    fanned_out: &FannedOut,
    stored: Option<&FanInRecord>,
    ends: &BTreeMap<SessionId, &StepRecord>,
    next: Option<&StepRecord>,
) -> Vec<Finding> {
    let key = keys::fan_in(&record.session, record.step);
    let mut findings = Vec::new();
    let mut found = |problem: String| findings.push(Finding::new(About::Verdict, &key, problem));
    let read = next.and_then(|next| summary(&next.activity));
    let Some(stored) = stored else {
        if read.is_some() {
            found("is missing, and a synthesis read it".to_owned());
        }
        return findings;
    };
    if stored.correlation != fanned_out.correlation {
        found(format!(
            "has the correlation `{}`, and its fan-out has `{}`",
            stored.correlation, fanned_out.correlation
        ));
    }
    for child in &fanned_out.children {
        let member = stored.members.iter().find(|m| m.session == child.session);
        let missing = stored.missing.iter().any(|m| m == child);
        let Some(member) = member else {
            if !missing {
                found(format!("accounts for no subagent `{}`", child.session));
            }
            continue;
        };
        if missing {
            found(format!("has `{}` as member and as missing", child.session));
        }
        if (member.index, &member.goal) != (child.index, &child.goal) {
            found(format!("says otherwise what `{}` was to do", child.session));
        }
        let Some(end) = ends.get(&child.session) else {
            found(format!(
                "says that `{}` has ended, and no record ends it",
                child.session
            ));
            continue;
        };
        if member.partial != is_partial(end) {
            let how = |partial| if partial { "in part" } else { "whole" };
            found(format!(
                "says that the answer of `{}` is {}, and its last record says {}",
                child.session,
                how(member.partial),
                how(is_partial(end))
            ));
        }
        let is = (
            completion_status(end),
            uris::answer_document(&child.session),
            end.total,
        );
        if (member.status, &member.document, member.spent) != (is.0, &is.1, is.2) {
            found(format!(
                "says that `{}` ended as `{}` with {} tokens and the text `{}`, and its last record says \
                 `{}` with {} and `{}`",
                child.session,
                member.status.as_str(),
                member.spent.tokens,
                member.document,
                is.0.as_str(),
                is.2.tokens,
                is.1
            ));
        }
    }
    let known = |session: &SessionId| fanned_out.children.iter().any(|c| c.session == *session);
    let members = stored.members.iter().map(|member| &member.session);
    let missing = stored.missing.iter().map(|child| &child.session);
    for session in members.chain(missing).filter(|session| !known(session)) {
        found(format!(
            "names `{session}`, which its fan-out did not start"
        ));
    }
    if let Some(read) = read {
        let now = FanInSummary {
            correlation: stored.correlation.clone(),
            cause: stored.cause,
            members: stored.members.clone(),
            missing: stored.missing.clone(),
            spent: stored.spent(),
        };
        if now != *read {
            found("is not what the synthesis read, as the record of its step has it".to_owned());
        }
    }
    findings
}

/// What a synthesis had before it.
fn summary(activity: &Activity) -> Option<&FanInSummary> {
    match activity {
        Activity::Concluded(end) => end.fan_in.as_ref(),
        Activity::FannedOut(fan_out) => fan_out.after.as_ref(),
        Activity::Executed(executed) => executed.after.as_ref(),
        Activity::None
        | Activity::Iterated(_)
        | Activity::Planned(_)
        | Activity::Asked(_)
        | Activity::Decided(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use agentfleet_schema::Spent;
    use agentfleet_schema::records::{
        Child, CompletionStatus, Concluded, JoinCause, Member, OutcomeKind, Publication,
    };

    fn child(index: u32) -> Child {
        Child {
            index,
            session: format!("c{index}").as_str().into(),
            goal: format!("goal {index}"),
            ..Child::default()
        }
    }

    struct Case {
        record: StepRecord,
        fanned_out: FannedOut,
        fan_out: FanOutRecord,
        verdict: FanInRecord,
        ends: Vec<StepRecord>,
        next: StepRecord,
    }

    /// Two subagents were started; one answered, and the other was not waited for.
    fn tokens(tokens: u64) -> Spent {
        Spent {
            tokens,
            ..Spent::default()
        }
    }

    fn case() -> Case {
        let fanned_out = FannedOut {
            correlation: "k".into(),
            children: vec![child(0), child(1)],
            ..FannedOut::default()
        };
        let synthesis = Publication {
            body: "{}".into(),
            ..Publication::default()
        };
        let verdict = FanInRecord {
            policy: agentfleet_schema::config::JoinPolicy::All,
            correlation: "k".into(),
            members: vec![Member {
                session: "c0".into(),
                goal: "goal 0".into(),
                status: CompletionStatus::Answered,
                document: uris::answer_document(&"c0".into()),
                spent: tokens(7),
                ..Member::default()
            }],
            missing: vec![child(1)],
            cause: JoinCause::Deadline,
            ..FanInRecord::default()
        };
        Case {
            record: StepRecord {
                session: "s".into(),
                root: "s".into(),
                step: 1,
                ..StepRecord::default()
            },
            fan_out: FanOutRecord {
                session: "s".into(),
                root: "s".into(),
                step: 1,
                correlation: "k".into(),
                children: fanned_out.children.clone(),
                synthesis_step: 2,
                synthesis,
                ..FanOutRecord::default()
            },
            ends: vec![StepRecord {
                session: "c0".into(),
                outcome: OutcomeKind::Answer,
                activity: Activity::Concluded(Concluded::default()),
                total: tokens(7),
                ..StepRecord::default()
            }],
            next: StepRecord {
                session: "s".into(),
                step: 2,
                request: Digest::of(b"{}"),
                activity: Activity::Concluded(Concluded {
                    fan_in: Some(FanInSummary {
                        correlation: verdict.correlation.clone(),
                        cause: verdict.cause,
                        members: verdict.members.clone(),
                        missing: verdict.missing.clone(),
                        spent: verdict.spent(),
                    }),
                    ..Concluded::default()
                }),
                ..StepRecord::default()
            },
            fanned_out,
            verdict,
        }
    }

    fn problems(case: &Case) -> Vec<String> {
        let ends = case.ends.iter().map(|end| (end.session.clone(), end));
        let (record, fanned_out) = (&case.record, &case.fanned_out);
        let next = Some(&case.next);
        let mut found = fan_out(record, fanned_out, Some(&case.fan_out), next);
        let verdict_now = Some(&case.verdict);
        found.extend(verdict(
            record,
            fanned_out,
            verdict_now,
            &ends.collect(),
            next,
        ));
        found.into_iter().map(|one| one.problem).collect()
    }

    #[test]
    fn what_agrees_is_no_finding_and_every_change_is_one() {
        assert_eq!(problems(&case()), Vec::<String>::new());
        type Change = fn(&mut Case);
        let table: [(&str, Change); 12] = [
            ("the deadline 9", |case| case.fan_out.join_deadline = 9),
            ("the correlation", |case| {
                case.fan_out.correlation = "other".into();
            }),
            ("other subagents", |case| {
                case.fan_out.children[1].goal.push('x');
            }),
            ("releases a request", |case| {
                case.fan_out.synthesis.body.push(' ');
            }),
            ("accounts for no subagent `c1`", |case| {
                case.verdict.missing.clear();
            }),
            ("with 8 tokens", |case| {
                case.verdict.members[0].spent = tokens(8);
            }),
            ("ended as `timeout`", |case| {
                case.verdict.members[0].status = CompletionStatus::Timeout;
            }),
            ("`c0` is in part", |case| {
                case.verdict.members[0].partial = true;
            }),
            ("no record ends it", |case| case.ends.clear()),
            ("names `c9`", |case| {
                case.verdict.members[0].session = "c9".into();
            }),
            ("not what the synthesis read", |case| {
                case.verdict.cause = JoinCause::Enough;
            }),
            ("not what the synthesis read", |case| {
                case.verdict.missing_spent = tokens(1);
            }),
        ];
        for (expected, change) in table {
            let mut case = case();
            change(&mut case);
            let found = problems(&case);
            assert!(
                found.iter().any(|one| one.contains(expected)),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn what_is_gone_is_missed_once_somebody_had_read_it() {
        let case = case();
        let ends = BTreeMap::new();
        for next in [None, Some(&case.next)] {
            let found = [
                fan_out(&case.record, &case.fanned_out, None, next),
                verdict(&case.record, &case.fanned_out, None, &ends, next),
            ];
            for found in found {
                assert_eq!(found.len(), usize::from(next.is_some()), "{found:?}");
            }
        }
    }
}
