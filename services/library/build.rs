//! Lists the files of the worked example's dossier, for `src/dossier.rs` to embed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let folder = here.join("../../seed-config/dossier").canonicalize()?;
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_file() && name != "README.md" && !name.starts_with('.') {
            println!("cargo:rerun-if-changed={}", path.display());
            files.push((name, path));
        }
    }
    files.sort();
    let mut list = String::from("const FILES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        let path = path
            .to_str()
            .ok_or("the path of the checkout is not UTF-8")?;
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    list.push_str("];\n");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(Path::new(&out).join("dossier.rs"), list)?;
    Ok(())
}
