//! What the embedded graph promises beyond the contract.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::QueryOptions;
use crate::contract::{self, Fixture, batch, count, every_kind, many_quads};
use agentfleet_schema::{TermType, Triple};
use agentfleet_storage::ManualClock;
use proptest::prelude::*;
use std::path::Path;
use tempfile::TempDir;

/// Opens two databases of one directory, which is as far apart as two processes.
#[derive(Default)]
struct TwoHandles {
    directories: Mutex<Vec<TempDir>>,
}

#[async_trait]
impl Fixture for TwoHandles {
    async fn pair(&self) -> (Arc<dyn Graph>, Arc<dyn Graph>) {
        let directory = TempDir::new().unwrap();
        let one = open(directory.path(), GraphOptions::default()).await;
        let two = open(directory.path(), GraphOptions::default()).await;
        lock(&self.directories).push(directory);
        (Arc::new(one), Arc::new(two))
    }
}

graph_contract!(TwoHandles::default());

async fn open(directory: &Path, options: GraphOptions) -> EmbeddedGraph {
    let database = Database::open(directory).unwrap();
    EmbeddedGraph::open(database, options, &|_, _| ())
        .await
        .unwrap()
}

fn statement(object: Term) -> Triple {
    Triple {
        s: Term::iri("urn:test:s"),
        p: Term::iri("urn:test:p"),
        o: object,
        g: Some("urn:g".to_owned()),
    }
}

fn texts(key: &str, objects: &[&str]) -> Batch {
    batch(
        key,
        objects
            .iter()
            .map(|text| statement(Term::text(*text)))
            .collect(),
    )
}

async fn everything(graph: &EmbeddedGraph) -> Vec<String> {
    let generation = graph.inner.caught_up().await.unwrap();
    let quads = generation.store.iter();
    let mut lines: Vec<String> = quads.map(|quad| quad.unwrap().to_string()).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_restart_reads_back_what_was_there() {
    let directory = TempDir::new().unwrap();
    let before = {
        let graph = open(directory.path(), GraphOptions::default()).await;
        let kinds = every_kind().into_iter().map(statement).collect();
        graph
            .insert(vec![batch("kinds", kinds), many_quads()])
            .await
            .unwrap();
        everything(&graph).await
    };
    let seen = Mutex::new(Vec::new());
    let database = Database::open(directory.path()).unwrap();
    let progress = |loaded, total| lock(&seen).push((loaded, total));
    let graph = EmbeddedGraph::open(database, GraphOptions::default(), &progress)
        .await
        .unwrap();
    assert_eq!(everything(&graph).await, before);
    let total = 3000 + every_kind().len() as u64;
    assert_eq!(lock(&seen).last(), Some(&(total, total)));
    assert_eq!(graph.health().quads, total);
}

#[tokio::test]
async fn a_log_of_many_chunks_is_read_whole_and_in_order() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    // Each body is a good part of a chunk.
    let long = "x".repeat(generation::CHUNK / 3);
    for n in 0..8 {
        graph
            .insert(vec![texts(&n.to_string(), &[&format!("{n}{long}")])])
            .await
            .unwrap();
    }
    assert_eq!(
        count(&open(directory.path(), GraphOptions::default()).await).await,
        8
    );
}

#[tokio::test]
async fn an_erasure_takes_what_it_names_from_every_handle() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::new(1_000));
    let database = Database::open_with(directory.path(), clock.clone()).unwrap();
    let graph = EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| ())
        .await
        .unwrap();
    let other = open(directory.path(), GraphOptions::default()).await;
    let named = |key: &str, root: &str, conversation: &str, collection: &str| Batch {
        root: root.to_owned(),
        conversation: conversation.to_owned(),
        collection: collection.to_owned(),
        ..texts(key, &[key])
    };
    graph
        .insert(vec![
            named("by-root", "r1", "c1", "x"),
            named("by-conversation", "r2", "c2", "x"),
            named("by-collection", "r3", "", "y"),
            named("knowledge", "", "", "x"),
        ])
        .await
        .unwrap();
    clock.advance(Duration::from_secs(10));
    graph
        .insert(vec![named("recent", "r4", "", "x")])
        .await
        .unwrap();
    assert_eq!(count(&other).await, 5);

    let table = [
        (EraseBy::Root("r1".to_owned()), 1, 4),
        (EraseBy::Root("unknown".to_owned()), 0, 4),
        // No name is no name, not a wildcard.
        (EraseBy::Root(String::new()), 0, 4),
        (EraseBy::Conversation(String::new()), 0, 4),
        (EraseBy::Conversation("c2".to_owned()), 1, 3),
        (EraseBy::Collection("y".to_owned()), 1, 2),
        (EraseBy::Collection("x".to_owned()), 2, 0),
    ];
    for (by, batches, left) in table {
        let erased = graph.erase(by.clone()).await.unwrap();
        assert_eq!(
            erased,
            Erased {
                batches,
                quads: batches
            },
            "{by:?}"
        );
        assert_eq!(count(&graph).await, left, "{by:?}");
        // The other handle reads the log anew by itself.
        while count(&other).await != left {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(graph.batches().await.unwrap(), 0);
}

#[tokio::test]
async fn an_erased_quad_that_another_batch_holds_stays() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let mine = Batch {
        root: "mine".to_owned(),
        ..texts("a", &["shared", "mine"])
    };
    let theirs = Batch {
        root: "theirs".to_owned(),
        ..texts("b", &["shared", "theirs"])
    };
    graph.insert(vec![mine, theirs]).await.unwrap();
    assert_eq!(count(&graph).await, 3);
    graph.erase(EraseBy::Root("mine".to_owned())).await.unwrap();
    assert_eq!(count(&graph).await, 2);
}

#[tokio::test]
async fn several_erasures_at_once_are_one() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let of = |root: &str| Batch {
        root: root.to_owned(),
        ..texts(root, &[root])
    };
    graph.insert(vec![of("a"), of("b"), of("c")]).await.unwrap();
    let by = vec![EraseBy::Root("a".to_owned()), EraseBy::Root("c".to_owned())];
    let erased = graph.erase_all(by).await.unwrap();
    assert_eq!(
        erased,
        Erased {
            batches: 2,
            quads: 2
        }
    );
    assert_eq!(count(&graph).await, 1);
    assert_eq!(graph.inner.database.read(log::epoch).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_go_on_while_the_log_is_read_anew() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let old = Batch {
        root: "old".to_owned(),
        ..texts("old", &["old"])
    };
    graph.insert(vec![old, many_quads()]).await.unwrap();
    let eraser = tokio::spawn({
        let graph = graph.clone();
        async move { graph.erase(EraseBy::Root("old".to_owned())).await.unwrap() }
    });
    for n in 0..50 {
        graph
            .insert(vec![texts(&n.to_string(), &[&format!("new {n}")])])
            .await
            .unwrap();
        assert!(count(&graph).await > 3000 + n);
    }
    eraser.await.unwrap();
    assert_eq!(count(&graph).await, 3050);
}

#[tokio::test]
async fn a_full_graph_refuses_says_so_and_still_answers() {
    let directory = TempDir::new().unwrap();
    let small = GraphOptions {
        max_quads: Some(3),
        ..GraphOptions::default()
    };
    let graph = open(directory.path(), small).await;
    let first = Batch {
        root: "first".to_owned(),
        ..texts("a", &["1", "2"])
    };
    graph.insert(vec![first.clone()]).await.unwrap();
    let error = graph
        .insert(vec![texts("b", &["3", "4"])])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Full { quads: 4, max: 3 }), "{error}");
    assert!(error.retry().is_some());
    assert_eq!(count(&graph).await, 2);
    graph.insert(vec![texts("c", &["3"])]).await.unwrap();
    assert_eq!(graph.health().level, Level::Full);
    assert!(graph.health().advice.contains("SPARQL server"));
    // What is there already is no news, and a redelivery must not fail.
    graph.insert(vec![first]).await.unwrap();

    // A second process sees no less, and one that has less room refuses to start.
    let less = GraphOptions {
        max_quads: Some(2),
        ..GraphOptions::default()
    };
    let database = Database::open(directory.path()).unwrap();
    let error = EmbeddedGraph::open(database, less, &|_, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Full { quads: 3, max: 2 }), "{error}");

    graph
        .erase(EraseBy::Root("first".to_owned()))
        .await
        .unwrap();
    graph.insert(vec![texts("b", &["3", "4"])]).await.unwrap();
    assert_eq!(count(&graph).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_is_free_again_after_a_timeout_and_after_a_caller_that_left() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    // So many that what is not cancelled takes hours.
    let more: Vec<String> = (0..15_000).map(|n| format!("more {n}")).collect();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let batches = vec![many_quads(), texts("more", &more)];
    graph.insert(batches).await.unwrap();
    let mut running = graph.running();
    let options = |millis| QueryOptions {
        timeout: Duration::from_millis(millis),
        apart: true,
        ..QueryOptions::default()
    };
    let hashed = |name: &str| {
        let values: String = (0..200).map(|n| format!("\"{n}\" ")).collect();
        format!("VALUES ?{name} {{ {values} }} ")
    };
    let all = "{ ?s ?p ?o }";
    let product = "?s ?p ?o . ?a ?b ?c . ?d ?e ?f";
    let by_predicate = "{ SELECT ?p ?x { ?x ?p ?o } } { SELECT ?p ?y { ?y ?p ?o } } \
                        { SELECT ?p ?z { ?z ?p ?o } }";
    let endless = [
        contract::ENDLESS.to_owned(),
        format!("SELECT (COUNT(*) AS ?n) {{ {product} }}"),
        format!("SELECT * {{ {product} }} ORDER BY ?s"),
        format!("SELECT DISTINCT ?o {{ {product} FILTER (?o = ?none) }}"),
        format!("SELECT (COUNT(*) AS ?n) {{ {by_predicate} }}"),
        format!("SELECT (COUNT(*) AS ?n) {{ {{ {product} }} MINUS {all} }}"),
        format!("SELECT (COUNT(*) AS ?n) {{ {all} OPTIONAL {{ ?a ?b ?c . ?d ?e ?f }} }}"),
        format!("SELECT (COUNT(*) AS ?n) {{ {{ {product} }} UNION {{ {product} }} }}"),
        format!("ASK {{ {all} FILTER NOT EXISTS {{ ?a ?b ?c . ?d ?e ?f FILTER (?c = ?none) }} }}"),
        format!("CONSTRUCT {{ ?s ?b ?f }} {{ {product} FILTER (?o = ?none) }}"),
        // Reads nothing, and so would not notice a cancellation.
        format!(
            "SELECT (MAX(SHA512(CONCAT(?a, ?b, ?c))) AS ?m) {{ {}{}{} }}",
            hashed("a"),
            hashed("b"),
            hashed("c")
        ),
        format!("SELECT (COUNT(*) AS ?n) {{ {product} . ?f (<urn:p>|!<urn:p>)* ?z }}"),
    ];
    for query in &endless {
        let error = graph.query(query, &[], options(100)).await.unwrap_err();
        assert!(matches!(error, Error::Timeout(_)), "{query}: {error}");

        running.wait_for(|count| *count == 0).await.unwrap();
    }

    let caller = tokio::spawn({
        let graph = graph.clone();
        async move {
            graph
                .query(contract::ENDLESS, &[], options(600_000))
                .await
                .map(drop)
        }
    });
    running.wait_for(|count| *count == 1).await.unwrap();
    caller.abort();
    running.wait_for(|count| *count == 0).await.unwrap();
}

/// The most kilobytes that this process ever held; 0 where the system does not say.
fn most_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let most = lines.find_map(|line| line.strip_prefix("VmHWM:"));
    most.map_or(0, |most| {
        most.trim().trim_end_matches(" kB").parse().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_takes_too_much_memory_is_ended() {
    let directory = TempDir::new().unwrap();
    let options = GraphOptions {
        max_query_bytes: Some(32 << 20),
        ..GraphOptions::default()
    };
    let graph = open(directory.path(), options).await;
    graph.insert(vec![many_quads()]).await.unwrap();
    let options = QueryOptions {
        timeout: Duration::from_mins(10),
        apart: true,
        ..QueryOptions::default()
    };
    let doubled: String = (0..22)
        .map(|n| format!("BIND(CONCAT(?v{n}, ?v{n}) AS ?v{}) ", n + 1))
        .collect();
    let text = "REPLACE(CONCAT(?long, ?long), \"x\", \"xxxxxxxxxxxxxxxx\")";
    let long = "x".repeat(100_000);
    for sparql in [
        // Sorting needs all nine million rows at once.
        "SELECT ?a { ?s ?p ?a . ?t ?p ?b } ORDER BY ?a ?b".to_owned(),
        format!("SELECT (STRLEN(?v22) AS ?n) {{ BIND(\"{}\" AS ?v0) {doubled} }}", "x".repeat(1000)),
        "SELECT (GROUP_CONCAT(CONCAT(STR(?s), STR(?a), STR(?t), STR(?b))) AS ?all) { ?s ?p ?a . ?t ?p ?b }".to_owned(),
        format!("SELECT (STRLEN(?e) AS ?n) {{ BIND(\"{long}\" AS ?long) BIND({text} AS ?c)
                 BIND(REPLACE(?c, \"x\", \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\") AS ?d) BIND(REPLACE(?d, \"x\", \"xxxx\") AS ?e) }}"),
        "SELECT DISTINCT ?a ?b ?c { ?s ?p ?a . ?t ?p ?b . ?u ?p ?c }".to_owned(),
        "SELECT ?a ?b ?c { ?s ?p ?a . ?t ?p ?b . ?u ?p ?c }".to_owned(),
    ] {
        let error = graph.query(&sparql, &[], options.clone()).await.unwrap_err();
        assert!(
            matches!(error, Error::TooMuchMemory(32) | Error::TooManyRows(_)),
            "{sparql:.100}: {error}"
        );
        graph.running().wait_for(|count| *count == 0).await.unwrap();
    }
    // What it took was never this process's: here it would be four gigabytes.
    let doubled = format!(
        "SELECT (STRLEN(?v22) AS ?n) {{ BIND(\"{}\" AS ?v0) {doubled} }}",
        "x".repeat(1000)
    );
    let before = most_resident();
    let error = graph
        .query(&doubled, &[], options.clone())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("more than 32 MB"), "{error}");
    // The kernel counts roughly: it may even say less than before.
    let grown = most_resident().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} kB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_apart_sees_and_says_what_one_here_does() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let here = QueryOptions::default();
    let apart = QueryOptions {
        apart: true,
        ..here.clone()
    };
    for round in 0..20 {
        let name = format!("round {round}");
        graph
            .insert(vec![texts(&name, &[&name, "tagged"])])
            .await
            .unwrap();
        for sparql in [
            "SELECT ?s ?p ?o ?none { ?s ?p ?o } ORDER BY ?o",
            "SELECT ?s { ?s <urn:nothing> ?o }",
            "ASK { ?s ?p \"round 3\" }",
            "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o } ORDER BY ?o",
            "SELECT (<<( <urn:a> <urn:b> \"c\"@en )>> AS ?t) (1.50 AS ?n) (\"d\"@fr AS ?l) {}",
        ] {
            let one = graph.query(sparql, &[], here.clone()).await.unwrap();
            assert_eq!(
                graph.query(sparql, &[], apart.clone()).await.unwrap(),
                one,
                "{sparql}"
            );
        }
    }
    let two = QueryOptions {
        max_rows: 2,
        ..apart.clone()
    };
    let many = graph.query("SELECT * { ?s ?p ?o }", &[], two.clone()).await;
    assert!(matches!(many, Err(Error::TooManyRows(2))), "{many:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_apart_have_a_number_even_when_nobody_waits_for_them() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    graph.insert(vec![many_quads()]).await.unwrap();
    let options = QueryOptions {
        timeout: Duration::from_mins(10),
        apart: true,
        ..QueryOptions::default()
    };
    let ask = |graph: EmbeddedGraph| {
        let options = options.clone();
        async move { graph.query(contract::ENDLESS, &[], options).await }
    };
    let many: Vec<_> = (0..QUERIES_APART + 3)
        .map(|_| tokio::spawn(ask(graph.clone())))
        .collect();
    let mut running = graph.running();
    running
        .wait_for(|count| *count == QUERIES_APART)
        .await
        .unwrap();
    let soon = QueryOptions {
        timeout: Duration::from_millis(200),
        ..options.clone()
    };
    let waited = graph.query("ASK {}", &[], soon).await;
    assert!(matches!(waited, Err(Error::Timeout(_))), "{waited:?}");
    assert_eq!(*running.borrow(), QUERIES_APART);
    // Ours do not wait for theirs.
    graph
        .query("ASK {}", &[], QueryOptions::default())
        .await
        .unwrap();
    for one in many {
        one.abort();
    }
    running.wait_for(|count| *count == 0).await.unwrap();
    graph.query("ASK {}", &[], options).await.unwrap();
}

#[tokio::test]
async fn sessions_are_known_in_the_order_in_which_they_began() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let began = |key: &str, graph: Option<&str>, name: &str, at: &str| Batch {
        triples: vec![Triple {
            s: Term::iri(name),
            p: Term::iri("http://www.w3.org/ns/prov#startedAtTime"),
            o: Term::typed(at, "http://www.w3.org/2001/XMLSchema#dateTime"),
            g: graph.map(str::to_owned),
        }],
        ..texts(key, &[])
    };
    let told = Some("urn:graph:retrieval");
    let uri = |name: &str| format!("urn:trustgraph:agent:{name}");
    let table = [
        ("b", told, uri("b"), "2026-01-01T00:00:00.12Z"),
        ("a", told, uri("a"), "2026-01-01T00:00:00.120Z"),
        ("late", told, uri("late"), "2026-01-01T00:00:00.5Z"),
        ("early", told, uri("early"), "2026-01-01T00:00:00Z"),
        ("again", told, uri("early"), "2026-01-01T00:00:00Z"),
        ("loaded", None, uri("loaded"), "2026-02-01T00:00:00Z"),
        (
            "other",
            told,
            "urn:other".to_owned(),
            "2026-02-01T00:00:00Z",
        ),
    ];
    for (key, place, name, at) in &table {
        graph
            .insert(vec![began(key, *place, name, at)])
            .await
            .unwrap();
    }
    let names = |found: Option<Vec<(String, String)>>| {
        let found = found.unwrap().into_iter();
        found
            .map(|(at, name)| (name.rsplit(':').next().unwrap().to_owned(), at))
            .collect::<Vec<_>>()
    };
    let only = |found: &[(String, String)]| {
        found
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    for graph in [
        graph.clone(),
        open(directory.path(), GraphOptions::default()).await,
    ] {
        let two = names(graph.begun(None, 2).await.unwrap());
        assert_eq!(only(&two), ["late", "b"]);
        let (last, at) = two.last().unwrap();
        for at in [at.as_str(), "2026-01-01T00:00:00.12Z"] {
            let rest = graph.begun(Some((at, &uri(last))), 9).await.unwrap();
            assert_eq!(only(&names(rest)), ["a", "early"]);
        }
    }
}

/// A stack that runs out ends the process, so this test ends in a pass or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_deepest_queries_allowed_fit_on_the_stack() {
    let directory = TempDir::new().unwrap();
    let graph = open(directory.path(), GraphOptions::default()).await;
    let mut most = 0;
    for n in [10, 45, 70, 140, 300, 490] {
        for sparql in crate::sparql::nested(n) {
            // On a worker, as in the fleet: its stack is smaller than that of the main thread.
            let graph = graph.clone();
            let query = async move {
                let options = QueryOptions {
                    timeout: Duration::from_secs(2),
                    max_rows: 1,
                    apart: true,
                    graphs: None,
                };
                graph.query(&sparql, &[], options).await
            };
            match tokio::spawn(query).await.unwrap() {
                Ok(_) | Err(Error::TooManyRows(_)) => most = most.max(n),
                Err(Error::QueryTooLarge { .. } | Error::Syntax { .. }) => (),
                // What planning takes is the copy's own, stack and time.
                Err(Error::TooMuchMemory(_) | Error::Timeout(_)) => (),
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(most >= 140, "{most}");
}

#[tokio::test]
async fn a_damaged_row_is_named() {
    let directory = TempDir::new().unwrap();
    let database = Database::open(directory.path()).unwrap();
    database.migrate("graph", log::TABLES).unwrap();
    let action = |unit: &mut Unit<'_>| {
        unit.tx().execute_batch(
            "INSERT INTO graph_log(digest, root, collection, conversation, n, body)
             VALUES (x'00', '', '', '', 1, x'FF00')",
        )?;
        Ok(())
    };
    database.write(Durability::Durable, action).await.unwrap();
    let error = EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Damaged { seq: 1, .. }), "{error}");
}

fn any_term() -> impl Strategy<Value = Term> {
    let text = "\\PC{0,20}|[\\x00-\\x7f]{0,8}|.{0,8}";
    let iri = prop_oneof![
        "urn:[a-z]{2,5}:[A-Za-z0-9:_.~/-]{1,20}".prop_map(Term::iri),
        "https://[a-z]{1,8}\\.example/[a-zà-ÿ0-9%]{0,3}".prop_filter_map("escape", |iri| {
            (!iri.contains('%')).then(|| Term::iri(iri))
        }),
    ];
    let blank = "[a-z][A-Za-z0-9_]{0,8}".prop_map(|id| Term {
        kind: TermType::Blank,
        id,
        ..Term::default()
    });
    let typed = (text, "urn:datatype:[a-z]{1,8}")
        .prop_map(|(value, datatype)| Term::typed(value, &datatype));
    let tagged =
        (text, "[a-z]{2,3}(-[a-z]{2})?(--(ltr|rtl))?").prop_map(|(value, language)| Term {
            value,
            language,
            ..Term::default()
        });
    let number = any::<i64>().prop_map(|number| {
        Term::typed(
            number.to_string(),
            "http://www.w3.org/2001/XMLSchema#integer",
        )
    });
    let leaf = prop_oneof![
        iri.clone(),
        blank.clone(),
        text.prop_map(Term::text),
        typed,
        tagged,
        number
    ];
    leaf.prop_recursive(3, 8, 2, move |inner| {
        (prop_oneof![iri.clone(), blank.clone()], iri.clone(), inner).prop_map(|(s, p, o)| Term {
            kind: TermType::Triple,
            triple: Some(Box::new(Triple { s, p, o, g: None })),
            ..Term::default()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_term_comes_back_from_memory_and_from_the_log(
        terms in prop::collection::vec(any_term(), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = TempDir::new().unwrap();
            let graph = open(directory.path(), GraphOptions::default()).await;
            let triples = terms.iter().enumerate().map(|(index, term)| Triple {
                s: Term::iri(format!("urn:s:{index}")),
                ..statement(term.clone())
            });
            graph.insert(vec![batch("k", triples.collect())]).await.unwrap();
            let reread = open(directory.path(), GraphOptions::default()).await;
            for graph in [graph, reread] {
                for (index, term) in terms.iter().enumerate() {
                    let found = graph
                        .query(
                            "SELECT ?o { ?s ?p ?o }",
                            &[("s", Term::iri(format!("urn:s:{index}")))],
                            QueryOptions::default(),
                        )
                        .await
                        .unwrap();
                    let Answer::Solutions(found) = found else { panic!("{found:?}") };
                    assert_eq!(found.rows, [[Some(term.clone())]]);
                }
            }
        });
    }

    #[test]
    fn no_term_makes_the_check_panic(value in "\\PC{0,12}", other in "\\PC{0,12}", kind in 0..4) {
        let kind = [TermType::Iri, TermType::Blank, TermType::Literal, TermType::Triple]
            [usize::try_from(kind).unwrap()];
        let term = Term {
            kind,
            iri: value.clone(),
            id: value.clone(),
            language: other.clone(),
            datatype: value.clone(),
            value,
            triple: None,
        };
        let _ = crate::validate(&batch("k", vec![statement(term)]));
    }
}
