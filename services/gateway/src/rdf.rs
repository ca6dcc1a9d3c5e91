//! Answers of the graph as text: the standard result formats, and the RDF syntaxes.

use crate::negotiate::Offer;
use crate::problem::Problem;
use agentfleet_graph::{Answer, Solutions, term_to_rdf, to_rdf};
use agentfleet_schema::vocabulary::{prov, tg};
use oxrdf::{GraphName, NamedNode, Variable};
use oxrdfio::{JsonLdProfileSet, RdfFormat, RdfSerializer};
use sparesults::{QueryResultsFormat, QueryResultsSerializer};
use std::error::Error;

/// Answers larger than this leave the async threads.
const INLINE: usize = 512;

/// Prefixes of what is written in a syntax that has them.
const PREFIXES: [(&str, &str); 5] = [
    ("prov", prov::NS),
    ("tg", tg::NS),
    ("agent", "urn:trustgraph:agent:"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// Forms of SELECT and ASK.
pub(crate) const RESULTS: &[Offer<QueryResultsFormat>] = &[
    Offer {
        form: QueryResultsFormat::Json,
        content_type: "application/sparql-results+json",
        media_types: &[
            "application/sparql-results+json",
            "application/json",
            "text/json",
        ],
        names: &["json"],
    },
    Offer {
        form: QueryResultsFormat::Xml,
        content_type: "application/sparql-results+xml",
        media_types: &[
            "application/sparql-results+xml",
            "application/xml",
            "text/xml",
        ],
        names: &["xml"],
    },
    Offer {
        form: QueryResultsFormat::Csv,
        content_type: "text/csv; charset=utf-8",
        media_types: &["text/csv"],
        names: &["csv"],
    },
    Offer {
        form: QueryResultsFormat::Tsv,
        content_type: "text/tab-separated-values; charset=utf-8",
        media_types: &["text/tab-separated-values"],
        names: &["tsv"],
    },
];

/// Forms of CONSTRUCT and DESCRIBE, and of traces.
pub(crate) const GRAPHS: &[Offer<RdfFormat>] = &[
    Offer {
        form: RdfFormat::Turtle,
        content_type: "text/turtle; charset=utf-8",
        media_types: &["text/turtle", "application/turtle", "application/x-turtle"],
        names: &["turtle", "ttl"],
    },
    Offer {
        form: RdfFormat::NTriples,
        content_type: "application/n-triples",
        media_types: &["application/n-triples", "text/plain"],
        names: &["ntriples", "n-triples", "nt"],
    },
    Offer {
        form: RdfFormat::JsonLd {
            profile: JsonLdProfileSet::empty(),
        },
        content_type: "application/ld+json",
        media_types: &["application/ld+json", "application/json"],
        names: &["jsonld", "json-ld"],
    },
    Offer {
        form: RdfFormat::RdfXml,
        content_type: "application/rdf+xml",
        media_types: &["application/rdf+xml", "application/xml", "text/xml"],
        names: &["rdfxml", "rdf+xml", "rdf", "xml"],
    },
    Offer {
        form: RdfFormat::NQuads,
        content_type: "application/n-quads",
        media_types: &["application/n-quads"],
        names: &["nquads", "n-quads", "nq"],
    },
    Offer {
        form: RdfFormat::TriG,
        content_type: "application/trig",
        media_types: &["application/trig"],
        names: &["trig"],
    },
];

type Written = Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

/// Writes an answer in the format of a name that `?format=` takes; `None` if such an answer has no
/// such form.
pub fn written(answer: Answer, format: &str) -> Option<Written> {
    match answer {
        Answer::Triples(_) => {
            let offer = GRAPHS.iter().find(|offer| offer.names.contains(&format))?;
            Some(graph(answer, offer.form))
        }
        Answer::Boolean(_) | Answer::Solutions(_) => {
            let offer = RESULTS.iter().find(|offer| offer.names.contains(&format))?;
            Some(results(answer, offer.form))
        }
    }
}

/// Writes an answer with a writer made for it.
pub(crate) async fn write(
    answer: Answer,
    writer: impl FnOnce(Answer) -> Written + Send + 'static,
) -> Result<Vec<u8>, Problem> {
    let size = match &answer {
        Answer::Boolean(_) => 1,
        Answer::Solutions(solutions) => solutions.rows.len(),
        Answer::Triples(triples) => triples.len(),
    };
    let written = if size <= INLINE {
        writer(answer)
    } else {
        let task = tokio::task::spawn_blocking(move || writer(answer));
        task.await
            .map_err(|error| Problem::internal("writing the answer", &error))?
    };
    written.map_err(|error| Problem::internal("writing the answer", &error))
}

/// SELECT and ASK.
pub(crate) fn results(answer: Answer, format: QueryResultsFormat) -> Written {
    let serializer = QueryResultsSerializer::from_format(format);
    match answer {
        Answer::Boolean(value) => Ok(serializer.serialize_boolean_to_writer(Vec::new(), value)?),
        Answer::Solutions(Solutions { variables, rows }) => {
            let variables = variables
                .into_iter()
                .map(Variable::new)
                .collect::<Result<Vec<_>, _>>()?;
            let mut out =
                serializer.serialize_solutions_to_writer(Vec::new(), variables.clone())?;
            for row in rows {
                let mut bound = Vec::with_capacity(row.len());
                for (variable, term) in variables.iter().zip(&row) {
                    if let Some(term) = term {
                        bound.push((variable, term_to_rdf(term, "a value")?));
                    }
                }
                out.serialize(bound.iter().map(|(variable, term)| (*variable, term)))?;
            }
            Ok(out.finish()?)
        }
        Answer::Triples(_) => Err("triples are no table".into()),
    }
}

/// CONSTRUCT and DESCRIBE.
pub(crate) fn graph(answer: Answer, format: RdfFormat) -> Written {
    let Answer::Triples(triples) = answer else {
        return Err("a table is no graph".into());
    };
    let mut serializer = RdfSerializer::from_format(format);
    for (name, iri) in PREFIXES {
        serializer = serializer.with_prefix(name, iri)?;
    }
    let mut out = serializer.for_writer(Vec::new());
    for triple in &triples {
        let graph = match triple.g.as_deref().filter(|_| format.supports_datasets()) {
            Some(graph) => NamedNode::new(graph)?.into(),
            None => GraphName::DefaultGraph,
        };
        out.serialize_quad(&to_rdf(triple)?.in_graph(graph))?;
    }
    Ok(out.finish()?)
}

/// An IRI as people read it: with a prefix, where one is known.
pub(crate) fn short(iri: &str) -> String {
    if iri == agentfleet_schema::vocabulary::RDF_TYPE {
        return "a".to_owned();
    }
    PREFIXES
        .iter()
        .find_map(|(name, space)| {
            iri.strip_prefix(space)
                .map(|local| format!("{name}:{local}"))
        })
        .unwrap_or_else(|| iri.to_owned())
}
