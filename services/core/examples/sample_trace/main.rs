//! Writes sample traces: whole runs through the shipped core, as N-Quads.
//!
//! `cargo run -p agentfleet-core --example sample_trace -- FOLDER` writes one file for each run:
//! a supervisor with a failed subagent and a second round, ReACT with tool errors and sources, a
//! fan-in cut off by its deadline, nested supervisors, limits, cancellation, refusals, dead letters,
//! the other patterns, and calls that wait for a person.
//! The same core gives the same bytes, so a changed file is a changed trace.

mod fleet;
mod nquads;
mod patterns;
mod runs;
mod script;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("usage: sample_trace FOLDER".into());
    };
    std::fs::create_dir_all(&folder)?;
    for (name, run) in runs::ALL {
        let triples = run()?;
        let path = folder.join(format!("{name}.nq"));
        let text = nquads::written(&triples);
        println!("{:>6} quads  {}", text.lines().count(), path.display());
        std::fs::write(path, text)?;
    }
    Ok(())
}
