//! One library of several machines: whatever is loaded, cut off, changed or removed anywhere, all of
//! them come to the same.

use agentfleet_documents::{Created, Documents, EmbeddedDocuments, Entry, Error as StoreError};
use agentfleet_graph::{EmbeddedGraph, Graph as _, GraphOptions, QueryOptions};
use agentfleet_library::{Document, Error, Library, LoadOptions, LoadReport, Progress};
use agentfleet_schema::CollectionName;
use agentfleet_storage::{Database, ManualClock};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The servers that all machines share, and a folder of files.
struct Fleet {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    graph: Arc<EmbeddedGraph>,
}

/// A documents store that counts what is read of loaded versions, and can hold back that and entries
/// of the log.
struct Store {
    inner: EmbeddedDocuments,
    read: AtomicUsize,
    reads: Semaphore,
    entries: Semaphore,
    /// Has a permit for each entry that somebody wants to add.
    asked: Semaphore,
}

const OPEN: usize = Semaphore::MAX_PERMITS >> 1;

impl Store {
    fn over(inner: &EmbeddedDocuments) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            read: AtomicUsize::new(0),
            reads: Semaphore::new(OPEN),
            entries: Semaphore::new(OPEN),
            asked: Semaphore::new(0),
        })
    }

    fn close(gate: &Semaphore) {
        gate.forget_permits(OPEN);
    }
}

#[async_trait]
impl Documents for Store {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, StoreError> {
        if key.contains("/log/") {
            self.asked.add_permits(1);
            drop(self.entries.acquire().await.unwrap());
        }
        self.inner.create(key, body).await
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.inner.get(key).await
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let versions = keys.iter().filter(|key| key.contains("/versions/")).count();
        if versions > 0 {
            self.read.fetch_add(versions, Ordering::SeqCst);
            drop(self.reads.acquire().await.unwrap());
        }
        self.inner.get_many(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn entries(
        &self,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.inner.entries(prefix, after, max).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        self.inner.delete(keys).await
    }
}

impl Fleet {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_000_000_000));
        let store = Self::store(folder.path(), "store", clock.clone());
        let database = Database::open_with(&folder.path().join("graph"), clock.clone()).unwrap();
        let graph = EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| {})
            .await
            .unwrap();
        std::fs::create_dir(folder.path().join("files")).unwrap();
        Self {
            folder,
            clock,
            store,
            graph: Arc::new(graph),
        }
    }

    fn store(folder: &Path, name: &str, clock: Arc<ManualClock>) -> Arc<Store> {
        let database = Database::open_with(&folder.join(name), clock).unwrap();
        Store::over(&EmbeddedDocuments::open(&database).unwrap())
    }

    /// A machine with a data directory of this name.
    async fn machine(&self, name: &str) -> Machine {
        self.machine_on(name, self.store.clone()).await
    }

    async fn machine_on(&self, name: &str, store: Arc<Store>) -> Machine {
        let database =
            Database::open_with(&self.folder.path().join(name), self.clock.clone()).unwrap();
        let library = Library::shared(database, self.graph.clone(), store)
            .await
            .unwrap();
        Machine { library }
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.files().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Keys of what is stored of loaded versions.
    async fn stored(&self) -> Vec<String> {
        self.store.list("library/versions/").await.unwrap()
    }

    async fn values(&self) -> Vec<String> {
        let query = "SELECT ?o WHERE { GRAPH ?g { ?s <urn:value> ?o } } ORDER BY ?o";
        let found = self.graph.select(query, &[], QueryOptions::default());
        let found = found.await.unwrap();
        (0..found.rows.len())
            .map(|row| found.text(row, "o").unwrap().to_owned())
            .collect()
    }
}

struct Machine {
    library: Library,
}

/// All of a collection that can be told: documents, their text, and what a search finds.
#[derive(Debug, PartialEq)]
struct Seen {
    documents: Vec<(Document, String)>,
    found: Vec<(String, String)>,
}

impl Machine {
    async fn load(&self, fleet: &Fleet, collection: &str) -> LoadReport {
        self.load_with(fleet, &LoadOptions::new(collection)).await
    }

    async fn load_with(&self, fleet: &Fleet, options: &LoadOptions) -> LoadReport {
        self.library
            .load(&[fleet.files()], options, &|_| {})
            .await
            .unwrap()
    }

    /// Looks at the log, as a read does that comes a second later.
    async fn look(&self) {
        self.library.standing().await.unwrap().unwrap();
    }

    async fn titles(&self, collection: &str, query: &str) -> Vec<String> {
        self.look().await;
        let hits = self.library.search(&collection.into(), query, 5).await;
        hits.unwrap().into_iter().map(|hit| hit.title).collect()
    }

    async fn sees(&self, collection: &str) -> Seen {
        self.look().await;
        let name: CollectionName = collection.into();
        let mut documents = Vec::new();
        for document in self.library.documents(&name, 100_000).await.unwrap() {
            let text = self.library.fetch(&name, &document.uri, 0, 100_000).await;
            documents.push((document, text.unwrap().unwrap().text));
        }
        let hits = self.library.search(&name, "word", 1_000).await.unwrap();
        let mut found: Vec<(String, String)> =
            hits.into_iter().map(|hit| (hit.uri, hit.text)).collect();
        found.sort();
        Seen { documents, found }
    }
}

/// What all machines see of a collection, a fresh one included.
async fn all_see(fleet: &Fleet, machines: &[&Machine], collection: &str) -> Seen {
    let fresh = fleet.machine(&uuid::Uuid::new_v4().to_string()).await;
    let seen = fresh.sees(collection).await;
    for machine in machines {
        assert_eq!(machine.sees(collection).await, seen);
    }
    seen
}

#[tokio::test]
async fn what_one_machine_loads_every_other_finds_and_cites() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    assert_eq!(two.titles("c", "word").await, Vec::<String>::new());
    fleet.write("a.md", "# A\n\na word\n\n## More\n\nof it");
    fleet.write("b.csv", "name,value\nword,1\nother,2\n");
    fleet.write(
        "c.ttl",
        "<urn:pump> <http://www.w3.org/2000/01/rdf-schema#label> 'Pump' ; <urn:value> 'word' .",
    );
    let report = one.load(&fleet, "c").await;
    assert_eq!(
        (report.loaded, report.triples, report.skipped.len()),
        (3, 2, 0)
    );
    let seen = all_see(&fleet, &[&one, &two], "c").await;
    assert_eq!(seen.documents.len(), 3);
    assert_eq!(seen.documents[0].0.uri, "urn:agentfleet:document:c:a.md");
    assert_eq!(two.titles("c", "word").await.len(), 2);
    let entities = two.library.entities(&"c".into(), "pump", 5).await.unwrap();
    assert_eq!(entities[0].document, "urn:agentfleet:document:c:c.ttl");
    let pump = vec!["urn:pump".to_owned()];
    let described = two.library.descriptions(&"c".into(), pump).await.unwrap();
    assert!(described[0].text.contains("word"));
    // Another collection sees nothing of it.
    assert_eq!(two.titles("other", "word").await, Vec::<String>::new());
    assert_eq!(
        two.library.collections().await.unwrap(),
        one.library.collections().await.unwrap()
    );
}

#[tokio::test]
async fn a_changed_folder_is_replaced_everywhere_and_old_versions_are_deleted() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    fleet.write("a.md", "# A\n\nold word");
    let gone = fleet.write("b.md", "# B\n\nword");
    fleet.write("c.ttl", "<urn:s> <urn:value> 'old' .");
    fleet.write("d.md", "# D\n\nsteady word");
    one.load(&fleet, "c").await;
    all_see(&fleet, &[&one, &two], "c").await;
    let before = fleet.stored().await;

    fleet.write("a.md", "# A again\n\nnew word");
    fleet.write("c.ttl", "<urn:s> <urn:value> 'new' .");
    std::fs::remove_file(gone).unwrap();
    // By the other machine: it knows what the first has loaded.
    let options = LoadOptions {
        prune: true,
        ..LoadOptions::new("c")
    };
    let report = two.load_with(&fleet, &options).await;
    let counts = (
        report.loaded,
        report.replaced,
        report.unchanged,
        report.removed,
    );
    assert_eq!(counts, (0, 2, 1, 1));
    let seen = all_see(&fleet, &[&one, &two], "c").await;
    let titles: Vec<&str> = seen
        .documents
        .iter()
        .map(|(d, _)| d.title.as_str())
        .collect();
    assert_eq!(titles, ["A again", "C", "D"]);
    assert_eq!(one.titles("c", "old").await, Vec::<String>::new());
    assert_eq!(fleet.values().await, ["new"]);
    // Of each document one version, and of that of `d.md` the same as before.
    let after = fleet.stored().await;
    assert_eq!(after.len(), 4, "{after:?}");
    assert_eq!(before.iter().filter(|key| after.contains(key)).count(), 1);
    assert_eq!(one.library.sweep().await.unwrap(), 0);
}

#[tokio::test]
async fn concurrent_loads_into_one_collection_converge() {
    let fleet = Fleet::new().await;
    let machines = [
        fleet.machine("one").await,
        fleet.machine("two").await,
        fleet.machine("three").await,
    ];
    // Each brings documents of its own, and one that all of them have in versions of their own.
    let load = |number: usize| {
        let machine = &machines[number];
        async move {
            for round in 0..10 {
                let own = format!("# {number}.{round}\n\nword {number} {round}");
                let common = format!("# Common\n\nword of {number} in {round}");
                let triples = format!("<urn:s> <urn:value> 'of {number} in {round}' .");
                let files: [(&str, &[u8]); 3] = [
                    (&format!("{number}/{round}.md"), own.as_bytes()),
                    ("common.md", common.as_bytes()),
                    ("common.ttl", triples.as_bytes()),
                ];
                let options = LoadOptions::new("c");
                let set = format!("set-{number}");
                let report = machine
                    .library
                    .load_memory(&set, &files, &options, &|_| {})
                    .await
                    .unwrap();
                assert_eq!(report.skipped, []);
                machine.look().await;
            }
        }
    };
    tokio::join!(load(0), load(1), load(2));
    let [one, two, three] = &machines;
    let seen = all_see(&fleet, &[one, two, three], "c").await;
    assert_eq!(seen.documents.len(), 32);
    assert_eq!(seen.found.len(), 31);
    // The statements are those of the version that counts.
    let values = fleet.values().await;
    assert_eq!(values.len(), 1);
    let common = seen.documents.iter().find(|(d, _)| d.path == "common.ttl");
    assert!(common.unwrap().1.contains(&values[0]), "{values:?}");
    assert_eq!(fleet.stored().await.len(), 33);
}

/// Starts a load and gives it up when its progress is far enough.
async fn interrupted(
    fleet: &Fleet,
    machine: &Machine,
    enough: impl Fn(&Progress) -> bool + Send + Sync,
) {
    let stop = tokio::sync::Notify::new();
    let options = LoadOptions::new("c");
    let watch = |progress: &Progress| {
        if enough(progress) {
            stop.notify_one();
        }
    };
    let paths = [fleet.files()];
    tokio::select! {
        biased;
        () = stop.notified() => {}
        _ = machine.library.load(&paths, &options, &watch) => panic!("it was not interrupted"),
    }
}

#[tokio::test]
async fn a_load_that_is_cut_off_leaves_whole_documents_and_can_be_repeated_anywhere() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    for n in 0..500 {
        fleet.write(
            &format!("{n:04}.md"),
            format!("# Title {n}\n\nword{n}\n\n## More\n\nend{n}"),
        );
    }
    interrupted(&fleet, &one, |progress| progress.files_done >= 450).await;
    let seen = all_see(&fleet, &[&one, &two], "c").await;
    assert!((200..500).contains(&seen.documents.len()));
    for (document, text) in &seen.documents {
        assert!(
            text.contains("word") && text.contains("end"),
            "{document:?}"
        );
    }
    let report = two.load(&fleet, "c").await;
    assert_eq!(report.unchanged, seen.documents.len());
    assert_eq!(report.loaded + report.unchanged, 500);
    let seen = all_see(&fleet, &[&one, &two], "c").await;
    assert_eq!(seen.documents.len(), 500);

    // What the first load had stored and not named may be that of a load under way, for a day.
    let left = fleet.stored().await.len() - 500;
    assert_eq!(two.library.sweep().await.unwrap(), 0);
    fleet.clock.advance(Duration::from_hours(25));
    assert_eq!(two.library.sweep().await.unwrap(), left);
    assert_eq!(fleet.stored().await.len(), 500);
    all_see(&fleet, &[&one, &two], "c").await;
}

#[tokio::test]
async fn statements_of_a_load_that_was_cut_off_are_taken_back() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    let mut text = String::new();
    for n in 0..30_000 {
        text.push_str(&format!("<urn:s> <urn:value> 'first {n}' .\n"));
    }
    fleet.write("a.nt.ttl", text);
    interrupted(&fleet, &one, |progress| progress.triples > 0).await;
    assert!(!fleet.values().await.is_empty());
    assert_eq!(all_see(&fleet, &[&one], "c").await.documents, []);
    fleet.write("a.nt.ttl", "<urn:s> <urn:value> 'second' .");
    assert_eq!(one.load(&fleet, "c").await.loaded, 1);
    fleet.clock.advance(Duration::from_hours(25));
    assert_eq!(one.library.sweep().await.unwrap(), 1);
    assert_eq!(fleet.values().await, ["second"]);
}

#[tokio::test]
async fn a_removed_document_is_deleted_everywhere() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    fleet.write("a.ttl", "<urn:s> <urn:value> 'gone' .");
    fleet.write("b.md", "# B\n\nword");
    one.load(&fleet, "c").await;
    all_see(&fleet, &[&one, &two], "c").await;
    let uri = "urn:agentfleet:document:c:a.ttl";
    // A machine that has indexed nothing can do it too.
    let other = fleet.machine("other").await;
    let read = fleet.store.read.load(Ordering::SeqCst);
    let forgotten = other.library.forget_document(uri).await.unwrap();
    assert_eq!(forgotten, Some("c".into()));
    assert_eq!(other.library.forget_document(uri).await.unwrap(), None);
    assert_eq!(other.library.count(&"c".into()).await.unwrap(), 1);
    assert_eq!(fleet.store.read.load(Ordering::SeqCst), read);
    assert_eq!(all_see(&fleet, &[&one, &two], "c").await.documents.len(), 1);
    assert_eq!(fleet.values().await, Vec::<String>::new());
    assert_eq!(fleet.stored().await.len(), 1);
    assert_eq!(one.load(&fleet, "c").await.loaded, 1);
    assert_eq!(all_see(&fleet, &[&one, &two], "c").await.documents.len(), 2);
}

#[tokio::test]
async fn a_cleared_collection_is_gone_from_the_store_and_from_every_machine() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    fleet.write("a.ttl", "<urn:s> <urn:value> 'gone' .");
    fleet.write("b.md", "# B\n\nword");
    one.load(&fleet, "c").await;
    one.load(&fleet, "other").await;
    all_see(&fleet, &[&one, &two], "c").await;
    assert_eq!(two.library.remove_collection(&"c".into()).await.unwrap(), 2);
    assert_eq!(two.library.remove_collection(&"c".into()).await.unwrap(), 0);
    assert_eq!(all_see(&fleet, &[&one, &two], "c").await.documents, []);
    assert_eq!(
        all_see(&fleet, &[&one, &two], "other")
            .await
            .documents
            .len(),
        2
    );
    assert_eq!(fleet.stored().await.len(), 3);
    assert_eq!(one.library.count(&"c".into()).await.unwrap(), 0);
    // A collection of the same name begins anew.
    assert_eq!(one.load(&fleet, "c").await.loaded, 2);
    assert_eq!(all_see(&fleet, &[&one, &two], "c").await.documents.len(), 2);
    two.library
        .remove_collection(&"other".into())
        .await
        .unwrap();
    two.library.remove_collection(&"c".into()).await.unwrap();
    assert_eq!(fleet.values().await, Vec::<String>::new());
    assert_eq!(fleet.stored().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_load_during_which_its_collection_is_cleared_brings_nothing_back() {
    let fleet = Fleet::new().await;
    let two = fleet.machine("two").await;
    fleet.write("a.ttl", "<urn:s> <urn:value> 'erased' .");
    for n in 0..20 {
        fleet.write(&format!("{n}.md"), format!("# {n}\n\nword"));
    }
    // Held where it names what it has stored, while the other clears the collection.
    let slow = Store::over(&fleet.store.inner);
    Store::close(&slow.entries);
    let one = fleet.machine_on("one", slow.clone()).await;
    let (options, files) = (LoadOptions::new("c"), [fleet.files()]);
    let load = one.library.load(&files, &options, &|_| {});
    let clear = async {
        drop(slow.asked.acquire().await.unwrap());
        two.library.remove_collection(&"c".into()).await.unwrap();
        slow.entries.add_permits(OPEN);
    };
    let (loaded, ()) = tokio::join!(load, clear);
    let error = loaded.unwrap_err();
    assert!(matches!(error, Error::Cleared(_)), "{error}");
    assert_eq!(all_see(&fleet, &[&one, &two], "c").await.documents, []);
    assert_eq!(fleet.values().await, Vec::<String>::new());
    assert_eq!(fleet.stored().await, Vec::<String>::new());
    assert_eq!(one.load(&fleet, "c").await.loaded, 21);
    assert_eq!(
        all_see(&fleet, &[&one, &two], "c").await.documents.len(),
        21
    );
}

#[tokio::test]
async fn a_machine_reads_each_version_once_and_goes_on_where_it_was() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    for n in 0..100 {
        fleet.write(&format!("{n}.md"), format!("# {n}\n\nword {n}"));
    }
    one.load(&fleet, "c").await;
    assert_eq!(
        fleet.store.read.load(Ordering::SeqCst),
        0,
        "a load reads none"
    );
    let seen = fleet.machine("two").await.sees("c").await;
    assert_eq!(seen.documents.len(), 100);
    assert_eq!(fleet.store.read.load(Ordering::SeqCst), 100);
    // Another process on the same data directory, now and later.
    let two = fleet.machine("two").await;
    assert_eq!(two.sees("c").await, seen);
    fleet.write("3.md", "# 3\n\nother word");
    one.load(&fleet, "c").await;
    fleet.store.read.store(0, Ordering::SeqCst);
    assert_eq!(two.titles("c", "other").await, ["3"]);
    assert_eq!(fleet.store.read.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn processes_that_share_a_data_directory_share_its_index() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    for n in 0..300 {
        fleet.write(&format!("{n}.md"), format!("# {n}\n\nword {n}"));
    }
    one.load(&fleet, "c").await;
    let (first, second) = (fleet.machine("two").await, fleet.machine("two").await);
    let (seen, same) = tokio::join!(first.sees("c"), second.sees("c"));
    assert_eq!(seen.documents.len(), 300);
    assert_eq!(seen, same);
    assert_eq!(fleet.store.read.load(Ordering::SeqCst), 300);
}

#[tokio::test]
async fn a_large_document_is_seen_whole_in_one_version() {
    let fleet = Fleet::new().await;
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    let rows = |mark: &str| {
        let rows = (0..40_000).map(|n| format!("{n},{mark} word of row {n} in a long table\n"));
        format!("number,text\n{}", rows.collect::<String>())
    };
    fleet.write("a.csv", rows("first"));
    one.load(&fleet, "c").await;
    assert!(fleet.stored().await.len() > 3);
    let name: CollectionName = "c".into();
    let uri = "urn:agentfleet:document:c:a.csv";
    for mark in ["first", "second"] {
        fleet.write("a.csv", rows(mark));
        one.load(&fleet, "c").await;
        for machine in [&one, &two] {
            machine.look().await;
            let fetched = machine.library.fetch(&name, uri, 0, usize::MAX).await;
            let text = fetched.unwrap().unwrap().text;
            assert_eq!(text.matches(mark).count(), 40_000);
            assert_eq!(
                machine.library.collections().await.unwrap()[0].passages,
                40_000
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_from_half_an_index() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    fleet.write("a.md", "# A\n\nword");
    one.load(&fleet, "c").await;
    fleet.write("b.md", "# B\n\nword");
    one.load(&fleet, "c").await;
    one.load(&fleet, "other").await;
    let slow = Store::over(&fleet.store.inner);
    let two = fleet.machine_on("two", slow.clone()).await;
    Store::close(&slow.reads);
    for _ in 0..2 {
        let error = two
            .library
            .search(&"c".into(), "word", 5)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Building { missing: 2 }), "{error}");
        assert!(error.retry().is_some());
    }
    let standing = two.library.standing().await.unwrap().unwrap();
    assert_eq!((standing.documents, standing.missing), (4, 4));
    // What collections there are is known without an index.
    let held = [("c".to_owned(), 2), ("other".to_owned(), 2)];
    assert_eq!(two.library.holdings().await.unwrap(), held);
    tokio::time::resume();
    slow.reads.add_permits(OPEN);
    assert_eq!(two.titles("c", "word").await.len(), 2);
}

#[tokio::test]
async fn a_worker_builds_its_index_before_anybody_asks() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    fleet.write("a.md", "# A\n\nword");
    one.load(&fleet, "c").await;
    let two = fleet.machine("two").await;
    two.library.keep_current();
    while two.library.standing().await.unwrap().unwrap().missing > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fleet.store.read.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_store_with_another_library_makes_the_index_begin_anew() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    fleet.write("a.md", "# A\n\nfirst word");
    one.load(&fleet, "c").await;
    fleet.write("b.md", "# B\n\nsecond word");
    one.load(&fleet, "c").await;
    assert_eq!(one.titles("c", "word").await.len(), 2);
    drop(one);
    let other = Fleet::store(fleet.folder.path(), "other store", fleet.clock.clone());
    // An empty one, and one whose log is another and longer.
    let moved = fleet.machine_on("one", other.clone()).await;
    assert_eq!(moved.titles("c", "word").await, Vec::<String>::new());
    let third = fleet.machine_on("third", other.clone()).await;
    for n in 0..5 {
        fleet.write("c.md", format!("# C\n\nthird word {n}"));
        third.load(&fleet, "c").await;
    }
    assert_eq!(moved.titles("c", "third").await, ["C"]);
    let back = fleet.machine("one").await;
    assert_eq!(back.titles("c", "third").await, Vec::<String>::new());
    assert_eq!(back.titles("c", "word").await.len(), 2);
}

#[tokio::test]
async fn a_document_that_the_store_lost_is_left_out_and_counted() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    fleet.write("a.md", "# A\n\nword");
    fleet.write("b.md", "# B\n\nword");
    one.load(&fleet, "c").await;
    let lost = fleet.stored().await.remove(0);
    let body = fleet.store.get(&lost).await.unwrap().unwrap();
    fleet
        .store
        .delete(std::slice::from_ref(&lost))
        .await
        .unwrap();
    let two = fleet.machine("two").await;
    assert_eq!(two.titles("c", "word").await.len(), 1);
    assert_eq!(two.library.standing().await.unwrap().unwrap().lost, 1);
    // It is back, say from a backup of the bucket.
    fleet.store.create(&lost, body.to_vec()).await.unwrap();
    let again = fleet.machine("two").await;
    assert_eq!(again.titles("c", "word").await.len(), 2);
    assert_eq!(again.library.standing().await.unwrap().unwrap().lost, 0);
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_readers_and_says_which() {
    let fleet = Fleet::new().await;
    let one = fleet.machine("one").await;
    fleet.write("a.md", "# A\n\nword");
    one.load(&fleet, "c").await;
    let entry = b"\0{\"id\":\"x\",\"changes\":[{\"merge\":{\"of\":\"newer\"}}]}".to_vec();
    fleet
        .store
        .create("library/log/000000000002", entry)
        .await
        .unwrap();
    let two = fleet.machine("two").await;
    let error = two
        .library
        .search(&"c".into(), "word", 5)
        .await
        .unwrap_err();
    let says = error.to_string();
    assert!(says.contains("library/log/000000000002"), "{says}");
    assert!(says.contains("newer program"), "{says}");
}

#[tokio::test]
async fn what_a_data_directory_holds_moves_to_the_shared_library() {
    let fleet = Fleet::new().await;
    fleet.write("a.md", "# A\n\nword");
    fleet.write("c.ttl", "<urn:s> <urn:value> 'old word' .");
    let database =
        Database::open_with(&fleet.folder.path().join("own"), fleet.clock.clone()).unwrap();
    let own = Library::open(database, fleet.graph.clone()).unwrap();
    for collection in ["c", "other"] {
        let options = LoadOptions::new(collection);
        own.load(&[fleet.files()], &options, &|_| {}).await.unwrap();
    }
    let (one, two) = (fleet.machine("one").await, fleet.machine("two").await);
    assert_eq!(one.library.take_over(&own, &|_| {}).await.unwrap(), 4);
    assert_eq!(one.library.take_over(&own, &|_| {}).await.unwrap(), 0);
    let seen = all_see(&fleet, &[&one, &two], "c").await;
    let name = "c".into();
    let documents: Vec<Document> = seen.documents.into_iter().map(|(d, _)| d).collect();
    assert_eq!(documents, own.documents(&name, 10).await.unwrap());
    assert_eq!(
        two.library.collections().await.unwrap(),
        own.collections().await.unwrap()
    );
    // Loaded on, as if they had been loaded there: statements of old versions are taken back.
    fleet.write("c.ttl", "<urn:s> <urn:value> 'new word' .");
    let report = two.load(&fleet, "c").await;
    assert_eq!((report.unchanged, report.replaced), (1, 1));
    assert_eq!(fleet.values().await, ["new word", "old word"]);
    // Each collection has a graph of its own.
    two.load(&fleet, "other").await;
    assert_eq!(fleet.values().await, ["new word", "new word"]);
}
