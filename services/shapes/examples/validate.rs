//! Validates N-Quads files with the shapes of traces, each on its own, and prints a line of JSON for
//! each: the file, how much was checked, how many milliseconds it took, and the violations.
//!
//! `cargo run --quiet -p agentfleet-shapes --example validate -- FILE.nq...`
//!
//! Like the validators of `tests/validators` it looks at the provenance graph and the default graph.

use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_shapes::Shapes;
use oxigraph::io::{RdfFormat, RdfParser};
use oxigraph::model::{GraphName, Triple};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let shapes = Shapes::of_traces()?;
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file)?;
        let mut triples = Vec::new();
        for quad in RdfParser::from_format(RdfFormat::NQuads).for_slice(&bytes) {
            let quad = quad?;
            let is_provenance = match &quad.graph_name {
                GraphName::DefaultGraph => true,
                GraphName::NamedNode(name) => name.as_str() == RETRIEVAL_GRAPH,
                GraphName::BlankNode(_) => false,
            };
            if is_provenance {
                triples.push(Triple::from(quad));
            }
        }
        let count = triples.len();
        let began = Instant::now();
        let report = shapes.validate_rdf(triples)?;
        let line = serde_json::json!({
            "file": file,
            "triples": count,
            "checked": report.checked,
            "ms": began.elapsed().as_millis() as u64,
            "violations": report.violations,
        });
        println!("{line}");
    }
    Ok(())
}
