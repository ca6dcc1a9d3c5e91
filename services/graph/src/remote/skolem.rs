//! What has no name gets one in the store, and loses it again in answers.
//!
//! A blank node of an update is a new one each time the update is sent, so that repeating an insert
//! would double it; and it cannot be named to delete it. So `_:b1` is stored as
//! `urn:agentfleet:blank:b1`: as in the embedded graph, the same label is the same node. Statements
//! without a graph lie in a graph of their own, which no variable ever names.

use oxigraph::model::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term, Triple};

/// Where statements without a graph lie.
pub(super) const NO_GRAPH: &str = "urn:agentfleet:graph:none";
pub(super) const BLANK: &str = "urn:agentfleet:blank:";

/// A quad as it is stored: ground, and in a named graph.
pub(super) fn stored(quad: Quad) -> Quad {
    let graph = match quad.graph_name {
        GraphName::DefaultGraph => NamedNode::new_unchecked(NO_GRAPH),
        GraphName::NamedNode(node) => node,
        GraphName::BlankNode(node) => named(&node),
    };
    Quad::new(name(quad.subject), quad.predicate, term(quad.object), graph)
}

fn name(node: NamedOrBlankNode) -> NamedOrBlankNode {
    match node {
        NamedOrBlankNode::BlankNode(node) => named(&node).into(),
        NamedOrBlankNode::NamedNode(_) => node,
    }
}

fn term(term: Term) -> Term {
    match term {
        Term::BlankNode(node) => named(&node).into(),
        Term::Triple(triple) => {
            let Triple {
                subject,
                predicate,
                object,
            } = *triple;
            Term::Triple(Box::new(Triple::new(
                name(subject),
                predicate,
                self::term(object),
            )))
        }
        Term::NamedNode(_) | Term::Literal(_) => term,
    }
}

fn named(node: &BlankNode) -> NamedNode {
    NamedNode::new_unchecked(format!("{BLANK}{}", encoded(node.as_str())))
}

/// A term of an answer as it was before it was stored.
pub(super) fn restored(term: Term) -> Term {
    match term {
        Term::NamedNode(node) => match blank(&node) {
            Some(node) => node.into(),
            None => node.into(),
        },
        Term::Triple(triple) => {
            let Triple {
                subject,
                predicate,
                object,
            } = *triple;
            let subject = match subject {
                NamedOrBlankNode::NamedNode(node) => match blank(&node) {
                    Some(node) => node.into(),
                    None => node.into(),
                },
                NamedOrBlankNode::BlankNode(_) => subject,
            };
            Term::Triple(Box::new(Triple::new(subject, predicate, restored(object))))
        }
        Term::BlankNode(_) | Term::Literal(_) => term,
    }
}

fn blank(node: &NamedNode) -> Option<BlankNode> {
    let label = decoded(node.as_str().strip_prefix(BLANK)?)?;
    BlankNode::new(label).ok()
}

/// Percent-encodes everything but unreserved characters.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Undoes percent-encoding; `None` if the text is not of that form.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn blank_nodes_come_back_with_their_labels() {
        for label in ["b1", "k0123b7", "a.b-c_d", "ünïcode", "0"] {
            let node = BlankNode::new(label).unwrap();
            let inner = Triple::new(node.clone(), NamedNode::new("urn:p").unwrap(), node.clone());
            let quad = Quad::new(
                node.clone(),
                NamedNode::new("urn:p").unwrap(),
                Term::Triple(Box::new(inner.clone())),
                GraphName::DefaultGraph,
            );
            let stored = stored(quad);
            assert!(!stored.to_string().contains("_:"), "{stored}");
            assert!(NamedNode::new(stored.subject.to_string().trim_matches(['<', '>'])).is_ok());
            assert_eq!(restored(stored.subject.into()), Term::from(node));
            assert_eq!(restored(stored.object), Term::Triple(Box::new(inner)));
            assert_eq!(stored.graph_name, NamedNode::new_unchecked(NO_GRAPH).into());
        }
    }
}
