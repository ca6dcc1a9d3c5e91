//! `docs/ARCHITECTURE.md` against the code: which crate may use which, and the words of the glossary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Names = BTreeSet<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table below a heading, in cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = read(Path::new("docs/ARCHITECTURE.md"));
    let (_, below) = page.split_once(&format!("\n{heading}\n")).unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// What stands in backticks.
fn quoted(cell: &str) -> Names {
    cell.split('`').skip(1).step_by(2).map(Into::into).collect()
}

/// Folders of the product's crates, by the names that the page has for them.
fn crates() -> BTreeMap<String, PathBuf> {
    let services = std::fs::read_dir(root().join("services")).unwrap();
    let services = services.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut crates: BTreeMap<String, PathBuf> = services
        .map(|name| (name.clone(), Path::new("services").join(name)))
        .collect();
    crates.insert("schema".into(), "schema".into());
    crates
}

/// The names below `[dependencies]`; those of tests do not count.
fn dependencies(folder: &Path) -> Names {
    let manifest = read(&folder.join("Cargo.toml"));
    let (_, below) = manifest.split_once("\n[dependencies]\n").unwrap();
    let lines = below.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .map(Into::into)
        .collect()
}

#[test]
fn crates_use_what_the_page_allows() {
    let crates = crates();
    let mut above = Names::new();
    let mut told = Names::new();
    for row in table("### Which crate may use which") {
        let may = match row[1].as_str() {
            "nothing" => Names::new(),
            "all above" => above.clone(),
            named => quoted(named),
        };
        for name in quoted(&row[0]) {
            let folder = crates
                .get(&name)
                .unwrap_or_else(|| panic!("the page has `{name}`, which is no crate"));
            for used in dependencies(folder) {
                let Some(used) = used.strip_prefix("agentfleet-") else {
                    continue;
                };
                assert!(
                    may.contains(used),
                    "`{name}` uses `{used}`, and the page allows only {may:?}"
                );
            }
            told.insert(name);
        }
        above.extend(quoted(&row[0]));
    }
    let all: Names = crates.into_keys().collect();
    assert_eq!(
        told, all,
        "the crates of the page, and those that are there"
    );
}

/// The sources below a folder, by path.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            found.push((path, text));
        }
    }
    found
}

#[test]
fn only_graph_names_oxigraph_and_only_storage_opens_the_files_of_the_fleet() {
    for (name, folder) in crates() {
        let named = dependencies(&folder).contains("oxigraph");
        assert_eq!(named, name == "graph", "`{name}` names oxigraph: {named}");
        let sources = sources(&folder.join("src"));
        let opens = sources.iter().any(|(_, text)| {
            text.contains("Connection::open(") || text.contains("Connection::open_with_flags(")
        });
        // The examples are services with a database of their own, as a user's would be.
        let may = ["storage", "examples"].contains(&name.as_str());
        assert_eq!(opens, may, "`{name}` opens SQLite: {opens}");
    }
}

#[test]
fn the_words_of_the_glossary_are_in_the_code() {
    let mut names = Names::new();
    for folder in crates().into_values() {
        for (path, text) in sources(&folder.join("src")) {
            names.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
            for line in text.lines() {
                let words: Vec<&str> = line
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .collect();
                let declared = words
                    .windows(2)
                    .find(|pair| matches!(pair[0], "struct" | "enum" | "trait" | "type" | "mod"));
                names.extend(declared.map(|pair| pair[1].to_owned()));
            }
        }
    }
    let mut words = Names::new();
    for row in table("## Glossary") {
        let [word, meaning, code] = &row[..] else {
            panic!("three cells are wanted: {row:?}");
        };
        assert!(!meaning.is_empty(), "`{word}` means nothing");
        assert!(words.insert(word.clone()), "`{word}` stands there twice");
        let named = quoted(code);
        assert!(!named.is_empty(), "`{word}` has no name in the code");
        for name in named {
            assert!(
                names.contains(&name),
                "`{word}`: the code has no type or module `{name}`"
            );
        }
    }
}
