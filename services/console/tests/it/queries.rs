//! The queries fetch whole trees, and nothing else, from the graph the product has.

use crate::sample::{self, Run};
use agentfleet_console::trace::Trace;
use agentfleet_console::trace::queries::{self, Query};
use agentfleet_graph::{Answer, Batch, EmbeddedGraph, Graph, GraphOptions, QueryOptions};
use agentfleet_schema::vocabulary::{RDFS_LABEL, tg};
use agentfleet_schema::{Term, Triple, uris};
use agentfleet_storage::Database;

struct Stored {
    graph: EmbeddedGraph,
    _directory: tempfile::TempDir,
}

impl Stored {
    async fn new(runs: &[Run]) -> Self {
        let directory = tempfile::TempDir::new().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let graph = EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| ())
            .await
            .unwrap();
        let mut batches: Vec<Batch> = runs
            .iter()
            .map(|run| batch(run.root.as_str(), run.triples.clone()))
            .collect();
        batches.push(batch("knowledge", knowledge()));
        graph.insert(batches).await.unwrap();
        Self {
            graph,
            _directory: directory,
        }
    }

    async fn ask(&self, query: Query) -> Answer {
        self.graph
            .query(&query.sparql, &query.bindings, QueryOptions::default())
            .await
            .unwrap()
    }

    async fn triples(&self, query: Query) -> Vec<Triple> {
        match self.ask(query).await {
            Answer::Triples(triples) => triples,
            other => panic!("{other:?}"),
        }
    }

    async fn roots(&self, id: &str) -> Vec<String> {
        match self.ask(queries::roots_of(id)).await {
            Answer::Solutions(found) => (0..found.rows.len())
                .map(|row| found.text(row, "root").unwrap().to_owned())
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn batch(key: &str, triples: Vec<Triple>) -> Batch {
    Batch {
        key: key.to_owned(),
        root: key.to_owned(),
        collection: String::new(),
        conversation: String::new(),
        triples,
    }
}

/// What was loaded says a lot that no trace wants, and something that would change one.
fn knowledge() -> Vec<Triple> {
    let source = "https://dossier.example/company-x/balance-sheet-2025.csv";
    let graph = Some(uris::collection_graph("partners"));
    let mut triples = vec![Triple {
        g: graph.clone(),
        ..Triple::new(source, RDFS_LABEL, Term::text("Balance sheet 2025"))
    }];
    triples.extend((0..200).map(|n| Triple {
        g: graph.clone(),
        ..Triple::new(
            source,
            &format!("https://dossier.example/p{n}"),
            Term::text("v"),
        )
    }));
    for run in [sample::risk(), sample::single()] {
        let forged = [
            (
                uris::answer(&run.root),
                tg::CONFIDENCE,
                Term::text("Everything: 1.00"),
            ),
            (
                uris::session(&run.root),
                tg::ROOT_SESSION_ID,
                Term::text("another"),
            ),
        ];
        triples.extend(forged.into_iter().map(|(node, property, value)| Triple {
            g: graph.clone(),
            ..Triple::new(&node, property, value)
        }));
    }
    triples
}

#[tokio::test]
async fn a_root_a_subagent_and_a_correlation_all_lead_to_the_whole_tree() {
    let runs = [
        sample::risk(),
        sample::hostile(),
        sample::single(),
        sample::failed(),
    ];
    let stored = Stored::new(&runs).await;
    for run in &runs {
        let meant = Trace::from_triples(&run.triples);
        let read = Trace::from_triples(&stored.triples(queries::tree(&run.root)).await);
        assert_eq!(read.sessions, meant.sessions, "values survive the store");

        let mut ids: Vec<String> = meant.sessions.iter().map(|s| s.id.to_string()).collect();
        ids.extend(meant.sessions.iter().map(|s| format!("{}/routing", s.uri)));
        let fan_outs = meant
            .sessions
            .iter()
            .flat_map(agentfleet_console::trace::model::Session::fan_outs);
        ids.extend(fan_outs.map(|f| f.correlation.to_string()));
        for id in ids {
            assert_eq!(stored.roots(&id).await, [run.root.to_string()], "{id}");
        }
    }
    assert_eq!(stored.roots("unknown").await, [] as [String; 0]);
    assert!(
        stored
            .triples(queries::tree(&"unknown".into()))
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn everything_of_the_run_is_fetched_and_nothing_that_was_loaded() {
    let run = sample::risk();
    let stored = Stored::new(&[run.clone(), sample::single()]).await;
    let read = Trace::from_triples(&stored.triples(queries::tree(&run.root)).await);
    let meant = Trace::from_triples(&run.triples);
    // Types and times come back in canonical form, so statements are compared without their objects.
    let about = |trace: &Trace| {
        let mut all: Vec<_> = trace
            .triples
            .iter()
            .map(|t| (t.s.iri.clone(), t.p.iri.clone()))
            .collect();
        all.dedup();
        all
    };
    let mut more = about(&read);
    // What the config says of patterns and task types is of no run, and texts are the librarian's.
    let is_apart = |subject: &str| {
        subject.starts_with("urn:trustgraph:agent-") || subject.ends_with("/document")
    };
    for statement in about(&meant).into_iter().filter(|s| !is_apart(&s.0)) {
        let at = more.iter().position(|s| *s == statement);
        more.remove(at.unwrap_or_else(|| panic!("{statement:?} was not fetched")));
    }
    assert_eq!(more, []);
}

#[test]
fn no_query_filters_or_pastes_values() {
    let queries = [
        queries::roots_of("x\" . ?s ?p ?o"),
        queries::tree(&"x\" . ?s ?p ?o".into()),
    ];
    for query in queries {
        // Whether something is there at all is looked up, too; no value is compared.
        let looked_up = query.sparql.replace("FILTER NOT EXISTS", "");
        assert!(
            !looked_up.contains("FILTER") && !looked_up.contains('"'),
            "{}",
            query.sparql
        );
        assert!(query.sparql.contains("FROM <urn:graph:retrieval>"));
        for (name, _) in query.bindings {
            assert!(query.sparql.contains(&format!("?{name}")));
        }
    }
}
