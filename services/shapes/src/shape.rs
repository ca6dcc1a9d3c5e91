//! Shapes as values. Illegal ones do not come out of `read`.

use crate::query::SparqlConstraint;
use crate::value::Datatype;
use oxigraph::model::{Literal, NamedNode, Term};
use regex::Regex;

/// A node shape, or a property shape where it has a path.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Its `rdfs:label`; where it has none, its name. A property shape has that of its node shape.
    pub(crate) label: String,
    pub(crate) targets: Vec<Target>,
    pub(crate) path: Option<Path>,
    /// What to say where it is broken. Shapes inside it have their own.
    pub(crate) message: Option<String>,
    pub(crate) constraints: Vec<Constraint>,
}

/// Which nodes a shape is about.
#[derive(Debug)]
pub(crate) enum Target {
    /// Instances of the class and of its subclasses.
    Class(NamedNode),
    SubjectsOf(NamedNode),
    ObjectsOf(NamedNode),
}

/// How to come from a node to the values of a property shape.
#[derive(Debug, PartialEq)]
pub(crate) enum Path {
    Predicate(NamedNode),
    Inverse(Box<Path>),
    Sequence(Vec<Path>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Iri,
    BlankNode,
    Literal,
    BlankNodeOrIri,
    BlankNodeOrLiteral,
    IriOrLiteral,
}

/// What a shape asks of its values.
#[derive(Debug)]
pub(crate) enum Constraint {
    Core(Core),
    /// Each value is the node of a property shape.
    Property(Shape),
    Sparql(SparqlConstraint),
}

/// A constraint of SHACL Core that values break. Names and meanings are those of its section 4.
#[derive(Debug)]
pub(crate) enum Core {
    Class(NamedNode),
    Datatype(Datatype),
    NodeKind(NodeKind),
    HasValue(Term),
    In(Vec<Term>),
    MinCount(u64),
    MaxCount(u64),
    MinInclusive(Literal),
    MinLength(u64),
    Pattern(Regex),
    Equals(NamedNode),
    Not(Shape),
    Or(Vec<Shape>),
    Xone(Vec<Shape>),
    Node(Shape),
}

impl Core {
    /// The term of SHACL that stands for it.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Class(_) => "class",
            Self::Datatype(_) => "datatype",
            Self::NodeKind(_) => "nodeKind",
            Self::HasValue(_) => "hasValue",
            Self::In(_) => "in",
            Self::MinCount(_) => "minCount",
            Self::MaxCount(_) => "maxCount",
            Self::MinInclusive(_) => "minInclusive",
            Self::MinLength(_) => "minLength",
            Self::Pattern(_) => "pattern",
            Self::Equals(_) => "equals",
            Self::Not(_) => "not",
            Self::Or(_) => "or",
            Self::Xone(_) => "xone",
            Self::Node(_) => "node",
        }
    }
}

impl NodeKind {
    pub(crate) fn has(self, term: &Term) -> bool {
        match term {
            Term::NamedNode(_) => {
                matches!(self, Self::Iri | Self::BlankNodeOrIri | Self::IriOrLiteral)
            }
            Term::BlankNode(_) => matches!(
                self,
                Self::BlankNode | Self::BlankNodeOrIri | Self::BlankNodeOrLiteral
            ),
            Term::Literal(_) => matches!(
                self,
                Self::Literal | Self::BlankNodeOrLiteral | Self::IriOrLiteral
            ),
            // SHACL speaks of no triple terms.
            Term::Triple(_) => false,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Iri => "IRI",
            Self::BlankNode => "blank node",
            Self::Literal => "literal",
            Self::BlankNodeOrIri => "blank node or IRI",
            Self::BlankNodeOrLiteral => "blank node or literal",
            Self::IriOrLiteral => "IRI or literal",
        }
    }
}

impl Path {
    /// The path in the syntax of SPARQL; `name` writes its predicates.
    pub(crate) fn text(&self, name: &impl Fn(&NamedNode) -> String) -> String {
        match self {
            Self::Predicate(predicate) => name(predicate),
            Self::Inverse(path) => match &**path {
                Self::Predicate(predicate) => format!("^{}", name(predicate)),
                path => format!("^({})", path.text(name)),
            },
            Self::Sequence(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.text(name)).collect();
                parts.join("/")
            }
        }
    }
}
