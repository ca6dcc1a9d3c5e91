//! Fan-outs, verdicts and waits for people against the step records on both sides of them.

use super::{About, Finding, Link};
use crate::commit::carried;
use crate::provenance::{self, completion_status, is_partial};
use agentfleet_schema::records::{
    Asked, FanInRecord, FanInSummary, FanOutRecord, FannedOut, Grounds, Member, PauseRecord,
    Publication, StepRecord,
};
use agentfleet_schema::topics::{AGENT_REQUEST, property};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys, uris};
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with a fan-out as the aggregator reads it. `next` is the step that its verdict
/// released, if that was worked already.
pub fn fan_out(
    link: &Link,
    fanned_out: &FannedOut,
    stored: Option<&FanOutRecord>,
    next: Option<&StepRecord>,
) -> Vec<Finding> {
    let record = &link.record;
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
    for problem in released(link, &stored.synthesis, next) {
        found(problem);
    }
    let bounds = child_request(
        record,
        fanned_out.children.first().map(|child| &child.session),
    );
    if let Some(request) = bounds
        && request.limits != stored.allotment
    {
        found(format!(
            "allots {} to each subagent, and what was published allots {}",
            serde_json::to_string(&stored.allotment).unwrap_or_default(),
            serde_json::to_string(&request.limits).unwrap_or_default()
        ));
    }
    findings
}

/// What is wrong with a wait for a person, as whoever answers reads it. `next` is the step that its
/// answer was, if there is one.
pub fn pause(
    link: &Link,
    asked: &Asked,
    stored: Option<&PauseRecord>,
    next: Option<&StepRecord>,
) -> Vec<Finding> {
    let record = &link.record;
    let key = keys::pause(&record.session, record.step);
    let mut findings = Vec::new();
    let mut found = |problem: String| findings.push(Finding::new(About::Wait, &key, problem));
    let Some(stored) = stored else {
        if next.is_some() {
            found("is missing, and the session went on after it".to_owned());
        }
        return findings;
    };
    let of = (&record.session, record.step, &record.root);
    if (&stored.session, stored.step, &stored.root) != of {
        found(format!(
            "says it is of step {} of session `{}` in the tree of `{}`",
            stored.step, stored.session, stored.root
        ));
    }
    if stored.asked != *asked {
        found(format!(
            "asks for something else than the record of its step, or in other words: `{}` and `{}`",
            stored.asked.tool, asked.tool
        ));
    }
    for problem in released(link, &stored.resume, next) {
        found(problem);
    }
    findings
}

/// What is wrong with a request that a step left behind, to be released when its time comes.
fn released(link: &Link, stored: &Publication, next: Option<&StepRecord>) -> Vec<String> {
    let record = &link.record;
    let mut found = Vec::new();
    let now = Digest::of(stored.body.as_bytes());
    if let Some(next) = next
        && !next.request.is_empty()
        && now != next.request
    {
        found.push(format!(
            "releases a request with the digest {now}, and step {} answered one with {}",
            next.step, next.request
        ));
    }
    let request = serde_json::from_str::<AgentRequest>(&stored.body).ok();
    // Whoever goes on in the name of a person, or ends the session, works it without a message.
    let worked = next.filter(|next| next.request.is_empty());
    let worked = worked.and_then(|next| next.worked.request.as_deref());
    let worked = worked.and_then(|body| serde_json::from_str::<AgentRequest>(body).ok());
    if worked.is_some() && worked != request {
        found.push(format!(
            "releases another request than the one that step {} was worked with",
            record.step + 1
        ));
    }
    let follows = |request: AgentRequest| {
        (request.session_id, request.step) == (record.session.clone(), record.step + 1)
            && request.control.previous.as_ref() == Some(&link.identity)
    };
    if !request.is_some_and(follows) {
        found.push(format!(
            "releases what is not the request for step {}, or was not of this record",
            record.step + 1
        ));
    }
    if stored.topic != AGENT_REQUEST.as_str() || stored.deliver_at.is_some() {
        found.push(format!(
            "is to be released on the topic `{}`{}, not at once on `{}`",
            stored.topic,
            stored.deliver_at.map_or("", |_| " later"),
            AGENT_REQUEST.as_str()
        ));
    }
    let names = stored.properties.keys();
    let expected = properties_of_next(record);
    let mut differ: Vec<&str> = names
        .chain(expected.keys())
        .filter(|name| stored.properties.get(*name) != expected.get(*name))
        .map(String::as_str)
        .collect();
    differ.sort_unstable();
    differ.dedup();
    if !differ.is_empty() {
        found.push(format!(
            "is to be released with other properties than the step had: `{}`",
            differ.join("`, `")
        ));
    }
    found
}

/// The properties of the request for the step after a record's, as its other messages have them.
fn properties_of_next(record: &StepRecord) -> BTreeMap<String, String> {
    let told = record.provenance().next();
    let mut properties = told.map_or_else(BTreeMap::new, |told| carried(&told.properties));
    let mut put = |name: &str, value: String| properties.insert(name.to_owned(), value);
    put(property::SESSION, record.session.to_string());
    put(property::STEP, (record.step + 1).to_string());
    put(property::ROOT, record.root.to_string());
    if let Some(parent) = &record.parent {
        put(property::CORRELATION, parent.correlation.to_string());
        put(property::PARENT, parent.session.to_string());
        put(property::PARENT_STEP, parent.step.to_string());
        put(property::INDEX, parent.index.to_string());
    }
    properties
}

/// The request a record published for a subagent.
pub(super) fn child_request(
    record: &StepRecord,
    child: Option<&SessionId>,
) -> Option<AgentRequest> {
    let published = record.request_for(child?)?;
    serde_json::from_str(&published.body).ok()
}

/// What a verdict says otherwise of a subagent's end than its last record.
fn ended_otherwise(member: &Member, end: &StepRecord) -> Vec<String> {
    let session = &member.session;
    let mut found = Vec::new();
    if member.partial != is_partial(end) {
        let how = |partial| if partial { "in part" } else { "whole" };
        found.push(format!(
            "says that the answer of `{session}` is {}, and its last record says {}",
            how(member.partial),
            how(is_partial(end))
        ));
    }
    let iris = |grounds: &Grounds| grounds.all().filter_map(|s| uris::as_iri(&s.uri)).collect();
    let told: BTreeSet<String> = end.grounds().map(iris).unwrap_or_default();
    if told != member.sources.iter().map(|s| s.uri.clone()).collect() {
        found.push(format!(
            "says otherwise what the answer of `{session}` rests on than its last record"
        ));
    }
    let (status, document) = (completion_status(end), uris::answer_document(session));
    if (member.status, &member.document, member.spent) != (status, &document, end.total) {
        found.push(format!(
            "says that `{session}` ended as `{}` with {} tokens and the text `{}`, and its last record says \
             `{}` with {} and `{document}`",
            member.status.as_str(),
            member.spent.tokens,
            member.document,
            status.as_str(),
            end.total.tokens,
        ));
    }
    found
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
    let read = next.and_then(|next| provenance::fan_in(&next.activity));
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
        match ends.get(&child.session) {
            Some(end) => ended_otherwise(member, end)
                .into_iter()
                .for_each(&mut found),
            None => found(format!(
                "says that `{}` has ended, and no record ends it",
                child.session
            )),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use agentfleet_schema::Spent;
    use agentfleet_schema::records::{
        Activity, Child, CompletionStatus, Concluded, JoinCause, Member, OutcomeKind, Publication,
        Worked,
    };
    use agentfleet_schema::topics::EXPLAINABILITY;

    fn child(index: u32) -> Child {
        Child {
            index,
            session: format!("c{index}").as_str().into(),
            goal: format!("goal {index}"),
            ..Child::default()
        }
    }

    fn tokens(tokens: u64) -> Spent {
        Spent {
            tokens,
            ..Spent::default()
        }
    }

    /// What step 1 of the session leaves to be released.
    fn request_of_step_2() -> Publication {
        let mut request = AgentRequest {
            session_id: "s".into(),
            step: 2,
            ..AgentRequest::default()
        };
        request.control.previous = Some(Digest::of(b"record"));
        let properties = [
            (property::SESSION, "s"),
            (property::STEP, "2"),
            (property::ROOT, "s"),
            (property::TRACEPARENT, "00-1-2-00"),
        ];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Publication {
            topic: AGENT_REQUEST.as_str().to_owned(),
            properties: properties.into(),
            body: serde_json::to_string(&request).unwrap(),
            ..Publication::default()
        }
    }

    fn link() -> Link {
        let trace = (property::TRACEPARENT.to_owned(), "00-1-2-00".to_owned());
        let kind = (property::KIND.to_owned(), "step".to_owned());
        Link {
            step: 1,
            record: StepRecord {
                session: "s".into(),
                root: "s".into(),
                step: 1,
                publications: vec![Publication {
                    topic: EXPLAINABILITY.as_str().to_owned(),
                    properties: [trace, kind].into(),
                    ..Publication::default()
                }],
                ..StepRecord::default()
            },
            identity: Digest::of(b"record"),
        }
    }

    /// Two subagents were started; one answered, and the other was not waited for.
    struct Case {
        link: Link,
        fanned_out: FannedOut,
        fan_out: FanOutRecord,
        verdict: FanInRecord,
        ends: Vec<StepRecord>,
        next: StepRecord,
    }

    fn case() -> Case {
        let fanned_out = FannedOut {
            correlation: "k".into(),
            children: vec![child(0), child(1)],
            ..FannedOut::default()
        };
        let synthesis = request_of_step_2();
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
            link: link(),
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
                request: Digest::of(request_of_step_2().body.as_bytes()),
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
        let (record, fanned_out) = (&case.link.record, &case.fanned_out);
        let next = Some(&case.next);
        let mut found = fan_out(&case.link, fanned_out, Some(&case.fan_out), next);
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
        let table: [(&str, Change); 16] = [
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
            ("on the topic `x`", |case| {
                case.fan_out.synthesis.topic = "x".into();
            }),
            ("other properties than the step had: `root`", |case| {
                let root = property::ROOT.to_owned();
                case.fan_out.synthesis.properties.insert(root, "x".into());
            }),
            ("properties than the step had: `traceparent`", |case| {
                case.fan_out
                    .synthesis
                    .properties
                    .remove(property::TRACEPARENT);
            }),
            // Before anybody has answered it.
            ("is not the request for step 2", |case| {
                case.next.request = Digest::default();
                case.fan_out.synthesis.body = "{}".into();
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
    fn a_wait_is_that_of_its_step_and_so_is_what_goes_on_after_it() {
        let asked = Asked {
            tool: "send".into(),
            ..Asked::default()
        };
        let good = PauseRecord {
            session: "s".into(),
            step: 1,
            root: "s".into(),
            asked: asked.clone(),
            resume: request_of_step_2(),
        };
        let next = StepRecord {
            worked: Box::new(Worked {
                request: Some(good.resume.body.clone()),
                ..Worked::default()
            }),
            ..StepRecord::default()
        };
        type Change = fn(&mut PauseRecord);
        let table: [(&str, Change); 5] = [
            ("", |_| {}),
            ("says it is of step 7", |wait| wait.step = 7),
            ("asks for something else", |wait| {
                wait.asked.arguments.insert("to".into(), "all".into());
            }),
            ("another request than the one", |wait| {
                let body = wait
                    .resume
                    .body
                    .replace("\"question\":\"\"", "\"question\":\"x\"");
                wait.resume.body = body;
            }),
            ("topic `x`", |wait| wait.resume.topic = "x".into()),
        ];
        for (expected, change) in table {
            let mut wait = good.clone();
            change(&mut wait);
            let found = pause(&link(), &asked, Some(&wait), Some(&next));
            let problems: Vec<&str> = found.iter().map(|one| one.problem.as_str()).collect();
            let named = problems.len() == usize::from(!expected.is_empty())
                && problems.iter().all(|one| one.contains(expected));
            assert!(named, "{expected}: {problems:?}");
        }
    }

    #[test]
    fn what_is_gone_is_missed_once_somebody_had_read_it() {
        let case = case();
        let ends = BTreeMap::new();
        for next in [None, Some(&case.next)] {
            let found = [
                fan_out(&case.link, &case.fanned_out, None, next),
                verdict(&case.link.record, &case.fanned_out, None, &ends, next),
                pause(&case.link, &Asked::default(), None, next),
            ];
            for found in found {
                assert_eq!(found.len(), usize::from(next.is_some()), "{found:?}");
            }
        }
    }
}
