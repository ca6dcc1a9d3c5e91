//! The chain of a session's records: each names the identity of the one before, and the digest of
//! the request that it answered, which the one before had published.

use super::{About, Finding};
use crate::commit::carried;
use agentfleet_schema::records::{AcceptedRecord, OutcomeKind, StepRecord};
use agentfleet_schema::topics::{AGENT_REQUEST, property};
use agentfleet_schema::{Digest, SessionId, Triples, keys};

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct Link {
    pub step: u32,
    pub record: StepRecord,
    /// Of the stored bytes.
    pub identity: Digest,
}

/// The identity of a record, of its bytes as they are stored: what [`StepRecord::identity`] was when
/// they were written, whichever version of the program wrote them. `None` where they are no record.
///
/// Where a commit is no transaction, copies of the step's objects are stored with the record, as its
/// last member. They are no part of it.
pub fn identity(body: &[u8]) -> Option<Digest> {
    let (_, published) = member(body, b"\"publications\":")?;
    let mut bare = body[..published.start].to_vec();
    bare.extend_from_slice(b"[]");
    let rest = &body[published.end..];
    match member(body, b"\"staged\":") {
        Some((name, staged)) if name > published.end => {
            // With the comma before it.
            bare.extend_from_slice(&body[published.end..name - 1]);
            bare.extend_from_slice(&body[staged.end..]);
        }
        _ => bare.extend_from_slice(rest),
    }
    Some(Digest::of(&bare))
}

/// Where an outermost member of a JSON object begins, and where its value stands.
fn member(body: &[u8], name: &[u8]) -> Option<(usize, std::ops::Range<usize>)> {
    let (mut depth, mut in_string, mut at) = (0_u32, false, 0);
    let mut found: Option<usize> = None;
    while let Some(byte) = body.get(at) {
        if in_string {
            match byte {
                b'\\' => at += 1,
                b'"' => in_string = false,
                _ => {}
            }
            at += 1;
            continue;
        }
        match byte {
            b'"' if depth == 1 && found.is_none() && body[at..].starts_with(name) => {
                found = Some(at);
                at += name.len();
                continue;
            }
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 1 && found.is_some() => {
                let begin = found?;
                return Some((begin, begin + name.len()..at));
            }
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// What is wrong in the chain of one session. `asked` is the body of the message that began it, where
/// somebody recorded it: the request that a door took in, or that the parent published.
pub fn chain(session: &SessionId, links: &[Link], asked: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (n, link) in links.iter().enumerate() {
        let key = keys::outcome(session, link.step);
        let record = &link.record;
        let mut problem = |problem: String| {
            findings.push(Finding::new(About::Record, &key, problem));
        };
        if record.session != *session || record.step != link.step {
            problem(format!(
                "says it is step {} of session `{}`",
                record.step, record.session
            ));
        }
        let before = n.checked_sub(1).and_then(|before| links.get(before));
        match before {
            None if link.step > 0 => problem(format!(
                "its chain does not begin: step {} is missing before it",
                link.step - 1
            )),
            None => {}
            Some(before) if before.step + 1 != link.step => problem(format!(
                "its chain has a gap: step {} is missing before it",
                link.step - 1
            )),
            Some(before) => {
                let named = record.previous.as_ref().map_or("nothing", Digest::as_str);
                if named != before.identity.as_str() {
                    findings.push(Finding::new(
                        About::Record,
                        keys::outcome(session, before.step),
                        format!(
                            "its identity is {}, and the record after it names {named}: it was changed \
                             after step {} was committed, or that one was",
                            before.identity, link.step
                        ),
                    ));
                }
                if before.record.outcome.is_terminal() {
                    let outcome = before.record.outcome.as_str();
                    findings.push(Finding::new(
                        About::Record,
                        &key,
                        format!("stands after the end of its session ({outcome})"),
                    ));
                }
            }
        }
        let asked = match before {
            None => asked.map(str::to_owned),
            Some(before) => next_request(&before.record),
        };
        // An end from outside answers no message.
        if let Some(asked) = asked
            && !record.request.is_empty()
            && Digest::of(asked.as_bytes()) != record.request
        {
            findings.push(Finding::new(
                About::Record,
                &key,
                format!(
                    "answers a request with the digest {}, and what was asked has {}",
                    record.request,
                    Digest::of(asked.as_bytes())
                ),
            ));
        }
        findings.extend(told(&key, link));
    }
    findings
}

/// What is wrong with the record of what a door took in. That its request is the one that the first step
/// answered is found in the chain.
pub fn accepted(
    session: &SessionId,
    stored: &AcceptedRecord,
    first: Option<&StepRecord>,
) -> Vec<Finding> {
    let key = keys::accepted(session);
    let mut findings = Vec::new();
    let mut differs = |what: &str, stored: &str, expected: &str| {
        if stored != expected {
            let problem = format!("has the {what} `{stored}`, and not `{expected}`");
            findings.push(Finding::new(About::Record, &key, problem));
        }
    };
    let publication = &stored.publication;
    let property = |name: &str| publication.properties.get(name).map_or("", String::as_str);
    let request = stored.asked().unwrap_or_default();
    differs("session", stored.session.as_str(), session.as_str());
    differs(
        "session in its request",
        request.session_id.as_str(),
        session.as_str(),
    );
    differs("user", &stored.user, &request.user);
    differs("topic", &publication.topic, AGENT_REQUEST.as_str());
    differs(
        "session in its message",
        property(property::SESSION),
        session.as_str(),
    );
    differs(
        "root in its message",
        property(property::ROOT),
        session.as_str(),
    );
    differs("step in its message", property(property::STEP), "0");
    differs("id in its message", property(property::ID), &stored.id);
    // Who ends a run from outside has no message at hand.
    let first = first.filter(|first| !first.request.is_empty());
    if let Some(told) = first.and_then(|first| first.provenance().next())
        && (carried(&told.properties) != carried(&publication.properties)
            || publication.deliver_at.is_some())
    {
        let problem = "has a message with other properties than those that the run carries on";
        findings.push(Finding::new(About::Record, &key, problem));
    }
    findings
}

/// The request of the same session that a record published; a fan-out's lies elsewhere.
fn next_request(record: &StepRecord) -> Option<String> {
    let own = record.request_for(&record.session);
    match record.outcome {
        OutcomeKind::Continue => own.map(|publication| publication.body.clone()),
        OutcomeKind::FanOut
        | OutcomeKind::Answer
        | OutcomeKind::Pause
        | OutcomeKind::Cancelled
        | OutcomeKind::Fail => None,
    }
}

/// What a record published of itself must be what it tells. Where the body is not stored, that is so.
fn told(key: &str, link: &Link) -> Option<Finding> {
    let mut stored = link.record.provenance().peekable();
    if stored.peek().is_some() && stored.all(|message| message.body.is_empty()) {
        return None;
    }
    let derived = crate::provenance::tell_as(&link.record, &link.identity);
    let published = link.record.provenance();
    let messages = published.map(|message| serde_json::from_str::<Triples>(&message.body));
    let told: Result<Vec<Triples>, _> = messages.collect();
    let problem = match told {
        Ok(told) if told.is_empty() => "publishes no triples",
        Ok(told)
            if told
                .iter()
                .flat_map(|part| &part.triples)
                .eq(&derived.triples) =>
        {
            return None;
        }
        Ok(_) | Err(_) => {
            "publishes other triples than it tells: one of the two was changed, or another version of \
             the program wrote it"
        }
    };
    Some(Finding::new(About::Record, key, problem))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::Metadata;
    use agentfleet_schema::records::{Activity, Decision, Iterated, Publication, Usage};
    use agentfleet_schema::topics::EXPLAINABILITY;

    fn record(step: u32, previous: Option<&Link>) -> StepRecord {
        let last = step == 2;
        let mut record = StepRecord {
            session: "s".into(),
            root: "s".into(),
            step,
            previous: previous.map(|link| link.identity.clone()),
            outcome: if last {
                OutcomeKind::Answer
            } else {
                OutcomeKind::Continue
            },
            request: previous
                .and_then(|link| next_request(&link.record))
                .map(|body| Digest::of(body.as_bytes()))
                .unwrap_or_default(),
            usage: Usage {
                cost: 0.1 + 0.2,
                ..Usage::default()
            },
            activity: Activity::Iterated(Iterated {
                n: step + 1,
                action: "a \"publications\":[ } tool".into(),
                ..Iterated::default()
            }),
            decisions: vec![Decision {
                subject: "next".into(),
                ..Decision::default()
            }],
            ..StepRecord::default()
        };
        let message = Triples {
            metadata: Metadata::default(),
            triples: crate::provenance::tell(&record).triples,
        };
        let next = [(property::SESSION.to_owned(), "s".to_owned())];
        record.publications = vec![
            Publication {
                topic: EXPLAINABILITY.as_str().into(),
                body: serde_json::to_string(&message).unwrap(),
                ..Publication::default()
            },
            Publication {
                topic: AGENT_REQUEST.as_str().into(),
                properties: next.into(),
                body: format!("{{\"step\": {}}}", step + 1),
                ..Publication::default()
            },
        ];
        record
    }

    fn link(record: StepRecord) -> Link {
        let body = serde_json::to_vec(&record).unwrap();
        Link {
            step: record.step,
            identity: identity(&body).unwrap(),
            record: serde_json::from_slice(&body).unwrap(),
        }
    }

    fn links() -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        for step in 0..3 {
            let next = link(record(step, links.last()));
            links.push(next);
        }
        links
    }

    #[test]
    fn the_identity_of_stored_bytes_is_that_of_the_record_when_it_was_written() {
        for step in 0..3 {
            let record = record(step, None);
            let body = serde_json::to_vec(&record).unwrap();
            assert_eq!(identity(&body), Some(record.identity()));
        }
        // What another version wrote is part of it, whether this one reads it or not.
        let newer = br#"{"a":"\"publications\":[1]","publications":[{"x":[1]}],"z":1.10}"#;
        let bare = br#"{"a":"\"publications\":[1]","publications":[],"z":1.10}"#;
        assert_eq!(identity(newer), Some(Digest::of(bare)));
        // What is stored with it is not.
        let staged = br#"{"a":"\"publications\":[1]","publications":[{"x":[1]}],"z":1.10,"staged":[["k","\"}"]]}"#;
        assert_eq!(identity(staged), Some(Digest::of(bare)));
        let last = br#"{"publications":[1],"staged":[]}"#;
        let bare = br#"{"publications":[]}"#;
        assert_eq!(identity(last), Some(Digest::of(bare)));
        for broken in [&b"{}"[..], b"", b"[1]", b"{\"publications\":[", b"}}"] {
            assert_eq!(identity(broken), None);
        }
    }

    #[test]
    fn a_chain_that_nobody_touched_is_whole() {
        let asked = "asked";
        let mut links = links();
        assert_eq!(chain(&"s".into(), &links, None), []);
        links[0].record.request = Digest::of(asked.as_bytes());
        // The identity was taken before: only the request is looked at.
        assert_eq!(chain(&"s".into(), &links, Some(asked)), []);
    }

    #[test]
    fn what_was_changed_added_or_taken_away_is_named() {
        type Change = fn(&mut Vec<Link>);
        let table: [(&str, Change, u32, &str); 6] = [
            (
                "a field",
                |links| {
                    let mut changed = links[1].record.clone();
                    changed.usage.input_tokens = 7;
                    links[1] = link(changed);
                },
                1,
                "its identity is",
            ),
            (
                "what it published",
                |links| {
                    let mut changed = links[0].record.clone();
                    changed.publications[1].body.push(' ');
                    links[0] = link(changed);
                },
                1,
                "answers a request",
            ),
            (
                "the triples it published",
                |links| {
                    let mut changed = links[2].record.clone();
                    let body = &mut changed.publications[0].body;
                    *body = body.replace("tool", "tolo");
                    links[2] = link(changed);
                },
                2,
                "publishes other triples",
            ),
            (
                "a record is gone",
                |links| drop(links.remove(1)),
                2,
                "has a gap: step 1",
            ),
            (
                "the first is gone",
                |links| drop(links.remove(0)),
                1,
                "does not begin",
            ),
            (
                "one is added",
                |links| {
                    let added = record(3, links.last());
                    links.push(link(added));
                },
                3,
                "after the end",
            ),
        ];
        for (what, change, step, problem) in table {
            let mut links = links();
            change(&mut links);
            let found = chain(&"s".into(), &links, None);
            let key = keys::outcome(&"s".into(), step);
            assert!(
                found
                    .iter()
                    .any(|one| one.what == key && one.problem.contains(problem)),
                "{what}: {found:?}"
            );
        }
    }
}
