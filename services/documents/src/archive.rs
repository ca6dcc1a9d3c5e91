//! Runs that are over and cold: each as one object of a bucket, its rows gone.
//!
//! - [`Archived`] wraps a documents store. What is asked of an archived run is answered from its object, so
//!   neither a reader nor a step of the protocol knows: a message that comes again finds its record and its
//!   marker, as it did before.
//! - A small row stays for each session, its mark. Rows go only when the mark is old ([`SETTLE`]), so
//!   whoever looks finds the rows or the mark: both are asked for in one read, or the mark after the rows.
//! - Nothing is committed to an archived run: creates that decide something ask for the mark first.
//! - An object is gzip over JSON: each key of the run with its text.

use crate::error::Error;
use crate::{Created, Documents, Entry};
use agentfleet_schema::{Millis, SessionId, keys, uris};
use async_trait::async_trait;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, RetryConfig};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How old a mark must be before rows go: longer than any statement that began before it.
pub const SETTLE: Millis = 600_000;
/// How long an operation is tried in all, its repetitions included.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rows read at once.
const SOME: usize = 200;
/// Objects that are kept in memory after they were read.
const KEPT: usize = 16;

/// What an archived run left, by key.
type Texts = BTreeMap<String, String>;

/// Where archived runs lie.
#[derive(Clone, Debug)]
pub struct Archive {
    bucket: Arc<dyn ObjectStore>,
    address: Arc<str>,
    /// Empty, or a path that ends in `/`.
    prefix: Arc<str>,
}

impl Archive {
    /// A bucket `s3://BUCKET` or `s3://BUCKET/PREFIX`; endpoint, region and credentials come from the usual
    /// `AWS_...` variables, or from the machine's role.
    pub fn open(address: &str) -> Result<Self, Error> {
        let rest = address.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let client = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(3))
            .with_timeout(PATIENCE)
            .with_allow_http(true);
        let retry = RetryConfig {
            retry_timeout: PATIENCE,
            ..RetryConfig::default()
        };
        let built = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(client)
            .with_retry(retry)
            .build();
        let store = built.map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Self::on(Arc::new(store), address, prefix))
    }

    /// The same on any store of objects.
    pub fn on(bucket: Arc<dyn ObjectStore>, address: &str, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/');
        let end = if prefix.is_empty() { "" } else { "/" };
        Self {
            bucket,
            address: address.into(),
            prefix: format!("{prefix}{end}").into(),
        }
    }

    /// Whether objects can be written, read and deleted.
    pub async fn look(&self) -> Result<(), Error> {
        let probe = self.path(&SessionId::new(uuid::Uuid::new_v4().to_string()));
        let failed = |error| self.failed(&error);
        self.bucket
            .put(&probe, "probe".into())
            .await
            .map_err(failed)?;
        let read = self.bucket.get(&probe).await.map(drop);
        self.bucket.delete(&probe).await.map_err(failed)?;
        read.map_err(failed)
    }

    fn path(&self, root: &SessionId) -> Path {
        // Whatever an id holds, it is one part of a path.
        let name = object_store::path::PathPart::from(format!("{root}.json.gz"));
        Path::from(&*self.prefix).join(name)
    }

    async fn put(&self, root: &SessionId, texts: &Texts) -> Result<(), Error> {
        let packed = pack(texts).map_err(|error| Error::Unstorable {
            address: self.address.to_string(),
            reason: error.to_string(),
        })?;
        let put = self.bucket.put(&self.path(root), packed.into()).await;
        put.map(drop).map_err(|error| self.failed(&error))
    }

    async fn get(&self, root: &SessionId) -> Result<Option<Texts>, Error> {
        let found = match self.bucket.get(&self.path(root)).await {
            Ok(found) => found.bytes().await,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => Err(error),
        };
        let packed = found.map_err(|error| self.failed(&error))?;
        let damaged = |_| Error::Damaged {
            key: format!("{}, {root}", self.address),
        };
        unpack(&packed).map(Some).map_err(damaged)
    }

    async fn delete(&self, root: &SessionId) -> Result<(), Error> {
        match self.bucket.delete(&self.path(root)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &object_store::Error) -> Error {
        Error::Unavailable {
            address: self.address.to_string(),
            reason: error.to_string(),
        }
    }
}

fn pack(texts: &Texts) -> std::io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&serde_json::to_vec(texts)?)?;
    packed.finish()
}

fn unpack(packed: &[u8]) -> std::io::Result<Texts> {
    let mut text = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// What stays of an archived session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    root: SessionId,
    /// When it was archived.
    at: Millis,
}

/// How far a run has gone into the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All of it is in rows.
    Rows,
    /// It is in its object since then, and may be in rows too.
    Object(Millis),
}

/// A documents store whose cold runs lie in an archive.
pub struct Archived {
    rows: Arc<dyn Documents>,
    archive: Archive,
    /// The objects read last.
    read: Mutex<VecDeque<(SessionId, Arc<Texts>)>>,
}

impl std::fmt::Debug for Archived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archived")
            .field("archive", &self.archive)
            .finish_non_exhaustive()
    }
}

impl Archived {
    pub fn new(rows: Arc<dyn Documents>, archive: Archive) -> Self {
        Self {
            rows,
            archive,
            read: Mutex::default(),
        }
    }

    /// How far these runs have gone, by their roots.
    pub async fn stages(&self, roots: &[SessionId]) -> Result<Vec<Stage>, Error> {
        let marks: Vec<String> = roots.iter().map(keys::archived).collect();
        let found = self.rows.get_many(&marks).await?.into_iter();
        let stage = |body: Option<Arc<[u8]>>| match body {
            None => Ok(Stage::Rows),
            Some(body) => mark(&body).map(|mark| Stage::Object(mark.at)),
        };
        found.map(stage).collect()
    }

    /// Copies a run that is over into its object, and marks its sessions, of which the root is the first. It may
    /// be cut off anywhere: until the root is marked it is done anew, and rows count before the object.
    pub async fn archive(&self, sessions: &[SessionId], at: Millis) -> Result<(), Error> {
        let Some(root) = sessions.first() else {
            return Ok(());
        };
        let mut texts = Texts::new();
        for session in sessions {
            texts.extend(self.texts(session).await?);
        }
        // Another `up` may have archived it and dropped what was to be read here, or somebody erased it.
        let over = [keys::archived(root), keys::tombstone(root)];
        if self.rows.get_many(&over).await?.iter().any(Option::is_some) {
            return Ok(());
        }
        self.archive.put(root, &texts).await?;
        if self.rows.get(&over[1]).await?.is_some() {
            return self.archive.delete(root).await;
        }
        let mark = Mark {
            root: root.clone(),
            at,
        };
        // Plain data: writing it as JSON cannot fail.
        let mark = serde_json::to_vec(&mark).unwrap_or_default();
        for session in sessions.iter().rev() {
            let key = keys::archived(session);
            self.rows.create(&key, mark.clone()).await?;
        }
        Ok(())
    }

    /// Deletes the rows of an archived run, if its object holds them all; the root's last. Says whether there
    /// were any.
    pub async fn drop_rows(&self, sessions: &[SessionId]) -> Result<bool, Error> {
        let Some(root) = sessions.first() else {
            return Ok(false);
        };
        let Some(texts) = self.archive.get(root).await? else {
            return Err(lost(root));
        };
        let mut any = false;
        for session in sessions.iter().rev() {
            let rows = self.texts(session).await?;
            any |= !rows.is_empty();
            if let Some((key, _)) = rows
                .iter()
                .find(|(key, text)| texts.get(*key) != Some(text))
            {
                return Err(Error::Archived { key: key.clone() });
            }
            for folder in folders(session) {
                self.rows.delete_prefix(&folder).await?;
            }
        }
        Ok(any)
    }

    /// All rows of a session.
    async fn texts(&self, session: &SessionId) -> Result<Texts, Error> {
        let mut texts = Texts::new();
        for folder in folders(session) {
            for some in self.rows.list(&folder).await?.chunks(SOME) {
                let bodies = self.rows.get_many(some).await?;
                for (key, body) in some.iter().zip(bodies) {
                    let text = body.map(|body| String::from_utf8(body.to_vec()));
                    let text = text
                        .transpose()
                        .map_err(|_| Error::Damaged { key: key.clone() })?;
                    texts.extend(text.map(|text| (key.clone(), text)));
                }
            }
        }
        Ok(texts)
    }

    /// What a mark stands for.
    async fn behind(&self, body: &[u8]) -> Result<Arc<Texts>, Error> {
        let Mark { root, .. } = mark(body)?;
        let lock = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock()
            .iter()
            .find(|(of, _)| *of == root)
            .map(|(_, texts)| Arc::clone(texts));
        if let Some(texts) = known {
            return Ok(texts);
        }
        let texts = match self.archive.get(&root).await? {
            Some(texts) => Arc::new(texts),
            // An erasure was cut off: its tombstone comes before anything is deleted.
            None if self.rows.get(&keys::tombstone(&root)).await?.is_some() => Arc::default(),
            None => return Err(lost(&root)),
        };
        let mut read = lock();
        read.push_front((root, Arc::clone(&texts)));
        read.truncate(KEPT);
        Ok(texts)
    }

    /// What the archive holds of the session that a key is of, if that decides something and was archived.
    async fn decided(&self, key: &str) -> Result<Option<Arc<Texts>>, Error> {
        const DECIDES: [&str; 4] = ["/outcome", "/fanin", "/accepted", "/intent"];
        let Some(session) =
            session_of(key).filter(|_| DECIDES.iter().any(|end| key.ends_with(end)))
        else {
            return Ok(None);
        };
        match self.rows.get(&keys::archived(&session)).await? {
            Some(mark) => self.behind(&mark).await.map(Some),
            None => Ok(None),
        }
    }
}

fn mark(body: &[u8]) -> Result<Mark, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Damaged {
        key: format!("{}: {error}", keys::ARCHIVED),
    })
}

fn lost(root: &SessionId) -> Error {
    Error::Lost {
        key: keys::archived(root),
    }
}

/// Everything that is archived of a session lies below these.
fn folders(session: &SessionId) -> [String; 2] {
    [
        keys::session(session),
        keys::document(&format!("{}/", uris::session(session))),
    ]
}

/// The session whose archive may hold a key, or all keys below a prefix.
fn session_of(key: &str) -> Option<SessionId> {
    let uri = key.strip_prefix(&keys::document(""));
    uri.and_then(uris::session_of)
        .or_else(|| keys::session_of(key))
}

#[async_trait]
impl Documents for Archived {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        match self.decided(key).await? {
            None => self.rows.create(key, body).await,
            Some(texts) if texts.contains_key(key) => Ok(Created::Exists),
            Some(_) => Err(Error::Archived {
                key: key.to_owned(),
            }),
        }
    }

    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, Error> {
        match self.decided(key).await? {
            None => self.rows.create_with(key, body, others).await,
            // Its texts are there too, or it is another's.
            Some(_) => self.create_or_get(key, body).await,
        }
    }

    /// In the one round of the rows: the session's mark is asked for with the rest, and bars it. All of a
    /// tree is marked or nothing of it can be begun.
    async fn begin(
        &self,
        (key, body): (&str, Vec<u8>),
        others: &[(String, Vec<u8>)],
        asked: &[String],
        unless: usize,
    ) -> Result<(Created, Vec<Option<Arc<[u8]>>>), Error> {
        let Some(session) = session_of(key) else {
            let begun = self.rows.begin((key, body), others, asked, unless);
            return begun.await;
        };
        let mark = std::iter::once(keys::archived(&session));
        let with_mark: Vec<String> = mark.chain(asked.iter().cloned()).collect();
        let begun = self.rows.begin((key, body), others, &with_mark, unless + 1);
        let (created, mut found) = begun.await?;
        if found.remove(0).is_some() {
            found = self.get_many(asked).await?;
        }
        Ok((created, found))
    }

    async fn ensure_all(&self, objects: &[(String, Vec<u8>)]) -> Result<(), Error> {
        self.rows.ensure_all(objects).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.rows.ready().await
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let found = self.get_many(&[key.to_owned()]).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Rows and marks in one read.
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        let of: Vec<_> = keys.iter().map(|key| session_of(key)).collect();
        let sessions: BTreeSet<SessionId> = of.iter().flatten().cloned().collect();
        let marks = sessions.iter().map(keys::archived);
        let wanted: Vec<String> = keys.iter().cloned().chain(marks).collect();
        let mut found = self.rows.get_many(&wanted).await?;
        let marks = found.split_off(keys.len());
        let is_missing = |session: &SessionId| {
            let mut bodies = of.iter().zip(&found);
            bodies.any(|(of, body)| body.is_none() && of.as_ref() == Some(session))
        };
        let marked = sessions.into_iter().zip(marks);
        let wanted: Vec<_> = marked
            .filter_map(|(session, mark)| mark.map(|mark| (session, mark)))
            .filter(|(session, _)| is_missing(session))
            .map(|(session, mark)| async move {
                let texts = self.behind(&mark).await?;
                Ok::<_, Error>((session, texts))
            })
            .collect();
        let read = stream::iter(wanted).buffer_unordered(crate::AT_ONCE);
        let archived: BTreeMap<_, _> = read.try_collect().await?;
        for ((key, session), body) in keys.iter().zip(&of).zip(&mut found) {
            let texts = session.as_ref().and_then(|session| archived.get(session));
            if let (None, Some(texts)) = (&body, texts) {
                *body = texts.get(key).map(|text| text.as_bytes().into());
            }
        }
        Ok(found)
    }

    /// The mark after the rows: where rows are gone, it is there.
    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut found = self.rows.list(prefix).await?;
        let marks = match session_of(prefix) {
            Some(session) => vec![keys::archived(&session)],
            // The beginning of a session's id.
            None => match prefix.strip_prefix(keys::SESSIONS) {
                Some(begin) if !begin.is_empty() => {
                    let marks = format!("{}{begin}", keys::ARCHIVED);
                    self.rows.list(&marks).await?
                }
                _ => Vec::new(),
            },
        };
        for mark in self.rows.get_many(&marks).await?.into_iter().flatten() {
            let texts = self.behind(&mark).await?;
            let below = texts.keys().filter(|key| key.starts_with(prefix));
            found.extend(below.cloned());
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Of rows alone.
    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        self.rows.entries(prefix, after, max).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        self.rows.delete(keys).await
    }

    /// With everything of a session its mark goes, and before it the object of a root, also one whose archiving
    /// was cut off.
    async fn delete_prefix(&self, prefix: &str) -> Result<usize, Error> {
        let deleted = self.rows.delete_prefix(prefix).await?;
        let Some(session) = keys::session_of(prefix).filter(|of| keys::session(of) == prefix)
        else {
            return Ok(deleted);
        };
        self.archive.delete(&session).await?;
        let mark = [keys::archived(&session)];
        let marked = self.rows.get(&mark[0]).await?.is_some();
        self.rows.delete(&mark).await?;
        Ok(deleted + usize::from(marked))
    }
}
