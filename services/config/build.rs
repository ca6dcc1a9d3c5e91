//! Puts the seed configuration into the binary, so that it runs anywhere without its source tree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const ITEM_TYPES: [&str; 8] = [
    "agent-pattern",
    "agent-task-type",
    "intent",
    "model-profile",
    "prompt",
    "query",
    "specialist",
    "tool",
];

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = manifest.join("../../seed-config");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut source = String::from("&[\n");
    for item_type in ITEM_TYPES {
        let directory = root.join(item_type);
        if directory.is_dir() {
            for path in files(&directory)? {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let line = format!(
                    "({item_type:?}, {name:?}, include_str!({:?})),",
                    path.display().to_string()
                );
                writeln!(source, "{line}").map_err(io::Error::other)?;
            }
        }
    }
    source.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("seeds.rs"), source)
}

/// In a fixed order, so that the same sources give the same binary.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}
