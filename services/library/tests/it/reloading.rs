//! Loading again: what is kept, what is replaced, and what keeps its name.

use crate::place::Place;
use agentfleet_library::{LoadOptions, Progress};
use agentfleet_storage::ManualClock;
use std::sync::Arc;
use std::time::Duration;

async fn values(place: &Place) -> Vec<String> {
    let query = "SELECT ?o WHERE { GRAPH ?g { ?s <urn:value> ?o } } ORDER BY ?o";
    place.column("o", query).await
}

#[tokio::test]
async fn an_unchanged_file_is_not_read_again_and_a_changed_one_is_replaced() {
    let place = Place::new().await;
    place.write("a.md", "# A\n\nold words");
    place.write("b.md", "# B\n\nsteady");
    let first = place.load("c").await;
    assert_eq!((first.loaded, first.unchanged, first.replaced), (2, 0, 0));
    let before = place.library.documents(&"c".into(), 10).await.unwrap();
    place.write("a.md", "# A again\n\nnew words");
    let second = place.load("c").await;
    assert_eq!(
        (second.loaded, second.unchanged, second.replaced),
        (0, 1, 1)
    );
    assert_eq!(place.titles("c", "old").await, Vec::<String>::new());
    assert_eq!(place.titles("c", "new").await, ["A again"]);
    let after = place.library.documents(&"c".into(), 10).await.unwrap();
    assert_eq!(before[0].uri, after[0].uri);
    assert_eq!(before[1], after[1]);
    assert_eq!(place.library.collections().await.unwrap()[0].passages, 2);
    let third = place.load("c").await;
    assert_eq!((third.loaded, third.unchanged, third.replaced), (0, 2, 0));
}

#[tokio::test]
async fn a_file_that_became_unreadable_keeps_its_last_good_version() {
    let place = Place::new().await;
    place.write("a.md", "# A\n\ngood words");
    place.load("c").await;
    place.write("a.md", b"\xff\xff");
    let report = place.load("c").await;
    assert_eq!((report.replaced, report.skipped.len()), (0, 1));
    assert_eq!(place.titles("c", "good").await, ["A"]);
}

#[tokio::test]
async fn statements_of_a_replaced_file_are_taken_back_unless_another_file_states_them() {
    let place = Place::new().await;
    place.write("a.ttl", "<urn:s> <urn:value> 'only a', 'both' .");
    place.write("b.ttl", "<urn:s> <urn:value> 'both' .");
    place.load("c").await;
    assert_eq!(values(&place).await, ["both", "only a"]);
    place.write("a.ttl", "<urn:s> <urn:value> 'changed' .");
    let report = place.load("c").await;
    assert_eq!(
        (report.replaced, report.unchanged, report.triples),
        (1, 1, 1)
    );
    assert_eq!(values(&place).await, ["both", "changed"]);
    // Going back to an old version is a change like any other.
    place.write("a.ttl", "<urn:s> <urn:value> 'only a', 'both' .");
    place.load("c").await;
    assert_eq!(values(&place).await, ["both", "only a"]);
}

/// Starts a load and gives it up when its progress is far enough.
async fn interrupted(place: &Place, enough: impl Fn(&Progress) -> bool + Send + Sync) {
    let stop = tokio::sync::Notify::new();
    let options = LoadOptions::new("c");
    let paths = [place.files().to_owned()];
    let watch = |progress: &Progress| {
        if enough(progress) {
            stop.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => {}
        _ = place.library.load(&paths, &options, &watch) => panic!("it was not interrupted"),
    }
}

#[tokio::test]
async fn an_interrupted_load_leaves_whole_documents_and_can_be_repeated() {
    let place = Place::new().await;
    for n in 0..1_500 {
        place.write(
            &format!("{n:04}.md"),
            format!("# Title {n}\n\nword{n}\n\n## More\n\nend{n}"),
        );
    }
    interrupted(&place, |progress| progress.files_done >= 600).await;
    let documents = place.library.documents(&"c".into(), 10_000).await.unwrap();
    assert!(documents.len() < 1_500, "{}", documents.len());
    for document in documents.iter().step_by(50) {
        let text = place
            .library
            .fetch(&"c".into(), &document.uri, 0, 1_000)
            .await
            .unwrap()
            .unwrap();
        assert!(
            text.text.contains("word") && text.text.contains("end"),
            "{}",
            text.text
        );
    }
    let report = place.load("c").await;
    assert_eq!(report.loaded + report.unchanged, 1_500);
    assert_eq!(place.titles("c", "end1499").await, ["Title 1499"]);
}

#[tokio::test]
async fn statements_of_an_interrupted_load_are_taken_back_later() {
    let clock = Arc::new(ManualClock::new(1_000));
    let place = Place::with(clock.clone()).await;
    let mut text = String::new();
    for n in 0..30_000 {
        text.push_str(&format!("<urn:s> <urn:value> 'first {n}' .\n"));
    }
    place.write("a.nt.ttl", text);
    interrupted(&place, |progress| progress.triples > 0).await;
    assert!(!values(&place).await.is_empty());
    assert_eq!(place.library.documents(&"c".into(), 10).await.unwrap(), []);
    place.write("a.nt.ttl", "<urn:s> <urn:value> 'second' .");
    clock.advance(Duration::from_hours(2));
    assert_eq!(place.load("c").await.loaded, 1);
    assert_eq!(values(&place).await, ["second"]);
}

#[tokio::test]
async fn what_is_removed_leaves_nothing_behind() {
    let place = Place::new().await;
    place.write("a.ttl", "<urn:s> <urn:value> 'gone' .");
    place.write("b.md", "# B\n\nword");
    place.load("c").await;
    place.load("other").await;
    let library = &place.library;
    let uri = "urn:agentfleet:document:c:a.ttl";
    let forgotten = library.forget_document(uri).await.unwrap();
    assert_eq!(forgotten.unwrap().as_str(), "c");
    assert_eq!(library.forget_document(uri).await.unwrap(), None);
    assert_eq!(
        values(&place).await,
        ["gone"],
        "the other collection still says so"
    );
    assert_eq!(library.remove_collection(&"other".into()).await.unwrap(), 2);
    assert_eq!(values(&place).await, Vec::<String>::new());
    assert_eq!(library.remove_collection(&"other".into()).await.unwrap(), 0);
    let names: Vec<_> = library
        .collections()
        .await
        .unwrap()
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, ["c"]);
    assert_eq!(place.titles("c", "word").await, ["B"]);
    // A collection of the same name begins anew.
    assert_eq!(place.load("other").await.loaded, 2);
    assert_eq!(place.titles("other", "word").await, ["B"]);
}

#[tokio::test]
async fn files_that_are_gone_are_reported_and_removed_on_request() {
    let place = Place::new().await;
    place.write("a.md", "# A\n\nword");
    let gone = place.write("b.md", "# B\n\nword");
    place.load("c").await;
    std::fs::remove_file(&gone).unwrap();
    let report = place.load("c").await;
    assert_eq!((report.missing.len(), report.removed), (1, 0));
    assert!(report.missing[0].ends_with("b.md"));
    assert_eq!(place.titles("c", "word").await.len(), 2);
    let options = LoadOptions {
        prune: true,
        ..LoadOptions::new("c")
    };
    let report = place.load_from(&[place.files().to_owned()], &options).await;
    assert_eq!((report.missing.len(), report.removed), (0, 1));
    assert_eq!(place.titles("c", "word").await, ["A"]);
}

#[tokio::test]
async fn files_of_the_same_path_in_two_folders_do_not_replace_each_other() {
    let place = Place::new().await;
    place.write("one/README.md", "# One\n\nfirst folder");
    place.write("two/README.md", "# Two\n\nsecond folder");
    place.write("one/LICENSE", "same text");
    place.write("two/LICENSE", "same text");
    let folders = [place.files().join("one"), place.files().join("two")];
    let options = LoadOptions::new("c");
    let report = place.load_from(&folders, &options).await;
    // The two licences are one document.
    assert_eq!((report.loaded, report.unchanged), (3, 1));
    let documents = place.library.documents(&"c".into(), 10).await.unwrap();
    let uris: Vec<_> = documents.iter().map(|d| d.uri.as_str()).collect();
    assert_eq!(uris[1], "urn:agentfleet:document:c:README.md");
    assert!(
        uris[2].starts_with("urn:agentfleet:document:c:README.md~"),
        "{uris:?}"
    );
    let again = place
        .load_from(&[folders[1].clone(), folders[0].clone()], &options)
        .await;
    assert_eq!((again.loaded, again.replaced, again.unchanged), (0, 0, 4));
}

#[tokio::test]
async fn a_moved_folder_takes_its_documents_along() {
    let place = Place::new().await;
    place.write("old/a.md", "# A\n\nword");
    let options = LoadOptions::new("c");
    place
        .load_from(&[place.files().join("old")], &options)
        .await;
    std::fs::rename(place.files().join("old"), place.files().join("new")).unwrap();
    place.write("new/a.md", "# A\n\nother word");
    let report = place
        .load_from(&[place.files().join("new")], &options)
        .await;
    assert_eq!((report.loaded, report.replaced), (0, 1));
    assert_eq!(
        place
            .library
            .documents(&"c".into(), 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn the_embedded_dossier_and_its_folder_are_the_same_documents() {
    let place = Place::new().await;
    let first = place.load_dossier().await;
    assert_eq!(first.skipped, []);
    assert_eq!(first.loaded, agentfleet_library::dossier::files().len());
    assert_eq!(place.load_dossier().await.unchanged, first.loaded);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../seed-config/dossier");
    let report = place
        .load_from(&[folder], &LoadOptions::new("dossier"))
        .await;
    assert_eq!((report.unchanged, report.replaced), (first.loaded, 0));
    assert!(!place.titles("dossier", "liquidity").await.is_empty());
}
