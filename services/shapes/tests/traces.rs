//! The project's own shapes on its own traces.

#![allow(clippy::unwrap_used)]

use agentfleet_schema::vocabulary::tg;
use agentfleet_schema::{Term, Triple};
use agentfleet_shapes::Shapes;
use oxigraph::io::{RdfFormat, RdfParser};
use oxigraph::model::Triple as RdfTriple;
use std::path::Path;

fn traces() -> Vec<(String, Vec<RdfTriple>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/fixtures/traces");
    let mut traces: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let file = std::fs::read(&path).unwrap();
            let quads = RdfParser::from_format(RdfFormat::NQuads).for_slice(&file);
            let triples = quads.map(|quad| RdfTriple::from(quad.unwrap())).collect();
            (path.display().to_string(), triples)
        })
        .collect();
    traces.sort_by(|one, other| one.0.cmp(&other.0));
    traces
}

#[test]
fn every_committed_trace_is_valid() {
    let shapes = Shapes::of_traces().unwrap();
    let traces = traces();
    assert!(traces.len() > 15);
    for (name, triples) in traces {
        let report = shapes.validate_rdf(triples).unwrap();
        assert_eq!(report.violations, [], "{name}");
        assert!(report.checked > 20, "{name}: {}", report.checked);
    }
}

#[test]
fn triples_as_messages_carry_them_are_validated() {
    let session = "urn:trustgraph:agent:s";
    let triples = [
        Triple::new(session, tg::QUERY, Term::text("why?")),
        Triple::new(
            session,
            "https://trustgraph.ai/ns/querry",
            Term::text("why?"),
        ),
    ];
    let shapes = Shapes::of_traces().unwrap();
    let report = shapes.validate(&triples).unwrap();
    assert_eq!(report.checked, 1);
    let told: Vec<&str> = report
        .violations
        .iter()
        .map(|it| it.message.as_str())
        .collect();
    assert_eq!(
        told,
        ["a node with properties of the trace has none of its classes"]
    );
    let blank = Triple {
        s: Term::text("no subject"),
        ..triples[0].clone()
    };
    let error = shapes.validate(&[blank]).unwrap_err().to_string();
    assert_eq!(
        error,
        "a triple cannot be validated: the subject must be an IRI or a blank node"
    );
}
