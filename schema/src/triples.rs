//! `Term`, `Triple` and `Triples`: RDF on the explainability topic, in the peer's encoding.

use crate::tolerant::null_default;
use crate::uris::RETRIEVAL_GRAPH;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;

/// Which kind of RDF term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TermType {
    #[serde(rename = "i")]
    Iri,
    #[serde(rename = "b")]
    Blank,
    #[default]
    #[serde(rename = "l")]
    Literal,
    #[serde(rename = "t")]
    Triple,
}

/// An RDF term. Fields that do not apply are empty, and are left out when written.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "String::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Term {
    #[serde(rename = "type", default, deserialize_with = "null_default")]
    pub kind: TermType,
    pub iri: String,
    /// Blank node label.
    pub id: String,
    pub value: String,
    pub datatype: String,
    pub language: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triple: Option<Box<Triple>>,
}

impl Term {
    pub fn iri(iri: impl Into<String>) -> Self {
        Self {
            kind: TermType::Iri,
            iri: iri.into(),
            ..Self::default()
        }
    }

    pub fn text(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            ..Self::default()
        }
    }

    pub fn typed(value: impl Into<String>, datatype: &str) -> Self {
        Self {
            value: value.into(),
            datatype: datatype.to_owned(),
            ..Self::default()
        }
    }
}

/// One statement; `g` names its graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Triple {
    #[serde(default, deserialize_with = "null_default")]
    pub s: Term,
    #[serde(default, deserialize_with = "null_default")]
    pub p: Term,
    #[serde(default, deserialize_with = "null_default")]
    pub o: Term,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub g: Option<String>,
}

impl Triple {
    /// A provenance statement, in the retrieval graph.
    pub fn new(subject: &str, predicate: &str, object: Term) -> Self {
        Self {
            s: Term::iri(subject),
            p: Term::iri(predicate),
            o: object,
            g: Some(RETRIEVAL_GRAPH.to_owned()),
        }
    }
}

/// Where a batch of triples comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// IRI of the entity the triples describe.
    #[serde(default, deserialize_with = "null_default")]
    pub id: String,
    #[serde(default, deserialize_with = "null_default")]
    pub root: String,
    #[serde(default, deserialize_with = "null_default")]
    pub collection: String,
}

/// The message of the explainability topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Triples {
    #[serde(default, deserialize_with = "null_default")]
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_default")]
    pub triples: Vec<Triple>,
}
