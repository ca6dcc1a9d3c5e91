//! What an embedded graph holds, to be given to another graph. It is read from the log: whoever asks
//! needs no graph in memory.

use super::{body, log};
use crate::error::Error;
use crate::{Batch, terms};
use agentfleet_schema::hex;
use agentfleet_storage::Database;

/// Bodies read at once, in bytes.
const SOME: usize = 256 * 1024;

/// The next batches after a place in the log, with their owners, and the place of the last of them.
/// None means that there are no more. The place before the first is 0.
pub async fn batches(database: &Database, after: i64) -> Result<Option<(i64, Vec<Batch>)>, Error> {
    let rows = database
        .read(move |connection| log::owned_since(connection, after, SOME))
        .await?;
    let Some(last) = rows.last().map(|owned| owned.row.seq) else {
        return Ok(None);
    };
    let batches = rows.into_iter().map(batch).collect::<Result<_, _>>()?;
    Ok(Some((last, batches)))
}

/// How many statements the log holds.
pub async fn statements(database: &Database) -> Result<u64, Error> {
    Ok(database.read(log::quads).await?)
}

fn batch(owned: log::Owned) -> Result<Batch, Error> {
    let log::Owned {
        row,
        digest,
        root,
        collection,
        conversation,
    } = owned;
    let mut triples = Vec::new();
    body::decode(&row.body, |quad| {
        triples.push(terms::wire_quad(quad.into_owned()));
    })
    .map_err(|reason| Error::Damaged {
        seq: row.seq,
        reason,
    })?;
    let digest = hex(&digest);
    Ok(Batch {
        triples,
        key: format!("log:{digest}"),
        root,
        collection,
        conversation,
    })
}
