//! Turtle to shapes. Every term of SHACL is either read or refused, so that nothing that somebody
//! writes into the shapes is silently not checked.

use crate::error::Error;
use crate::query::SparqlConstraint;
use crate::shape::{Constraint, Core, NodeKind, Path, Shape, Target};
use crate::terms::{SH, rdf, subject, text};
use crate::value::{Datatype, numeral};
use oxigraph::io::{RdfFormat, RdfParser};
use oxigraph::model::{Graph, NamedNode, NamedNodeRef, NamedOrBlankNode, Term, TermRef, Triple};
use regex::Regex;
use std::collections::{BTreeSet, HashSet};

/// Terms that say something to people and to nobody else.
const NOT_VALIDATING: [&str; 6] = [
    "message",
    "name",
    "description",
    "order",
    "group",
    "defaultValue",
];

/// The triples of a Turtle file; `what` names it in an error.
pub(crate) fn triples(turtle: &str, what: &'static str) -> Result<Vec<Triple>, Error> {
    RdfParser::from_format(RdfFormat::Turtle)
        .for_slice(turtle)
        .map(|quad| match quad {
            Ok(quad) => Ok(Triple::from(quad)),
            Err(error) => Err(Error::Turtle {
                what,
                reason: error.to_string(),
            }),
        })
        .collect()
}

pub(crate) fn graph(turtle: &str, what: &'static str) -> Result<Graph, Error> {
    let mut graph = Graph::new();
    for triple in triples(turtle, what)? {
        graph.insert(&triple);
    }
    Ok(graph)
}

/// The shapes that have targets, in the order of their labels.
pub(crate) fn shapes(graph: &Graph) -> Result<Vec<Shape>, Error> {
    let mut reader = Reader {
        graph,
        read: HashSet::new(),
        within: Vec::new(),
    };
    let mut shapes = Vec::new();
    for kind in ["NodeShape", "PropertyShape"] {
        for node in graph.subjects_for_predicate_object(rdf::TYPE, &sh(kind)) {
            shapes.push(reader.shape(&node.into(), None)?);
        }
    }
    shapes.retain(|shape| !shape.targets.is_empty());
    shapes.sort_by(|one, other| one.label.cmp(&other.label));
    reader.no_strays()?;
    Ok(shapes)
}

fn sh(local: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{SH}{local}"))
}

struct Reader<'a> {
    graph: &'a Graph,
    /// Nodes whose terms of SHACL were all read.
    read: HashSet<NamedOrBlankNode>,
    /// The shapes that are being read, outermost first.
    within: Vec<Term>,
}

impl Reader<'_> {
    /// A shape; `outer` is the label of the one it is part of.
    fn shape(&mut self, node: &Term, outer: Option<&str>) -> Result<Shape, Error> {
        let label = match (self.text(node, rdf::LABEL), outer) {
            (Some(label), _) => label,
            (None, Some(outer)) => outer.to_owned(),
            (None, None) => text(node.as_ref()),
        };
        if self.within.contains(node) {
            return Err(Error::Recursive(label));
        }
        self.within.push(node.clone());
        let mut shape = Shape {
            message: self.text(node, sh("message").as_ref()),
            label,
            targets: Vec::new(),
            path: None,
            constraints: Vec::new(),
        };
        for (term, value) in self.terms(node)? {
            self.add(&mut shape, &term, &value)?;
        }
        let wrong = |term: &str, count, wanted| {
            Err(Error::Count {
                shape: shape.label.clone(),
                term: term.to_owned(),
                count,
                wanted,
            })
        };
        for (term, wanted) in [("path", "once at most"), ("message", "once at most")] {
            let count = self.values(node, sh(term).as_ref()).len();
            if count > 1 {
                return wrong(term, count, wanted);
            }
        }
        let counts = |it: &&Constraint| {
            matches!(
                it,
                Constraint::Core(Core::MinCount(_) | Core::MaxCount(_) | Core::Equals(_))
            )
        };
        let counted = shape.constraints.iter().filter(counts).count();
        if shape.path.is_none() && counted > 0 {
            return wrong("path", 0, "once, because values are counted or compared,");
        }
        self.within.pop();
        Ok(shape)
    }

    /// Takes one statement about a shape into it.
    fn add(&mut self, shape: &mut Shape, term: &str, value: &Term) -> Result<(), Error> {
        let label = shape.label.clone();
        let wrong = |wanted| Error::Value {
            shape: label.clone(),
            term: term.to_owned(),
            wanted,
            found: text(value.as_ref()),
        };
        let name = || match value {
            Term::NamedNode(name) => Ok(name.clone()),
            Term::BlankNode(_) | Term::Literal(_) | Term::Triple(_) => Err(wrong("an IRI")),
        };
        let count = || {
            let number = text(value.as_ref()).parse::<u64>();
            number.map_err(|_| wrong("a number of at least 0"))
        };
        let core = match term {
            "targetClass" => {
                shape.targets.push(Target::Class(name()?));
                return Ok(());
            }
            "targetSubjectsOf" => {
                shape.targets.push(Target::SubjectsOf(name()?));
                return Ok(());
            }
            "targetObjectsOf" => {
                shape.targets.push(Target::ObjectsOf(name()?));
                return Ok(());
            }
            "path" => {
                let path = self.path(value)?;
                shape.path = Some(path.ok_or_else(|| {
                    wrong("a property, a list of paths, or a blank node with `sh:inversePath`")
                })?);
                return Ok(());
            }
            "property" => {
                let property = self.shape(value, Some(&shape.label))?;
                if property.path.is_none() {
                    return Err(wrong("a shape with `sh:path`"));
                }
                shape.constraints.push(Constraint::Property(property));
                return Ok(());
            }
            "sparql" => {
                let sparql = self.sparql(value, &shape.label)?;
                shape.constraints.push(Constraint::Sparql(sparql));
                return Ok(());
            }
            other if NOT_VALIDATING.contains(&other) => return Ok(()),
            "class" => Core::Class(name()?),
            "datatype" => Core::Datatype(
                Datatype::of(name()?.as_str())
                    .ok_or_else(|| wrong("a datatype of which it is known what its values are"))?,
            ),
            "nodeKind" => {
                Core::NodeKind(node_kind(&name()?).ok_or_else(|| wrong("a kind of node"))?)
            }
            "hasValue" => Core::HasValue(value.clone()),
            "in" => Core::In(self.list(value).ok_or_else(|| wrong("a list"))?),
            "minCount" => Core::MinCount(count()?),
            "maxCount" => Core::MaxCount(count()?),
            "minLength" => Core::MinLength(count()?),
            "minInclusive" => match value {
                Term::Literal(limit) if numeral(limit.as_ref()).is_some() => {
                    Core::MinInclusive(limit.clone())
                }
                _ => return Err(wrong("a number")),
            },
            "pattern" => {
                let pattern = Regex::new(&text(value.as_ref()));
                Core::Pattern(pattern.map_err(|error| Error::Pattern {
                    shape: label.clone(),
                    reason: error.to_string(),
                })?)
            }
            "equals" => Core::Equals(name()?),
            "not" => Core::Not(self.shape(value, Some(&shape.label))?),
            "node" => Core::Node(self.shape(value, None)?),
            "or" | "xone" => {
                let parts = self.list(value).ok_or_else(|| wrong("a list of shapes"))?;
                let parts = parts
                    .iter()
                    .map(|part| self.shape(part, Some(&shape.label)));
                let parts = parts.collect::<Result<_, _>>()?;
                if term == "or" {
                    Core::Or(parts)
                } else {
                    Core::Xone(parts)
                }
            }
            unknown => {
                return Err(Error::Unknown {
                    shape: label.clone(),
                    term: unknown.to_owned(),
                });
            }
        };
        shape.constraints.push(Constraint::Core(core));
        Ok(())
    }

    fn sparql(&mut self, node: &Term, label: &str) -> Result<SparqlConstraint, Error> {
        let refused = |reason: String| Error::Query {
            shape: label.to_owned(),
            reason,
        };
        let mut select = None;
        let mut prefixes = Vec::new();
        for (term, value) in self.terms(node)? {
            match term.as_str() {
                "select" if select.is_none() => select = Some(text(value.as_ref())),
                "prefixes" => prefixes.extend(self.prefixes(&value)?),
                other if NOT_VALIDATING.contains(&other) => {}
                _ => {
                    return Err(Error::Unknown {
                        shape: label.to_owned(),
                        term,
                    });
                }
            }
        }
        let select = select.ok_or_else(|| refused("it has no `sh:select`".to_owned()))?;
        let message = self.text(node, sh("message").as_ref());
        SparqlConstraint::new(&select, &prefixes, message).map_err(refused)
    }

    /// The prefixes that a node declares, with their name spaces.
    fn prefixes(&mut self, node: &Term) -> Result<Vec<(String, String)>, Error> {
        let mut found = Vec::new();
        for (term, declared) in self.terms(node)? {
            let value = |local: &str| self.text(&declared, sh(local).as_ref());
            match (term.as_str(), value("prefix"), value("namespace")) {
                ("declare", Some(prefix), Some(namespace)) => found.push((prefix, namespace)),
                _ => {
                    return Err(Error::Value {
                        shape: text(node.as_ref()),
                        term,
                        wanted: "a node with `sh:prefix` and `sh:namespace`",
                        found: text(declared.as_ref()),
                    });
                }
            }
            self.terms(&declared)?;
        }
        Ok(found)
    }

    fn path(&mut self, node: &Term) -> Result<Option<Path>, Error> {
        Ok(match node {
            Term::NamedNode(predicate) => Some(Path::Predicate(predicate.clone())),
            Term::BlankNode(_) => {
                if let Some(parts) = self.list(node) {
                    let parts = parts.iter().map(|part| self.path(part));
                    let parts: Option<Vec<Path>> =
                        parts.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
                    return Ok(parts.map(Path::Sequence));
                }
                match self.terms(node)?.as_slice() {
                    [(term, inner)] if term == "inversePath" => {
                        let inner = self.path(inner)?;
                        inner.map(|inner| Path::Inverse(Box::new(inner)))
                    }
                    _ => None,
                }
            }
            Term::Literal(_) | Term::Triple(_) => None,
        })
    }

    /// The members of a list, if it is one.
    fn list(&self, head: &Term) -> Option<Vec<Term>> {
        let mut members = Vec::new();
        let mut rest = head.clone();
        while rest != Term::from(rdf::NIL) {
            members.push(self.values(&rest, rdf::FIRST).into_iter().next()?);
            rest = self.values(&rest, rdf::REST).into_iter().next()?;
        }
        Some(members)
    }

    /// The statements about a node in terms of SHACL, by their local names.
    fn terms(&mut self, node: &Term) -> Result<Vec<(String, Term)>, Error> {
        let Some(node) = subject(node) else {
            return Ok(Vec::new());
        };
        self.read.insert(node.into_owned());
        let triples = self.graph.triples_for_subject(node);
        let terms = triples.filter_map(|triple| {
            let local = triple.predicate.as_str().strip_prefix(SH)?;
            Some((local.to_owned(), triple.object.into_owned()))
        });
        Ok(terms.collect())
    }

    fn values(&self, node: &Term, predicate: NamedNodeRef<'_>) -> Vec<Term> {
        let values = subject(node).into_iter().flat_map(|node| {
            self.graph
                .objects_for_subject_predicate(node, predicate)
                .map(TermRef::into_owned)
        });
        values.collect()
    }

    fn text(&self, node: &Term, predicate: NamedNodeRef<'_>) -> Option<String> {
        let values = self.values(node, predicate);
        values.first().map(|value| text(value.as_ref()))
    }

    /// Whatever speaks SHACL and was not read is a mistake.
    fn no_strays(&self) -> Result<(), Error> {
        let kinds = ["NodeShape", "PropertyShape", "SPARQLConstraint"];
        let mut strays = BTreeSet::new();
        for triple in self.graph {
            let local = triple.predicate.as_str().strip_prefix(SH);
            if let Some(local) = local
                && !self.read.contains(&triple.subject.into_owned())
            {
                strays.insert((triple.subject.to_string(), local.to_owned()));
            }
            if let TermRef::NamedNode(object) = triple.object
                && let Some(kind) = object.as_str().strip_prefix(SH)
                && triple.predicate == rdf::TYPE
                && !kinds.contains(&kind)
            {
                return Err(Error::Unknown {
                    shape: triple.subject.to_string(),
                    term: kind.to_owned(),
                });
            }
        }
        match strays.pop_first() {
            Some((node, term)) => Err(Error::Stray { node, term }),
            None => Ok(()),
        }
    }
}

fn node_kind(name: &NamedNode) -> Option<NodeKind> {
    match name.as_str().strip_prefix(SH)? {
        "IRI" => Some(NodeKind::Iri),
        "BlankNode" => Some(NodeKind::BlankNode),
        "Literal" => Some(NodeKind::Literal),
        "BlankNodeOrIRI" => Some(NodeKind::BlankNodeOrIri),
        "BlankNodeOrLiteral" => Some(NodeKind::BlankNodeOrLiteral),
        "IRIOrLiteral" => Some(NodeKind::IriOrLiteral),
        _ => None,
    }
}
