//! Puts the config items of the examples into the binary: example, type, file name and text of each.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = manifest.join("../../seed-config/examples");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut source = String::from("&[\n");
    for example in folders(&root)? {
        for item_type in folders(&example)? {
            for file in entries(&item_type, Path::is_file)? {
                let (example, item_type, name) = (name(&example), name(&item_type), name(&file));
                let line = format!(
                    "({example:?}, {item_type:?}, {name:?}, include_str!({:?})),",
                    file.display().to_string()
                );
                writeln!(source, "{line}").map_err(io::Error::other)?;
            }
        }
    }
    source.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("items.rs"), source)
}

fn folders(directory: &Path) -> io::Result<Vec<PathBuf>> {
    entries(directory, Path::is_dir)
}

/// In a fixed order, so that the same sources give the same binary.
fn entries(directory: &Path, wanted: fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| wanted(path));
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
