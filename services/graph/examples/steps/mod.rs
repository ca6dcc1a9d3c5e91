//! Batches as a busy fleet makes them, for the benchmarks.

use agentfleet_graph::Batch;
use agentfleet_schema::vocabulary::{RDF_TYPE, prov, tg, xsd};
use agentfleet_schema::{Term, Triple};

/// What one iteration says about itself.
pub(crate) fn step(n: usize) -> Batch {
    let session = format!("urn:trustgraph:agent:550e8400-e29b-41d4-a716-{:012}", n / 5);
    let step = format!("{session}/i{}", n % 5);
    let now = "2026-11-21T03:04:05.678Z";
    let mut triples = vec![
        Triple::new(&step, RDF_TYPE, Term::iri(prov::ENTITY)),
        Triple::new(&step, RDF_TYPE, Term::iri(tg::ANALYSIS)),
        Triple::new(&step, prov::WAS_GENERATED_BY, Term::iri(&session)),
        Triple::new(
            &step,
            prov::WAS_DERIVED_FROM,
            Term::iri(format!("{session}/i{}", (n + 4) % 5)),
        ),
        Triple::new(
            &step,
            prov::GENERATED_AT_TIME,
            Term::typed(now, xsd::DATE_TIME),
        ),
        Triple::new(&step, tg::ACTION, Term::text("document-search")),
        Triple::new(&step, tg::THOUGHT, Term::iri(format!("{step}/thought"))),
        Triple::new(
            &step,
            tg::OBSERVATION,
            Term::iri(format!("{step}/observation")),
        ),
        Triple::new(&step, tg::LLM_MODEL, Term::text("some-model-1")),
    ];
    for (index, predicate) in [
        tg::STEP_NUMBER,
        tg::IN_TOKEN,
        tg::OUT_TOKEN,
        tg::LLM_DURATION_MS,
        tg::TOOL_DURATION_MS,
        tg::CONFIG_VERSION,
        tg::ATTEMPT,
        tg::COST,
    ]
    .into_iter()
    .enumerate()
    {
        triples.push(Triple::new(
            &step,
            predicate,
            Term::typed((n * index).to_string(), xsd::INTEGER),
        ));
    }
    for part in ["thought", "observation"] {
        let node = format!("{step}/{part}");
        triples.push(Triple::new(&node, RDF_TYPE, Term::iri(prov::ENTITY)));
        triples.push(Triple::new(
            &node,
            tg::DOCUMENT,
            Term::iri(format!("{node}/document")),
        ));
        triples.push(Triple::new(
            &node,
            prov::WAS_GENERATED_BY,
            Term::iri(&session),
        ));
        triples.push(Triple::new(&node, tg::COLLECTION, Term::text("default")));
    }
    Batch {
        key: step,
        root: session,
        collection: "default".to_owned(),
        conversation: String::new(),
        triples,
    }
}
