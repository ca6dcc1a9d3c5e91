//! Documents as objects of an S3-compatible store.
//!
//! - A create is a `PUT` with `If-None-Match: *`. [`S3Documents::connect`] tries that the store honours
//!   it, and refuses the store if it does not: every promise of the fleet rests on it.
//! - A create whose reply was lost is tried again and then finds its own object: it reports
//!   [`Created::Exists`] although it was the first. Whoever must know reads back what is there.
//! - Objects are written once and never changed, so a read needs no version.
//! - Keys are written with their unusual bytes as `%XX`, so that every key can be stored and listed,
//!   also by stores that keep objects as files.

use crate::error::Error;
use crate::{Created, Documents, Entry};
use async_trait::async_trait;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode,
    RetryConfig,
};
use std::sync::Arc;
use std::time::Duration;

/// Requests of one call that are under way at the same time.
const AT_ONCE: usize = 16;
/// How long an operation is tried in all, its repetitions included.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a create is tried that the store refuses although nothing is there.
const CONFLICTS: u32 = 8;

/// Where the objects lie.
#[derive(Clone, Default)]
pub struct S3Options {
    /// `s3://BUCKET` or `s3://BUCKET/PREFIX`.
    pub address: String,
    /// URL of the service, such as `http://127.0.0.1:7070`; none for Amazon's own.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Access key and secret; none takes them from the usual `AWS_...` variables, or from the
    /// machine's role.
    pub credentials: Option<(String, String)>,
}

impl std::fmt::Debug for S3Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Options")
            .field("address", &self.address)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// A documents store in a bucket. Clones share its connections.
#[derive(Clone, Debug)]
pub struct S3Documents {
    store: Arc<AmazonS3>,
    address: Arc<str>,
    bucket: Arc<str>,
    endpoint: Arc<str>,
    /// Before every key: empty, or a path that ends in `/`.
    prefix: Arc<str>,
}

impl S3Documents {
    /// Opens a bucket, and tries that creating an object twice is refused.
    pub async fn connect(options: &S3Options) -> Result<Self, Error> {
        let documents = Self::open(options)?;
        documents.check().await?;
        Ok(documents)
    }

    fn open(options: &S3Options) -> Result<Self, Error> {
        let wrong = || Error::Address(options.address.clone());
        let rest = options.address.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong());
        }
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(
                ClientOptions::new()
                    .with_connect_timeout(Duration::from_secs(3))
                    .with_timeout(Duration::from_secs(10))
                    .with_allow_http(true),
            )
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(2),
                    base: 2.0,
                },
                max_retries: 8,
                retry_timeout: PATIENCE,
            });
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &options.region {
            builder = builder.with_region(region);
        }
        if let Some((key, secret)) = &options.credentials {
            builder = builder
                .with_access_key_id(key)
                .with_secret_access_key(secret);
        }
        let store = builder
            .build()
            .map_err(|error| Error::Settings(error.to_string()))?;
        let mut prefix = encode(prefix.trim_matches('/'));
        if !prefix.is_empty() {
            prefix.push('/');
        }
        Ok(Self {
            store: Arc::new(store),
            address: options.address.as_str().into(),
            bucket: bucket.into(),
            endpoint: options.endpoint.as_deref().unwrap_or("Amazon S3").into(),
            prefix: prefix.into(),
        })
    }

    /// Creates an object twice: the second must be told so, and must not have changed it.
    async fn check(&self) -> Result<(), Error> {
        let key = format!("probes/{}", uuid::Uuid::new_v4());
        let path = self.path(&key)?;
        let (mine, other) = (b"first".as_slice(), b"second".as_slice());
        self.put(&path, mine.to_vec()).await?;
        let again = self.put(&path, other.to_vec()).await;
        let there = self.get(&key).await;
        drop(self.store.delete(&path).await);
        match (again?, there?) {
            (Created::Exists, Some(there)) if &*there == mine => Ok(()),
            _ => Err(Error::Unconditional {
                address: self.address.to_string(),
            }),
        }
    }

    fn path(&self, key: &str) -> Result<Path, Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        let text = format!("{}{}", self.prefix, encode(key));
        Path::parse(text).map_err(|error| Error::Settings(error.to_string()))
    }

    /// The folder that holds everything below a prefix of keys.
    fn folder(&self, prefix: &str) -> Option<Path> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = format!("{}{}", self.prefix, encode(folder));
        Path::parse(text.trim_end_matches('/'))
            .ok()
            .filter(|path| !path.as_ref().is_empty())
    }

    async fn put(&self, path: &Path, body: Vec<u8>) -> Result<Created, Error> {
        match self
            .store
            .put_opts(path, body.into(), PutMode::Create.into())
            .await
        {
            Ok(_) => Ok(Created::New),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(Created::Exists),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn remove(&self, key: &str) -> Result<(), Error> {
        match self.store.delete(&self.path(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn entry(&self, meta: &ObjectMeta) -> Option<Entry> {
        let key = meta.location.as_ref().strip_prefix(&*self.prefix)?;
        Some(Entry {
            key: decode(key)?,
            created_at: meta.last_modified.timestamp_millis(),
        })
    }

    fn failed(&self, error: &object_store::Error) -> Error {
        let address = self.address.to_string();
        let reason = chain(error);
        match error {
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Error::Denied {
                address,
                reason,
                check: "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy",
            },
            object_store::Error::NotFound { .. } if reason.contains("NoSuchBucket") => {
                Error::NoBucket {
                    bucket: self.bucket.to_string(),
                    endpoint: self.endpoint.to_string(),
                }
            }
            _ => Error::Unavailable { address, reason },
        }
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[async_trait]
impl Documents for S3Documents {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        let path = self.path(key)?;
        for again in 0..CONFLICTS {
            if self.put(&path, body.clone()).await? == Created::New {
                return Ok(Created::New);
            }
            // Stores also answer so where two creates met and neither is there.
            match self.store.head(&path).await {
                Ok(_) => return Ok(Created::Exists),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(&error)),
            }
            tokio::time::sleep(Duration::from_millis(5 << again)).await;
        }
        Err(Error::Unavailable {
            address: self.address.to_string(),
            reason: format!("it says that `{key}` exists, and that it does not"),
        })
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let found = match self.store.get(&self.path(key)?).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match found {
            Ok(body) => Ok(Some(Arc::from(&body[..]))),
            Err(error @ object_store::Error::NotFound { .. }) => match self.failed(&error) {
                gone @ Error::NoBucket { .. } => Err(gone),
                _ => Ok(None),
            },
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        let gets = keys.iter().map(|key| self.get(key)).collect::<Vec<_>>();
        stream::iter(gets).buffered(AT_ONCE).try_collect().await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys: Vec<String> = self
            .entries(prefix, "", usize::MAX)
            .await?
            .into_iter()
            .map(|entry| entry.key)
            .collect();
        keys.sort();
        Ok(keys)
    }

    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        let folder = self.folder(prefix);
        let mut found = if after.is_empty() {
            self.store.list(folder.as_ref())
        } else {
            self.store
                .list_with_offset(folder.as_ref(), &self.path(after)?)
        };
        let mut entries = Vec::new();
        while entries.len() < max {
            let Some(meta) = found.next().await else {
                break;
            };
            let entry = self.entry(&meta.map_err(|error| self.failed(&error))?);
            entries.extend(entry.filter(|entry| entry.key.starts_with(prefix)));
        }
        Ok(entries)
    }

    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        let deletes = keys.iter().map(|key| self.remove(key)).collect::<Vec<_>>();
        stream::iter(deletes)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }
}

/// A key as the store sees it: segments by `/`, of plain characters and `%XX`.
fn encode(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for (position, segment) in key.split('/').enumerate() {
        if position > 0 {
            text.push('/');
        }
        match segment {
            // Segments that are none in a path. A lone `%` stands for nothing.
            "" if !key.is_empty() => text.push('%'),
            "." | ".." => text.push_str(&segment.replace('.', "%2E")),
            _ => {
                for byte in segment.bytes() {
                    if byte.is_ascii_alphanumeric() || b"-_.~:=+@,".contains(&byte) {
                        text.push(byte.into());
                    } else {
                        text.push_str(&format!("%{byte:02X}"));
                    }
                }
            }
        }
    }
    text
}

/// The key behind a name; `None` if this store did not write it.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
        } else if !matches!(rest.first(), None | Some(b'/')) {
            let (code, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_has_a_name_of_its_own(key in "[a-z/.%: é\u{0}-]{0,12}") {
            let name = encode(&key);
            prop_assert_eq!(decode(&name), Some(key.clone()));
            if !key.is_empty() {
                let path = Path::parse(&name).unwrap();
                prop_assert_eq!(path.as_ref(), name);
            }
        }
    }

    #[test]
    fn an_address_names_a_bucket() {
        for wrong in ["", "bucket", "s3://", "s3:///prefix", "https://bucket"] {
            let options = S3Options {
                address: wrong.to_owned(),
                ..S3Options::default()
            };
            let error = S3Documents::open(&options).unwrap_err().to_string();
            assert!(error.contains("s3://BUCKET/PREFIX"), "{wrong}: {error}");
        }
    }
}
