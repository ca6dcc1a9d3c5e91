//! The example queries of the data dictionary, on the engine the product embeds, over the committed
//! traces in their named graph.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../examples/generate/dictionary.rs"]
#[allow(dead_code)] // shared with the generator, which uses all of it
mod dictionary;
#[path = "../examples/generate/rdf.rs"]
#[allow(dead_code)]
mod rdf;
#[path = "../examples/generate/shapes.rs"]
#[allow(dead_code)]
mod shapes;

use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::prov;
use oxigraph::io::RdfFormat;
use oxigraph::model::GraphNameRef;
use oxigraph::sparql::{QueryResults, SparqlEvaluator};
use oxigraph::store::Store;
use std::path::Path;

const SHAPES: &str = include_str!("../shapes/agentfleet.ttl");

fn traces() -> Store {
    let store = Store::new().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/traces");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        store
            .load_from_slice(RdfFormat::NQuads, text.as_bytes())
            .unwrap();
        files += 1;
    }
    assert!(files > 5);
    store
}

/// Runs a query over the union of all graphs, as the product's endpoints do.
fn rows(store: &Store, query: &str) -> usize {
    let mut prepared = SparqlEvaluator::new()
        .parse_query(query)
        .unwrap_or_else(|error| {
            panic!("{error} in {query}");
        });
    prepared.dataset_mut().set_default_graph_as_union();
    match prepared.on_store(store).execute().unwrap() {
        QueryResults::Solutions(solutions) => solutions.map(Result::unwrap).count(),
        QueryResults::Boolean(_) | QueryResults::Graph(_) => panic!("not a SELECT: {query}"),
    }
}

#[test]
fn every_example_query_finds_something_in_the_committed_traces() {
    let store = traces();
    let prefixes: String = dictionary::PREFIXES
        .iter()
        .map(|(prefix, namespace)| format!("PREFIX {prefix}: <{namespace}>\n"))
        .collect();
    let mut run = 0;
    for shape in shapes::read(&rdf::Graph::parse(SHAPES).unwrap()) {
        for example in &shape.examples {
            assert!(
                rows(&store, &format!("{prefixes}{example}")) > 0,
                "{}",
                shape.label
            );
            run += 1;
        }
    }
    assert!(run >= 15);
}

#[test]
fn committed_traces_lie_in_the_provenance_graph_and_have_no_blank_nodes() {
    let store = traces();
    assert!(store.len().unwrap() > 1_000);
    for quad in &store {
        let quad = quad.unwrap();
        match quad.graph_name.as_ref() {
            GraphNameRef::NamedNode(graph) => assert_eq!(graph.as_str(), RETRIEVAL_GRAPH),
            GraphNameRef::BlankNode(_) | GraphNameRef::DefaultGraph => panic!("{quad}"),
        }
        assert!(
            !quad.subject.is_blank_node() && !quad.object.is_blank_node(),
            "{quad}"
        );
    }
}

/// PV-1, without SHACL: every conclusion reaches the question of its session.
#[test]
fn every_conclusion_of_the_committed_traces_reaches_its_question() {
    let store = traces();
    let conclusion = "a <https://trustgraph.ai/ns/Conclusion>";
    let all = rows(&store, &format!("SELECT ?c WHERE {{ ?c {conclusion} }}"));
    let reached = rows(
        &store,
        &format!(
            "SELECT DISTINCT ?c WHERE {{ ?c {conclusion} ; <{}>/<{}> ?question ; <{}>+ ?question }}",
            prov::WAS_GENERATED_BY,
            prov::USED,
            prov::WAS_DERIVED_FROM,
        ),
    );
    assert!(all > 20);
    assert_eq!(reached, all);
}
