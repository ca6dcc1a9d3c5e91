//! Writes every generated file of the schema: JSON Schemas and the data dictionary.
//!
//! `cargo run -p agentfleet-schema --example generate`; `tests/generated_files.rs` fails where a
//! committed file is not what this would write.

mod dictionary;
mod outputs;
mod rdf;
mod shapes;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for output in outputs::all()? {
        let path = root.join(&output.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let current = std::fs::read_to_string(&path).is_ok_and(|there| there == output.text);
        if !current {
            std::fs::write(&path, &output.text)?;
        }
        println!(
            "{} {}",
            if current { "unchanged" } else { "written  " },
            output.path
        );
    }
    Ok(())
}
