//! The graph: linearizable, a real SPARQL engine over a store in memory.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use crate::world::World;
use agentfleet_graph::{Answer, Batch, EraseBy, Erased, Error, Graph, QueryOptions, Solutions};
use agentfleet_schema::{Term, TermType, Triple};
use async_trait::async_trait;
use oxigraph::model::{GraphName, Literal, NamedNode, Quad, Term as RdfTerm};
use oxigraph::sparql::{QueryResults, SparqlEvaluator};
use oxigraph::store::Store;

#[async_trait]
impl Graph for Seam {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        let keys: Vec<&str> = batches.iter().map(|batch| batch.key.as_str()).collect();
        let effect = Effect::new(Verb::Insert, keys.join(", "));
        self.act(effect, |world, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            batches.iter().try_for_each(agentfleet_graph::validate)?;
            for batch in &batches {
                insert(world, batch);
            }
            told(fault)
        })
        .await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        _: QueryOptions,
    ) -> Result<Answer, Error> {
        let about: Vec<&str> = bindings
            .iter()
            .map(|(_, term)| term.value.as_str())
            .collect();
        self.act(
            Effect::new(Verb::Query, about.join(", ")),
            |world, fault| {
                if fault == Some(Fault::Refused) {
                    return Err(Error::Storage(busy()));
                }
                Ok(query(&world.graph, sparql, bindings))
            },
        )
        .await
    }
}

/// A dataset of its own for what is counted.
#[derive(Debug)]
pub struct Coordination(pub Seam);

#[async_trait]
impl Graph for Coordination {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        let keys: Vec<&str> = batches.iter().map(|batch| batch.key.as_str()).collect();
        let effect = Effect::new(Verb::Insert, format!("counted {}", keys.join(", ")));
        let act = |world: &mut World, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            batches.iter().try_for_each(agentfleet_graph::validate)?;
            for batch in batches {
                let counted = world.counted.entry(batch.conversation.clone()).or_default();
                counted.push(batch);
            }
            told(fault)
        };
        self.0.act(effect, act).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        _: QueryOptions,
    ) -> Result<Answer, Error> {
        let about: Vec<&str> = bindings
            .iter()
            .map(|(_, term)| term.value.as_str())
            .collect();
        let effect = Effect::new(Verb::Query, format!("counted {}", about.join(", ")));
        let act = |world: &mut World, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            let store = Store::new().expect("a store in memory");
            let batches = world.counted.values().flatten();
            for quad in batches.flat_map(|batch| batch.triples.iter().filter_map(quad)) {
                store.insert(&quad).expect("an insert in memory");
            }
            Ok(query(&store, sparql, bindings))
        };
        self.0.act(effect, act).await
    }

    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        let effect = Effect::new(Verb::Erase, format!("{by:?}"));
        let act = |world: &mut World, fault| {
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            for by in by {
                match by {
                    EraseBy::Conversation(name) => drop(world.counted.remove(&name)),
                    other => unreachable!("nobody counts by {other:?}"),
                }
            }
            told(fault)
        };
        self.0.act(effect, act).await?;
        Ok(Erased::default())
    }
}

fn told(fault: Option<Fault>) -> Result<(), Error> {
    match fault {
        Some(Fault::ReplyLost) => Err(Error::Storage(busy())),
        _ => Ok(()),
    }
}

fn insert(world: &mut World, batch: &Batch) {
    world.facts.inserted.insert(batch.key.clone());
    for triple in &batch.triples {
        if let Some(quad) = quad(triple) {
            world.graph.insert(&quad).expect("an insert in memory");
        }
    }
}

/// Provenance has no blank nodes and no triple terms.
fn quad(triple: &Triple) -> Option<Quad> {
    let node = |iri: &str| NamedNode::new_unchecked(iri);
    let graph = triple
        .g
        .as_deref()
        .map_or(GraphName::DefaultGraph, |g| node(g).into());
    Some(Quad::new(
        node(&triple.s.iri),
        node(&triple.p.iri),
        rdf(&triple.o)?,
        graph,
    ))
}

fn rdf(term: &Term) -> Option<RdfTerm> {
    Some(match term.kind {
        TermType::Iri => NamedNode::new_unchecked(&term.iri).into(),
        TermType::Literal if term.datatype.is_empty() => {
            Literal::new_simple_literal(&term.value).into()
        }
        TermType::Literal => {
            let datatype = NamedNode::new_unchecked(&term.datatype);
            Literal::new_typed_literal(&term.value, datatype).into()
        }
        TermType::Blank | TermType::Triple => return None,
    })
}

fn query(store: &Store, sparql: &str, bindings: &[(&str, Term)]) -> Answer {
    let bound = bindings
        .iter()
        .fold(sparql.to_owned(), |text, (name, term)| {
            put_in(
                &text,
                name,
                &rdf(term).expect("a term that can be bound").to_string(),
            )
        });
    let mut prepared = SparqlEvaluator::new()
        .parse_query(&bound)
        .expect("shipped queries parse");
    if prepared.dataset().is_default_dataset() {
        prepared.dataset_mut().set_default_graph_as_union();
    }
    match prepared
        .on_store(store)
        .execute()
        .expect("shipped queries run")
    {
        QueryResults::Boolean(value) => Answer::Boolean(value),
        QueryResults::Solutions(found) => {
            let variables = found
                .variables()
                .iter()
                .map(|v| v.as_str().to_owned())
                .collect();
            let rows = found
                .map(|row| {
                    row.expect("a row")
                        .values()
                        .iter()
                        .map(|v| v.as_ref().map(wire))
                        .collect()
                })
                .collect();
            Answer::Solutions(Solutions { variables, rows })
        }
        QueryResults::Graph(_) => unreachable!("the fleet asks for rows only"),
    }
}

/// Puts a value in the place of a variable.
fn put_in(sparql: &str, name: &str, value: &str) -> String {
    let variable = format!("?{name}");
    let mut parts = sparql.split(variable.as_str());
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let longer = part.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        out.push_str(if longer { &variable } else { value });
        out.push_str(part);
    }
    out
}

fn wire(term: &RdfTerm) -> Term {
    match term {
        RdfTerm::NamedNode(node) => Term::iri(node.as_str()),
        RdfTerm::Literal(literal) => Term::text(literal.value()),
        RdfTerm::BlankNode(_) | RdfTerm::Triple(_) => Term::default(),
    }
}
