//! Real servers: the contract on Fuseki, on disk and in memory, and a crash.

use super::endpoint;
use crate::contract::{Fixture, batch};
use agentfleet_graph::{
    Answer, Batch, Credentials, EraseBy, Erased, Error, Graph, QueryOptions, RemoteFault,
    RemoteGraph, RemoteOptions,
};
use agentfleet_schema::{Term, Triple};
use agentfleet_servers::Server;
use async_trait::async_trait;
use std::sync::{Arc, LazyLock};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// One server for all tests, which take turns: each begins with an empty store.
struct Shared {
    server: Server,
    turn: Arc<Mutex<()>>,
}

impl Shared {
    fn new(server: Server) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            server,
            turn: Arc::default(),
        }
    }
}

static ON_DISK: LazyLock<Shared> = LazyLock::new(|| Shared::new(Server::fuseki(None)));
static IN_MEMORY: LazyLock<Shared> = LazyLock::new(|| Shared::new(Server::fuseki_in_memory()));

/// By which request data is stored.
#[derive(PartialEq)]
enum By {
    Data,
    Update,
}

struct Fuseki(&'static LazyLock<Shared>, By);

#[async_trait]
impl Fixture for Fuseki {
    async fn pair(&self) -> (Arc<dyn Graph>, Arc<dyn Graph>) {
        let shared = self.0;
        let shared = tokio::task::block_in_place(|| LazyLock::force(shared));
        let turn = Arc::new(Arc::clone(&shared.turn).lock_owned().await);
        let url = shared.server.address();
        update(url, "CLEAR ALL").await;
        let mut options = RemoteOptions::new(url);
        if self.1 == By::Update {
            options.data_url = Some(format!("{url}/nothing"));
        }
        let (one, two) = endpoint::pair(options).await;
        (taking_turns(one, &turn), taking_turns(two, &turn))
    }
}

async fn update(url: &str, text: &str) {
    let sent = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = sent
        .post(format!("{url}/update"))
        .header("content-type", "application/sparql-update")
        .body(text.to_owned());
    sent.send().await.unwrap().error_for_status().unwrap();
}

/// A graph that keeps others waiting until it is dropped.
struct Turn {
    graph: Arc<dyn Graph>,
    _turn: Arc<OwnedMutexGuard<()>>,
}

fn taking_turns(graph: Arc<dyn Graph>, turn: &Arc<OwnedMutexGuard<()>>) -> Arc<dyn Graph> {
    Arc::new(Turn {
        graph,
        _turn: Arc::clone(turn),
    })
}

#[async_trait]
impl Graph for Turn {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        self.graph.insert(batches).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error> {
        self.graph.query(sparql, bindings, options).await
    }

    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        self.graph.erase_all(by).await
    }

    async fn batches(&self) -> Result<u64, Error> {
        self.graph.batches().await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.graph.ready().await
    }
}

mod on_fuseki_on_disk {
    use super::*;
    graph_contract!(Fuseki(&ON_DISK, By::Data));
}

mod on_fuseki_in_memory {
    use super::*;
    graph_contract!(Fuseki(&IN_MEMORY, By::Data));
}

/// Where its graph store cannot be written.
mod on_fuseki_by_updates {
    use super::*;
    graph_contract!(@each Fuseki(&IN_MEMORY, By::Update),
        inserting_twice_is_the_same_as_once
        a_binding_cannot_change_the_query
        every_kind_of_term_comes_back
        erasure_takes_what_no_other_batch_states
    );
}

fn numbered(n: usize) -> Batch {
    let triple = Triple {
        s: Term::iri(format!("urn:test:s{}", n % 7)),
        p: Term::iri("urn:test:p"),
        o: Term::text(format!("batch {n}")),
        g: Some("urn:g".to_owned()),
    };
    batch(&format!("k{n}"), vec![triple])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut server = Server::fuseki(Some("the password"));
    let mut options = RemoteOptions::new(server.address());
    options.credentials = Some(Credentials::Basic {
        user: "fleet".to_owned(),
        password: "the password".to_owned(),
    });
    let graph = Arc::new(RemoteGraph::connect(options).await.unwrap());
    let (told, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let writer = tokio::spawn({
        let graph = Arc::clone(&graph);
        async move {
            for n in 0.. {
                match graph.insert(vec![numbered(n)]).await {
                    Ok(()) => told.send(n).unwrap(),
                    Err(error) => return (n, error),
                }
            }
            unreachable!("it goes on until the server is killed")
        }
    });
    // Killed while it writes.
    let mut last = 0;
    while last < 20 {
        last = acknowledged.recv().await.unwrap();
    }
    server.kill();
    let (cut, error) = writer.await.unwrap();
    assert!(
        matches!(error, Error::Remote(RemoteFault::Unreachable { .. })),
        "{error}"
    );
    // Callers wait and try again, and nothing is lost.
    assert!(error.retry().is_some());
    assert!(graph.ready().await.unwrap_err().retry().is_some());
    while let Some(n) = acknowledged.recv().await {
        last = n;
    }
    server.start();
    graph.insert(vec![numbered(cut)]).await.unwrap();
    let count = "SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s <urn:test:p> ?o }";
    let found = graph
        .select(count, &[], QueryOptions::default())
        .await
        .unwrap();
    assert_eq!(cut, last + 1);
    assert_eq!(found.text(0, "n"), Some((cut + 1).to_string().as_str()));
    assert_eq!(graph.batches().await.unwrap(), cut as u64 + 1);

    // The same server: who has the wrong password, or none, is told so.
    let wrong = Credentials::Basic {
        user: "fleet".to_owned(),
        password: "another password".to_owned(),
    };
    for credentials in [None, Some(wrong)] {
        let mut options = RemoteOptions::new(server.address());
        options.credentials = credentials;
        let error = RemoteGraph::connect(options).await.unwrap_err();
        assert!(
            matches!(error, Error::Remote(RemoteFault::Credentials { .. })),
            "{error}"
        );
        assert!(error.retry().is_some());
        assert!(!error.to_string().contains("another password"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_only_reads_sees_what_is_there() {
    let (graph, _) = Fuseki(&IN_MEMORY, By::Data).pair().await;
    let url = IN_MEMORY.server.address();
    for expected in [false, true] {
        let read = RemoteGraph::connect_to_read(RemoteOptions::new(url)).await;
        let found = read
            .unwrap()
            .query("ASK { ?s ?p ?o }", &[], QueryOptions::default())
            .await;
        assert_eq!(found.unwrap(), Answer::Boolean(expected));
        graph.insert(vec![numbered(0)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_lie_where_other_tools_look_for_them() {
    let (graph, _) = Fuseki(&IN_MEMORY, By::Data).pair().await;
    graph.insert((0..3).map(numbered).collect()).await.unwrap();
    let url = IN_MEMORY.server.address();
    let answer = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = answer
        .get(format!("{url}/data?graph=urn:g"))
        .header("accept", "application/n-triples");
    let body = answer.send().await.unwrap().text().await.unwrap();
    assert_eq!(body.lines().count(), 3, "{body}");
    assert!(
        body.contains("<urn:test:s1> <urn:test:p> \"batch 1\" ."),
        "{body}"
    );
    // And the other way round: what another tool puts into a graph is seen.
    update(
        url,
        "INSERT DATA { GRAPH <urn:other> { <urn:a> <urn:b> <urn:c> } }",
    )
    .await;
    let answer = graph
        .query("ASK { <urn:a> ?p ?o }", &[], QueryOptions::default())
        .await;
    assert_eq!(answer.unwrap(), Answer::Boolean(true));
}

/// Sends the start of what it announces, and gives the status that the server answers with.
async fn cut(url: &str, announced: &[u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let host = url.strip_prefix("http://").unwrap();
    let (host, path) = host.split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST /{path}/data HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/trig\r\n\
         content-encoding: gzip\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        announced.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
        .write_all(&announced[..announced.len() / 2])
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

/// Whoever inserts may be killed while he sends. This is why data is sent compressed: the server must
/// not take the first half for the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_cut_or_wrong_at_its_end_stores_nothing() {
    use std::io::Write as _;
    for store in [&ON_DISK, &IN_MEMORY] {
        let (graph, _) = Fuseki(store, By::Data).pair().await;
        let url = store.server.address();
        // The store's own default graph, where the server puts it.
        let stored = async || {
            let count = "SELECT (COUNT(*) AS ?n) { GRAPH <urn:x-arq:DefaultGraph> { ?s ?p ?o } }";
            let found = graph.select(count, &[], QueryOptions::default()).await;
            found.unwrap().text(0, "n").unwrap().to_owned()
        };
        graph.insert(vec![numbered(0)]).await.unwrap();
        let before = stored().await;
        assert_ne!(before, "0");
        let lines =
            (0..20_000).map(|n| format!("<urn:s{n}> <urn:test:p> {} .\n", n * 7919 % 99_991));
        let text: String = lines.collect();
        let fast = flate2::Compression::fast();
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), fast);
        zipped.write_all(text.as_bytes()).unwrap();
        let zipped = zipped.finish().unwrap();
        assert_eq!(cut(url, &zipped).await, "400");
        let wrong = reqwest::Client::builder().no_proxy().build().unwrap();
        let wrong = wrong
            .post(format!("{url}/data"))
            .header("content-type", "application/trig")
            .body(format!("{text} <urn:a> ."));
        assert_eq!(wrong.send().await.unwrap().status(), 400);
        assert_eq!(stored().await, before);
    }
}
