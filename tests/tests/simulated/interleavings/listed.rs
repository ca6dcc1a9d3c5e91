//! `docs/interleavings.md` names every interleaving by its number, and the tests that force it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where forced schedules are, with the number of those that have none of their own.
const FILES: [(&str, Option<u32>); 5] = [
    ("tests/tests/simulated/interleavings/apart.rs", None),
    ("tests/tests/simulated/interleavings/archived.rs", None),
    ("tests/tests/simulated/interleavings/mod.rs", None),
    ("tests/tests/simulated/interleavings/fences.rs", None),
    ("tests/tests/simulated/pauses.rs", Some(22)),
];

type Listed = BTreeMap<u32, BTreeSet<String>>;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let name = line.split_once("fn ")?.1;
    name.split_once('(').map(|(name, _)| name)
}

/// The numbers of a comment such as `// DR-1, 23`.
fn numbers(comment: &str) -> Vec<u32> {
    let words = comment.split(", ");
    words.filter_map(|word| word.trim().parse().ok()).collect()
}

/// The tests of the files, by the numbers above them.
fn forced() -> Listed {
    let mut listed = Listed::new();
    for (path, default) in FILES {
        let text = read(path);
        for block in text.split("\n\n").filter(|block| block.contains("#[test]")) {
            let comment = block.lines().find_map(|line| line.strip_prefix("// "));
            let mut of = comment.map(numbers).unwrap_or_default();
            of.extend(default.filter(|_| of.is_empty()));
            let name = block.lines().find_map(function).unwrap();
            assert!(!of.is_empty(), "`{name}` of {path} has no number above it");
            for number in of {
                listed.entry(number).or_default().insert(name.to_owned());
            }
        }
    }
    listed
}

/// The tests that a row of the page names: those of the files above, and those of others with their file.
fn named(row: &str) -> (u32, BTreeSet<String>, Vec<(String, String)>) {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let [number, what, rule, tests] = cells[..] else {
        panic!("four cells are wanted: {row}");
    };
    assert!(!what.is_empty() && !rule.is_empty(), "{row}");
    let (mut own, mut others) = (BTreeSet::new(), Vec::new());
    for test in tests.split(", ") {
        let (name, path) = test.split_once(' ').unwrap_or((test, ""));
        let name = name.trim_matches('`').to_owned();
        if path.is_empty() {
            own.insert(name);
        } else {
            let path = path.trim_matches(['(', ')']);
            others.push((name, path.to_owned()));
        }
    }
    (number.parse().unwrap(), own, others)
}

#[test]
fn the_page_of_interleavings_names_every_test_and_no_other() {
    let page = read("docs/interleavings.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let mut forced = forced();
    let mut before = 0;
    for row in rows.skip(1) {
        let (number, own, others) = named(row);
        assert!(number > before, "numbers rise");
        before = number;
        let in_code = forced.remove(&number).unwrap_or_default();
        assert_eq!(
            own, in_code,
            "the tests of {number}, on the page and in the code"
        );
        for (name, path) in others {
            let is_there = read(&path)
                .lines()
                .filter_map(function)
                .any(|of| of == name);
            assert!(is_there, "{number}: no `{name}` in {path}");
        }
    }
    assert!(forced.is_empty(), "not on the page: {forced:?}");
}
