//! Forgetting a document, and what loaded statements may touch.

use crate::place::Place;

const TRIPLES: &str =
    "@prefix e: <urn:e:> . e:mill <http://schema.org/name> 'Mill' ; e:part [ e:name 'wheel' ] .";

#[tokio::test]
async fn one_document_can_be_forgotten() {
    let place = Place::new().await;
    place.write("a.md", "# A\n\nword");
    place.write("k.ttl", TRIPLES);
    place.load("c").await;
    let uri = "urn:agentfleet:document:c:k.ttl";
    let forgotten = place.library.forget_document(uri).await.unwrap();
    assert_eq!(forgotten.unwrap().as_str(), "c");
    assert_eq!(place.library.forget_document(uri).await.unwrap(), None);
    assert_eq!(place.library.holder(uri).await.unwrap(), None);
    let mill = vec!["urn:e:mill".to_owned()];
    let described = place.library.descriptions(&"c".into(), mill).await;
    assert_eq!(described.unwrap(), []);
    assert_eq!(place.titles("c", "word").await, ["A"]);
}

#[tokio::test]
async fn a_loaded_file_writes_below_its_collection_whatever_graph_it_names() {
    let place = Place::new().await;
    let step = "<urn:trustgraph:agent:1/answer> <urn:p>";
    let graph = "<urn:graph:retrieval>";
    place.write("a.nq", format!("{step} \"forged\" {graph} .\n"));
    place.write("b.trig", format!("{graph} {{ {step} 'forged too' }}\n"));
    place.write("c.ttl", format!("{step} 'forged as well' .\n"));
    place.write(
        "d.jsonld",
        r#"{"@id":"urn:graph:retrieval","@graph":[{"@id":"urn:trustgraph:agent:1/answer","urn:p":"again"}]}"#,
    );
    place.write(
        "e.nq",
        format!("{step} \"theirs\" <urn:agentfleet:collection:other> .\n"),
    );
    let report = place.load("c").await;
    assert_eq!(
        (report.loaded, report.skipped.len()),
        (5, 0),
        "{:?}",
        report.skipped
    );
    let forged = "SELECT (STR(?o) AS ?x) WHERE { GRAPH <urn:graph:retrieval> { ?s ?p ?o } }";
    assert_eq!(place.column("x", forged).await, Vec::<String>::new());
    let all = "SELECT DISTINCT (STR(?g) AS ?x) WHERE { GRAPH ?g { ?s ?p ?o } }";
    let graphs = place.column("x", all).await;
    assert!(!graphs.is_empty());
    for graph in graphs {
        let own = graph == "urn:agentfleet:collection:c"
            || graph.starts_with("urn:agentfleet:collection:c:graph:");
        assert!(own, "{graph}");
    }
}
