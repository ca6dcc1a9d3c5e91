//! What every implementation of [`Graph`] must do, as tests.
//!
//! An implementation opens stores through a [`Fixture`] and calls [`graph_contract!`] once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_graph::{
    Answer, Batch, BindingFault, EraseBy, Erased, Error, Graph, QueryOptions, Solutions, TermFault,
};
use agentfleet_schema::{Term, TermType, Triple, uris};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Opens stores for the suite.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// Two handles on one new, empty store, as two processes would have them.
    async fn pair(&self) -> (Arc<dyn Graph>, Arc<dyn Graph>);
}

/// Makes a test of each sentence of the contract, for one fixture.
macro_rules! graph_contract {
    ($fixture:expr) => {
        graph_contract!(@each $fixture,
            inserting_twice_is_the_same_as_once
            the_other_handle_sees_an_insert_at_once
            inserts_at_the_same_time_all_stand
            the_default_graph_is_the_union_of_all_graphs
            a_query_of_some_graphs_sees_no_others
            what_is_said_again_for_a_tenant_gives_no_second_row
            a_bound_variable_need_not_be_selected
            a_binding_cannot_change_the_query
            a_binding_that_does_not_fit_is_refused
            ask_construct_and_describe_answer
            known_prefixes_need_no_declaration
            every_kind_of_term_comes_back
            one_bad_triple_refuses_the_whole_call
            a_bad_query_says_where
            an_update_is_refused_and_changes_nothing
            a_service_is_refused
            more_rows_than_allowed_is_an_error
            a_query_ends_at_its_timeout
            only_what_was_inserted_is_seen
            paths_lead_from_graph_to_graph
            nested_parts_of_a_query_keep_their_meaning
            select_gives_rows_and_nothing_else
            erasure_takes_what_no_other_batch_states
            an_empty_name_erases_nothing
            batches_are_counted
        );
    };
    (@each $fixture:expr, $($name:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::contract::$name(&$fixture).await;
            }
        )+
    };
}

const SUBJECT: &str = "urn:test:s";
const PREDICATE: &str = "urn:test:p";

fn triple(subject: &str, object: Term, graph: Option<&str>) -> Triple {
    Triple {
        s: Term::iri(subject),
        p: Term::iri(PREDICATE),
        o: object,
        g: graph.map(str::to_owned),
    }
}

/// A batch as the fleet writes them.
pub(crate) fn batch(key: &str, triples: Vec<Triple>) -> Batch {
    Batch {
        key: key.to_owned(),
        root: "root".to_owned(),
        collection: "default".to_owned(),
        conversation: String::new(),
        triples,
    }
}

async fn select(graph: &dyn Graph, sparql: &str, bindings: &[(&str, Term)]) -> Solutions {
    match graph
        .query(sparql, bindings, QueryOptions::default())
        .await
        .unwrap()
    {
        Answer::Solutions(solutions) => solutions,
        other => panic!("no solutions: {other:?}"),
    }
}

async fn ask(graph: &dyn Graph, sparql: &str) -> bool {
    graph
        .query(sparql, &[], QueryOptions::default())
        .await
        .unwrap()
        == Answer::Boolean(true)
}

async fn refused(graph: &dyn Graph, sparql: &str, bindings: &[(&str, Term)]) -> Error {
    graph
        .query(sparql, bindings, QueryOptions::default())
        .await
        .unwrap_err()
}

/// How many different objects the test predicate has.
pub(crate) async fn count(graph: &dyn Graph) -> usize {
    let found = select(
        graph,
        "SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s ?p ?o }",
        &[("p", Term::iri(PREDICATE))],
    )
    .await;
    found.text(0, "n").unwrap().parse().unwrap()
}

pub(crate) async fn inserting_twice_is_the_same_as_once(fixture: &dyn Fixture) {
    let (graph, other) = fixture.pair().await;
    let one = batch("k", vec![triple(SUBJECT, Term::text("a"), Some("urn:g"))]);
    graph.insert(vec![one.clone(), one.clone()]).await.unwrap();
    graph.insert(vec![one.clone()]).await.unwrap();
    other.insert(vec![one]).await.unwrap();
    graph.insert(Vec::new()).await.unwrap();
    graph
        .insert(vec![batch("empty", Vec::new())])
        .await
        .unwrap();
    for graph in [graph, other] {
        let rows = select(&*graph, "SELECT ?o { ?s ?p ?o }", &[]).await.rows;
        assert_eq!(rows, [[Some(Term::text("a"))]]);
    }
}

pub(crate) async fn the_other_handle_sees_an_insert_at_once(fixture: &dyn Fixture) {
    let (one, two) = fixture.pair().await;
    for round in 0..40 {
        let (writer, reader) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let object = Term::text(format!("round {round}"));
        let batch = batch(
            &format!("k{round}"),
            vec![triple(SUBJECT, object, Some("urn:g"))],
        );
        writer.insert(vec![batch]).await.unwrap();
        assert_eq!(count(&**reader).await, round + 1);
        assert_eq!(count(&**writer).await, round + 1);
    }
}

pub(crate) async fn inserts_at_the_same_time_all_stand(fixture: &dyn Fixture) {
    let (one, two) = fixture.pair().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..32 {
        let graph = Arc::clone(if n % 2 == 0 { &one } else { &two });
        tasks.spawn(async move {
            let own = Term::text(n.to_string());
            let batch = batch(&format!("k{n}"), vec![triple(SUBJECT, own.clone(), None)]);
            graph.insert(vec![batch]).await.unwrap();
            // Everybody sees at least what he wrote himself.
            let seen = graph
                .query(
                    "ASK { ?s ?p ?own }",
                    &[("own", own)],
                    QueryOptions::default(),
                )
                .await
                .unwrap();
            assert_eq!(seen, Answer::Boolean(true));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(count(&*one).await, 32);
    assert_eq!(count(&*two).await, 32);
}

pub(crate) async fn the_default_graph_is_the_union_of_all_graphs(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let triples = vec![
        triple(SUBJECT, Term::text("none"), None),
        triple(SUBJECT, Term::text("empty"), Some("")),
        triple(SUBJECT, Term::text("one"), Some("urn:g:1")),
        triple(SUBJECT, Term::text("two"), Some("urn:g:2")),
    ];
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    assert_eq!(count(&*graph).await, 4);
    let named = select(
        &*graph,
        "SELECT ?g { GRAPH ?g { ?s ?p ?o } } ORDER BY ?g",
        &[],
    )
    .await;
    assert_eq!(
        named.rows,
        [[Some(Term::iri("urn:g:1"))], [Some(Term::iri("urn:g:2"))]]
    );
    let from = select(&*graph, "SELECT ?o FROM <urn:g:2> { ?s ?p ?o }", &[]).await;
    assert_eq!(from.rows, [[Some(Term::text("two"))]]);
}

/// What two tenants and nobody have, each of the tenants in a graph of its own, too.
fn of_tenants() -> Vec<Triple> {
    let told = Some("urn:graph:retrieval");
    let (acme, bond) = (uris::tenant_graph("acme"), uris::tenant_graph("bond"));
    vec![
        triple(SUBJECT, Term::text("nobody's"), told),
        triple(SUBJECT, Term::text("acme's"), told),
        triple(SUBJECT, Term::text("acme's"), Some(&acme)),
        triple("urn:test:t", Term::text("bond's"), told),
        triple("urn:test:t", Term::text("bond's"), Some(&bond)),
        triple(SUBJECT, Term::text("no graph's"), None),
    ]
}

pub(crate) async fn a_query_of_some_graphs_sees_no_others(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    graph.insert(vec![batch("k", of_tenants())]).await.unwrap();
    let (acme, bond) = (uris::tenant_graph("acme"), uris::tenant_graph("bond"));
    let seeing = |graphs: &[&String]| QueryOptions {
        graphs: Some(graphs.iter().map(|name| (*name).clone()).collect()),
        ..QueryOptions::default()
    };
    let union = "urn:x-arq:UnionGraph";
    for sparql in [
        "SELECT ?o { ?s ?p ?o }".to_owned(),
        "SELECT ?o { GRAPH ?g { ?s ?p ?o } }".to_owned(),
        format!("SELECT ?o {{ GRAPH <{acme}> {{ ?s ?p ?o }} }}"),
        format!("SELECT ?o FROM <{acme}> {{ ?s ?p ?o }}"),
        format!("SELECT ?o FROM NAMED <{acme}> {{ GRAPH ?g {{ ?s ?p ?o }} }}"),
        format!("SELECT DISTINCT ?o {{ VALUES ?g {{ <{union}> <{bond}> <{acme}> }} GRAPH ?g {{ ?s ?p ?o }} }}"),
        format!("SELECT DISTINCT ?o {{ {{ BIND(<{bond}> AS ?g) GRAPH ?g {{ ?s ?p ?o }} }} UNION {{ ?s ?p ?o }} }}"),
        "SELECT DISTINCT ?o { { SELECT * { ?s ?p ?o } } UNION { GRAPH ?g { ?s ?p ?o FILTER EXISTS { GRAPH ?h { ?s ?p ?o } } } } }".to_owned(),
        "SELECT DISTINCT ?o { ?s (!<urn:none>)+ ?o }".to_owned(),
    ] {
        let found = graph.select(&sparql, &[], seeing(&[&acme])).await.unwrap();
        assert_eq!(found.rows, [[Some(Term::text("acme's"))]], "{sparql}");
    }
    let asked = "ASK { { ?s ?p \"bond's\" } UNION { GRAPH ?g { ?s ?p \"nobody's\" } } UNION { ?s ?p \"no graph's\" } }";
    let answer = graph.query(asked, &[], seeing(&[&acme])).await.unwrap();
    assert_eq!(answer, Answer::Boolean(false));
    let described = graph
        .query("DESCRIBE <urn:test:t>", &[], seeing(&[&acme]))
        .await
        .unwrap();
    assert_eq!(described, Answer::Triples(Vec::new()));
    for closed in [
        format!("SELECT ?o {{ GRAPH <{bond}> {{ ?s ?p ?o }} }}"),
        "SELECT ?o FROM <urn:graph:retrieval> { ?s ?p ?o }".to_owned(),
        format!("SELECT ?o FROM NAMED <{bond}> {{ GRAPH ?g {{ ?s ?p ?o }} }}"),
        format!("SELECT ?o {{ FILTER EXISTS {{ GRAPH <{union}> {{ ?s ?p ?o }} }} ?s ?p ?o }}"),
    ] {
        let error = graph
            .select(&closed, &[], seeing(&[&acme]))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::ClosedGraph(..)), "{closed}: {error}");
        assert!(error.to_string().contains(&acme), "{error}");
    }
    let both = "SELECT ?o { ?s ?p ?o } ORDER BY ?o";
    let found = graph
        .select(both, &[], seeing(&[&acme, &bond]))
        .await
        .unwrap();
    let texts = [[Some(Term::text("acme's"))], [Some(Term::text("bond's"))]];
    assert_eq!(found.rows, texts);
    // A tenant of whom nothing is told yet.
    let none = uris::tenant_graph("none");
    let found = graph
        .select("SELECT ?o { ?s ?p ?o }", &[], seeing(&[&none]))
        .await;
    assert_eq!(found.unwrap().rows, Vec::<Vec<Option<Term>>>::new());
}

pub(crate) async fn what_is_said_again_for_a_tenant_gives_no_second_row(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    graph.insert(vec![batch("k", of_tenants())]).await.unwrap();
    let rows = select(&*graph, "SELECT ?o { ?s ?p ?o } ORDER BY ?o", &[]).await;
    let texts = ["acme's", "bond's", "no graph's", "nobody's"];
    let texts: Vec<_> = texts
        .iter()
        .map(|text| vec![Some(Term::text(*text))])
        .collect();
    assert_eq!(rows.rows, texts);
}

pub(crate) async fn a_bound_variable_need_not_be_selected(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let number = |n: i32| Term::typed(n.to_string(), "http://www.w3.org/2001/XMLSchema#integer");
    let triples = (1..=3)
        .map(|n| triple(&format!("urn:test:s{n}"), number(n), Some("urn:g")))
        .collect();
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    let one = |found: Solutions| found.rows.first().and_then(|row| row[0].clone());
    let table: [(&str, &str, Term, Option<Term>); 9] = [
        (
            "SELECT ?o { ?s ?p ?o }",
            "s",
            Term::iri("urn:test:s2"),
            Some(number(2)),
        ),
        (
            "SELECT ?s { ?s ?p ?o }",
            "s",
            Term::iri("urn:test:s2"),
            Some(Term::iri("urn:test:s2")),
        ),
        (
            "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
            "s",
            Term::iri("urn:test:s2"),
            Some(number(1)),
        ),
        (
            "SELECT (?v + ?o AS ?n) { <urn:test:s3> ?p ?o }",
            "v",
            number(4),
            Some(number(7)),
        ),
        (
            "SELECT ?o { ?s ?p ?o FILTER(?o > ?v) } ORDER BY ?o",
            "v",
            number(2),
            Some(number(3)),
        ),
        (
            "SELECT ?v { ?v ?p ?o } GROUP BY ?v",
            "v",
            Term::iri("urn:test:s1"),
            Some(Term::iri("urn:test:s1")),
        ),
        (
            "SELECT ?o { VALUES ?s { <urn:test:s1> <urn:test:s2> } ?s ?p ?o }",
            "s",
            Term::iri("urn:test:s2"),
            Some(number(2)),
        ),
        (
            "SELECT ?o { VALUES ?s { <urn:test:s1> } ?s ?p ?o }",
            "s",
            Term::iri("urn:test:s2"),
            None,
        ),
        // MINUS takes away what agrees on the bound variable.
        (
            "SELECT ?o { ?s ?p ?o MINUS { ?s ?q 2 } }",
            "s",
            Term::iri("urn:test:s2"),
            None,
        ),
    ];
    for (sparql, name, value, expected) in table {
        let found = select(&*graph, sparql, &[(name, value)]).await;
        assert_eq!(one(found), expected, "{sparql}");
    }
}

pub(crate) async fn a_binding_cannot_change_the_query(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let secret = batch(
        "secret",
        vec![triple("urn:test:secret", Term::text("secret"), None)],
    );
    let hostile = [
        "\" } UNION { ?s ?p ?o } #",
        "x\" . ?a ?b ?c . FILTER(\"",
        "'''\\\" } ; DROP ALL",
        "\n\r\t\u{0}\u{1f}\\u0022 }",
    ];
    let mut triples = Vec::new();
    for text in hostile {
        triples.push(triple(SUBJECT, Term::text(text), Some("urn:g")));
    }
    graph
        .insert(vec![secret, batch("texts", triples)])
        .await
        .unwrap();
    for text in hostile {
        let found = select(
            &*graph,
            "SELECT ?s ?o { ?s ?p ?o }",
            &[("o", Term::text(text))],
        )
        .await;
        assert_eq!(
            found.rows,
            [[Some(Term::iri(SUBJECT)), Some(Term::text(text))]]
        );
    }
    let iri = Term::iri("urn:x> ?p ?o } #");
    assert!(matches!(
        refused(&*graph, "SELECT ?o { ?s ?p ?o }", &[("s", iri)]).await,
        Error::Binding {
            fault: BindingFault::Term(TermFault::Iri { .. }),
            ..
        }
    ));
}

pub(crate) async fn a_binding_that_does_not_fit_is_refused(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let iri = Term::iri("urn:x");
    let blank = Term {
        kind: TermType::Blank,
        id: "b".to_owned(),
        ..Term::default()
    };
    let table = [
        (
            "ASK { ?s ?p ?o }",
            "typo",
            iri.clone(),
            BindingFault::Unused,
        ),
        ("ASK { ?s ?p ?o }", "no name", iri, BindingFault::Name),
        (
            "ASK { ?s ?p ?o }",
            "p",
            Term::text("x"),
            BindingFault::NotIri,
        ),
        ("ASK { ?s ?p ?o }", "o", blank, BindingFault::Blank),
    ];
    for (sparql, name, value, expected) in table {
        match refused(&*graph, sparql, &[(name, value)]).await {
            Error::Binding { name: named, fault } => {
                assert_eq!((named.as_str(), fault), (name, expected));
            }
            other => panic!("{other}"),
        }
    }
}

pub(crate) async fn ask_construct_and_describe_answer(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let stored = triple(SUBJECT, Term::text("a"), Some("urn:g"));
    graph
        .insert(vec![batch("k", vec![stored.clone()])])
        .await
        .unwrap();
    assert!(ask(&*graph, "ASK { ?s ?p \"a\" }").await);
    assert!(!ask(&*graph, "ASK { ?s ?p \"b\" }").await);
    let plain = Answer::Triples(vec![Triple { g: None, ..stored }]);
    for sparql in ["CONSTRUCT WHERE { ?s ?p ?o }", "DESCRIBE <urn:test:s>"] {
        let answer = graph
            .query(sparql, &[], QueryOptions::default())
            .await
            .unwrap();
        assert_eq!(answer, plain, "{sparql}");
    }
}

pub(crate) async fn known_prefixes_need_no_declaration(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let used = Triple {
        p: Term::iri("http://www.w3.org/ns/prov#used"),
        ..triple(SUBJECT, Term::iri("https://trustgraph.ai/ns/x"), None)
    };
    graph.insert(vec![batch("k", vec![used])]).await.unwrap();
    assert!(ask(&*graph, "ASK { ?s prov:used tg:x }").await);
    assert!(!ask(&*graph, "PREFIX tg: <urn:other:> ASK { ?s prov:used tg:x }").await);
    assert!(
        ask(
            &*graph,
            "ASK { FILTER(rdf:type != rdfs:label && xsd:string != xsd:date) }"
        )
        .await
    );
}

/// One term of every kind, as it comes back.
pub(crate) fn every_kind() -> Vec<Term> {
    let tagged = |language: &str| Term {
        value: "text".to_owned(),
        language: language.to_owned(),
        ..Term::default()
    };
    let quoted = |object| Term {
        kind: TermType::Triple,
        triple: Some(Box::new(triple(SUBJECT, object, None))),
        ..Term::default()
    };
    vec![
        Term::iri("urn:trustgraph:agent:550e8400-e29b-41d4-a716-446655440000/i1"),
        Term::iri("http://example.org/ünïcode/%20?q=a&b#frag"),
        Term {
            kind: TermType::Blank,
            id: "b1".to_owned(),
            ..Term::default()
        },
        Term::text(""),
        Term::text("several\nlines \"quoted\" \\ back\tslash \u{1F600} \u{0}"),
        Term::typed(
            "2026-11-21T03:04:05Z",
            "http://www.w3.org/2001/XMLSchema#dateTime",
        ),
        Term::typed("42", "http://www.w3.org/2001/XMLSchema#integer"),
        Term::typed("0.75", "http://www.w3.org/2001/XMLSchema#decimal"),
        Term::typed("true", "http://www.w3.org/2001/XMLSchema#boolean"),
        Term::typed("any form", "urn:own:datatype"),
        tagged("en"),
        tagged("de-ch"),
        tagged("ar--rtl"),
        quoted(Term::text("inner")),
        quoted(quoted(Term::typed("1", "urn:own:datatype"))),
    ]
}

pub(crate) async fn every_kind_of_term_comes_back(fixture: &dyn Fixture) {
    let (graph, other) = fixture.pair().await;
    let terms = every_kind();
    for (index, term) in terms.iter().enumerate() {
        let statement = triple(&format!("urn:test:s{index}"), term.clone(), Some("urn:g"));
        graph
            .insert(vec![batch(&index.to_string(), vec![statement])])
            .await
            .unwrap();
    }
    for graph in [graph, other] {
        for (index, term) in terms.iter().enumerate() {
            let subject = Term::iri(format!("urn:test:s{index}"));
            let found = select(&*graph, "SELECT ?o { ?s ?p ?o }", &[("s", subject)]).await;
            assert_eq!(found.rows, [[Some(term.clone())]]);
        }
    }
}

pub(crate) async fn one_bad_triple_refuses_the_whole_call(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let good = || triple(SUBJECT, Term::text("good"), None);
    let bad = [
        triple("no iri", Term::text("x"), None),
        triple(SUBJECT, Term::iri("urn:with space"), None),
        triple(SUBJECT, Term::typed("1", "relative"), None),
        triple(SUBJECT, Term::text("x"), Some("no graph")),
        Triple {
            s: Term::text("literal"),
            ..good()
        },
        Triple {
            p: Term::text("literal"),
            ..good()
        },
        triple(
            SUBJECT,
            Term {
                kind: TermType::Triple,
                ..Term::default()
            },
            None,
        ),
        triple(
            SUBJECT,
            Term {
                language: "not a language".to_owned(),
                ..Term::default()
            },
            None,
        ),
    ];
    for bad in bad {
        let calls = vec![
            batch("fine", vec![good()]),
            batch("bad", vec![good(), bad.clone()]),
        ];
        assert!(agentfleet_graph::validate(&calls[0]).is_ok());
        assert!(agentfleet_graph::validate(&calls[1]).is_err());
        match graph.insert(calls).await.unwrap_err() {
            Error::Invalid { batch, index, .. } => assert_eq!((batch.as_str(), index), ("bad", 1)),
            other => panic!("{bad:?}: {other}"),
        }
    }
    assert!(!ask(&*graph, "ASK { ?s ?p ?o }").await);
}

pub(crate) async fn a_bad_query_says_where(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let error = refused(&*graph, "SELECT ?s {\n  ?s tg:x }", &[]).await;
    assert!(matches!(error, Error::Syntax { line: 2, .. }), "{error}");
    assert!(error.to_string().contains("line 2"), "{error}");
}

pub(crate) async fn an_update_is_refused_and_changes_nothing(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    graph
        .insert(vec![batch(
            "k",
            vec![triple(SUBJECT, Term::text("a"), None)],
        )])
        .await
        .unwrap();
    for update in ["CLEAR ALL", "INSERT DATA { <urn:a> <urn:b> <urn:c> }"] {
        assert!(matches!(refused(&*graph, update, &[]).await, Error::Update));
    }
    assert_eq!(count(&*graph).await, 1);
}

pub(crate) async fn a_service_is_refused(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let sparql = "SELECT * { SERVICE SILENT <http://127.0.0.1:9/> { ?s ?p ?o } }";
    assert!(matches!(
        refused(&*graph, sparql, &[]).await,
        Error::Service(_)
    ));
}

pub(crate) async fn more_rows_than_allowed_is_an_error(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let triples = (0..10)
        .map(|n| triple(SUBJECT, Term::text(n.to_string()), None))
        .collect();
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    let most = |max_rows| QueryOptions {
        max_rows,
        ..QueryOptions::default()
    };
    for sparql in ["SELECT ?o { ?s ?p ?o }", "CONSTRUCT WHERE { ?s ?p ?o }"] {
        assert!(graph.query(sparql, &[], most(10)).await.is_ok());
        let error = graph.query(sparql, &[], most(9)).await.unwrap_err();
        assert!(matches!(error, Error::TooManyRows(9)), "{error}");
    }
}

/// Takes days over a few thousand quads.
pub(crate) const ENDLESS: &str = "SELECT (COUNT(*) AS ?n) {
    ?a ?p ?b . ?c ?p ?d . ?e ?p ?f . ?g ?p ?h FILTER(?b < ?d && ?d < ?f && ?f < ?h && ?h < ?b) }";

/// Enough quads to make [`ENDLESS`] true to its name.
pub(crate) fn many_quads() -> Batch {
    let object = |n: i32| Term::typed(n.to_string(), "http://www.w3.org/2001/XMLSchema#integer");
    batch(
        "many",
        (0..3000)
            .map(|n| triple(SUBJECT, object(n), None))
            .collect(),
    )
}

pub(crate) async fn a_query_ends_at_its_timeout(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    graph.insert(vec![many_quads()]).await.unwrap();
    let timeout = Duration::from_millis(200);
    let options = QueryOptions {
        timeout,
        ..QueryOptions::default()
    };
    let error = graph.query(ENDLESS, &[], options).await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout(given) if given == timeout),
        "{error}"
    );
    // Others are served all the same.
    assert_eq!(count(&*graph).await, 3000);
}

pub(crate) async fn only_what_was_inserted_is_seen(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    assert!(!ask(&*graph, "ASK { ?s ?p ?o }").await);
    assert!(!ask(&*graph, "ASK { GRAPH ?g { ?s ?p ?o } }").await);
    let triples = vec![
        triple(SUBJECT, Term::text("none"), None),
        triple(SUBJECT, Term::text("named"), Some("urn:g:1")),
        triple(SUBJECT, blank("b"), Some("urn:g:1")),
    ];
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    for (sparql, expected) in [
        ("SELECT ?s ?p ?o { ?s ?p ?o }", 3),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } }", 2),
        ("SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }", 1),
        ("SELECT * { ?s ?p ?o FILTER(isBlank(?o)) }", 1),
        ("SELECT * { ?s ?p ?o FILTER(isIRI(?s) && !isIRI(?o)) }", 3),
        ("SELECT * FROM <urn:g:1> { ?s ?p ?o }", 2),
        ("SELECT * FROM NAMED <urn:g:1> { GRAPH ?g { ?s ?p ?o } }", 2),
        ("SELECT * FROM <urn:g:2> { ?s ?p ?o }", 0),
        ("SELECT * FROM <urn:g:1> { GRAPH ?g { ?s ?p ?o } }", 0),
        (
            "SELECT * { GRAPH ?g { ?s ?p \"named\" } ?s ?p \"none\" }",
            1,
        ),
        (
            "SELECT * { ?s ?p \"none\" FILTER EXISTS { ?s ?p \"named\" } }",
            1,
        ),
        (
            "SELECT (EXISTS { ?s ?p \"none\" } AS ?e) { ?s ?p \"named\" FILTER(?e) }",
            0,
        ),
    ] {
        let found = select(&*graph, sparql, &[]).await;
        assert_eq!(found.rows.len(), expected, "{sparql}");
    }
    let found = select(&*graph, "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", &[]).await;
    assert_eq!(found.text(0, "n"), Some("3"));
}

pub(crate) async fn paths_lead_from_graph_to_graph(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let step = |from: &str, to: &str, graph| triple(from, Term::iri(to), graph);
    let triples = vec![
        step("urn:a", "urn:b", Some("urn:g:1")),
        step("urn:b", "urn:c", Some("urn:g:2")),
        step("urn:c", "urn:d", None),
    ];
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    for (path, expected) in [
        ("<urn:test:p>+", 3),
        ("<urn:test:p>*", 4),
        ("<urn:test:p>/<urn:test:p>", 1),
        ("(^<urn:test:p>|<urn:test:p>)", 1),
        ("!<urn:test:q>", 1),
    ] {
        let sparql = format!("SELECT DISTINCT ?to {{ <urn:a> {path} ?to }}");
        let found = select(&*graph, &sparql, &[]).await;
        assert_eq!(found.rows.len(), expected, "{path}");
    }
}

/// What goes wrong when a query is written down with too few brackets.
pub(crate) async fn nested_parts_of_a_query_keep_their_meaning(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let number = |n: i32| Term::typed(n.to_string(), "http://www.w3.org/2001/XMLSchema#integer");
    let triples = (1..=4)
        .map(|n| triple(&format!("urn:s:{}", n % 2), number(n), Some("urn:g")))
        .collect();
    graph.insert(vec![batch("k", triples)]).await.unwrap();
    for (sparql, expected) in [
        ("SELECT ((2 + 3) * 4 - (5 - (1 - 2)) AS ?v) { }", vec!["14"]),
        (
            "SELECT (COUNT(*) AS ?v) { { SELECT DISTINCT ?s { ?s ?p ?o } } }",
            vec!["2"],
        ),
        (
            "SELECT ?v { { SELECT ?v { ?s ?p ?v } ORDER BY DESC(?v) LIMIT 3 } } ORDER BY ?v LIMIT 1",
            vec!["2"],
        ),
        (
            "SELECT (SUM(?o) AS ?v) { ?s ?p ?o } GROUP BY ?s HAVING (SUM(?o) > 4) ORDER BY ?v",
            vec!["6"],
        ),
        (
            "SELECT ?v { ?s ?p ?v OPTIONAL { { ?s ?p ?w FILTER(?w > ?v) } } FILTER(!BOUND(?w) && ?v < 3) } ORDER BY ?v",
            vec!["1", "2"],
        ),
        (
            "SELECT ?v { ?s ?p ?v OPTIONAL { ?s ?p ?w FILTER(?w > ?v) } FILTER(!BOUND(?w)) } ORDER BY ?v",
            vec!["3", "4"],
        ),
        (
            "SELECT ?v { ?s ?p ?v MINUS { ?s ?p ?v FILTER(?v > 2) } } ORDER BY ?v",
            vec!["1", "2"],
        ),
        (
            "SELECT (1 AS ?v) { OPTIONAL { ?s <urn:none> ?x } }",
            vec!["1"],
        ),
        ("SELECT (1 AS ?v) { FILTER(1 < 2) }", vec!["1"]),
        ("SELECT ?v { VALUES ?v { 1 } }", vec!["1"]),
        ("SELECT ?v { {} UNION {} BIND(1 AS ?v) }", vec!["1", "1"]),
        (
            "SELECT ?v { {} { SELECT ?v { ?s ?p ?v } ORDER BY ?v LIMIT 1 } }",
            vec!["1"],
        ),
        (
            "SELECT (1 AS ?v) { FILTER NOT EXISTS { ?s <urn:none> ?x } }",
            vec!["1"],
        ),
        (
            "SELECT (GROUP_CONCAT(STR(?o); SEPARATOR=\"|\") AS ?v) { { SELECT ?o { <urn:s:1> ?p ?o } ORDER BY ?o } }",
            vec!["1|3"],
        ),
    ] {
        let found = select(&*graph, sparql, &[]).await;
        let values: Vec<&str> = (0..found.rows.len())
            .filter_map(|row| found.text(row, "v"))
            .collect();
        assert_eq!(values, expected, "{sparql}");
    }
}

pub(crate) async fn select_gives_rows_and_nothing_else(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let one = triple(SUBJECT, Term::text("a"), None);
    graph.insert(vec![batch("k", vec![one])]).await.unwrap();
    let options = QueryOptions::default();
    let found = graph
        .select("SELECT ?o { ?s ?p ?o }", &[], options.clone())
        .await;
    assert_eq!(found.unwrap().text(0, "o"), Some("a"));
    for sparql in ["ASK {}", "CONSTRUCT WHERE { ?s ?p ?o }"] {
        let error = graph
            .select(sparql, &[], options.clone())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotSelect), "{error}");
    }
    graph.ready().await.unwrap();
}

fn blank(label: &str) -> Term {
    Term {
        kind: TermType::Blank,
        id: label.to_owned(),
        ..Term::default()
    }
}

fn owned(key: &str, owner: [&str; 3], objects: Vec<Term>) -> Batch {
    let [root, collection, conversation] = owner.map(str::to_owned);
    let triples = objects
        .into_iter()
        .map(|object| triple(SUBJECT, object, Some("urn:g")));
    Batch {
        key: key.to_owned(),
        root,
        collection,
        conversation,
        triples: triples.collect(),
    }
}

/// What the test predicate says, in order.
async fn said(graph: &dyn Graph) -> Vec<String> {
    let sparql = "SELECT ?o { ?s <urn:test:p> ?o } ORDER BY STR(?o)";
    let found = select(graph, sparql, &[]).await;
    let texts = (0..found.rows.len()).filter_map(|row| found.text(row, "o"));
    let mut texts: Vec<String> = texts.map(str::to_owned).collect();
    texts.sort();
    texts
}

pub(crate) async fn erasure_takes_what_no_other_batch_states(fixture: &dyn Fixture) {
    let (graph, other) = fixture.pair().await;
    let text = |text: &str| Term::text(text);
    let batches = vec![
        owned(
            "1",
            ["r1", "c1", "v1"],
            vec![text("own 1"), text("shared"), blank("b1")],
        ),
        owned(
            "2",
            ["r2", "c1", "v2"],
            vec![text("own 2"), text("shared"), blank("b2")],
        ),
        owned(
            "3",
            ["r2", "c2", "v2"],
            vec![text("more 2"), Term::iri("urn:x")],
        ),
        owned(
            "4",
            ["", "c2", "load"],
            vec![text("loaded"), text("quote \" \\ } \n end")],
        ),
    ];
    graph.insert(batches.clone()).await.unwrap();
    // Again, as after a redelivery.
    graph.insert(batches).await.unwrap();
    assert_eq!(said(&*graph).await.len(), 9);

    let erased = graph.erase(EraseBy::Root("r1".to_owned())).await.unwrap();
    assert_eq!(
        erased,
        Erased {
            batches: 1,
            quads: 3
        }
    );
    let left = [
        "b2",
        "loaded",
        "more 2",
        "own 2",
        "quote \" \\ } \n end",
        "shared",
        "urn:x",
    ];
    assert_eq!(said(&*graph).await, left);
    let none = graph.erase(EraseBy::Root("r1".to_owned())).await.unwrap();
    assert_eq!(none, Erased::default());

    let both = vec![
        EraseBy::Conversation("load".to_owned()),
        EraseBy::Collection("c1".to_owned()),
    ];
    let erased = graph.erase_all(both).await.unwrap();
    assert_eq!(
        erased,
        Erased {
            batches: 2,
            quads: 5
        }
    );
    assert_eq!(said(&*graph).await, ["more 2", "urn:x"]);

    graph.erase(EraseBy::Root("r2".to_owned())).await.unwrap();
    assert_eq!(said(&*graph).await, [""; 0]);
    assert_eq!(graph.batches().await.unwrap(), 0);
    // What was erased may come back.
    other
        .insert(vec![owned("1", ["r1", "c1", "v1"], vec![text("own 1")])])
        .await
        .unwrap();
    assert_eq!(said(&*graph).await, ["own 1"]);
}

pub(crate) async fn an_empty_name_erases_nothing(fixture: &dyn Fixture) {
    let (graph, _) = fixture.pair().await;
    let one = owned("1", ["", "", ""], vec![Term::text("loaded")]);
    graph.insert(vec![one]).await.unwrap();
    for by in [EraseBy::Root, EraseBy::Conversation, EraseBy::Collection] {
        let erased = graph.erase(by(String::new())).await.unwrap();
        assert_eq!(erased, Erased::default());
    }
    assert_eq!(said(&*graph).await, ["loaded"]);
}

pub(crate) async fn batches_are_counted(fixture: &dyn Fixture) {
    let (graph, other) = fixture.pair().await;
    assert_eq!(graph.batches().await.unwrap(), 0);
    let texts = |texts: &[&str]| texts.iter().map(|text| Term::text(*text)).collect();
    let batches = vec![
        owned("1", ["r1", "c1", ""], texts(&["a", "b", "c"])),
        owned("2", ["r1", "c1", ""], texts(&["d"])),
        owned("3", ["r2", "c2", ""], texts(&["e", "f"])),
        owned("4", ["", "c2", "load"], texts(&["g"])),
    ];
    graph.insert(batches).await.unwrap();
    assert_eq!(other.batches().await.unwrap(), 4);
}
