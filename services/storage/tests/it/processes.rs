//! Several instances on one data directory: waking each other, and knowing who lives.

use agentfleet_storage::{Database, Durability};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;

#[tokio::test]
async fn a_commit_wakes_the_others_whoever_came_first() {
    let directory = tempfile::tempdir().unwrap();
    let first = Database::open(directory.path()).unwrap();
    let second = Database::open(directory.path()).unwrap();
    let third = Database::open(directory.path()).unwrap();
    let all = [&first, &second, &third];
    for (index, committing) in all.iter().enumerate() {
        let waiting: Vec<_> = all.iter().map(|database| database.changes()).collect();
        committing
            .write(Durability::Process, |_| Ok(()))
            .await
            .unwrap();
        let woken = || waiting.iter().all(|changes| changes.has_changed().unwrap());
        while !woken() {
            // The first to come hears of the others a moment later: until then it cannot wake them.
            if index == 0 {
                committing
                    .write(Durability::Process, |_| Ok(()))
                    .await
                    .unwrap();
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn writers_of_two_instances_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let one = Database::open(directory.path()).unwrap();
    let two = Database::open(directory.path()).unwrap();
    one.migrate(
        "test",
        &["CREATE TABLE counter(value); INSERT INTO counter VALUES (0)"],
    )
    .unwrap();
    let add = |database: Database| async move {
        for _ in 0..200 {
            let added = database.write(Durability::Process, |unit| {
                let value: i64 = unit
                    .tx()
                    .query_row("SELECT value FROM counter", [], |row| row.get(0))?;
                unit.tx()
                    .execute("UPDATE counter SET value = ?1", [value + 1])?;
                Ok(())
            });
            added.await.unwrap();
        }
    };
    tokio::join!(
        add(one.clone()),
        add(two.clone()),
        add(one.clone()),
        add(two.clone())
    );
    for database in [one, two] {
        let value =
            database.read(|connection| {
                Ok(connection
                    .query_row("SELECT value FROM counter", [], |row| row.get::<_, i64>(0))?)
            });
        assert_eq!(value.await.unwrap(), 800);
    }
}

#[test]
fn an_instance_lives_until_it_is_closed_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let one = Database::open(directory.path()).unwrap();
    let two = Database::open(directory.path()).unwrap();
    let (first, second) = (one.instances().own(), two.instances().own());
    assert_ne!(first, second);
    for database in [&one, &two] {
        assert!(database.instances().alive(first) && database.instances().alive(second));
        assert!(!database.instances().alive(second + 1));
    }
    drop(one);
    assert!(!two.instances().alive(first));
    let left: Vec<_> = fs::read_dir(directory.path().join("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(&first.to_string()))
        .collect();
    assert_eq!(left, [""; 0]);
    drop(two);
    // Ids are never used twice, so nothing of the dead is taken for something of the living.
    assert!(Database::open(directory.path()).unwrap().instances().own() > second);
}

#[test]
fn what_the_dead_left_behind_is_swept() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    drop(Database::open(directory.path()).unwrap());
    let socket = run.join("90.sock");
    fs::write(&socket, "").unwrap();
    fs::write(run.join("90.lock"), socket.to_str().unwrap()).unwrap();
    let database = Database::open(directory.path()).unwrap();
    assert!(!database.instances().alive(90));
    assert!(!socket.exists() && !run.join("90.lock").exists());
}

#[test]
fn who_comes_is_told_to_look_again_for_what_it_was_not_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let _database = Database::open(directory.path()).unwrap();
    let run = directory.path().join("run");
    // Another instance, played by hand: it may have missed commits before it was known.
    let socket = run.join("90.sock");
    let ear = UnixDatagram::bind(&socket).unwrap();
    let lock = fs::File::create(run.join("90.lock")).unwrap();
    lock.lock().unwrap();
    (&lock)
        .write_all(socket.as_os_str().as_encoded_bytes())
        .unwrap();
    ear.send_to(b"h", run.join("1.sock")).unwrap();
    let mut told = [0; 1];
    assert_eq!(ear.recv(&mut told).unwrap(), 1);
    assert_eq!(&told, b"c");
}
