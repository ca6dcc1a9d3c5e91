//! What an embedded graph holds, to be given to another graph. It is read from the log: whoever asks
//! needs no graph in memory.

use super::{PART, Prepared, body, log};
use crate::error::Error;
use crate::{Batch, terms};
use agentfleet_schema::Triple;
use agentfleet_storage::{Database, Durability};
use oxigraph::model::{GraphName, QuadRef};

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
    body::decode(&row.body, |quad| triples.push(wire(quad))).map_err(|reason| Error::Damaged {
        seq: row.seq,
        reason,
    })?;
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Batch {
        triples,
        key: format!("log:{digest}"),
        root,
        collection,
        conversation,
    })
}

/// A quad as it stands in a batch.
pub(crate) fn wire(quad: QuadRef<'_>) -> Triple {
    let quad = quad.into_owned();
    Triple {
        s: terms::wire(quad.subject.into()),
        p: terms::wire(quad.predicate.into()),
        o: terms::wire(quad.object),
        g: match quad.graph_name {
            GraphName::DefaultGraph => None,
            GraphName::NamedNode(node) => Some(node.into_string()),
            GraphName::BlankNode(node) => Some(format!("urn:agentfleet:graph:{}", node.as_str())),
        },
    }
}

/// Puts batches into the log of a database in which nobody has a graph open.
pub async fn append(database: &Database, batches: &[Batch]) -> Result<(), Error> {
    database.migrate(PART, log::TABLES)?;
    let filled = batches.iter().filter(|batch| !batch.triples.is_empty());
    let prepared: Vec<Prepared> = filled.map(Prepared::new).collect::<Result<_, _>>()?;
    let appended = database.write(Durability::Durable, move |unit| {
        prepared
            .iter()
            .try_for_each(|batch| batch.append(unit).map(drop))
    });
    Ok(appended.await?)
}
