//! Operations that share a transaction: together in one commit, apart in failure.

use agentfleet_schema::Millis;
use agentfleet_storage::{CommitHook, Database, Durability, Error, ManualClock, Nudge, Unit};
use rusqlite::Connection;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;

const TABLES: &[&str] = &["CREATE TABLE names(name TEXT PRIMARY KEY)"];

fn database() -> (TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    database.migrate("test", TABLES).unwrap();
    (directory, database)
}

fn insert(unit: &Unit<'_>, name: &str) -> Result<(), Error> {
    unit.tx()
        .prepare_cached("INSERT INTO names VALUES (?1)")?
        .execute([name])?;
    Ok(())
}

async fn names(database: &Database) -> Vec<String> {
    let names = database.read(|connection| {
        let mut statement = connection.prepare("SELECT name FROM names ORDER BY name")?;
        let names = statement.query_map([], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    });
    names.await.unwrap()
}

/// Holds up the writer, so that what is queued until `release` shares one transaction.
struct Gate {
    release: mpsc::Sender<()>,
    held: JoinHandle<Result<(), Error>>,
}

impl Gate {
    async fn close(database: &Database) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (entered, inside) = tokio::sync::oneshot::channel();
        let database = database.clone();
        let held = tokio::spawn(async move {
            let wait = database.write(Durability::Process, move |_| {
                entered.send(()).unwrap();
                released.recv().unwrap();
                Ok(())
            });
            wait.await
        });
        inside.await.unwrap();
        Self { release, held }
    }

    async fn open(self) {
        self.release.send(()).unwrap();
        self.held.await.unwrap().unwrap();
    }
}

/// Queues an operation, and returns once it is queued.
async fn queue<T: Send + 'static>(
    database: &Database,
    durability: Durability,
    action: impl FnOnce(&mut Unit<'_>) -> Result<T, Error> + Send + 'static,
) -> JoinHandle<Result<T, Error>> {
    let (queued, wait) = tokio::sync::oneshot::channel();
    let database = database.clone();
    let task = tokio::spawn(async move {
        let write = database.write(durability, action);
        tokio::pin!(write);
        // The first poll puts it into the queue.
        let first =
            std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context)));
        let first = first.await;
        queued.send(()).unwrap();
        match first {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => write.await,
        }
    });
    wait.await.unwrap();
    task
}

#[tokio::test]
async fn a_failing_operation_takes_back_its_own_changes_and_no_others() {
    let (_directory, database) = database();
    let gate = Gate::close(&database).await;
    let transactions = Arc::new(Mutex::new(Vec::new()));
    let note = |unit: &Unit<'_>, transactions: &Mutex<Vec<u64>>| {
        transactions.lock().unwrap().push(unit.transaction());
    };
    let (a, b, c) = (
        transactions.clone(),
        transactions.clone(),
        transactions.clone(),
    );
    let good = queue(&database, Durability::Durable, move |unit| {
        note(unit, &a);
        insert(unit, "good")
    })
    .await;
    let conflict = queue(&database, Durability::Durable, move |unit| {
        note(unit, &b);
        insert(unit, "half")?;
        insert(unit, "good")
    })
    .await;
    let panics = queue(
        &database,
        Durability::Durable,
        |unit| -> Result<(), Error> {
            insert(unit, "lost")?;
            panic!("a defect")
        },
    )
    .await;
    let last = queue(&database, Durability::Durable, move |unit| {
        note(unit, &c);
        insert(unit, "last")
    })
    .await;
    gate.open().await;

    good.await.unwrap().unwrap();
    let error = conflict.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Sqlite(_)), "{error}");
    assert!(matches!(panics.await.unwrap(), Err(Error::Panicked)));
    last.await.unwrap().unwrap();
    assert_eq!(names(&database).await, ["good", "last"]);
    let transactions = transactions.lock().unwrap();
    assert!(
        transactions.iter().all(|number| *number == transactions[0]),
        "{transactions:?}"
    );
}

#[tokio::test]
async fn an_operation_that_fails_alone_takes_back_its_changes() {
    let (_directory, database) = database();
    let failed = database.write(Durability::Durable, |unit| {
        insert(unit, "half")?;
        Err::<(), _>(Error::aborted(std::io::Error::other("no")))
    });
    let error = failed.await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert!(error.reason::<std::io::Error>().is_some());
    assert!(error.retry().is_none());
    assert!(names(&database).await.is_empty());
}

#[tokio::test]
async fn a_group_waits_for_the_disk_if_one_of_its_operations_asks_for_it() {
    let (_directory, database) = database();
    let level = |unit: &mut Unit<'_>| -> Result<i64, Error> {
        Ok(unit
            .tx()
            .query_row("PRAGMA synchronous", [], |row| row.get(0))?)
    };
    use Durability::{Durable, Process};
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    for (group, expected) in [
        (vec![Process, Process], NORMAL),
        (vec![Process, Durable, Process], FULL),
        (vec![Process], NORMAL),
        (vec![Durable], FULL),
    ] {
        let gate = Gate::close(&database).await;
        let mut tasks = Vec::new();
        for durability in &group {
            tasks.push(queue(&database, *durability, level).await);
        }
        gate.open().await;
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap(), expected, "{group:?}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_group_says_so_and_does_not_last() {
    let (_directory, database) = database();
    let set = |limit: i64| {
        database.write(Durability::Process, move |unit| {
            Ok(unit
                .tx()
                .query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))?)
        })
    };
    set(1).await.unwrap();
    let gate = Gate::close(&database).await;
    let small = queue(&database, Durability::Durable, |unit| insert(unit, "small")).await;
    let large = queue(&database, Durability::Durable, |unit| {
        insert(unit, &"x".repeat(1 << 20))
    })
    .await;
    gate.open().await;
    // The small one may have fitted, but whoever is told of success must not be wrong.
    let small = small.await.unwrap();
    let error = large.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::DiskFull(_)), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(error.retry().is_some());
    assert_eq!(names(&database).await.len(), usize::from(small.is_ok()));

    set(1 << 30).await.unwrap();
    database
        .write(Durability::Durable, |unit| insert(unit, "later"))
        .await
        .unwrap();
    assert!(names(&database).await.contains(&"later".to_owned()));
}

#[tokio::test]
async fn what_follows_a_commit_happens_only_if_there_was_one() {
    let (_directory, database) = database();
    let ran = Arc::new(AtomicUsize::new(0));
    for (fails, expected) in [(false, 1), (true, 1), (false, 2)] {
        let count = Arc::clone(&ran);
        let result = database.write(Durability::Process, move |unit| {
            unit.after_commit(move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            if fails { Err(Error::Closed) } else { Ok(()) }
        });
        assert_eq!(result.await.is_err(), fails);
        assert_eq!(ran.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn an_operation_stands_although_its_caller_went_away() {
    let (_directory, database) = database();
    let gate = Gate::close(&database).await;
    queue(&database, Durability::Durable, |unit| insert(unit, "kept"))
        .await
        .abort();
    gate.open().await;
    database
        .write(Durability::Process, |_| Ok(()))
        .await
        .unwrap();
    assert_eq!(names(&database).await, ["kept"]);
}

#[tokio::test]
async fn closing_finishes_what_is_queued() {
    let (directory, database) = database();
    let Gate { release, held } = Gate::close(&database).await;
    // More than one transaction takes.
    for number in 0..600 {
        let insert = move |unit: &mut Unit<'_>| insert(unit, &number.to_string());
        let task = queue(&database, Durability::Durable, insert).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    drop(database);
    let database = Database::open(directory.path()).unwrap();
    assert_eq!(names(&database).await.len(), 600);
}

#[tokio::test]
async fn an_operation_may_drop_the_last_handle() {
    let (directory, database) = database();
    let (done, wait) = mpsc::channel();
    let gate = Gate::close(&database).await;
    let owned = database.clone();
    let task = queue(&database, Durability::Durable, move |unit| {
        insert(unit, "kept")?;
        drop(owned);
        done.send(()).unwrap();
        Ok(())
    })
    .await;
    drop(database);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let Gate { release, held } = gate;
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    wait.recv().unwrap();
    // Opening waits for nothing: the old instance may still be finishing its commit.
    let database = Database::open(directory.path()).unwrap();
    database
        .write(Durability::Process, |_| Ok(()))
        .await
        .unwrap();
    assert_eq!(names(&database).await, ["kept"]);
}

#[tokio::test]
async fn a_read_sees_one_snapshot_and_survives_a_panic() {
    let (_directory, database) = database();
    for _ in 0..4 {
        let panics = database.read(|_| -> Result<(), Error> { panic!("a defect") });
        assert!(matches!(panics.await, Err(Error::Panicked)));
    }
    let writer = database.clone();
    let runtime = tokio::runtime::Handle::current();
    let counts = tokio::task::spawn_blocking(move || {
        let (again, go) = mpsc::channel();
        let (started, begun) = mpsc::channel();
        let reader = writer.clone();
        let count = |connection: &Connection| -> Result<i64, Error> {
            Ok(connection.query_row("SELECT count(*) FROM names", [], |row| row.get(0))?)
        };
        let read = runtime.spawn(async move {
            let both = reader.read(move |connection| {
                let before = count(connection)?;
                started.send(()).unwrap();
                go.recv().unwrap();
                Ok((before, count(connection)?))
            });
            both.await.unwrap()
        });
        begun.recv().unwrap();
        runtime
            .block_on(writer.write(Durability::Durable, |unit| insert(unit, "new")))
            .unwrap();
        again.send(()).unwrap();
        runtime.block_on(read).unwrap()
    });
    assert_eq!(counts.await.unwrap(), (0, 0));
    assert_eq!(names(&database).await, ["new"]);
}

/// Reads one after the other, each beginning before the one before has ended, until told to stop.
fn endless_reads(database: &Database) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (database, stopped) = (database.clone(), Arc::clone(&stop));
    let reads = tokio::spawn(async move {
        let read = |ends: mpsc::Receiver<()>| {
            let (begun, begins) = tokio::sync::oneshot::channel();
            let database = database.clone();
            let task = tokio::spawn(async move {
                let read = database.read(move |connection| {
                    connection.query_row("SELECT count(*) FROM names", [], |_| Ok(()))?;
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    Ok(())
                });
                read.await.unwrap();
            });
            (task, begins)
        };
        let (mut end, ends) = mpsc::channel();
        let (mut task, begins) = read(ends);
        begins.await.unwrap();
        while !stopped.load(Ordering::SeqCst) {
            let (next_end, ends) = mpsc::channel();
            let (next, begins) = read(ends);
            begins.await.unwrap();
            end.send(()).unwrap();
            task.await.unwrap();
            (end, task) = (next_end, next);
        }
        end.send(()).unwrap();
        task.await.unwrap();
    });
    (stop, reads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_starts_over_although_there_is_always_a_reader() {
    let (directory, database) = database();
    let log = || {
        fs::metadata(directory.path().join("agentfleet.db-wal"))
            .unwrap()
            .len()
    };
    const LIMIT: u64 = 32 << 20;
    let (stop, reads) = endless_reads(&database);
    let mut written = 0;
    while written < 24 || log() > LIMIT {
        let size = if written < 24 { 2 << 20 } else { 1 };
        let name = format!("{written} {}", "x".repeat(size));
        database
            .write(Durability::Process, move |unit| insert(unit, &name))
            .await
            .unwrap();
        written += 1;
    }
    stop.store(true, Ordering::SeqCst);
    reads.await.unwrap();
    assert_eq!(names(&database).await.len(), written);
}

/// Inserts a name in every transaction, or fails, as told.
struct Recorder {
    fails: Arc<Mutex<bool>>,
    outcomes: Arc<Mutex<Vec<bool>>>,
    wake: Option<Millis>,
}

impl CommitHook for Recorder {
    fn nudged(&mut self, _nudge: Nudge) {}

    fn due(&mut self, _connection: &Connection, now: Millis) -> Result<bool, Error> {
        Ok(self.wake.is_some_and(|wake| wake <= now))
    }

    fn before_commit(&mut self, unit: &mut Unit<'_>) -> Result<(), Error> {
        self.wake = self.wake.filter(|wake| *wake > unit.now());
        unit.touched(1);
        insert(unit, &format!("hook {}", unit.transaction()))?;
        if *self.fails.lock().unwrap() {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    fn after_commit(&mut self, outcome: Result<(), &Error>) {
        self.outcomes.lock().unwrap().push(outcome.is_ok());
    }

    fn next_wake(&self) -> Option<Millis> {
        self.wake
    }
}

#[tokio::test]
async fn a_hook_shares_the_transaction_and_fails_alone() {
    let (_directory, database) = database();
    let (fails, outcomes) = (
        Arc::new(Mutex::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    database.hook(Box::new(Recorder {
        fails: Arc::clone(&fails),
        outcomes: Arc::clone(&outcomes),
        wake: None,
    }));
    for (round, failing) in [false, true, false].into_iter().enumerate() {
        *fails.lock().unwrap() = failing;
        let name = format!("own {round}");
        database
            .write(Durability::Process, move |unit| insert(unit, &name))
            .await
            .unwrap();
    }
    assert_eq!(*outcomes.lock().unwrap(), [true, false, true]);
    let names = names(&database).await;
    let (hooked, own): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.starts_with("hook"));
    assert_eq!((hooked.len(), own.len()), (2, 3), "{names:?}");
}

#[tokio::test]
async fn a_hook_is_woken_when_its_instant_comes() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(0));
    let database = Database::open_with(directory.path(), Arc::clone(&clock) as _).unwrap();
    database.migrate("test", TABLES).unwrap();
    let outcomes = Arc::default();
    let hook = Recorder {
        fails: Arc::default(),
        outcomes: Arc::clone(&outcomes),
        wake: Some(5_000),
    };
    database.hook(Box::new(hook));
    clock.advance(Duration::from_secs(4));
    database
        .write(Durability::Process, |_| Ok(()))
        .await
        .unwrap();
    assert_eq!(outcomes.lock().unwrap().len(), 1, "only with the operation");

    let mut changes = database.changes();
    clock.advance(Duration::from_secs(1));
    changes.changed().await.unwrap();
    assert_eq!(outcomes.lock().unwrap().len(), 2, "by itself");
}
