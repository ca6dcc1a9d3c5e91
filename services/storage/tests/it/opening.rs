//! Opening a data directory: new, shared, foreign, damaged, newer.

use agentfleet_storage::{Database, Durability, Error};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;

fn refusal(directory: &Path) -> Error {
    Database::open(directory).unwrap_err()
}

#[test]
fn a_new_directory_is_created_for_its_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    let database = Database::open(&directory).unwrap();
    assert_eq!(database.data_dir(), directory);
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn many_may_open_a_new_directory_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new");
    let together = Barrier::new(8);
    let open = || {
        together.wait();
        let database = Database::open(&directory).unwrap();
        database
            .migrate("test", &["CREATE TABLE one(id)", "CREATE TABLE two(id)"])
            .unwrap();
        together.wait();
        database.instances().own()
    };
    let mut ids: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_alone() {
    let table: [(&str, &dyn Fn(&Path)); 3] = [
        ("text", &|file| {
            fs::write(file, "not a database at all, but long enough".repeat(200)).unwrap();
        }),
        ("tables of another program", &|file| {
            let other = rusqlite::Connection::open(file).unwrap();
            other.execute_batch("CREATE TABLE theirs(id)").unwrap();
        }),
        ("the mark of another program", &|file| {
            let other = rusqlite::Connection::open(file).unwrap();
            other.execute_batch("PRAGMA application_id = 7").unwrap();
        }),
    ];
    for (name, write) in table {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agentfleet.db");
        write(&file);
        let before = fs::read(&file).unwrap();
        let error = refusal(directory.path());
        assert!(matches!(error, Error::Foreign(_)), "{name}: {error}");
        assert!(
            error.to_string().contains(file.to_str().unwrap()),
            "{error}"
        );
        assert!(error.retry().is_none());
        assert!(fs::read(&file).unwrap() == before, "{name}");
    }
}

#[test]
fn data_of_another_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(Database::open(directory.path()).unwrap());
    let file = directory.path().join("agentfleet.db");
    let ours = rusqlite::Connection::open(&file).unwrap();
    ours.execute_batch("PRAGMA user_version = 0").unwrap();
    drop(ours);
    let error = refusal(directory.path());
    assert!(matches!(error, Error::OtherFormat { found: 0, .. }));
    assert!(
        error.to_string().contains("another data directory"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_file_is_named_and_its_problems_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    database
        .migrate(
            "test",
            &["CREATE TABLE bulk(id INTEGER PRIMARY KEY, body TEXT UNIQUE)"],
        )
        .unwrap();
    let filled = database.write(Durability::Durable, |unit| {
        for number in 0..2000 {
            unit.tx().execute(
                "INSERT INTO bulk(body) VALUES (?1)",
                [format!("{number:0>200}")],
            )?;
        }
        Ok(())
    });
    filled.await.unwrap();
    assert_eq!(database.problems().unwrap(), [""; 0]);
    drop(database);

    let file = directory.path().join("agentfleet.db");
    // Whoever closes last may leave everything in the log; the damage is to be in the file.
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3 * 4096].fill(0xa5);
    fs::write(&file, bytes).unwrap();
    // The first pages are well, so it opens; what lies in the damaged ones cannot be read.
    let database = Database::open(directory.path()).unwrap();
    assert!(!matches!(database.problems(), Ok(problems) if problems.is_empty()));
    let read = database.read(|connection| {
        Ok(connection.query_row(
            "SELECT sum(length(body)) FROM bulk NOT INDEXED",
            [],
            |row| row.get::<_, i64>(0),
        )?)
    });
    let error = read.await.unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
}

#[test]
fn tables_grow_by_steps_and_newer_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let steps = [
        "CREATE TABLE one(id)",
        "ALTER TABLE one ADD COLUMN name",
        "CREATE TABLE two(id)",
    ];
    database.migrate("test", &steps[..1]).unwrap();
    database.migrate("test", &steps[..1]).unwrap();
    database.migrate("test", &steps).unwrap();
    database
        .migrate("other", &["CREATE TABLE three(id)"])
        .unwrap();
    let error = database.migrate("test", &steps[..2]).unwrap_err();
    let Error::Newer {
        part,
        found: 3,
        known: 2,
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(part, "test");
    assert!(error.to_string().contains("newer program"), "{error}");
}

#[test]
fn a_step_that_fails_leaves_the_tables_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let failing = ["CREATE TABLE one(id)", "CREATE TABLE one(id)"];
    assert!(database.migrate("test", &failing).is_err());
    database.migrate("test", &["CREATE TABLE one(id)"]).unwrap();
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_works_all_the_same() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("d".repeat(120));
    let one = Database::open(&directory).unwrap();
    let two = Database::open(&directory).unwrap();
    let mut changes = two.changes();
    one.write(Durability::Process, |_| Ok(())).await.unwrap();
    changes.changed().await.unwrap();
}
