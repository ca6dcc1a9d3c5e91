//! What is on the wire and in stores, and what is generated from the code that reads it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../examples/generate/dictionary.rs"]
mod dictionary;
#[path = "../../examples/generate/outputs.rs"]
mod outputs;
#[path = "../../examples/generate/rdf.rs"]
mod rdf;
#[path = "../../examples/generate/shapes.rs"]
mod shapes;

mod example_queries;
mod generated_files;
mod golden;
mod json_schemas;
mod spec_fields;
mod vocabulary;
