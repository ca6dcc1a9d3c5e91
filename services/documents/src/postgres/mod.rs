//! Documents as rows of a PostgreSQL table.
//!
//! - A create is one `INSERT .. ON CONFLICT DO NOTHING`: of any number at once one stores its row, and
//!   the others wait for it and store nothing. Every row names its writer, a number that each create
//!   draws. So a create that lost its connection is tried again, and knows its own row.
//! - Every operation is one statement that commits by itself, with its types given and without a name:
//!   one round trip, and nothing is left in a session that a pooler may give to others.
//! - Plain SQL, at any isolation: no procedures, no locks by hand, no notifications.
//! - What the server confirms must be on its disk: one that is set up otherwise is refused.

mod address;
mod fault;
mod pool;
mod tables;
mod tls;

use crate::error::Error;
use crate::range::after_all_below;
use crate::{Created, Documents, Entry};
use address::Address;
use agentfleet_schema::Millis;
use agentfleet_storage::{self as storage, Packed};
use async_trait::async_trait;
use pool::{Answer, Ask, PATIENCE, Param, Pool};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

/// Keys that one statement lists or deletes, so that others get their turn.
const SOME: usize = 1_000;
/// How long a server is tried that is only looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How long a server is waited for by who asks whether it answers.
const READY: Duration = Duration::from_secs(2);

/// A documents store in a database. Clones share its connections.
#[derive(Clone)]
pub struct PostgresDocuments {
    pool: Arc<Pool>,
    sql: Arc<Sql>,
}

impl std::fmt::Debug for PostgresDocuments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresDocuments")
            .field("address", &self.pool.address.shown)
            .finish_non_exhaustive()
    }
}

/// How a server stands that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it is, without credentials.
    pub address: String,
    /// Its clock.
    pub now: Millis,
    /// Standby servers that follow it, where none has what was confirmed.
    pub standbys_behind: u64,
}

/// Texts of the statements, which name the schema.
struct Sql {
    create: String,
    begin: String,
    ensure_all: String,
    is_mine: String,
    get: String,
    list: String,
    delete: String,
    delete_below: String,
}

impl Sql {
    fn new(schema: &str) -> Self {
        let objects = format!("\"{schema}\".objects");
        // Without an end the range is open; the planner knows that when it sees the values.
        let below = "key >= $1 AND ($2::text IS NULL OR key < $2)";
        Self {
            create: format!(
                "INSERT INTO {objects}(key, writer, body) VALUES ($1, $2, $3)
                 ON CONFLICT DO NOTHING RETURNING true"
            ),
            // The others depend on the first, so that they are stored together or not at all.
            // A row without a body says that the first was stored; of others it shows what was there before.
            begin: format!(
                "WITH won AS (
                   INSERT INTO {objects}(key, writer, body) SELECT $1, $2, $3
                   WHERE NOT EXISTS (SELECT 1 FROM {objects} WHERE key = ANY($6))
                   ON CONFLICT DO NOTHING RETURNING key),
                 others AS (
                   INSERT INTO {objects}(key, writer, body)
                   SELECT k, $2, b FROM unnest($4::text[], $5::bytea[]) AS o(k, b), won
                   ON CONFLICT DO NOTHING)
                 SELECT key, NULL::bytea FROM won
                 UNION ALL SELECT key, body FROM {objects} WHERE key = ANY($7)"
            ),
            ensure_all: format!(
                "INSERT INTO {objects}(key, writer, body)
                 SELECT k, $1, b FROM unnest($2::text[], $3::bytea[]) AS o(k, b)
                 ON CONFLICT DO NOTHING"
            ),
            is_mine: format!("SELECT true FROM {objects} WHERE key = $1 AND writer = $2"),
            get: format!("SELECT key, body FROM {objects} WHERE key = ANY($1)"),
            list: format!(
                "SELECT key, (extract(epoch FROM created_at) * 1000)::bigint FROM {objects}
                 WHERE {below} AND key > $3 ORDER BY key LIMIT $4"
            ),
            delete: format!("DELETE FROM {objects} WHERE key = ANY($1)"),
            delete_below: format!(
                "DELETE FROM {objects} WHERE key IN
                   (SELECT key FROM {objects} WHERE {below} ORDER BY key LIMIT $3) RETURNING true"
            ),
        }
    }
}

impl PostgresDocuments {
    /// Opens a database: refuses a server that may lose what it confirms, and makes the table if there
    /// is none.
    ///
    /// `address` is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`; the password may come from
    /// `PGPASSWORD` instead.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        let documents = Self::open(address, PATIENCE)?;
        documents.standing().await?;
        tables::prepare(&documents.pool).await?;
        Ok(documents)
    }

    /// How a server stands, unless it is one that may not be used; soon, and without making anything.
    pub async fn look(address: &str) -> Result<Standing, Error> {
        Self::open(address, LOOK)?.standing().await
    }

    /// Whether an address is a database's.
    pub fn is_address(text: &str) -> bool {
        Address::is_one(text)
    }

    fn open(address: &str, patience: Duration) -> Result<Self, Error> {
        let password = std::env::var("PGPASSWORD").ok();
        let address = Address::parse(address, password)?;
        Ok(Self {
            sql: Arc::new(Sql::new(&address.schema)),
            pool: Arc::new(Pool::new(address, patience)),
        })
    }

    /// How the server stands, unless it is one that may not be used.
    async fn standing(&self) -> Result<Standing, Error> {
        let address = &self.pool.address.shown;
        let schema = format!("\"{}\"", self.pool.address.schema);
        let params: &[Param<'_>] = &[(&schema, Type::TEXT)];
        let rows = self.ask(STANDING, params).await?;
        let row = rows.first().ok_or_else(|| self.unreadable("no row"))?;
        if self.column(row, 0)? {
            return Err(Error::ReadOnly {
                address: address.clone(),
            });
        }
        for (at, name) in SETTINGS.iter().enumerate() {
            // Absent where a server speaks the protocol and is another.
            let set: Option<String> = self.column(row, at + 1)?;
            if set.as_deref() == Some("off") {
                return Err(Error::Unsafe {
                    address: address.clone(),
                    setting: name,
                });
            }
        }
        let may: Option<bool> = self.column(row, 7)?;
        if may == Some(false) {
            return Err(Error::Denied {
                address: address.clone(),
                reason: format!("the user may not read, write and delete in schema {schema}"),
                check: "its rights (GRANT)",
            });
        }
        let level: Option<String> = self.column(row, 3)?;
        let names: Option<String> = self.column(row, 4)?;
        let standbys: i64 = self.column(row, 5)?;
        let waits = level.is_none_or(|level| level != "local")
            && names.is_some_and(|names| !names.trim().is_empty());
        if waits && standbys == 0 {
            return Err(Error::Unavailable {
                address: address.clone(),
                reason: "each commit waits for a standby of `synchronous_standby_names`, and none is connected"
                    .to_owned(),
            });
        }
        Ok(Standing {
            address: address.clone(),
            now: self.column(row, 6)?,
            standbys_behind: if waits { 0 } else { standbys as u64 },
        })
    }

    async fn ask(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        Ok(self.pool.run(Ask::Statement(sql, params)).await?.rows)
    }

    async fn page(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        let end = after_all_below(prefix);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let params: &[Param<'_>] = &[
            (&prefix, Type::TEXT),
            (&end, Type::TEXT),
            (&after, Type::TEXT),
            (&max, Type::INT8),
        ];
        let rows = self.ask(&self.sql.list, params).await?;
        rows.iter()
            .map(|row| {
                Ok(Entry {
                    key: self.column(row, 0)?,
                    created_at: self.column(row, 1)?,
                })
            })
            .collect()
    }

    /// Whether a create stored its row: the try that was answered, or one before it.
    async fn is_new(
        &self,
        has_stored: bool,
        is_repeated: bool,
        key: Param<'_>,
        writer: Param<'_>,
    ) -> Result<bool, Error> {
        if has_stored || !is_repeated {
            return Ok(has_stored);
        }
        // An earlier try may have stored the row, and lost the connection before it knew.
        let mine = self.ask(&self.sql.is_mine, &[key, writer]).await?;
        Ok(!mine.is_empty())
    }

    /// The bodies of the keys that were asked for, in their order, of rows that come in any.
    fn bodies(&self, rows: &[Row], keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        let mut found = HashMap::with_capacity(rows.len());
        for row in rows {
            let key: &str = self.column(row, 0)?;
            let Some(packed) = self.column(row, 1)? else {
                continue;
            };
            let body = storage::unpack(packed).map_err(|_| Error::Damaged {
                key: key.to_owned(),
            })?;
            found.insert(key, body);
        }
        let asked = keys.iter().map(|key| found.get(key.as_str()).cloned());
        Ok(asked.collect())
    }

    fn column<'a, T: FromSql<'a>>(&self, row: &'a Row, at: usize) -> Result<T, Error> {
        row.try_get(at)
            .map_err(|error| self.unreadable(&fault::chain(&error)))
    }

    fn unreadable(&self, reason: &str) -> Error {
        Error::Unavailable {
            address: self.pool.address.shown.clone(),
            reason: format!("its answer is not what was asked for: {reason}"),
        }
    }
}

/// Settings that lose what was confirmed when they are off, in the order of [`STANDING`].
const SETTINGS: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];
const STANDING: &str = "SELECT pg_is_in_recovery() OR coalesce(current_setting('transaction_read_only', true), 'off') = 'on',
    current_setting('fsync', true),
    current_setting('full_page_writes', true), current_setting('synchronous_commit', true),
    current_setting('synchronous_standby_names', true),
    (SELECT count(*) FROM pg_stat_replication),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    coalesce((SELECT bool_and(has_table_privilege(to_regclass($1 || '.objects')::oid, it))
        FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS of(it)),
      has_schema_privilege(to_regnamespace($1)::oid, 'CREATE'),
      has_database_privilege(current_database(), 'CREATE'))";

#[async_trait]
impl Documents for PostgresDocuments {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        let body = Packed::of(&body);
        let (body, writer) = (body.as_bytes(), uuid::Uuid::new_v4());
        let (key, writer): (Param<'_>, Param<'_>) = ((&key, Type::TEXT), (&writer, Type::UUID));
        let params = [key.clone(), writer.clone(), (&body, Type::BYTEA)];
        let created = self
            .pool
            .run(Ask::Statement(&self.sql.create, &params))
            .await?;
        let has_stored = !created.rows.is_empty();
        let is_new = self.is_new(has_stored, created.is_repeated, key, writer);
        Ok(Created::of(is_new.await?))
    }

    async fn ready(&self) -> Result<(), Error> {
        let keys: &[&str] = &["health"];
        let params: &[Param<'_>] = &[(&keys, Type::TEXT_ARRAY)];
        let ask = Ask::Statement(&self.sql.get, params);
        self.pool.try_once(ask, READY).await
    }

    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let (created, _) = self.begin((key, body.clone()), others, &[], 0).await?;
        if created == Created::New {
            return Ok(None);
        }
        match self.get(key).await? {
            Some(there) if *there == *body => self.ensure_all(others).await.map(|()| None),
            Some(there) => Ok(Some(there)),
            // It was there, and has been deleted.
            None => Err(Error::Contradictory {
                key: key.to_owned(),
            }),
        }
    }

    async fn begin(
        &self,
        (key, body): (&str, Vec<u8>),
        others: &[(String, Vec<u8>)],
        asked: &[String],
        unless: usize,
    ) -> Result<(Created, Vec<Option<Arc<[u8]>>>), Error> {
        if key.is_empty() || others.iter().any(|(key, _)| key.is_empty()) {
            return Err(Error::EmptyKey);
        }
        let packed = Packed::of(&body);
        let sorted = Others::of(others);
        let (keys, bodies) = sorted.columns();
        let (mine, writer) = (packed.as_bytes(), uuid::Uuid::new_v4());
        let bars = &asked[..unless.min(asked.len())];
        let (of_key, of_writer): (Param<'_>, Param<'_>) =
            ((&key, Type::TEXT), (&writer, Type::UUID));
        let params = [
            of_key.clone(),
            of_writer.clone(),
            (&mine, Type::BYTEA),
            (&keys, Type::TEXT_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
            (&bars, Type::TEXT_ARRAY),
            (&asked, Type::TEXT_ARRAY),
        ];
        let Answer { rows, is_repeated } = self
            .pool
            .run(Ask::Statement(&self.sql.begin, &params))
            .await?;
        let mut has_stored = false;
        for row in &rows {
            has_stored |= self.column::<Option<&[u8]>>(row, 1)?.is_none();
        }
        let is_new = self.is_new(has_stored, is_repeated, of_key, of_writer);
        Ok((Created::of(is_new.await?), self.bodies(&rows, asked)?))
    }

    async fn ensure_all(&self, objects: &[(String, Vec<u8>)]) -> Result<(), Error> {
        if objects.iter().any(|(key, _)| key.is_empty()) {
            return Err(Error::EmptyKey);
        }
        if objects.is_empty() {
            return Ok(());
        }
        let others = Others::of(objects);
        let (keys, bodies) = others.columns();
        let writer = uuid::Uuid::new_v4();
        let params: &[Param<'_>] = &[
            (&writer, Type::UUID),
            (&keys, Type::TEXT_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
        ];
        self.ask(&self.sql.ensure_all, params).await.map(drop)
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let found = self.get_many(&[key.to_owned()]).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .ask(&self.sql.get, &[(&keys, Type::TEXT_ARRAY)])
            .await?;
        self.bodies(&rows, keys)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys.last().map_or("", String::as_str);
            let page = self.page(prefix, after, SOME).await?;
            let is_last = page.len() < SOME;
            keys.extend(page.into_iter().map(|entry| entry.key));
            if is_last {
                return Ok(keys);
            }
        }
    }

    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        self.page(prefix, after, max).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        if !keys.is_empty() {
            self.ask(&self.sql.delete, &[(&keys, Type::TEXT_ARRAY)])
                .await?;
        }
        Ok(())
    }

    async fn delete_prefix(&self, prefix: &str) -> Result<usize, Error> {
        if prefix.is_empty() {
            return Err(Error::EmptyKey);
        }
        let (end, some) = (after_all_below(prefix), SOME as i64);
        let params: &[Param<'_>] = &[
            (&prefix, Type::TEXT),
            (&end, Type::TEXT),
            (&some, Type::INT8),
        ];
        let mut deleted = 0;
        loop {
            let some = self.ask(&self.sql.delete_below, params).await?.len();
            deleted += some;
            if some < SOME {
                return Ok(deleted);
            }
        }
    }
}

/// Objects as two columns, in the order of their keys: whoever else stores the same waits for the same
/// first, so that no two wait for each other.
struct Others<'a>(Vec<(&'a str, Packed)>);

impl<'a> Others<'a> {
    fn of(objects: &'a [(String, Vec<u8>)]) -> Self {
        let packed = objects
            .iter()
            .map(|(key, body)| (key.as_str(), Packed::of(body)));
        let mut all: Vec<_> = packed.collect();
        all.sort_by_key(|(key, _)| *key);
        Self(all)
    }

    fn columns(&self) -> (Vec<&str>, Vec<&[u8]>) {
        self.0
            .iter()
            .map(|(key, body)| (*key, body.as_bytes()))
            .unzip()
    }
}
