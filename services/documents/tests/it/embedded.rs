//! The embedded documents: the contract, and what only they promise.

use agentfleet_documents::{Created, Documents, EmbeddedDocuments, Error};
use agentfleet_storage::{self as storage, Database, Durability, ManualClock};
use proptest::collection::btree_map;
use proptest::prelude::any;
use proptest::{proptest, test_runner::Config};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Fixture {
    directory: TempDir,
    clock: Arc<ManualClock>,
    database: Database,
    documents: EmbeddedDocuments,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let database = Database::open_with(directory.path(), Arc::clone(&clock) as _).unwrap();
    let documents = EmbeddedDocuments::open(&database).unwrap();
    Fixture {
        directory,
        clock,
        database,
        documents,
    }
}

mod contract {
    use super::{Arc, Documents, Fixture, fixture};

    #[expect(
        clippy::unused_async,
        reason = "the suite awaits the making of a store"
    )]
    async fn documents() -> (Arc<dyn Documents>, Fixture) {
        let fixture = fixture();
        (Arc::new(fixture.documents.clone()), fixture)
    }

    documents_contract!(documents());
}

#[tokio::test]
async fn exactly_one_of_two_processes_creates_an_object() {
    let one = fixture();
    let other = Database::open(one.directory.path()).unwrap();
    let other = EmbeddedDocuments::open(&other).unwrap();
    for round in 0..50 {
        let key = format!("k/{round}");
        let (a, b) = tokio::join!(
            one.documents.create(&key, b"a".to_vec()),
            other.create(&key, b"b".to_vec())
        );
        let (winner, body) = match (a.unwrap(), b.unwrap()) {
            (Created::New, Created::Exists) => (&one.documents, b"a"),
            (Created::Exists, Created::New) => (&other, b"b"),
            both => panic!("round {round}: {both:?}"),
        };
        for documents in [winner, &one.documents, &other] {
            assert_eq!(documents.get(&key).await.unwrap().unwrap().as_ref(), body);
        }
    }
}

#[tokio::test]
async fn objects_are_there_after_the_database_was_closed() {
    let Fixture {
        directory,
        database,
        documents,
        ..
    } = fixture();
    documents.create("a", b"kept".to_vec()).await.unwrap();
    drop((database, documents));
    let database = Database::open(directory.path()).unwrap();
    let documents = EmbeddedDocuments::open(&database).unwrap();
    assert_eq!(documents.get("a").await.unwrap().unwrap().as_ref(), b"kept");
}

#[tokio::test]
async fn a_unit_sees_what_it_created_and_takes_it_back_when_it_fails() {
    let Fixture {
        database,
        documents,
        directory: _directory,
        ..
    } = fixture();
    let inside = documents.clone();
    let failed = database.write(Durability::Durable, move |unit| {
        assert_eq!(
            inside.create_in(unit, "a", &storage::Packed::of(b"1"))?,
            Created::New
        );
        assert_eq!(
            inside.create_in(unit, "a", &storage::Packed::of(b"2"))?,
            Created::Exists
        );
        assert_eq!(inside.get_in(unit, "a")?.unwrap().as_ref(), b"1");
        assert!(inside.get_in(unit, "b")?.is_none());
        inside.create_in(unit, "", &storage::Packed::of(b""))
    });
    let error = failed.await.unwrap_err();
    assert!(matches!(error.reason(), Some(Error::EmptyKey)), "{error}");
    assert!(documents.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn retention_finds_how_old_objects_are_and_deletes_below_a_prefix() {
    let Fixture {
        clock,
        documents,
        directory: _directory,
        ..
    } = fixture();
    for number in 0..5 {
        documents
            .create(&format!("s/{number}"), vec![b'x'; 10])
            .await
            .unwrap();
        clock.advance(Duration::from_secs(1));
    }
    documents.create("t/0", vec![b'x'; 7]).await.unwrap();
    let found = documents.entries("s/", "s/1", 2).await.unwrap();
    let found: Vec<_> = found.iter().map(|e| (&*e.key, e.created_at)).collect();
    assert_eq!(found, [("s/2", 1_002_000), ("s/3", 1_003_000)]);

    assert_eq!(documents.delete_prefix("s/").await.unwrap(), 5);
    assert_eq!(documents.list("").await.unwrap(), ["t/0"]);
    assert!(matches!(
        documents.delete_prefix("").await,
        Err(Error::EmptyKey)
    ));
}

#[tokio::test]
async fn deleting_below_a_prefix_takes_as_many_transactions_as_it_needs() {
    let Fixture {
        database,
        documents,
        directory: _directory,
        ..
    } = fixture();
    let inside = documents.clone();
    let filled = database.write(Durability::Process, move |unit| {
        (0..1200).try_for_each(|number| {
            inside
                .create_in(unit, &format!("s/{number}"), &storage::Packed::of(b""))
                .map(drop)
        })
    });
    filled.await.unwrap();
    assert_eq!(documents.delete_prefix("s/").await.unwrap(), 1200);
    assert!(documents.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn tables_of_a_newer_program_are_refused() {
    let Fixture {
        database,
        directory: _directory,
        ..
    } = fixture();
    database.migrate("documents", &["", "", ""]).unwrap();
    let error = EmbeddedDocuments::open(&database).unwrap_err();
    let Error::Storage(storage::Error::Newer {
        part,
        found: 3,
        known: 1,
    }) = error
    else {
        panic!("{error}")
    };
    assert_eq!(part, "documents");
}

proptest! {
    #![proptest_config(Config::with_cases(64))]

    /// The range of keys that a prefix stands for is exactly the keys that start with it.
    #[test]
    fn a_list_agrees_with_starts_with(
        keys in btree_map("[ab\u{7f}\u{80}\u{d7ff}\u{e000}\u{10ffff}/]{1,4}", any::<u8>(), 0..20),
        prefix in "[ab\u{7f}\u{d7ff}\u{e000}\u{10ffff}/]{0,3}",
        page in 1_usize..5,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let Fixture { documents, clock, directory: _directory, .. } = fixture();
            for (key, body) in &keys {
                documents.create(key, vec![*body]).await.unwrap();
            }
            clock.advance(Duration::from_secs(1));
            let expected: Vec<&String> = keys.keys().filter(|key| key.starts_with(&prefix)).collect();
            assert_eq!(documents.list(&prefix).await.unwrap().iter().collect::<Vec<_>>(), expected);

            let mut paged: Vec<String> = Vec::new();
            loop {
                let after = paged.last().cloned().unwrap_or_default();
                let more = documents.entries(&prefix, &after, page).await.unwrap();
                if more.is_empty() {
                    break;
                }
                paged.extend(more.into_iter().map(|entry| entry.key));
            }
            assert_eq!(paged.iter().collect::<Vec<_>>(), expected);
            if !prefix.is_empty() {
                assert_eq!(documents.delete_prefix(&prefix).await.unwrap(), expected.len());
            }
        });
    }
}
