//! What can go wrong in the graph, in words that say what would be right.

use std::time::Duration;

/// A failure of an insert, a query, or the upkeep of the graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("bad query at line {line}, column {column}, near `{near}`: {reason}")]
    Syntax {
        line: usize,
        column: usize,
        near: String,
        reason: String,
    },
    #[error("this is an update, and queries only read: the graph changes by inserts and erasure")]
    Update,
    #[error("`SERVICE {0}` is not allowed: a query sees this graph only")]
    Service(String),
    #[error("graph `{0}` is not open to this query: leave out `FROM` and `GRAPH`, or name {1}")]
    ClosedGraph(String, String),
    #[error("the query is too large: {what} {found}, the most is {most}")]
    QueryTooLarge {
        what: &'static str,
        found: usize,
        most: usize,
    },
    #[error("cannot bind `{name}`: {fault}")]
    Binding { name: String, fault: BindingFault },
    #[error("the query did not end within {0:?}: narrow it, or allow it more time")]
    Timeout(Duration),
    #[error("the query has more than {0} rows: narrow it, or add a `LIMIT`")]
    TooManyRows(usize),
    #[error("the query took more than {0} MB of memory: narrow it, or split it")]
    TooMuchMemory(u64),
    #[error("the query failed: {0}")]
    Evaluation(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("batch `{batch}`, triple {index} `{triple}`: {fault}")]
    Invalid {
        batch: String,
        index: usize,
        triple: String,
        fault: TermFault,
    },
    #[error(
        "the graph is full: {quads} quads and the most is {max}; erase old sessions, allow more memory, or use a SPARQL server"
    )]
    Full { quads: u64, max: u64 },
    #[error("row {seq} of the graph's log is damaged ({reason}): restore a backup")]
    Damaged { seq: i64, reason: &'static str },
    #[error("unknown RDF format `{0}` (known: `nq`, `trig`, `nt`, `ttl`, `rdf`, `jsonld`)")]
    UnknownFormat(String),
    #[error(
        "cannot read the {format} data: {reason}; {quads} quads before it were stored, and loading again after a correction stores none twice"
    )]
    Parse {
        format: &'static str,
        reason: String,
        quads: u64,
    },
    #[error("the graph in memory failed: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("a task of the graph panicked or was stopped")]
    Stopped,
    #[error("this is no SELECT: rows come from SELECT only")]
    NotSelect,
    #[error("this update is not allowed: only `INSERT DATA` is taken here")]
    NotInsertData,
    #[error("this graph cannot {0}")]
    Unsupported(&'static str),
    #[error(transparent)]
    Remote(#[from] crate::RemoteFault),
    #[error(transparent)]
    Storage(#[from] agentfleet_storage::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry(),
            Self::Remote(fault) => fault.retry(),
            // Room comes back when someone erases, or raises the limit.
            Self::Full { .. } => Some(Duration::from_secs(30)),
            Self::Engine(_) | Self::Stopped => Some(Duration::from_secs(1)),
            Self::Syntax { .. }
            | Self::Update
            | Self::Service(_)
            | Self::ClosedGraph(..)
            | Self::QueryTooLarge { .. }
            | Self::Binding { .. }
            | Self::Timeout(_)
            | Self::TooManyRows(_)
            | Self::TooMuchMemory(_)
            | Self::Evaluation(_)
            | Self::Invalid { .. }
            | Self::Damaged { .. }
            | Self::UnknownFormat(_)
            | Self::Parse { .. }
            | Self::NotSelect
            | Self::NotInsertData
            | Self::Unsupported(_) => None,
        }
    }

    pub(crate) fn engine(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Engine(Box::new(source))
    }
}

/// Why a term is no RDF term.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermFault {
    #[error("{position} has the invalid IRI `{iri}`: {reason}")]
    Iri {
        position: &'static str,
        iri: String,
        reason: String,
    },
    #[error("{position} has the invalid blank node label `{0}`: use letters, digits, `_`, `-` and `.`", position = .1)]
    BlankLabel(String, &'static str),
    #[error("{position} has the invalid language tag `{0}`: use one such as `en` or `en-gb`", position = .1)]
    Language(String, &'static str),
    #[error("{position} has a language and the datatype `{0}`: a literal has one of them", position = .1)]
    LanguageAndDatatype(String, &'static str),
    #[error("{0} has datatype `rdf:langString` and no language")]
    LanguageMissing(&'static str),
    #[error("{0} says it is a triple, and has none")]
    TripleMissing(&'static str),
    #[error("the subject must be an IRI or a blank node")]
    Subject,
    #[error("the predicate must be an IRI")]
    Predicate,
}

/// Why a value cannot stand for a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingFault {
    #[error("it is no variable name")]
    Name,
    #[error("the query does not use it")]
    Unused,
    #[error("the query assigns it a value itself")]
    Assigned,
    #[error("a blank node cannot be named in a query")]
    Blank,
    #[error("it stands where only an IRI can stand")]
    NotIri,
    #[error(transparent)]
    Term(#[from] TermFault),
}
