//! What a load reads, what it leaves out, and what a search then finds.

use crate::place::Place;
use agentfleet_library::{LoadOptions, Progress};
use proptest::prelude::*;
use std::sync::Mutex;

#[tokio::test]
async fn every_format_is_found_by_its_words() {
    let place = Place::new().await;
    place.write("a.md", "# Alpha report\n\nThe albatross flies.");
    place.write(
        "b.html",
        "<title>x</title><h1>Beta page</h1><p>The badger digs.",
    );
    place.write("c.txt", "Gamma notes\n\nThe cormorant dives.");
    place.write("d.csv", "animal,does\ndormouse,sleeps\n");
    place.write(
        "e.ttl",
        "<urn:e> <http://www.w3.org/2000/01/rdf-schema#label> 'Eagle owl' .",
    );
    place.write("LICENSE", "Free for ferrets.");
    let report = place.load("zoo").await;
    assert_eq!(
        (
            report.loaded,
            report.passages,
            report.entities,
            report.triples
        ),
        (6, 5, 1, 1)
    );
    assert_eq!(report.skipped, []);
    for (query, title) in [
        ("albatrosses", "Alpha report"),
        ("digging", "Beta page"),
        ("cormorant", "Gamma notes"),
        ("sleep", "D"),
        ("ferret", "LICENSE"),
    ] {
        let found = place.titles("zoo", query).await;
        assert_eq!(found, [title], "{query}");
    }
    let owls = place
        .library
        .entities(&"zoo".into(), "owl", 5)
        .await
        .unwrap();
    assert_eq!(owls[0].uri, "urn:e");
    assert!(owls[0].document.ends_with(":zoo:e.ttl"));
}

#[tokio::test]
async fn what_cannot_be_read_is_reported_and_the_rest_is_loaded() {
    let place = Place::new().await;
    let cases: &[(&str, &[u8], &str)] = &[
        ("bad.csv", b"a,b\n\xff,1\n", "line 2 is not UTF-8 text"),
        ("bad.jsonld", b"{\"@id\": ", "broken JSON-LD"),
        ("bad.md", b"# T\n\xc3\x28", "line 2 is not UTF-8 text"),
        ("bad.nt", b"<urn:a> <urn:b> <urn:c> .\nbad\n", "broken N-Triples: line 2"),
        ("bad.rdf", b"<?xml version='1.0'?>\n<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>\n<x", "broken RDF/XML: line"),
        ("bad.ttl", b"<urn:a> <urn:b> \"c\" .\n\n<urn:a> b .\n", "broken Turtle: line 3"),
        ("bad.txt", b"fine\nb\0d", "holds binary data"),
        ("big.html", &[b'x'; 3000], "is too large: 3000 bytes, and files of this type are read up to 2048 bytes"),
        ("blank.md", b"\n\n  \n", "holds no text"),
        ("data.json", b"{}", "plain JSON is not read"),
        ("empty.txt", b"", "is empty"),
        ("image.png", b"\x89PNG\0", "has the unknown type `.png`"),
        ("nothing.ttl", b"# only a comment\n", "holds no statements"),
        ("program", b"\x7fELF\0", "holds binary data"),
    ];
    for (path, content, _) in cases {
        place.write(path, content);
    }
    place.write("good.md", "# Good\n\nText.");
    place.write(".hidden.md", "# Hidden");
    place.write(".git/HEAD", "ref");
    let options = LoadOptions {
        max_document_bytes: 2048,
        ..LoadOptions::new("c")
    };
    let report = place.load_from(&[place.files().to_owned()], &options).await;
    assert_eq!(report.loaded, 1);
    let skipped: Vec<_> = report.skipped.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(
        skipped,
        cases.iter().map(|(path, _, _)| *path).collect::<Vec<_>>()
    );
    for (skipped, (path, _, reason)) in report.skipped.iter().zip(cases) {
        assert!(
            skipped.reason.starts_with(reason),
            "{path}: {}",
            skipped.reason
        );
    }
    // Nothing half-read is left behind.
    let documents = place.library.documents(&"c".into(), 100).await.unwrap();
    assert_eq!(documents.len(), 1);
    let collections = place.library.collections().await.unwrap();
    assert_eq!((collections[0].documents, collections[0].triples), (1, 0));
}

#[tokio::test]
async fn a_path_that_is_not_there_fails_the_load() {
    let place = Place::new().await;
    let missing = place.files().join("none");
    let failed = place
        .library
        .load(&[missing], &LoadOptions::new("c"), &|_| {})
        .await;
    let message = failed.unwrap_err().to_string();
    assert!(
        message.starts_with("cannot load `") && message.contains("none`"),
        "{message}"
    );
}

#[tokio::test]
async fn progress_ends_at_its_totals() {
    let place = Place::new().await;
    for n in 0..300 {
        place.write(&format!("f{n}.md"), format!("# Title {n}\n\nNumber {n}."));
    }
    let seen: Mutex<Vec<Progress>> = Mutex::default();
    let options = LoadOptions::new("c");
    let note = |progress: &Progress| seen.lock().unwrap().push(progress.clone());
    let report = place
        .library
        .load(&[place.files().to_owned()], &options, &note)
        .await
        .unwrap();
    assert_eq!(report.loaded, 300);
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted_by_key(|p| (p.files_done, p.bytes_done)));
    let last = seen.last().unwrap();
    assert_eq!(
        (last.files_done, last.files_total, last.passages),
        (300, 300, 300)
    );
    assert_eq!(last.bytes_done, last.bytes_total);
}

#[tokio::test]
async fn one_collection_never_shows_in_another() {
    let place = Place::new().await;
    place.write(
        "secret.md",
        "# Secret plan\n\nThe treasure lies below the oak.",
    );
    place.write(
        "secret.ttl",
        "<urn:t> <http://www.w3.org/2000/01/rdf-schema#label> 'Treasure' .",
    );
    place.load("theirs").await;
    let report = place
        .load_from(
            &[place.write("own/mine.md", "# Mine\n\nA plan.")],
            &LoadOptions::new("mine"),
        )
        .await;
    assert_eq!(report.loaded, 1);
    let mine = "mine".into();
    assert_eq!(
        place.titles("mine", "treasure oak secret").await,
        Vec::<String>::new()
    );
    assert_eq!(place.titles("mine", "plan").await, ["Mine"]);
    assert_eq!(place.titles("theirs", "plan").await, ["Secret plan"]);
    assert_eq!(
        place.library.entities(&mine, "treasure", 5).await.unwrap(),
        []
    );
    let foreign = "urn:agentfleet:document:theirs:secret.md";
    assert!(
        place
            .library
            .fetch(&mine, foreign, 0, 100)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        place
            .library
            .fetch(&"theirs".into(), foreign, 0, 100)
            .await
            .unwrap()
            .is_some()
    );
    let labels = place
        .library
        .labels(&mine, vec!["urn:t".into()])
        .await
        .unwrap();
    assert!(labels.is_empty());
    assert_eq!(place.library.documents(&mine, 10).await.unwrap().len(), 1);
    // Ranking does not know the others either: a word they use everywhere is still rare here.
    for n in 0..50 {
        place.write(&format!("more/{n}.md"), "# Plan\n\nplan plan plan");
    }
    let before = place.library.search(&mine, "plan", 1).await.unwrap()[0].score;
    place.load("theirs").await;
    let after = place.library.search(&mine, "plan", 1).await.unwrap()[0].score;
    assert!((before - after).abs() < 1e-12, "{before} {after}");
}

#[tokio::test]
async fn collections_with_odd_names_work_like_any() {
    let place = Place::new().await;
    place.write("a.md", "# A\n\nword");
    for name in [
        "my docs",
        "a:b/c",
        "'; DROP TABLE library_sources; --",
        "ü",
        "\"q\"",
    ] {
        assert_eq!(place.load(name).await.loaded, 1, "{name}");
        assert_eq!(place.titles(name, "word").await, ["A"], "{name}");
    }
    assert_eq!(place.library.collections().await.unwrap().len(), 5);
    let failed = place
        .library
        .load(&[], &LoadOptions::new(" "), &|_| {})
        .await;
    assert_eq!(
        failed.unwrap_err().to_string(),
        "a collection needs a name, such as `dossier`"
    );
}

#[tokio::test]
async fn a_large_file_is_streamed_and_appears_at_once() {
    let place = Place::new().await;
    let mut rows = String::from("number,word\n");
    for n in 0..30_000 {
        rows.push_str(&format!("{n},w{n}\n"));
    }
    let path = place.write("large.csv", &rows);
    // Larger than what is kept in memory.
    let padding = format!("0,{}\n", "x".repeat(100));
    std::fs::write(&path, rows.clone() + &padding.repeat(90_000)).unwrap();
    let report = place.load("c").await;
    assert_eq!((report.loaded, report.passages), (1, 120_000));
    let hits = place
        .library
        .search(&"c".into(), "w29999", 3)
        .await
        .unwrap();
    assert_eq!(hits.len(), 1);
    assert_eq!(
        (hits[0].heading.as_str(), hits[0].text.as_str()),
        ("row 30000", "row: number = 29999; word = w29999")
    );
}

#[test]
fn no_query_can_break_a_search() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = runtime.block_on(async {
        let place = Place::new().await;
        place.load_dossier().await;
        place
    });
    let collection = "dossier".into();
    let check = |query: &str| {
        runtime.block_on(async {
            place.library.search(&collection, query, 5).await.unwrap();
            place.library.entities(&collection, query, 5).await.unwrap();
        });
    };
    for query in [
        "",
        "\"",
        "\"\"",
        "a\"b",
        "NEAR(a b)",
        "title:x",
        "^a",
        "a*",
        "(",
        "AND OR NOT",
        "-a",
        "a\0b",
        "{a b}:c",
        "💧",
        "ﬁnance",
        "e\u{301}tat",
        "'; DROP TABLE x; --",
        "a + b",
        "İ",
    ] {
        check(query);
    }
    proptest!(ProptestConfig::with_cases(300), |(query in "(?s).{0,200}")| check(&query));
}
