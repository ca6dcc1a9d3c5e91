//! What every implementation of [`ConfigStore`] must do, as tests.
//!
//! An implementation opens stores through a [`Fixture`] and calls [`config_contract!`] once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::{ConfigStore, Error, Item, Release, Seeder, seed};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Opens stores for the suite.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// Two handles on one new, empty store, as two processes would have them.
    async fn pair(&self) -> (Arc<dyn ConfigStore>, Arc<dyn ConfigStore>);
}

/// Makes a test of each sentence of the contract, for one fixture.
macro_rules! config_contract {
    ($fixture:expr) => {
        config_contract!(@each $fixture,
            an_empty_store_has_version_zero_and_nothing_in_it
            a_put_stores_all_its_items_as_one_version
            one_bad_item_refuses_the_whole_put
            a_reference_must_find_its_end
            every_version_of_an_item_is_kept
            what_is_there_already_is_not_stored_again
            a_pinned_set_does_not_change
            the_other_handle_sees_a_change
            puts_at_the_same_time_get_a_version_each
            seeding_twice_changes_nothing
            seeding_updates_only_what_nobody_edited
            an_older_release_leaves_what_a_newer_one_wrote
            a_release_that_starts_after_a_newer_one_changes_nothing
            what_a_person_seeded_stays
            what_a_person_deleted_stays_deleted
            seeding_leaves_out_what_lost_its_reference
            items_of_a_type_that_nothing_reads_are_refused
        );
    };
    (@each $fixture:expr, $($name:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::contract_tests::$name(&$fixture).await;
            }
        )+
    };
}

fn item(item_type: &str, key: &str, value: Value) -> Item {
    Item {
        item_type: item_type.to_owned(),
        key: key.to_owned(),
        value,
    }
}

fn release(text: &str) -> Seeder {
    Seeder::Product(Release::parse(text).unwrap())
}

fn pattern(key: &str, description: &str) -> Item {
    item(
        "agent-pattern",
        key,
        json!({"name": key, "description": description}),
    )
}

fn task_type(key: &str, patterns: &[&str]) -> Item {
    item(
        "agent-task-type",
        key,
        json!({"name": key, "valid_patterns": patterns}),
    )
}

async fn description(store: &dyn ConfigStore, key: &str) -> Option<String> {
    let set = store.snapshot().await.unwrap();
    set.patterns
        .get(key)
        .map(|pattern| pattern.description.clone())
}

/// Waits until a handle has heard of a version.
async fn heard(store: &dyn ConfigStore, version: u64) {
    while store.snapshot().await.unwrap().version < version {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn an_empty_store_has_version_zero_and_nothing_in_it(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let set = store.snapshot().await.unwrap();
    assert_eq!(*set, agentfleet_schema::config::Snapshot::default());
    assert!(store.list(None).await.unwrap().is_empty());
    assert!(store.get("tool", "x").await.unwrap().is_none());
    assert_eq!(store.put(Vec::new(), "someone").await.unwrap(), 0);
    assert!(
        store
            .delete("tool", "x", "someone")
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(store.snapshot_at(0).await.unwrap().version, 0);
    let error = store.snapshot_at(1).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::UnknownVersion {
                version: 1,
                newest: 0
            }
        ),
        "{error}"
    );
}

pub(crate) async fn a_put_stores_all_its_items_as_one_version(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let items = vec![
        pattern("a", "A"),
        pattern("b", "B"),
        task_type("t", &["a", "b"]),
    ];
    assert_eq!(store.put(items.clone(), "someone").await.unwrap(), 1);
    let set = store.snapshot().await.unwrap();
    assert_eq!(
        (set.version, set.patterns.len(), set.task_types.len()),
        (1, 2, 1)
    );
    let listed = store.list(None).await.unwrap();
    assert_eq!(
        listed.iter().map(|v| v.item.clone()).collect::<Vec<_>>(),
        items
    );
    assert!(
        listed
            .iter()
            .all(|v| v.version == 1 && v.author == "someone" && v.at > 0)
    );
    assert_eq!(store.list(Some("agent-pattern")).await.unwrap().len(), 2);
    assert_eq!(
        store.get("agent-pattern", "a").await.unwrap().unwrap().item,
        items[0]
    );
}

pub(crate) async fn one_bad_item_refuses_the_whole_put(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let bad = item("tool", "search", json!({"name": "search", "type": "serch"}));
    let error = store
        .put(vec![pattern("a", "A"), bad], "someone")
        .await
        .unwrap_err();
    let Error::Invalid(problems) = &error else {
        panic!("{error}")
    };
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (
            problems[0].item_type.as_str(),
            problems[0].key.as_str(),
            problems[0].field.as_str()
        ),
        ("tool", "search", "/type")
    );
    assert!(error.to_string().contains("`document-search`"), "{error}");
    assert_eq!(store.snapshot().await.unwrap().version, 0);
    assert!(store.list(None).await.unwrap().is_empty());
}

pub(crate) async fn a_reference_must_find_its_end(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let error = store
        .put(vec![task_type("t", &["a"])], "someone")
        .await
        .unwrap_err();
    let Error::Invalid(problems) = &error else {
        panic!("{error}")
    };
    assert_eq!(problems[0].field, "/valid_patterns/0");
    store
        .put(vec![task_type("t", &["a"]), pattern("a", "A")], "someone")
        .await
        .unwrap();
    let error = store
        .delete("agent-pattern", "a", "someone")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("`agent-task-type` item `t`"),
        "{error}"
    );
    assert!(description(&*store, "a").await.is_some());
    store
        .put(vec![task_type("t", &[])], "someone")
        .await
        .unwrap();
    assert_eq!(
        store.delete("agent-pattern", "a", "someone").await.unwrap(),
        Some(3)
    );
}

pub(crate) async fn every_version_of_an_item_is_kept(fixture: &dyn Fixture) {
    let (store, other) = fixture.pair().await;
    store.put(vec![pattern("a", "first")], "one").await.unwrap();
    store.put(vec![pattern("b", "else")], "one").await.unwrap();
    other
        .put(vec![pattern("a", "second")], "two")
        .await
        .unwrap();
    store.delete("agent-pattern", "a", "three").await.unwrap();
    let history = other.history("agent-pattern", "a").await.unwrap();
    let told: Vec<_> = history
        .iter()
        .map(|v| (v.version, v.author.as_str(), v.deleted))
        .collect();
    assert_eq!(
        told,
        [(4, "three", true), (3, "two", false), (1, "one", false)]
    );
    assert_eq!(history[1].item, pattern("a", "second"));
    assert!(store.get("agent-pattern", "a").await.unwrap().is_none());
    assert_eq!(store.list(None).await.unwrap().len(), 1);
    assert!(
        store
            .history("agent-pattern", "unknown")
            .await
            .unwrap()
            .is_empty()
    );
}

pub(crate) async fn what_is_there_already_is_not_stored_again(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    store.put(vec![pattern("a", "A")], "one").await.unwrap();
    let both = vec![pattern("a", "A"), pattern("b", "B")];
    assert_eq!(store.put(both.clone(), "two").await.unwrap(), 2);
    assert_eq!(store.put(both, "two").await.unwrap(), 2);
    assert_eq!(store.history("agent-pattern", "a").await.unwrap().len(), 1);
    // Seeding takes back what it finds as it would write it, and a deleted item is put again.
    let shipped = vec![pattern("a", "A")];
    let owner = store.put(shipped.clone(), "one").await.unwrap();
    assert_eq!(owner, 2);
    let product = Release::this().author();
    store.put(shipped.clone(), &product).await.unwrap();
    let newest = store.get("agent-pattern", "a").await.unwrap().unwrap();
    assert_eq!((newest.version, &newest.author), (3, &product));
    // It has no need to take it back from itself, in whichever version.
    let other = release("999.0.0").author();
    assert_eq!(store.put(shipped, &other).await.unwrap(), 3);
    store.delete("agent-pattern", "b", "two").await.unwrap();
    assert_eq!(store.put(vec![pattern("b", "B")], "two").await.unwrap(), 5);
}

pub(crate) async fn a_pinned_set_does_not_change(fixture: &dyn Fixture) {
    let (store, other) = fixture.pair().await;
    for n in 1..=12_u64 {
        let version = store
            .put(vec![pattern("a", &n.to_string())], "someone")
            .await
            .unwrap();
        assert_eq!(version, n);
    }
    store.delete("agent-pattern", "a", "someone").await.unwrap();
    // More versions than any cache keeps, in an order that none likes.
    for n in (1..=12_u64).chain([3, 1, 12, 3]) {
        for store in [&store, &other] {
            let set = store.snapshot_at(n).await.unwrap();
            assert_eq!(
                (set.version, set.patterns["a"].description.clone()),
                (n, n.to_string())
            );
        }
    }
    assert!(store.snapshot_at(13).await.unwrap().patterns.is_empty());
    assert!(store.snapshot_at(14).await.is_err());
}

pub(crate) async fn the_other_handle_sees_a_change(fixture: &dyn Fixture) {
    let (one, two) = fixture.pair().await;
    for n in 1..=10_u64 {
        let (writer, reader) = if n % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let version = writer
            .put(vec![pattern("a", &n.to_string())], "someone")
            .await
            .unwrap();
        // A store sees its own change at once.
        assert_eq!(description(&**writer, "a").await, Some(n.to_string()));
        heard(&**reader, version).await;
        assert_eq!(description(&**reader, "a").await, Some(n.to_string()));
    }
}

pub(crate) async fn puts_at_the_same_time_get_a_version_each(fixture: &dyn Fixture) {
    let (one, two) = fixture.pair().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
        tasks.spawn(async move {
            store
                .put(vec![pattern(&format!("p{n}"), "x")], "someone")
                .await
                .unwrap()
        });
    }
    let mut versions = Vec::new();
    while let Some(version) = tasks.join_next().await {
        versions.push(version.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=20).collect::<Vec<u64>>());
    heard(&*one, 20).await;
    assert_eq!(one.snapshot().await.unwrap().patterns.len(), 20);
}

pub(crate) async fn seeding_twice_changes_nothing(fixture: &dyn Fixture) {
    let (store, other) = fixture.pair().await;
    let items = seed::embedded().unwrap();
    let report = seed::seed(&*store, items.clone()).await.unwrap();
    assert_eq!((report.version, report.added), (1, items.len()));
    let before = store.snapshot().await.unwrap();
    for store in [&store, &other] {
        let report = seed::seed(&**store, items.clone()).await.unwrap();
        assert_eq!((report.version, report.unchanged), (1, items.len()));
        assert!(!report.changed());
        heard(&**store, 1).await;
        assert_eq!(store.snapshot().await.unwrap(), before);
    }
    assert!(
        store
            .list(None)
            .await
            .unwrap()
            .iter()
            .all(|version| version.author == Release::this().author())
    );
}

pub(crate) async fn seeding_updates_only_what_nobody_edited(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let old = vec![
        pattern("mine", "old"),
        pattern("theirs", "old"),
        pattern("same", "old"),
    ];
    seed::seed(&*store, old).await.unwrap();
    store
        .put(vec![pattern("theirs", "edited")], "a person")
        .await
        .unwrap();
    let new = vec![
        pattern("mine", "new"),
        pattern("theirs", "new"),
        pattern("same", "old"),
        pattern("more", "new"),
    ];
    let report = seed::seed(&*store, new.clone()).await.unwrap();
    let counts = (
        report.added,
        report.updated,
        report.unchanged,
        report.edited,
        report.version,
    );
    assert_eq!(counts, (1, 1, 1, 1, 3));
    assert_eq!(description(&*store, "mine").await.as_deref(), Some("new"));
    assert_eq!(
        description(&*store, "theirs").await.as_deref(),
        Some("edited")
    );
    assert!(!seed::seed(&*store, new).await.unwrap().changed());
    // One that is wrong refuses all.
    let wrong = vec![
        pattern("fine", "x"),
        item("agent-pattern", "wrong", json!({})),
    ];
    assert!(matches!(
        seed::seed(&*store, wrong).await,
        Err(Error::Invalid(_))
    ));
    assert_eq!(description(&*store, "fine").await, None);
}

pub(crate) async fn an_older_release_leaves_what_a_newer_one_wrote(fixture: &dyn Fixture) {
    let (store, other) = fixture.pair().await;
    let (old, new) = (release("1.9.0"), release("1.10.0"));
    let of_old = vec![
        pattern("both", "old"),
        pattern("theirs", "old"),
        pattern("dropped", "old"),
        pattern("same", "x"),
    ];
    let of_new = vec![
        pattern("both", "new"),
        pattern("theirs", "new"),
        pattern("same", "x"),
        pattern("added", "new"),
    ];
    let first = release("1.8.0").author();
    store.put(of_old.clone(), &first).await.unwrap();
    let report = store.seed(of_old.clone(), &old).await.unwrap();
    assert_eq!((report.version, report.unchanged), (1, 4));
    store
        .put(vec![pattern("theirs", "edited")], "a person")
        .await
        .unwrap();
    let report = store.seed(of_new.clone(), &new).await.unwrap();
    let counts = (report.version, report.added, report.updated, report.edited);
    assert_eq!(counts, (3, 1, 1, 1));
    assert_eq!((report.newer, report.newest), (0, None));
    // The older one comes again, in this process and in another.
    for store in [&store, &other] {
        let report = store.seed(of_old.clone(), &old).await.unwrap();
        let counts = (report.version, report.updated, report.newer, report.edited);
        assert_eq!(counts, (3, 0, 1, 1));
        assert_eq!(report.newest.as_deref(), Some("1.10.0"));
        assert!(!report.changed());
        let told = report.to_string();
        assert!(
            told.contains("1 left as version 1.10.0 wrote them"),
            "{told}"
        );
    }
    let both = store.get("agent-pattern", "both").await.unwrap().unwrap();
    assert_eq!(
        (both.item, both.author),
        (pattern("both", "new"), new.author())
    );
    // The newer one has nothing to mend, and a still newer one goes on from there.
    assert!(!store.seed(of_new, &new).await.unwrap().changed());
    let newest = vec![pattern("both", "newest")];
    let report = store.seed(newest, &release("2.0.0-rc.1")).await.unwrap();
    assert_eq!((report.version, report.updated), (4, 1));
    // An older one that has what is missing adds it.
    let more = vec![pattern("older-only", "old")];
    assert_eq!(store.seed(more, &old).await.unwrap().added, 1);
}

pub(crate) async fn a_release_that_starts_after_a_newer_one_changes_nothing(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let (old, new) = (release("0.1.0"), release("0.2.0"));
    store.seed(vec![pattern("a", "new")], &new).await.unwrap();
    let report = store.seed(vec![pattern("a", "old")], &old).await.unwrap();
    assert_eq!((report.version, report.newer), (1, 1));
    assert_eq!(description(&*store, "a").await.as_deref(), Some("new"));
    // A person of the older one may take it back, and then it is the older one's.
    let taken = vec![pattern("a", "old")];
    store.put(taken.clone(), &old.author()).await.unwrap();
    assert_eq!(store.seed(taken, &old).await.unwrap().unchanged, 1);
}

pub(crate) async fn what_a_person_seeded_stays(fixture: &dyn Fixture) {
    let (store, other) = fixture.pair().await;
    let product = |text| vec![pattern("a", text), pattern("b", text), pattern("same", "x")];
    let shipped = release("1.0.0");
    store.seed(product("shipped"), &shipped).await.unwrap();
    store
        .put(vec![pattern("b", "edited")], "ann")
        .await
        .unwrap();
    let of_ann = Seeder::Person("ann".into());
    let theirs = vec![
        pattern("a", "theirs"),
        pattern("b", "theirs"),
        pattern("c", "theirs"),
    ];
    let report = store.seed(theirs, &of_ann).await.unwrap();
    assert_eq!((report.added, report.updated, report.edited), (1, 1, 1));
    // Every command seeds what comes with it, of this version and of others.
    for (store, version) in [(&store, "1.0.0"), (&other, "1.1.0"), (&store, "0.9.0")] {
        let report = store
            .seed(product("shipped"), &release(version))
            .await
            .unwrap();
        assert!(!report.changed(), "{report}");
    }
    let a = store.get("agent-pattern", "a").await.unwrap().unwrap();
    assert_eq!(
        (a.item, a.author.as_str()),
        (pattern("a", "theirs"), "seeded by ann")
    );
    // The directory has the last word on what came from one.
    let again = vec![pattern("a", "again"), pattern("b", "again")];
    let report = store
        .seed(again, &Seeder::Person("ben".into()))
        .await
        .unwrap();
    assert_eq!((report.updated, report.edited), (1, 1));
    assert_eq!(description(&*store, "a").await.as_deref(), Some("again"));
    assert_eq!(description(&*store, "b").await.as_deref(), Some("edited"));
}

pub(crate) async fn what_a_person_deleted_stays_deleted(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    seed::seed(&*store, vec![pattern("a", "x"), pattern("b", "x")])
        .await
        .unwrap();
    store
        .delete("agent-pattern", "a", "a person")
        .await
        .unwrap();
    let report = seed::seed(&*store, vec![pattern("a", "new"), pattern("b", "x")])
        .await
        .unwrap();
    assert_eq!(
        (report.deleted, report.unchanged, report.version),
        (1, 1, 2)
    );
    assert_eq!(description(&*store, "a").await, None);
    // A person may bring it back.
    store
        .put(vec![pattern("a", "back")], "a person")
        .await
        .unwrap();
    assert_eq!(description(&*store, "a").await.as_deref(), Some("back"));
}

pub(crate) async fn seeding_leaves_out_what_lost_its_reference(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    seed::seed(&*store, vec![pattern("gone", "x"), pattern("here", "x")])
        .await
        .unwrap();
    store
        .delete("agent-pattern", "gone", "a person")
        .await
        .unwrap();
    let items = vec![
        pattern("gone", "x"),
        task_type("needs-it", &["here", "gone"]),
        task_type("does-not", &["here"]),
    ];
    let report = seed::seed(&*store, items).await.unwrap();
    assert_eq!(
        (report.added, report.updated, report.left_out.len()),
        (1, 0, 1)
    );
    assert_eq!(report.left_out[0].key, "needs-it");
    let set = store.snapshot().await.unwrap();
    assert_eq!(set.task_types.keys().collect::<Vec<_>>(), ["does-not"]);
}

pub(crate) async fn items_of_a_type_that_nothing_reads_are_refused(fixture: &dyn Fixture) {
    let (store, _) = fixture.pair().await;
    let other = item("agent-patern", "a", json!({"name": "a"}));
    let error = store.put(vec![other], "someone").await.unwrap_err();
    assert!(error.to_string().contains("`agent-pattern`"), "{error}");
    assert!(store.list(None).await.unwrap().is_empty());
}
