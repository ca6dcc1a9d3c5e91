//! What only a server can do wrong: stale answers, refusals, silence, answers without end.

use super::endpoint::{connect, plain, serve};
use crate::contract::batch;
use agentfleet_graph::{
    Answer, Error, Graph, QueryOptions, RemoteFault, RemoteGraph, RemoteOptions,
};
use agentfleet_schema::{Term, Triple};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use oxigraph::store::Store;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const JSON: [(header::HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "application/sparql-results+json")];

fn boolean(value: bool) -> Response {
    (JSON, format!("{{\"head\":{{}},\"boolean\":{value}}}")).into_response()
}

async fn refused(url: String) -> RemoteFault {
    match RemoteGraph::connect(RemoteOptions::new(url)).await {
        Err(Error::Remote(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// A replica that is behind: from some write on it shows all but the last.
#[derive(Clone)]
struct Replica {
    written: Arc<Mutex<Vec<String>>>,
    fresh: usize,
}

impl Replica {
    async fn serve(fresh: usize) -> (Self, String) {
        let replica = Self {
            written: Arc::default(),
            fresh,
        };
        let router = Router::new()
            .route("/query", post(Self::query))
            .route("/update", post(Self::update))
            .with_state(replica.clone());
        (replica, serve(router).await)
    }

    async fn query(State(replica): State<Self>, body: String) -> Response {
        let written = replica.written.lock().unwrap();
        let shown = if written.len() > replica.fresh {
            &written[..written.len() - 1]
        } else {
            &written[..]
        };
        let asked = body
            .trim_start_matches("ASK {")
            .trim_end_matches('}')
            .trim();
        boolean(asked.is_empty() || shown.iter().any(|text| text.contains(asked)))
    }

    async fn update(State(replica): State<Self>, body: String) -> StatusCode {
        replica.written.lock().unwrap().push(body);
        StatusCode::NO_CONTENT
    }
}

#[tokio::test]
async fn a_store_with_stale_answers_is_refused_and_cleaned_up() {
    for (fresh, expected) in [(1, 1), (4, 4), (6, 6)] {
        let (replica, url) = Replica::serve(fresh).await;
        let fault = refused(url).await;
        match &fault {
            RemoteFault::NotLinearizable { round, .. } => assert_eq!(*round, expected),
            other => panic!("{other}"),
        }
        assert!(fault.to_string().contains("linearizable"), "{fault}");
        let written = replica.written.lock().unwrap();
        assert!(written.last().unwrap().starts_with("DELETE DATA"));
    }
    // The same server with fresh answers is taken.
    let (_, url) = Replica::serve(usize::MAX).await;
    connect(RemoteOptions::new(url)).await;
}

#[tokio::test]
async fn whoever_only_reads_writes_nothing_and_finds_what_is_there() {
    let (replica, url) = Replica::serve(usize::MAX).await;
    let read = RemoteGraph::connect_to_read(RemoteOptions::new(url)).await;
    read.unwrap();
    assert!(replica.written.lock().unwrap().is_empty());

    let url = serve(plain(Store::new().unwrap())).await;
    let graph = connect(RemoteOptions::new(url.clone())).await;
    graph.insert(vec![one("a")]).await.unwrap();
    let read = RemoteGraph::connect_to_read(RemoteOptions::new(url)).await;
    let read: Arc<dyn Graph> = Arc::new(read.unwrap());
    let ask = "ASK { ?s <urn:test:p> \"a\" }";
    let found = read.query(ask, &[], QueryOptions::default()).await.unwrap();
    assert_eq!(found, Answer::Boolean(true));
}

#[tokio::test]
async fn a_check_leaves_nothing_behind() {
    let store = Store::new().unwrap();
    connect(RemoteOptions::new(serve(plain(store.clone())).await)).await;
    assert!(store.is_empty().unwrap());
}

#[tokio::test]
async fn one_address_may_take_queries_and_updates() {
    async fn both(state: State<Store>, headers: header::HeaderMap, body: String) -> Response {
        let url = serve(plain(state.0)).await;
        let kind = headers.get(header::CONTENT_TYPE).unwrap().to_str().unwrap();
        let place = kind.strip_prefix("application/sparql-").unwrap();
        let sent = reqwest::Client::builder().no_proxy().build().unwrap();
        let sent = sent
            .post(format!("{url}/{place}"))
            .header(header::CONTENT_TYPE, kind)
            .body(body);
        let answer = sent.send().await.unwrap();
        let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
        (status, JSON, answer.bytes().await.unwrap()).into_response()
    }
    let store = Store::new().unwrap();
    let router = Router::new()
        .route("/repository", post(both))
        .with_state(store.clone());
    let url = serve(router).await;
    let graph = connect(RemoteOptions::new(format!("{url}/repository"))).await;
    graph.insert(vec![one("a")]).await.unwrap();
    assert!(!store.is_empty().unwrap());
    // Or each has a place that is told.
    let mut told = RemoteOptions::new(format!("{url}/elsewhere"));
    told.query_url = Some(format!("{url}/repository"));
    told.update_url = Some(format!("{url}/repository"));
    connect(told).await;
}

fn one(text: &str) -> agentfleet_graph::Batch {
    let triple = Triple {
        s: Term::iri("urn:test:s"),
        p: Term::iri("urn:test:p"),
        o: Term::text(text),
        g: None,
    };
    batch(text, vec![triple])
}

#[tokio::test]
async fn what_is_no_sparql_server_or_only_reads_is_refused_with_the_reason() {
    let nothing = serve(Router::new()).await;
    let fault = refused(nothing).await;
    assert!(matches!(fault, RemoteFault::NoQueries { .. }), "{fault}");

    let page = Router::new().route("/query", post(async || "<html>hello</html>"));
    let fault = refused(serve(page).await).await;
    assert!(matches!(fault, RemoteFault::NoQueries { .. }), "{fault}");

    async fn reads(headers: header::HeaderMap) -> Response {
        if headers.get(header::CONTENT_TYPE).unwrap() == "application/sparql-query" {
            return boolean(true);
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response()
    }
    // With no place for updates at all, and with one that refuses them.
    let nowhere = Router::new().route("/query", post(reads));
    let fault = refused(serve(nowhere).await).await;
    assert!(
        matches!(fault, RemoteFault::UpdateRefused { status: 404, .. }),
        "{fault}"
    );
    let reads = Router::new().route("/query", post(reads)).route(
        "/update",
        post(async || (StatusCode::FORBIDDEN, "read-only")),
    );
    let fault = refused(serve(reads).await).await;
    assert!(fault.to_string().contains("read-only"), "{fault}");
    assert!(
        matches!(fault, RemoteFault::UpdateRefused { .. }),
        "{fault}"
    );

    // Nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fault = refused(format!("http://user:hush@{address}/ds")).await;
    assert!(matches!(fault, RemoteFault::Unreachable { .. }), "{fault}");
    assert!(!fault.to_string().contains("hush"), "{fault}");

    let fault = refused("localhost:3030".to_owned()).await;
    assert!(matches!(fault, RemoteFault::Address { .. }), "{fault}");
}

/// Fails so many updates before it takes them.
#[derive(Clone)]
struct Shaky {
    store: Store,
    left: Arc<Mutex<Vec<StatusCode>>>,
}

async fn shaky() -> (Shaky, Arc<dyn agentfleet_graph::Graph>) {
    async fn update(State(shaky): State<Shaky>, body: String) -> Response {
        if let Some(status) = shaky.left.lock().unwrap().pop() {
            return (status, "not now").into_response();
        }
        let update = oxigraph::sparql::SparqlEvaluator::new()
            .parse_update(&body)
            .unwrap();
        update.on_store(&shaky.store).execute().unwrap();
        StatusCode::NO_CONTENT.into_response()
    }
    let shaky = Shaky {
        store: Store::new().unwrap(),
        left: Arc::default(),
    };
    let inner = serve(plain(shaky.store.clone())).await;
    let url = serve(
        Router::new()
            .route("/", post(update))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(shaky.clone()),
    )
    .await;
    let mut options = RemoteOptions::new(inner);
    options.update_url = Some(url);
    let graph = connect(options).await;
    (shaky, graph)
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_and_a_refusal_is_not() {
    let (shaky, graph) = shaky().await;
    let busy = StatusCode::SERVICE_UNAVAILABLE;
    *shaky.left.lock().unwrap() = vec![busy; 2];
    graph.insert(vec![one("a")]).await.unwrap();

    *shaky.left.lock().unwrap() = vec![busy; 100];
    let error = graph.insert(vec![one("b")]).await.unwrap_err();
    assert!(
        matches!(error, Error::Remote(RemoteFault::Failed { .. })),
        "{error}"
    );
    assert!(error.retry().is_some());
    // Bounded: the rest is left.
    assert!(shaky.left.lock().unwrap().len() > 90);

    // What the server cannot store must not come again and again.
    *shaky.left.lock().unwrap() = vec![StatusCode::BAD_REQUEST; 2];
    let error = graph.insert(vec![one("c")]).await.unwrap_err();
    assert!(
        matches!(error, Error::Remote(RemoteFault::Rejected { .. })),
        "{error}"
    );
    assert!(error.retry().is_none());
    assert_eq!(shaky.left.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_large_call_is_stored_in_parts_and_completed_by_a_repeat() {
    let (shaky, graph) = shaky().await;
    let large = |n: usize| one(&format!("{n} {}", "x".repeat(1 << 20)));
    let call: Vec<_> = (0..12).map(large).collect();
    graph.insert(call.clone()).await.unwrap();
    let stored = shaky.store.len().unwrap();
    graph.insert(call).await.unwrap();
    assert_eq!(shaky.store.len().unwrap(), stored);
    assert_eq!(graph.batches().await.unwrap(), 12);
}

#[tokio::test]
async fn silence_and_endless_or_broken_answers_are_errors_in_time() {
    async fn query(body: String) -> Response {
        if body.contains("silence") {
            std::future::pending::<()>().await;
        }
        if body.contains("broken") {
            return (
                JSON,
                "{\"head\":{\"vars\":[\"s\"]},\"results\":{\"bindings\":[{",
            )
                .into_response();
        }
        if body.contains("endless") {
            let row = "{\"s\":{\"type\":\"literal\",\"value\":\"x\"}},".repeat(100);
            let head = "{\"head\":{\"vars\":[\"s\"]},\"results\":{\"bindings\":[".to_owned();
            let rows = futures::stream::iter(std::iter::once(head).chain(std::iter::repeat(row)));
            let rows = futures::StreamExt::map(rows, Ok::<_, std::io::Error>);
            return (JSON, axum::body::Body::from_stream(rows)).into_response();
        }
        boolean(true)
    }
    let router = Router::new()
        .route("/query", post(query))
        .route("/update", post(async || StatusCode::NO_CONTENT));
    let mut options = RemoteOptions::new(serve(router).await);
    options.max_answer_bytes = 8 << 20;
    let graph = connect(options).await;
    let ask = async |text: &str, timeout: u64, max_rows: usize| {
        let options = QueryOptions {
            timeout: Duration::from_millis(timeout),
            max_rows,
            ..QueryOptions::default()
        };
        let sparql = format!("SELECT ?s FROM <urn:g> {{ ?s ?p \"{text}\" }}");
        graph.query(&sparql, &[], options).await.unwrap_err()
    };
    let silence = ask("silence", 100, 10).await;
    assert!(
        matches!(silence, Error::Timeout(it) if it.as_millis() == 100),
        "{silence}"
    );
    let rows = ask("endless", 30_000, 1000).await;
    assert!(matches!(rows, Error::TooManyRows(1000)), "{rows}");
    let bytes = ask("endless", 30_000, usize::MAX).await;
    assert!(matches!(bytes, Error::TooMuchMemory(8)), "{bytes}");
    let broken = ask("broken", 30_000, 10).await;
    assert!(
        matches!(broken, Error::Remote(RemoteFault::Failed { .. })),
        "{broken}"
    );
    assert!(broken.retry().is_some());
}
