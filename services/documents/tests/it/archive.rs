//! Runs in an archive: they read as they did, whatever is cut off on their way there, and nothing is
//! committed to them any more.

use agentfleet_documents::{
    Archive, Archived, Created, Documents, EmbeddedDocuments, Entry, Error, Stage,
};
use agentfleet_schema::{SessionId, keys, uris};
use agentfleet_servers::{S3_CREDENTIALS, Server};
use agentfleet_storage::Database;
use async_trait::async_trait;
use futures::StreamExt as _;
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

struct Place {
    _directory: TempDir,
    rows: Arc<dyn Documents>,
    bucket: Arc<InMemory>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        Self {
            rows: Arc::new(EmbeddedDocuments::open(&database).unwrap()),
            bucket: Arc::new(InMemory::new()),
            _directory: directory,
        }
    }

    fn over(&self, rows: Arc<dyn Documents>) -> Archived {
        let archive = Archive::on(Arc::clone(&self.bucket) as _, "s3://bucket/cold", "cold");
        Archived::new(rows, archive)
    }

    fn archived(&self) -> Archived {
        self.over(Arc::clone(&self.rows))
    }

    /// A run of two sessions, and another run.
    async fn with_runs() -> (Self, [SessionId; 2]) {
        let place = Self::new();
        let sessions = ["root-1", "child-1", "root-2"].map(SessionId::new);
        for session in &sessions {
            let text = keys::document(&uris::thought(session, 1));
            for key in [
                keys::accepted(session),
                keys::outcome(session, 0),
                keys::published(session, 0),
                text,
            ] {
                let body = format!("body of {key}").into_bytes();
                place.rows.create(&key, body).await.unwrap();
            }
        }
        let [root, child, _] = sessions;
        (place, [root, child])
    }

    async fn objects(&self) -> usize {
        self.bucket.list(None).count().await
    }
}

/// All that readers and the protocol ask about a run and its neighbour.
async fn read(documents: &dyn Documents) -> Vec<(String, Vec<u8>)> {
    let mut keys = Vec::new();
    for session in ["root-1", "child-1", "root-2"].map(SessionId::new) {
        let texts = keys::document(&format!("{}/", uris::session(&session)));
        for prefix in [
            keys::step(&session, 0),
            texts,
            format!("sessions/{session}"),
        ] {
            keys.extend(documents.list(&prefix).await.unwrap());
        }
        keys.extend([keys::outcome(&session, 1), keys::tombstone(&session)]);
    }
    keys.extend(documents.list("sessions/root").await.unwrap());
    let bodies = documents.get_many(&keys).await.unwrap().into_iter();
    let bodies = bodies.map(|body| body.map_or(b"absent".to_vec(), |body| body.to_vec()));
    keys.into_iter().zip(bodies).collect()
}

/// Goes on as the sweep does.
async fn go_on(archived: &Archived, sessions: &[SessionId]) -> Result<(), Error> {
    if archived.stages(&sessions[..1]).await? == [Stage::Rows] {
        archived.archive(sessions, 7).await?;
    }
    archived.drop_rows(sessions).await.map(drop)
}

mod contract {
    use super::{Arc, Documents, Place};

    #[expect(
        clippy::unused_async,
        reason = "the suite awaits the making of a store"
    )]
    async fn documents() -> (Arc<dyn Documents>, Place) {
        let place = Place::new();
        (Arc::new(place.archived()), place)
    }

    documents_contract!(documents());
}

#[tokio::test]
async fn an_archived_run_reads_as_it_did_and_its_rows_are_gone() {
    let (place, sessions) = Place::with_runs().await;
    let archived = place.archived();
    let before = read(&archived).await;
    assert!(before.iter().filter(|(_, body)| body != b"absent").count() > 20);
    archived.archive(&sessions, 7).await.unwrap();
    assert_eq!(
        archived.stages(&sessions).await.unwrap(),
        [Stage::Object(7); 2]
    );
    assert_eq!(read(&archived).await, before, "rows and object");
    assert!(archived.drop_rows(&sessions).await.unwrap());
    assert_eq!(read(&archived).await, before, "object alone");
    assert_eq!(read(&place.archived()).await, before, "by another process");
    for session in &sessions {
        let prefix = keys::session(session);
        assert_eq!(place.rows.list(&prefix).await.unwrap(), [""; 0]);
    }
    assert!(
        !archived.drop_rows(&sessions).await.unwrap(),
        "none are left"
    );
}

/// Rows whose process dies at a write.
struct Dying {
    rows: Arc<dyn Documents>,
    writes: AtomicUsize,
}

impl Dying {
    fn write(&self) -> Result<(), Error> {
        let left = |left: usize| left.checked_sub(1);
        let went = self
            .writes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        went.map(drop).map_err(|_| Error::Unavailable {
            address: "rows".to_owned(),
            reason: "the process died".to_owned(),
        })
    }
}

#[async_trait]
impl Documents for Dying {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        self.write()?;
        self.rows.create(key, body).await
    }
    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        self.rows.get(key).await
    }
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        self.rows.get_many(keys).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.rows.list(prefix).await
    }
    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        self.rows.entries(prefix, after, max).await
    }
    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        for key in keys {
            self.write()?;
            self.rows.delete(std::slice::from_ref(key)).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn wherever_it_is_cut_off_the_run_reads_as_it_did_and_the_next_sweep_goes_on() {
    let mut crashes = 0;
    for writes in 0.. {
        let (place, sessions) = Place::with_runs().await;
        let before = read(&*place.rows).await;
        let (rows, writes) = (Arc::clone(&place.rows), AtomicUsize::new(writes));
        let dying = place.over(Arc::new(Dying { rows, writes }));
        let over = go_on(&dying, &sessions).await.is_ok();
        assert_eq!(
            read(&place.archived()).await,
            before,
            "after {crashes} writes"
        );
        go_on(&place.archived(), &sessions).await.unwrap();
        assert_eq!(
            read(&place.archived()).await,
            before,
            "gone on after {crashes} writes"
        );
        assert_eq!(place.rows.list("sessions/root-1").await.unwrap(), [""; 0]);
        assert_eq!(place.objects().await, 1);
        if over {
            break;
        }
        crashes += 1;
    }
    assert_eq!(crashes, 2 + 8, "at each mark, and at each row");
}

#[tokio::test]
async fn nothing_is_committed_to_an_archived_run_any_more() {
    let (place, sessions) = Place::with_runs().await;
    let archived = place.archived();
    go_on(&archived, &sessions).await.unwrap();
    for session in &sessions {
        for known in [keys::outcome(session, 0), keys::accepted(session)] {
            let body = b"another's".to_vec();
            let created = archived.create(&known, body.clone()).await.unwrap();
            assert_eq!(created, Created::Exists);
            let there = archived.create_with(&known, body, &[]).await.unwrap();
            assert_eq!(
                there.as_deref(),
                Some(format!("body of {known}").as_bytes())
            );
        }
        for new in [
            keys::outcome(session, 1),
            keys::fan_in(session, 0),
            keys::intent(session, 0, 0),
        ] {
            for refused in [
                archived.create(&new, Vec::new()).await.map(drop),
                archived.create_with(&new, Vec::new(), &[]).await.map(drop),
            ] {
                let error = refused.unwrap_err();
                assert!(matches!(error, Error::Archived { .. }), "{error}");
                assert_eq!(error.retry(), None);
            }
        }
    }
    let other = keys::outcome(&SessionId::new("root-2"), 1);
    let created = archived.create(&other, Vec::new()).await.unwrap();
    assert_eq!(created, Created::New);
}

#[tokio::test]
async fn rows_that_the_object_does_not_hold_stay() {
    let (place, sessions) = Place::with_runs().await;
    let archived = place.archived();
    archived.archive(&sessions, 7).await.unwrap();
    let late = keys::attempt(&sessions[1], 0, 2);
    place.rows.create(&late, Vec::new()).await.unwrap();
    let error = archived.drop_rows(&sessions).await.unwrap_err();
    assert!(
        matches!(&error, Error::Archived { key } if *key == late),
        "{error}"
    );
    assert!(
        place
            .rows
            .get(&keys::outcome(&sessions[1], 0))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn an_erased_run_is_gone_from_the_bucket_and_a_lost_object_is_no_erasure() {
    let (place, sessions) = Place::with_runs().await;
    let archived = place.archived();
    go_on(&archived, &sessions).await.unwrap();
    assert_eq!(place.objects().await, 1);
    // As a purge goes: the root last.
    let [root, child] = &sessions;
    assert_eq!(
        archived.delete_prefix(&keys::session(child)).await.unwrap(),
        1
    );
    assert!(
        archived
            .get(&keys::outcome(root, 0))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        archived.delete_prefix(&keys::session(root)).await.unwrap(),
        1
    );
    assert_eq!(place.objects().await, 0);
    assert_eq!(place.rows.list(keys::ARCHIVED).await.unwrap(), [""; 0]);
    assert!(
        archived
            .get(&keys::outcome(root, 0))
            .await
            .unwrap()
            .is_none()
    );

    let (place, sessions) = Place::with_runs().await;
    go_on(&place.archived(), &sessions).await.unwrap();
    let empty = Archive::on(Arc::new(InMemory::new()), "s3://empty", "");
    let lost = Archived::new(Arc::clone(&place.rows), empty);
    let error = lost.get(&keys::outcome(&sessions[0], 0)).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    // An erasure that was cut off between object and mark says so by its tombstone.
    let tombstone = keys::tombstone(&sessions[0]);
    place.rows.create(&tombstone, Vec::new()).await.unwrap();
    let gone = lost.get(&keys::outcome(&sessions[0], 0)).await.unwrap();
    assert!(gone.is_none());
}

#[tokio::test]
async fn a_real_bucket_keeps_a_run_and_says_what_is_wrong() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let server = Server::s3();
    let archive = |secret: &str| {
        let bucket = AmazonS3Builder::new()
            .with_bucket_name("fleet")
            .with_region("us-east-1")
            .with_endpoint(server.address())
            .with_allow_http(true)
            .with_access_key_id(S3_CREDENTIALS.0)
            .with_secret_access_key(secret);
        Archive::on(
            Arc::new(bucket.build().unwrap()),
            "s3://fleet/cold",
            "/cold/",
        )
    };
    archive(S3_CREDENTIALS.1).look().await.unwrap();
    let error = archive("wrong").look().await.unwrap_err();
    assert!(error.to_string().contains("s3://fleet/cold"), "{error}");
    let (place, sessions) = Place::with_runs().await;
    let before = read(&*place.rows).await;
    let archived = Archived::new(Arc::clone(&place.rows), archive(S3_CREDENTIALS.1));
    go_on(&archived, &sessions).await.unwrap();
    assert_eq!(read(&archived).await, before);
    for session in sessions.iter().rev() {
        archived
            .delete_prefix(&keys::session(session))
            .await
            .unwrap();
    }
    assert!(
        archived
            .get(&keys::outcome(&sessions[0], 0))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn no_step_of_an_archived_run_is_begun() {
    let (place, sessions) = Place::with_runs().await;
    let archived = place.archived();
    archived.archive(&sessions, 7).await.unwrap();
    archived.drop_rows(&sessions).await.unwrap();
    let other = SessionId::new("root-2");
    for (session, step, expected) in [
        (&sessions[0], 0, Created::Exists),
        (&sessions[1], 1, Created::Exists),
        (&other, 1, Created::New),
    ] {
        let asked = [keys::outcome(session, step), keys::published(session, step)];
        let note = keys::attempt(session, step, 1);
        let begun = archived.begin((&note, b"mine".to_vec()), &[], &asked, 2);
        let (created, found) = begun.await.unwrap();
        assert_eq!(created, expected, "{note}");
        assert_eq!(found, archived.get_many(&asked).await.unwrap(), "{note}");
        let is_noted = place.rows.get(&note).await.unwrap().is_some();
        assert_eq!(is_noted, expected == Created::New, "{note}");
    }
}
