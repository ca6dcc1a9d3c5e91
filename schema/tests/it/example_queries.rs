//! The example queries of the data dictionary, on the engine the product embeds, over the committed
//! traces in their named graph.

use crate::{dictionary, rdf, shapes};
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::prov;
use oxigraph::io::RdfFormat;
use oxigraph::model::GraphNameRef;
use oxigraph::sparql::{QueryResults, SparqlEvaluator};
use oxigraph::store::Store;
use std::path::Path;

const SHAPES: &str = include_str!("../../shapes/agentfleet.ttl");

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

/// Rows of a saved query on the committed traces, each as `variable value` pairs in order.
fn saved(name: &str, given: &[(&str, &str)]) -> Vec<Vec<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seed-config/query");
    let mut query = std::fs::read_to_string(file.join(format!("{name}.rq"))).unwrap();
    for (variable, iri) in given {
        query = query.replace(&format!("?{variable}"), &format!("<{iri}>"));
    }
    let prefixes = dictionary::PREFIXES.iter();
    let prefixes = prefixes.map(|(prefix, namespace)| format!("PREFIX {prefix}: <{namespace}>\n"));
    let query = prefixes.chain([query]).collect::<String>();
    let prepared = SparqlEvaluator::new().parse_query(&query).unwrap();
    let store = traces();
    let QueryResults::Solutions(found) = prepared.on_store(&store).execute().unwrap() else {
        panic!("not a SELECT: {query}");
    };
    let row = |row: oxigraph::sparql::QuerySolution| {
        row.iter()
            .map(|(name, value)| match value {
                oxigraph::model::Term::Literal(text) => {
                    format!("{} {}", name.as_str(), text.value())
                }
                other => format!("{} {other}", name.as_str()),
            })
            .collect()
    };
    found.map(|found| row(found.unwrap())).collect()
}

#[test]
fn the_mean_time_of_a_tool_is_of_its_calls_whatever_was_offered_and_not_called() {
    let rows = saved("tool-use", &[]);
    let number = |row: &[String], name: &str| -> f64 {
        let cell = row.iter().find_map(|cell| cell.strip_prefix(name));
        cell.unwrap().trim().parse().unwrap()
    };
    let mean = |row: &Vec<String>| number(row, "mean_ms ");
    let timed = |row: &&Vec<String>| {
        number(row, "calls ") > 0.0 && number(row, "offers ") > number(row, "calls ")
    };
    let timed: Vec<&Vec<String>> = rows.iter().filter(timed).collect();
    assert!(timed.iter().any(|row| mean(row) > 0.0), "{rows:?}");
}

#[test]
fn who_rests_on_a_document_is_told_apart_from_who_only_read_it() {
    let mut hows = std::collections::BTreeSet::new();
    let store = traces();
    for predicate in ["cites", "consulted"] {
        let property = format!("https://trustgraph.ai/ns/{predicate}");
        let property = oxigraph::model::NamedNode::new(property).unwrap();
        let quads = store.quads_for_pattern(None, Some(property.as_ref()), None, None);
        let quad = quads.map(Result::unwrap).next().unwrap();
        let oxigraph::model::Term::NamedNode(document) = quad.object else {
            panic!("no IRI");
        };
        let rows = saved("answers-from-document", &[("document", document.as_str())]);
        hows.extend(rows.into_iter().map(|row| row[1].clone()));
    }
    let told: Vec<&str> = hows.iter().map(String::as_str).collect();
    assert_eq!(told, ["how cited", "how read"]);
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
