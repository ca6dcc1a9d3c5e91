//! What every documents store must do, as one suite of checks written against the trait.
//!
//! An implementation runs all of it with one line in its tests: `documents_contract!(fixture())`,
//! where `fixture` is an async function that returns the store as an `Arc<dyn Documents>`, and
//! whatever must live as long. The store may be shared: every check works below a prefix of its own.
//! A check panics where the contract is broken.

use agentfleet_documents::{Created, Documents};
use std::sync::Arc;

/// Runs every check of the contract as a test of its own.
macro_rules! documents_contract {
    ($fixture:expr) => {
        documents_contract!(@each $fixture,
            what_was_created_can_be_read,
            what_was_never_created_is_absent,
            an_object_is_never_replaced,
            others_come_with_the_first_of_a_key_alone,
            a_beginning_is_made_once_and_reads_what_was_there,
            exactly_one_of_concurrent_beginnings_is_new,
            exactly_one_of_concurrent_creates_is_new,
            bodies_are_any_bytes_of_any_length,
            many_keys_come_in_the_order_asked_for,
            a_list_has_the_keys_below_a_prefix_in_order,
            paging_finds_each_object_below_a_prefix_once,
            deleting_below_a_prefix_leaves_the_others,
            what_was_deleted_is_absent_and_may_be_created_again,
            an_empty_key_is_refused
        );
    };
    (@each $fixture:expr, $($check:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let (documents, _kept) = $fixture.await;
                crate::contract::$check(documents, concat!("contract/", stringify!($check), "/")).await;
            }
        )+
    };
}

fn bytes(body: Option<Arc<[u8]>>) -> Option<Vec<u8>> {
    body.map(|body| body.to_vec())
}

pub(crate) async fn what_was_created_can_be_read(documents: Arc<dyn Documents>, prefix: &str) {
    let key = format!("{prefix}a");
    assert_eq!(
        documents.create(&key, b"one".to_vec()).await.unwrap(),
        Created::New
    );
    assert_eq!(
        bytes(documents.get(&key).await.unwrap()),
        Some(b"one".to_vec())
    );
}

pub(crate) async fn what_was_never_created_is_absent(documents: Arc<dyn Documents>, prefix: &str) {
    documents
        .create(&format!("{prefix}ab"), Vec::new())
        .await
        .unwrap();
    for absent in ["a", "abc", "AB"] {
        let key = format!("{prefix}{absent}");
        assert_eq!(bytes(documents.get(&key).await.unwrap()), None, "{key}");
    }
}

pub(crate) async fn an_object_is_never_replaced(documents: Arc<dyn Documents>, prefix: &str) {
    let key = format!("{prefix}a");
    documents.create(&key, b"first".to_vec()).await.unwrap();
    // Equal or not, the second is told that it was not the first.
    for body in ["first", "second"] {
        assert_eq!(
            documents.create(&key, body.into()).await.unwrap(),
            Created::Exists,
            "{body}"
        );
        assert_eq!(
            bytes(documents.get(&key).await.unwrap()),
            Some(b"first".to_vec())
        );
    }
}

pub(crate) async fn others_come_with_the_first_of_a_key_alone(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    for round in 0..4 {
        let tasks: Vec<_> = (0..8_u8)
            .map(|writer| {
                let documents = Arc::clone(&documents);
                let key = |name: &str| format!("{prefix}{round}/{name}");
                let (first, own) = (key("first"), key(&format!("own/{writer}")));
                // In no order, and one that all write.
                let mut others = vec![(own, vec![writer]), (key("shared"), vec![writer])];
                others.rotate_left(usize::from(writer) % 2);
                tokio::spawn(async move {
                    let body = vec![writer];
                    let there = documents.create_with(&first, body, &others).await.unwrap();
                    (writer, bytes(there))
                })
            })
            .collect();
        let (mut winners, mut seen) = (Vec::new(), Vec::new());
        for task in tasks {
            match task.await.unwrap() {
                (writer, None) => winners.push(writer),
                (_, Some(there)) => seen.push(there),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        assert!(seen.iter().all(|there| *there == winners), "{seen:?}");
        let below = format!("{prefix}{round}/");
        let expected = [
            "first".to_owned(),
            format!("own/{}", winners[0]),
            "shared".to_owned(),
        ];
        let expected = expected.map(|name| format!("{below}{name}"));
        assert_eq!(documents.list(&below).await.unwrap(), expected);
        let shared = documents.get(&expected[2]).await.unwrap();
        assert_eq!(bytes(shared), Some(winners));
    }
}

pub(crate) async fn a_beginning_is_made_once_and_reads_what_was_there(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let key = |name: &str| format!("{prefix}{name}");
    documents.create(&key("seen"), b"s".to_vec()).await.unwrap();
    let asked = ["bar", "seen", "note", "none"].map(key);
    let begin = async |note: &str, body: &str, unless| {
        let others = [(key(&format!("{note}-other")), b"o".to_vec())];
        let first = (key(note), body.as_bytes().to_vec());
        let first = (first.0.as_str(), first.1);
        let begun = documents.begin(first, &others, &asked, unless).await;
        let (created, found) = begun.unwrap();
        let found: Vec<_> = found.into_iter().map(bytes).collect();
        (created, found)
    };
    let before = vec![None, Some(b"s".to_vec()), None, None];
    // What is there bars nothing unless it is among the first.
    assert_eq!(begin("note", "one", 1).await, (Created::New, before));
    let after = vec![None, Some(b"s".to_vec()), Some(b"one".to_vec()), None];
    assert_eq!(
        begin("note", "two", 1).await,
        (Created::Exists, after.clone())
    );
    assert_eq!(begin("barred", "one", 2).await, (Created::Exists, after));
    let (created, _) = begin("later", "one", 0).await;
    assert_eq!(created, Created::New);
    let expected = ["later", "later-other", "note", "note-other", "seen"].map(key);
    assert_eq!(documents.list(prefix).await.unwrap(), expected);
}

pub(crate) async fn exactly_one_of_concurrent_beginnings_is_new(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    for round in 0..4 {
        let tasks: Vec<_> = (0..8_u8)
            .map(|writer| {
                let documents = Arc::clone(&documents);
                let key = move |name: &str, prefix: &str| format!("{prefix}{round}/{name}");
                let first = key("first", prefix);
                let others = [(key(&format!("own/{writer}"), prefix), vec![writer])];
                let asked = [key("none", prefix)];
                tokio::spawn(async move {
                    let first = (first.as_str(), vec![writer]);
                    let begun = documents.begin(first, &others, &asked, 1).await.unwrap();
                    (writer, begun.0)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                (writer, Created::New) => winners.push(writer),
                (_, Created::Exists) => {}
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let below = format!("{prefix}{round}/");
        let expected = ["first".to_owned(), format!("own/{}", winners[0])];
        let expected = expected.map(|name| format!("{below}{name}"));
        assert_eq!(documents.list(&below).await.unwrap(), expected);
    }
}

pub(crate) async fn exactly_one_of_concurrent_creates_is_new(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    for round in 0..8 {
        let key = format!("{prefix}{round}");
        let tasks: Vec<_> = (0..16_u8)
            .map(|writer| {
                let (documents, key) = (Arc::clone(&documents), key.clone());
                tokio::spawn(async move {
                    (writer, documents.create(&key, vec![writer]).await.unwrap())
                })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                (writer, Created::New) => winners.push(writer),
                (_, Created::Exists) => {}
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(bytes(documents.get(&key).await.unwrap()), Some(winners));
    }
}

pub(crate) async fn bodies_are_any_bytes_of_any_length(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let long: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    for (name, body) in [
        ("empty", Vec::new()),
        ("binary", vec![0, 255, 0, 10, 13]),
        ("long", long),
    ] {
        let key = format!("{prefix}{name}");
        documents.create(&key, body.clone()).await.unwrap();
        assert!(
            bytes(documents.get(&key).await.unwrap()) == Some(body),
            "{name}"
        );
    }
}

pub(crate) async fn many_keys_come_in_the_order_asked_for(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let key = |name: &str| format!("{prefix}{name}");
    for name in ["a", "b", "c"] {
        documents.create(&key(name), name.into()).await.unwrap();
    }
    let asked = [key("c"), key("none"), key("a"), key("c")];
    let found = documents.get_many(&asked).await.unwrap();
    let found: Vec<_> = found.into_iter().map(bytes).collect();
    assert_eq!(
        found,
        [
            Some(b"c".to_vec()),
            None,
            Some(b"a".to_vec()),
            Some(b"c".to_vec())
        ]
    );
    assert_eq!(documents.get_many(&[]).await.unwrap().len(), 0);
}

pub(crate) async fn a_list_has_the_keys_below_a_prefix_in_order(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let all = [
        "x/10/a", "x/2/a", "x/1/a", "x/1/b", "x%/1", "x_/1", "X/1", "x1", "x/\u{e9}",
    ];
    for name in all {
        documents
            .create(&format!("{prefix}{name}"), Vec::new())
            .await
            .unwrap();
    }
    let table: [(&str, &[&str]); 7] = [
        ("x/1/", &["x/1/a", "x/1/b"]),
        ("x/1", &["x/1/a", "x/1/b", "x/10/a"]),
        ("x/", &["x/1/a", "x/1/b", "x/10/a", "x/2/a", "x/\u{e9}"]),
        // No character of a prefix stands for others.
        ("x%", &["x%/1"]),
        ("x_", &["x_/1"]),
        ("x/1/a", &["x/1/a"]),
        ("y", &[]),
    ];
    for (below, expected) in table {
        let expected: Vec<_> = expected
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        let found = documents.list(&format!("{prefix}{below}")).await.unwrap();
        assert_eq!(found, expected, "{below}");
    }
}

pub(crate) async fn paging_finds_each_object_below_a_prefix_once(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let mut all: Vec<String> = ["a/b/c", "a/b", "a", "a.b", "a/\u{e9}", "a/z", "a//z"]
        .iter()
        .map(|name| format!("{prefix}x/{name}/end"))
        .collect();
    all.sort();
    for key in all.iter().chain([&format!("{prefix}y")]) {
        documents.create(key, Vec::new()).await.unwrap();
    }
    for page in [1, 3, 100] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let below = format!("{prefix}x");
            let entries = documents.entries(&below, &after, page).await.unwrap();
            assert!(entries.len() <= page);
            let Some(last) = entries.last() else {
                break;
            };
            after.clone_from(&last.key);
            found.extend(entries.into_iter().map(|entry| entry.key));
        }
        found.sort();
        assert_eq!(found, all, "pages of {page}");
    }
}

pub(crate) async fn deleting_below_a_prefix_leaves_the_others(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    for name in ["s/1", "s/2/x", "s1", "t"] {
        let key = format!("{prefix}{name}");
        documents.create(&key, Vec::new()).await.unwrap();
    }
    let below = format!("{prefix}s/");
    assert_eq!(documents.delete_prefix(&below).await.unwrap(), 2);
    let left = ["s1", "t"].map(|name| format!("{prefix}{name}"));
    assert_eq!(documents.list(prefix).await.unwrap(), left);
    let all = documents.delete_prefix("").await.unwrap_err();
    assert!(all.retry().is_none(), "{all}");
}

pub(crate) async fn what_was_deleted_is_absent_and_may_be_created_again(
    documents: Arc<dyn Documents>,
    prefix: &str,
) {
    let keys = ["a", "b", "c"].map(|name| format!("{prefix}{name}"));
    for key in &keys {
        documents.create(key, b"old".to_vec()).await.unwrap();
    }
    let absent = format!("{prefix}none");
    documents
        .delete(&[keys[0].clone(), absent, keys[1].clone()])
        .await
        .unwrap();
    assert_eq!(documents.list(prefix).await.unwrap(), [keys[2].clone()]);
    assert_eq!(bytes(documents.get(&keys[0]).await.unwrap()), None);
    assert_eq!(
        documents.create(&keys[0], b"new".to_vec()).await.unwrap(),
        Created::New
    );
    assert_eq!(
        bytes(documents.get(&keys[0]).await.unwrap()),
        Some(b"new".to_vec())
    );
}

pub(crate) async fn an_empty_key_is_refused(documents: Arc<dyn Documents>, _prefix: &str) {
    let error = documents.create("", b"x".to_vec()).await.unwrap_err();
    assert!(error.retry().is_none(), "{error}");
    assert!(
        documents
            .list("")
            .await
            .unwrap()
            .iter()
            .all(|key| !key.is_empty())
    );
}
