//! Validates execution traces against SHACL shapes: those of `schema/shapes/agentfleet.ttl`, or others
//! that use the same parts of SHACL.
//!
//! It is no whole SHACL processor. It has the parts that the project's shapes use, and refuses shapes
//! that use another one: a constraint that nobody evaluates would look like one that always holds.
//! `tests/validators` holds it against an independent processor.
//!
//! Pure: triples come in, violations go out. Whoever reads triples from a store is elsewhere.
//!
//! - `read` makes `shape`s of Turtle, once;
//! - `data` is the graph to be validated: the triples that were given, with the ontology;
//! - `evaluate` finds the nodes that a shape is about, and goes through its constraints;
//! - `constraint` and `value` decide the constraints of SHACL Core, `query` those in SPARQL;
//! - `wording` says what is wrong where the shape does not say it.

mod constraint;
mod data;
mod error;
mod evaluate;
mod query;
mod read;
mod shape;
mod terms;
mod value;
mod wording;

pub use error::Error;

use agentfleet_schema::Triple;
use oxigraph::model::Triple as RdfTriple;
use serde::Serialize;
use std::sync::LazyLock;

/// What a trace looks like, in SHACL.
pub const SHAPES: &str = include_str!("../../../schema/shapes/agentfleet.ttl");
/// Classes and properties of traces, which say what is a subclass of what.
pub const ONTOLOGY: &str = include_str!("../../../schema/ontology/agentfleet.ttl");

/// Something that a shape forbids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Violation {
    /// The node that the shape is about: its IRI, blank node label or text.
    pub node: String,
    /// The label of the shape; where it has none, its name.
    pub shape: String,
    /// The property by whose values it is broken, in the syntax of SPARQL paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The constraint in the words of SHACL, such as `minCount`.
    pub constraint: &'static str,
    /// The value that breaks it; none where one is missing or there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What the shape says of it, or a sentence made for it.
    pub message: String,
}

/// What a validation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many nodes were held against how many shapes: each pair counts.
    pub checked: u64,
    /// In order, each once.
    pub violations: Vec<Violation>,
}

/// Shapes that were read, with the ontology that they are meant with.
#[derive(Debug)]
pub struct Shapes {
    shapes: Vec<shape::Shape>,
    ontology: Vec<RdfTriple>,
}

impl Shapes {
    /// Reads shapes and an ontology, both Turtle.
    pub fn parse(shapes: &str, ontology: &str) -> Result<Self, Error> {
        Ok(Self {
            shapes: read::shapes(&read::graph(shapes, "shapes")?)?,
            ontology: read::triples(ontology, "ontology")?,
        })
    }

    /// The shapes of this project's traces, read once.
    pub fn of_traces() -> Result<&'static Self, &'static Error> {
        static TRACES: LazyLock<Result<Shapes, Error>> =
            LazyLock::new(|| Shapes::parse(SHAPES, ONTOLOGY));
        TRACES.as_ref()
    }

    /// Validates triples of one trace, whichever graph they say they lie in.
    pub fn validate(&self, triples: &[Triple]) -> Result<Report, Error> {
        let triples: Vec<RdfTriple> = triples
            .iter()
            .map(agentfleet_graph::to_rdf)
            .collect::<Result<_, _>>()?;
        self.validate_rdf(triples)
    }

    /// As [`Shapes::validate`], in the terms of the RDF library.
    pub fn validate_rdf(
        &self,
        triples: impl IntoIterator<Item = RdfTriple>,
    ) -> Result<Report, Error> {
        let data = data::Data::new(self.ontology.iter().cloned().chain(triples))?;
        evaluate::all(&self.shapes, &data)
    }
}
