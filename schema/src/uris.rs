//! The URI scheme: `urn:trustgraph:agent:{session}` and what hangs below it.

use crate::id::{ApprovalId, CorrelationId, SessionId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What may not stand in one segment of a URN.
const UNSAFE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':');

const AGENT: &str = "urn:trustgraph:agent:";

/// The graph every provenance quad lies in.
pub const RETRIEVAL_GRAPH: &str = "urn:graph:retrieval";

/// The graph that repeats what is told of a tenant's runs, for who may see no others.
pub fn tenant_graph(tenant: &str) -> String {
    format!("{TENANT_GRAPH}{}", encode(tenant))
}

/// Whether a graph is one of those.
pub fn is_tenant_graph(graph: &str) -> bool {
    graph.starts_with(TENANT_GRAPH)
}

const TENANT_GRAPH: &str = "urn:agentfleet:tenant:";

/// The graph that holds what was loaded into a collection.
pub fn collection_graph(collection: &str) -> String {
    format!("urn:agentfleet:collection:{}", encode(collection))
}

pub fn session(session: &SessionId) -> String {
    format!("{AGENT}{}", encode(session.as_str()))
}

/// The session id inside any URI of this scheme.
pub fn session_of(uri: &str) -> Option<SessionId> {
    let rest = uri.strip_prefix(AGENT)?;
    let id = rest.split('/').next()?;
    (!id.is_empty()).then(|| SessionId::new(decode(id)))
}

pub fn question(of: &SessionId) -> String {
    format!("{}/question", session(of))
}

pub fn routing(of: &SessionId) -> String {
    format!("{}/routing", session(of))
}

/// One decision of the routing: `task-type` or `pattern`.
pub fn routing_decision(of: &SessionId, subject: &str) -> String {
    format!("{}/routing/{subject}", session(of))
}

pub fn iteration(of: &SessionId, n: u32) -> String {
    format!("{}/i{n}", session(of))
}

pub fn thought(of: &SessionId, n: u32) -> String {
    format!("{}/i{n}/thought", session(of))
}

pub fn observation(of: &SessionId, n: u32) -> String {
    format!("{}/i{n}/observation", session(of))
}

/// A plan: the first one, or the revision of that number.
pub fn plan(of: &SessionId, revision: u32) -> String {
    match revision {
        0 => format!("{}/plan", session(of)),
        revision => format!("{}/plan/{revision}", session(of)),
    }
}

/// What became of the step at `index` of the plan.
pub fn step_result(of: &SessionId, index: u32) -> String {
    format!("{}/step/{index}", session(of))
}

/// What an agent said of the iteration `n`.
pub fn critique(of: &SessionId, n: u32) -> String {
    format!("{}/i{n}/critique", session(of))
}

/// How the answers of a debate stand to each other.
pub fn comparison(of: &SessionId, correlation: &CorrelationId) -> String {
    format!(
        "{}/comparison/{}",
        session(of),
        encode(correlation.as_str())
    )
}

pub fn answer(of: &SessionId) -> String {
    format!("{}/answer", session(of))
}

/// The text of the answer; the answer entity points to it with `tg:document`.
pub fn answer_document(of: &SessionId) -> String {
    format!("{}/answer/document", session(of))
}

pub fn fan_out(of: &SessionId, correlation: &CorrelationId) -> String {
    format!("{}/fanout/{}", session(of), encode(correlation.as_str()))
}

/// The goal of the child at `index` of a fan-out, as a document.
pub fn goal(of: &SessionId, correlation: &CorrelationId, index: u32) -> String {
    format!("{}/goal/{index}", fan_out(of, correlation))
}

pub fn completion(of: &SessionId) -> String {
    format!("{}/completion", session(of))
}

pub fn synthesis(of: &SessionId, correlation: &CorrelationId) -> String {
    format!("{}/synthesis/{}", session(of), encode(correlation.as_str()))
}

/// A choice made at a step, other than the routing's.
pub fn decision(of: &SessionId, step: u32, subject: &str) -> String {
    format!("{}/decision/{step}/{}", session(of), encode(subject))
}

/// A call that waits, or waited, for a person.
pub fn approval(of: &SessionId, id: &ApprovalId) -> String {
    format!("{}/approval/{}", session(of), encode(id.as_str()))
}

/// What an agent thought before it asked for a call that waits for a person.
pub fn approval_thought(of: &SessionId, id: &ApprovalId) -> String {
    format!("{}/thought", approval(of, id))
}

/// The software agent that works a session.
pub fn agent(of: &SessionId) -> String {
    format!("{}/agent", session(of))
}

/// A text that belongs to a node: rationale, large observation, thought.
pub fn document_of(node: &str) -> String {
    format!("{node}/document")
}

pub fn pattern(name: &str) -> String {
    format!("urn:trustgraph:agent-pattern:{}", encode(name))
}

pub fn task_type(name: &str) -> String {
    format!("urn:trustgraph:agent-task-type:{}", encode(name))
}

/// The name inside the URI of a pattern or a task type.
pub fn config_name_of(uri: &str) -> Option<String> {
    let patterns = uri.strip_prefix("urn:trustgraph:agent-pattern:");
    let name = patterns.or_else(|| uri.strip_prefix("urn:trustgraph:agent-task-type:"))?;
    Some(decode(name))
}

pub fn tool(name: &str) -> String {
    format!("urn:trustgraph:tool:{}", encode(name))
}

pub fn model(name: &str) -> String {
    format!("urn:trustgraph:model:{}", encode(name))
}

/// A person who decided something.
pub fn person(name: &str) -> String {
    format!("urn:trustgraph:person:{}", encode(name))
}

pub fn collection(name: &str) -> String {
    format!("urn:trustgraph:collection:{}", encode(name))
}

/// An IRI as it may stand in RDF: what is forbidden there is percent-encoded. `None` if the text
/// has no scheme, so cannot be an absolute IRI.
pub fn as_iri(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !valid || rest.is_empty() {
        return None;
    }
    let mut out = format!("{scheme}:");
    // Square brackets stand around an IPv6 host, and nowhere else.
    let host = rest.strip_prefix("//").map_or(0, |after| {
        2 + after.find(['/', '?', '#']).unwrap_or(after.len())
    });
    let mut fragment = false;
    for (at, c) in rest.char_indices() {
        let escape = |at: usize| {
            let digits = rest.as_bytes().get(at + 1..at + 3);
            digits.is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
        };
        let forbidden = match c {
            '[' | ']' => at >= host,
            '%' => !escape(at),
            '#' => std::mem::replace(&mut fragment, true),
            '<' | '>' | '"' | '{' | '}' | '|' | '^' | '`' | '\\' => true,
            _ => c <= ' ' || c.is_control() || c.is_whitespace(),
        };
        if forbidden {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        } else {
            out.push(c);
        }
    }
    Some(out)
}

/// Percent-encodes what may not stand in one segment of a URN or of a path, so that any caller's id is safe.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNSAFE).to_string()
}

fn decode(text: &str) -> String {
    let bytes = percent_decode_str(text);
    bytes.decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_stand_in_an_iri_is_encoded_and_the_rest_is_kept() {
        for (text, expected) in [
            (
                "urn:dossier:100% of it",
                Some("urn:dossier:100%25%20of%20it"),
            ),
            ("file:///a%20b/c d.md", Some("file:///a%20b/c%20d.md")),
            ("http://[::1]:80/x[1]", Some("http://[::1]:80/x%5B1%5D")),
            (
                "https://example.org/a#b#c",
                Some("https://example.org/a#b%23c"),
            ),
            ("urn:x:naïve\u{a0}|\n", Some("urn:x:naïve%C2%A0%7C%0A")),
            ("no scheme", None),
            ("1a:b", None),
            ("urn:", None),
        ] {
            assert_eq!(as_iri(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn any_session_id_makes_one_valid_segment_and_comes_back() {
        for id in [
            "a",
            "with space/and slash",
            "ü<>\"%",
            "550e8400-e29b-41d4-a716-446655440000",
        ] {
            let uri = iteration(&SessionId::new(id), 3);
            assert!(!uri.contains(['<', '>', '"', ' ']), "{uri}");
            assert_eq!(session_of(&uri), Some(SessionId::new(id)));
        }
        assert_eq!(session_of("urn:other:x"), None);
        for name in ["react", "with space", "a:b"] {
            for uri in [pattern(name), task_type(name)] {
                assert_eq!(config_name_of(&uri).as_deref(), Some(name));
            }
        }
    }
}
