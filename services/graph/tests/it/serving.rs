//! What an endpoint of our own takes, and what it refuses.

use super::endpoint::embedded;
use agentfleet_graph::serve::{Reply, status, update};
use agentfleet_graph::{Error, Graph as _, QueryOptions};
use tempfile::TempDir;

const UPDATE: &str = "application/sparql-update; charset=utf-8";
const N_QUADS: &str = "application/n-quads";

#[tokio::test]
async fn insert_data_and_n_quads_are_stored_once_however_often_they_come() {
    let directory = TempDir::new().unwrap();
    let graph = embedded(&directory).await;
    let sparql = "PREFIX x: <urn:x:> INSERT DATA { x:a tg:b \"c\" . _:n tg:b _:n ; tg:c 1 } ;
                  INSERT DATA { GRAPH x:g { x:a tg:b \"} ; DROP ALL\" . _:m tg:b 2 } }";
    let quads = "<urn:a> <urn:b> _:n <urn:g> .\n_:n <urn:b> \"(((((\" _:named .\n";
    for _ in 0..2 {
        let reply = update(&graph, UPDATE, sparql.as_bytes(), "served")
            .await
            .unwrap();
        assert_eq!(
            reply,
            Reply::Inserted {
                batches: 1,
                triples: 5
            }
        );
        let reply = update(&graph, N_QUADS, quads.as_bytes(), "served")
            .await
            .unwrap();
        assert_eq!(
            reply,
            Reply::Inserted {
                batches: 1,
                triples: 2
            }
        );
    }
    assert_eq!(graph.batches().await.unwrap(), 2);
    // The labels of two bodies are not the same nodes.
    let nodes = "SELECT DISTINCT ?n { { ?n ?p ?o } UNION { ?s ?p ?n } FILTER(isBlank(?n)) }";
    let found = graph
        .select(nodes, &[], QueryOptions::default())
        .await
        .unwrap();
    assert!(found.rows.len() >= 2, "{found:?}");
}

#[tokio::test]
async fn everything_else_is_refused_and_stores_nothing() {
    let directory = TempDir::new().unwrap();
    let graph = embedded(&directory).await;
    let deep = format!(
        "INSERT DATA {{ <urn:a> <urn:b> {} 1 {} }}",
        "<<( <urn:a> <urn:b> ".repeat(5000),
        " )>>".repeat(5000)
    );
    let deep_quads = format!(
        "<urn:a> <urn:b> {} <urn:c> {} .",
        "<<( <urn:a> <urn:b> ".repeat(5000),
        " )>>".repeat(5000)
    );
    let good = "INSERT DATA { <urn:a> <urn:b> 1 } ;";
    let table: [(&str, String, u16); 13] = [
        (UPDATE, format!("{good} DELETE DATA {{ <urn:a> <urn:b> 1 }}"), 403),
        (UPDATE, format!("{good} CLEAR ALL"), 403),
        (UPDATE, format!("{good} DROP GRAPH <urn:g>"), 403),
        (UPDATE, format!("{good} CREATE GRAPH <urn:g>"), 403),
        (UPDATE, format!("{good} LOAD <http://127.0.0.1:9/>"), 403),
        (UPDATE, format!("{good} INSERT {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}"), 403),
        (UPDATE, format!("{good} INSERT DATA {{ ?s <urn:b> 1 }}"), 400),
        (UPDATE, deep, 400),
        (N_QUADS, "<urn:a> <urn:b> <urn:c> .\n<urn:a> <no iri> 1 .".to_owned(), 400),
        (N_QUADS, deep_quads, 400),
        ("text/turtle", "<urn:a> <urn:b> <urn:c> .".to_owned(), 415),
        ("application/vnd.agentfleet.graph+json", "{\"drop\":[]}".to_owned(), 400),
        (
            "application/vnd.agentfleet.graph+json",
            "{\"insert\":[{\"key\":\"k\",\"root\":\"\",\"collection\":\"\",\"conversation\":\"\",\
             \"triples\":[{\"s\":{\"t\":\"i\",\"i\":\"no iri\"},\"p\":{\"t\":\"i\",\"i\":\"urn:p\"},\
             \"o\":{\"t\":\"l\",\"v\":\"x\"}}]}]}"
                .to_owned(),
            400,
        ),
    ];
    for (kind, body, expected) in table {
        let error = update(&graph, kind, body.as_bytes(), "").await.unwrap_err();
        assert_eq!(status(&error), expected, "{body:.60}: {error}");
    }
    let error = update(&graph, N_QUADS, b"\xff\xfe", "").await.unwrap_err();
    assert!(matches!(error, Error::Parse { .. }), "{error}");
    assert_eq!(graph.batches().await.unwrap(), 0);
}
