//! Backups taken while the database is in use, and putting them back.

use agentfleet_storage::{Database, Durability, Error, Progress};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

async fn filled() -> (TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("data")).unwrap();
    database
        .migrate(
            "test",
            &["CREATE TABLE rows(id INTEGER PRIMARY KEY, body TEXT)"],
        )
        .unwrap();
    add(&database, 20_000).await;
    (directory, database)
}

async fn add(database: &Database, count: usize) {
    let added = database.write(Durability::Durable, move |unit| {
        let mut insert = unit
            .tx()
            .prepare_cached("INSERT INTO rows(body) VALUES (?1)")?;
        for _ in 0..count {
            insert.execute(["x".repeat(500)])?;
        }
        Ok(())
    });
    added.await.unwrap();
}

async fn count(database: &Database) -> i64 {
    let count = database.read(|connection| {
        Ok(connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0))?)
    });
    count.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_the_database_of_one_instant_although_writing_goes_on() {
    let (directory, database) = filled().await;
    let copy = directory.path().join("copy.db");
    let runtime = tokio::runtime::Handle::current();
    let (source, dest) = (database.clone(), copy.clone());
    let reports = tokio::task::spawn_blocking(move || {
        let mut reports: Vec<Progress> = Vec::new();
        let backup = source.backup(&dest, |progress| {
            reports.push(progress);
            // Between any two steps of the copy others commit.
            runtime.block_on(add(&source, 1));
        });
        backup.unwrap();
        reports
    });
    let reports = reports.await.unwrap();
    assert!(reports.len() > 2, "{reports:?}");
    assert!(
        reports
            .windows(2)
            .all(|pair| pair[0].copied < pair[1].copied),
        "{reports:?}"
    );
    let last = reports.last().unwrap();
    assert_eq!(last.copied, last.total);
    assert_eq!(fs::metadata(&copy).unwrap().len(), last.total);
    assert_eq!(count(&database).await, 20_000 + reports.len() as i64);

    let restored = directory.path().join("restored");
    Database::restore(&copy, &restored, |_| {}).unwrap();
    let restored = Database::open(&restored).unwrap();
    assert_eq!(count(&restored).await, 20_000);
    assert_eq!(restored.problems().unwrap(), [""; 0]);
    add(&restored, 1).await;
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let (directory, database) = filled().await;
    let copy = directory.path().join("copy.db");
    database.backup(&copy, |_| {}).unwrap();
    let error = database.backup(&copy, |_| {}).unwrap_err();
    assert!(
        matches!(&error, Error::Exists(path) if *path == copy),
        "{error}"
    );
    let names = || -> Vec<_> {
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["copy.db", "data"]);

    // In use, then merely not empty.
    let data = directory.path().join("data");
    let error = Database::restore(&copy, &data, |_| {}).unwrap_err();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    drop(database);
    let error = Database::restore(&copy, &data, |_| {}).unwrap_err();
    assert!(matches!(error, Error::NotEmpty(_)), "{error}");
    assert!(
        error.to_string().contains("choose a new data directory"),
        "{error}"
    );
}

#[tokio::test]
async fn only_a_sound_copy_of_ours_is_restored() {
    let (directory, database) = filled().await;
    let good = directory.path().join("good.db");
    database.backup(&good, |_| {}).unwrap();
    let bytes = fs::read(&good).unwrap();
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8192].fill(0x5a);
    type Check = fn(&Error) -> bool;
    let table: [(&str, Vec<u8>, Check); 4] = [
        ("damaged", damaged, |error| {
            matches!(error, Error::Corrupt(_))
        }),
        ("cut short", bytes[..middle].to_vec(), |error| {
            matches!(error, Error::Corrupt(_))
        }),
        ("text", vec![b'a'; 8192], |error| {
            matches!(error, Error::Foreign(_))
        }),
        ("empty", Vec::new(), |error| {
            matches!(error, Error::Foreign(_))
        }),
    ];
    for (name, bytes, expected) in table {
        let source = directory.path().join(name);
        fs::write(&source, bytes).unwrap();
        let target = directory.path().join("target");
        let error = Database::restore(&source, &target, |_| {}).unwrap_err();
        assert!(expected(&error), "{name}: {error}");
        assert!(!target.join("agentfleet.db").exists(), "{name}");
    }
    let absent = Database::restore(
        &directory.path().join("none"),
        &directory.path().join("t"),
        |_| {},
    );
    assert!(absent.is_err());
}

#[tokio::test]
async fn the_size_is_that_of_the_file() {
    let (directory, database) = filled().await;
    let size = database.size().await.unwrap();
    let copy = directory.path().join("copy.db");
    database.backup(&copy, |_| {}).unwrap();
    assert_eq!(size, fs::metadata(copy).unwrap().len());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_a_killed_copy_left_blocks_nothing_and_is_no_fleet() {
    let (directory, database) = filled().await;
    let copy = directory.path().join("copy.db");
    for ending in [".partial", ".partial-journal", ".partial-wal"] {
        fs::write(format!("{}{ending}", copy.display()), "cut off").unwrap();
    }
    database.backup(&copy, |_| {}).unwrap();
    assert_eq!(mode(&copy), 0o600);

    let restored = directory.path().join("deep/restored");
    Database::restore(&copy, &restored, |_| {}).unwrap();
    assert_eq!(mode(&restored), 0o700);
    let file = restored.join("agentfleet.db");
    assert_eq!(mode(&file), 0o600);
    fs::rename(&file, restored.join("agentfleet.db.partial")).unwrap();
    let error = Database::open(&restored).unwrap_err();
    assert!(matches!(error, Error::HalfRestored(_)), "{error}");
    Database::restore(&copy, &restored, |_| {}).unwrap();
    let restored = Database::open(&restored).unwrap();
    assert_eq!(count(&restored).await, 20_000);
}

#[tokio::test]
async fn a_copy_that_another_process_writes_is_left_alone() {
    let (directory, database) = filled().await;
    let copy = directory.path().join("copy.db");
    let partial = fs::File::create(directory.path().join("copy.db.partial")).unwrap();
    partial.lock().unwrap();
    let error = database.backup(&copy, |_| {}).unwrap_err();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    drop(partial);
    database.backup(&copy, |_| {}).unwrap();
}

/// Whether a file of the directory holds the text.
fn is_found(directory: &Path, text: &str) -> bool {
    let holds = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|some| some == text.as_bytes())
    };
    let mut files = fs::read_dir(directory).unwrap();
    files.any(|entry| holds(&entry.unwrap().path()))
}

#[tokio::test]
async fn what_is_deleted_is_in_no_file_any_more() {
    let (directory, database) = filled().await;
    let data = directory.path().join("data");
    // In a page with others, and on pages of its own.
    let texts = ["unmistakable-small ", "unmistakable-large "];
    let bodies = [texts[0].to_owned(), texts[1].repeat(10_000)];
    let write = |sql: &'static str, bodies: Vec<String>| {
        let database = database.clone();
        async move {
            let written = database.write(Durability::Durable, move |unit| {
                for body in bodies {
                    unit.tx().execute(sql, [body])?;
                }
                Ok(())
            });
            written.await.unwrap();
        }
    };
    write("INSERT INTO rows(body) VALUES (?1)", bodies.to_vec()).await;
    add(&database, 10).await;
    assert!(texts.iter().all(|text| is_found(&data, text)));
    write("DELETE FROM rows WHERE body = ?1", bodies.to_vec()).await;
    assert!(database.scrub().unwrap());
    for text in texts {
        assert!(!is_found(&data, text), "{text}");
    }
    assert_eq!(count(&database).await, 20_010);
}

#[tokio::test]
async fn a_data_directory_is_for_its_owner_or_is_told_to_be_open() {
    let (directory, database) = filled().await;
    let data = directory.path().join("data");
    let file = data.join("agentfleet.db");
    assert_eq!((mode(&data), mode(&file)), (0o700, 0o600));
    let open = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    assert_eq!(database.open_to_others(), None);
    open(&data, 0o755).unwrap();
    assert_eq!(database.open_to_others(), None, "the file is closed");
    open(&data, 0o777).unwrap();
    assert_eq!(
        database.open_to_others(),
        Some(0o777),
        "others may put files there"
    );
    open(&data, 0o755).unwrap();
    open(&file, 0o644).unwrap();
    assert_eq!(database.open_to_others(), Some(0o755));
}
