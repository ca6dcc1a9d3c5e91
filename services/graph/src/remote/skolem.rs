//! What has no name gets one in the store, and loses it again in answers.
//!
//! A blank node of an update is a new one each time the update is sent, so that repeating an insert
//! would double it; and it cannot be named to delete it. So `_:b1` is stored as
//! `urn:agentfleet:blank:b1`: as in the embedded graph, the same label is the same node. Statements
//! without a graph lie in a graph of their own, which no variable ever names.

use crate::terms::renamed;
use oxigraph::model::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where statements without a graph lie.
pub(super) const NO_GRAPH: &str = "urn:agentfleet:graph:none";
pub(super) const BLANK: &str = "urn:agentfleet:blank:";
/// Everything but unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A quad as it is stored: ground, and in a named graph.
pub(super) fn stored(quad: Quad) -> Quad {
    let mut name = |node| match node {
        NamedOrBlankNode::BlankNode(node) => named(&node).into(),
        NamedOrBlankNode::NamedNode(_) => node,
    };
    let graph = match quad.graph_name {
        GraphName::DefaultGraph => NamedNode::new_unchecked(NO_GRAPH),
        GraphName::NamedNode(node) => node,
        GraphName::BlankNode(node) => named(&node),
    };
    let (subject, object) = (name(quad.subject), renamed(quad.object, &mut name));
    Quad::new(subject, quad.predicate, object, graph)
}

fn named(node: &BlankNode) -> NamedNode {
    let label = utf8_percent_encode(node.as_str(), RESERVED);
    NamedNode::new_unchecked(format!("{BLANK}{label}"))
}

/// A term of an answer as it was before it was stored.
pub(super) fn restored(term: Term) -> Term {
    renamed(term, &mut |node| match &node {
        NamedOrBlankNode::NamedNode(named) => blank(named).map_or(node, Into::into),
        NamedOrBlankNode::BlankNode(_) => node,
    })
}

fn blank(node: &NamedNode) -> Option<BlankNode> {
    let label = decoded(node.as_str().strip_prefix(BLANK)?)?;
    BlankNode::new(label).ok()
}

/// Undoes percent-encoding; `None` if the text is not of that form.
pub(super) fn decoded(text: &str) -> Option<String> {
    let bytes = percent_decode_str(text);
    Some(bytes.decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use oxigraph::model::Triple;

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
