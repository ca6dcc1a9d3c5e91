//! The SPARQL protocol.

use crate::fleet::{Fleet, options};
use agentfleet_gateway::Options;
use agentfleet_graph::{Batch, Graph};
use agentfleet_schema::{Term, Triple};
use std::time::Duration;

const SELECT: &str = "SELECT ?o WHERE { <urn:s> <urn:p> ?o } ORDER BY ?o";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const DIRECT: (&str, &str) = ("content-type", "application/sparql-query");

async fn fleet(options: Options) -> Fleet {
    let fleet = Fleet::with(options).await;
    let object = |o: Term, g: Option<&str>| Triple {
        s: Term::iri("urn:s"),
        p: Term::iri("urn:p"),
        o,
        g: g.map(str::to_owned),
    };
    let mut chat = Term::text("chat");
    chat.language = "fr".into();
    let batch = Batch {
        key: "test".into(),
        root: String::new(),
        collection: String::new(),
        conversation: String::new(),
        triples: vec![
            object(Term::text("a \"quoted\", text"), None),
            object(chat, Some("urn:g")),
            object(
                Term::typed("7", "http://www.w3.org/2001/XMLSchema#integer"),
                Some("urn:g"),
            ),
        ],
    };
    fleet.graph.insert(vec![batch]).await.unwrap();
    fleet
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[tokio::test]
async fn a_query_is_read_from_the_url_a_form_or_the_body() {
    let fleet = fleet(options()).await;
    let client = fleet.client;
    let path = format!("/sparql?query={}", encoded(SELECT));
    let by_url = client.get(&path).await;
    assert_eq!(by_url.status, 200, "{}", by_url.text());
    assert_eq!(
        by_url.header("content-type"),
        "application/sparql-results+json"
    );
    assert_eq!(by_url.header("vary"), "accept");
    let results = by_url.json();
    assert_eq!(results["head"]["vars"][0], "o");
    let bindings = results["results"]["bindings"].as_array().unwrap();
    assert_eq!(bindings.len(), 3, "the default graph is the union of all");

    let form = format!("query={}", encoded(SELECT));
    let by_form = client
        .send("POST", "/sparql", &[FORM], form.as_bytes())
        .await;
    assert_eq!(by_form.body, by_url.body);
    let typed = ("content-type", "application/sparql-query; charset=utf-8");
    let by_body = client
        .send("POST", "/sparql", &[typed], SELECT.as_bytes())
        .await;
    assert_eq!(by_body.body, by_url.body);
}

#[tokio::test]
async fn the_answer_comes_in_the_form_that_is_asked_for() {
    let fleet = fleet(options()).await;
    let client = fleet.client;
    let ask = "ASK { ?s ?p 7 }";
    let construct = "CONSTRUCT { ?s tg:was ?o } WHERE { ?s <urn:p> ?o FILTER(isNumeric(?o)) }";
    let json = "application/sparql-results+json";
    let xml = "application/sparql-results+xml";
    let table = [
        (SELECT, "application/json", json, "\"xml:lang\":\"fr\""),
        (SELECT, xml, xml, "<literal xml:lang=\"fr\">chat</literal>"),
        (
            SELECT,
            "text/csv",
            "text/csv; charset=utf-8",
            "\"a \"\"quoted\"\", text\"",
        ),
        (
            SELECT,
            "text/tab-separated-values",
            "text/tab-separated-values; charset=utf-8",
            "\"chat\"@fr",
        ),
        (ask, "*/*", json, "\"boolean\":true"),
        (ask, xml, xml, "<boolean>true</boolean>"),
        (
            construct,
            "*/*",
            "text/turtle; charset=utf-8",
            "<urn:s> tg:was 7",
        ),
        (
            construct,
            "application/n-triples",
            "application/n-triples",
            "<urn:s> <https://trustgraph.ai/ns/was> \"7\"",
        ),
        (
            construct,
            "application/rdf+xml",
            "application/rdf+xml",
            "<rdf:RDF",
        ),
        (
            construct,
            "application/ld+json",
            "application/ld+json",
            "https://trustgraph.ai/ns/was",
        ),
        (
            "DESCRIBE <urn:s>",
            "text/turtle",
            "text/turtle; charset=utf-8",
            "\"chat\"@fr",
        ),
    ];
    for (query, accept, content_type, part) in table {
        let reply = client
            .send(
                "POST",
                "/sparql",
                &[DIRECT, ("accept", accept)],
                query.as_bytes(),
            )
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(
            reply.header("content-type"),
            content_type,
            "{query} as {accept}"
        );
        assert!(reply.text().contains(part), "{}", reply.text());
    }
    for (query, accept) in [(SELECT, "text/turtle"), (construct, "text/csv")] {
        let headers = [DIRECT, ("accept", accept)];
        let reply = client
            .send("POST", "/sparql", &headers, query.as_bytes())
            .await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (406, "not-acceptable")
        );
    }
    let by_name = format!("/sparql?format=csv&query={}", encoded(SELECT));
    assert_eq!(
        client.get(&by_name).await.header("content-type"),
        "text/csv; charset=utf-8"
    );
}

#[tokio::test]
async fn what_is_no_read_only_query_is_refused_with_its_code() {
    let fleet = fleet(options()).await;
    let client = fleet.client;
    let update = "INSERT DATA { <urn:a> <urn:b> 1 }";
    let get = |query: &str| format!("/sparql?query={}", encoded(query));
    let service = get("SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }");
    let dataset = format!("{}&default-graph-uri=urn%3Ag", get(SELECT));
    let twice = format!("{}&query=x", get(SELECT));
    for (path, status, code) in [
        ("/sparql".to_owned(), 400, "missing-query"),
        (twice, 400, "missing-query"),
        (get("SELEC ?s"), 400, "query-syntax"),
        (service, 400, "query-refused"),
        (get(update), 403, "read-only"),
        (
            format!("/sparql?update={}", encoded(update)),
            403,
            "read-only",
        ),
        (dataset, 400, "dataset-parameter"),
        (
            format!("{}&timeout=0", get(SELECT)),
            400,
            "invalid-parameter",
        ),
        (
            format!("{}&timeout=301", get(SELECT)),
            400,
            "invalid-parameter",
        ),
        (
            format!("{}&timeout=soon", get(SELECT)),
            400,
            "invalid-parameter",
        ),
    ] {
        let reply = client.get(&path).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    for (kind, body, status, code) in [
        ("application/sparql-update", update, 403, "read-only"),
        (
            "application/x-www-form-urlencoded",
            "update=CLEAR+ALL",
            403,
            "read-only",
        ),
        ("application/json", "{}", 415, "unsupported-media-type"),
        ("application/sparql-query", "", 400, "query-syntax"),
    ] {
        let headers = [("content-type", kind)];
        let reply = client
            .send("POST", "/sparql", &headers, body.as_bytes())
            .await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{kind} {body}"
        );
    }
    let named = "SELECT ?o FROM <urn:g> WHERE { ?s ?p ?o }";
    let in_query = client.get(&get(named)).await.json();
    assert_eq!(
        in_query["results"]["bindings"].as_array().unwrap().len(),
        2,
        "FROM is honoured"
    );
}

#[tokio::test]
async fn a_query_that_takes_too_long_or_gives_too_much_is_ended() {
    let limits = Options {
        max_rows: 1000,
        max_queries: 1,
        ..options()
    };
    let fleet = fleet(limits).await;
    let client = fleet.client;
    let triple = |n: usize| Triple {
        s: Term::iri(format!("urn:n{n}")),
        p: Term::iri("urn:in"),
        o: Term::text("many"),
        g: None,
    };
    let batch = Batch {
        key: "many".into(),
        root: String::new(),
        collection: String::new(),
        conversation: String::new(),
        triples: (0..2000).map(triple).collect(),
    };
    fleet.graph.insert(vec![batch]).await.unwrap();
    let all = format!("/sparql?query={}", encoded("SELECT * { ?s <urn:in> ?o }"));
    let reply = client.get(&all).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (422, "query-too-expensive")
    );

    let cross = "SELECT (COUNT(*) AS ?n) { ?a <urn:in> ?x . ?b <urn:in> ?x . ?c <urn:in> ?x }";
    let slow = format!("/sparql?timeout=0.3&query={}", encoded(cross));
    let reply = client.get(&slow).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, "query-timeout"),
        "{}",
        reply.text()
    );
    // One that is left by its caller frees its place and its core.
    let patient = format!("/sparql?timeout=60&query={}", encoded(cross));
    let gone = client.open("GET", &patient, &[], b"").await;
    let mut running = fleet.graph.running();
    running.wait_for(|running| *running == 1).await.unwrap();
    let reply = client
        .get(&format!("/sparql?timeout=0.2&query={}", encoded("ASK {}")))
        .await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, "too-busy"),
        "{}",
        reply.text()
    );
    drop(gone);
    running.wait_for(|running| *running == 0).await.unwrap();
    let wait = Duration::from_secs(60).as_secs();
    let reply = client
        .get(&format!(
            "/sparql?timeout={wait}&query={}",
            encoded("ASK {}")
        ))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}
