//! Parts of a query that share no variable, so that every row of one goes with every row of the
//! other.
//!
//! The engine would make such a product out of rows it has in memory: that reads nothing, so it
//! cannot be cancelled, and holds one side whole. Told to look the second part up for each row of
//! the first, it makes the same rows, reads while it does, and holds none.

use super::walk;
use spargebra::Query;
use spargebra::algebra::GraphPattern;
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use std::collections::BTreeSet;

/// Takes every product in a query apart.
pub(crate) fn nest(query: &mut Query) {
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    in_pattern(pattern);
}

fn in_pattern(pattern: &mut GraphPattern) {
    if !matches!(
        pattern,
        GraphPattern::Join { .. } | GraphPattern::Bgp { .. }
    ) {
        for inner in walk::parts(pattern).0 {
            in_pattern(inner);
        }
        return;
    }
    let mut leaves = Vec::new();
    flatten(std::mem::take(pattern), &mut leaves);
    *pattern = connected(leaves)
        .into_iter()
        .map(joined)
        .reduce(|left, right| GraphPattern::Lateral {
            left: Box::new(left),
            right: Box::new(right),
        })
        .unwrap_or_default();
}

/// The parts of nested joins, each triple pattern on its own.
fn flatten(pattern: GraphPattern, leaves: &mut Vec<GraphPattern>) {
    match pattern {
        GraphPattern::Join { left, right } => {
            flatten(*left, leaves);
            flatten(*right, leaves);
        }
        GraphPattern::Bgp { patterns } => {
            leaves.extend(patterns.into_iter().map(|pattern| GraphPattern::Bgp {
                patterns: vec![pattern],
            }));
        }
        mut other => {
            in_pattern(&mut other);
            leaves.push(other);
        }
    }
}

/// Groups of parts that share variables, in the order in which they were written.
fn connected(leaves: Vec<GraphPattern>) -> Vec<Vec<GraphPattern>> {
    let mut groups: Vec<(BTreeSet<String>, Vec<(usize, GraphPattern)>)> = Vec::new();
    for (at, leaf) in leaves.into_iter().enumerate() {
        let mut names = variables(&leaf);
        let mut members = vec![(at, leaf)];
        let mut apart = Vec::new();
        for (known, parts) in groups {
            if known.is_disjoint(&names) {
                apart.push((known, parts));
            } else {
                names.extend(known);
                members.extend(parts);
            }
        }
        apart.push((names, members));
        groups = apart;
    }
    let mut groups: Vec<Vec<(usize, GraphPattern)>> =
        groups.into_iter().map(|(_, members)| members).collect();
    for members in &mut groups {
        members.sort_by_key(|(at, _)| *at);
    }
    groups.sort_by_key(|members| members.first().map(|(at, _)| *at));
    let bare = |members: Vec<(usize, GraphPattern)>| members.into_iter().map(|(_, p)| p).collect();
    groups.into_iter().map(bare).collect()
}

/// Parts as one pattern again; neighbouring triple patterns as one group, which the engine orders.
fn joined(parts: Vec<GraphPattern>) -> GraphPattern {
    let mut merged: Vec<GraphPattern> = Vec::new();
    for part in parts {
        match (merged.last_mut(), part) {
            (Some(GraphPattern::Bgp { patterns }), GraphPattern::Bgp { patterns: more }) => {
                patterns.extend(more);
            }
            (_, part) => merged.push(part),
        }
    }
    merged
        .into_iter()
        .reduce(|left, right| GraphPattern::Join {
            left: Box::new(left),
            right: Box::new(right),
        })
        .unwrap_or_default()
}

/// What may tie a part to others: its variables, and blank nodes, which are variables without a name.
fn variables(pattern: &GraphPattern) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    pattern.on_in_scope_variable(|variable| {
        names.insert(variable.as_str().to_owned());
    });
    match pattern {
        GraphPattern::Bgp { patterns } => {
            for pattern in patterns {
                in_triple(pattern, &mut names);
            }
        }
        GraphPattern::Path {
            subject, object, ..
        } => {
            in_term(subject, &mut names);
            in_term(object, &mut names);
        }
        _ => {}
    }
    names
}

fn in_triple(pattern: &TriplePattern, names: &mut BTreeSet<String>) {
    in_term(&pattern.subject, names);
    if let NamedNodePattern::Variable(variable) = &pattern.predicate {
        names.insert(variable.as_str().to_owned());
    }
    in_term(&pattern.object, names);
}

fn in_term(term: &TermPattern, names: &mut BTreeSet<String>) {
    match term {
        TermPattern::BlankNode(node) => {
            names.insert(format!("_:{}", node.as_str()));
        }
        TermPattern::Variable(variable) => {
            names.insert(variable.as_str().to_owned());
        }
        TermPattern::Triple(triple) => in_triple(triple, names),
        TermPattern::NamedNode(_) | TermPattern::Literal(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use spargebra::SparqlParser;

    fn laterals(pattern: &mut GraphPattern) -> usize {
        let own = usize::from(matches!(pattern, GraphPattern::Lateral { .. }));
        own + walk::parts(pattern)
            .0
            .into_iter()
            .map(laterals)
            .sum::<usize>()
    }

    #[test]
    fn what_shares_no_variable_is_looked_up_row_by_row() {
        for (group, products) in [
            ("?s ?p ?o", 0),
            ("?s ?p ?o . ?o ?q ?r", 0),
            ("?s ?p ?o . ?a ?b ?c", 1),
            ("?s ?p ?o . ?a ?b ?c . ?d ?e ?f", 2),
            ("?s ?p ?o . ?a ?b ?c . ?s ?x ?a", 0),
            ("?s ?p ?o . ?a <urn:p>/<urn:q> ?c", 1),
            ("?s ?p ?o . ?a ?b ?c . ?s <urn:p>* ?a", 0),
            ("?s ?p [ ?q ?o ]", 0),
            ("{ ?s ?p ?o } { SELECT ?a { ?a ?b ?s } }", 1),
            ("{ ?s ?p ?o } { SELECT ?s { ?a ?b ?s } }", 0),
            ("OPTIONAL { ?s ?p ?o . ?a ?b ?c }", 1),
            ("?s ?p ?o FILTER NOT EXISTS { ?s ?q ?o }", 0),
        ] {
            let query = format!("SELECT * {{ {group} }}");
            let mut query = SparqlParser::new().parse_query(&query).unwrap();
            nest(&mut query);
            let Query::Select { pattern, .. } = &mut query else {
                unreachable!()
            };
            assert_eq!(laterals(pattern), products, "{group}");
        }
    }
}
