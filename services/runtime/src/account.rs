//! The account of a step: what attempts at it debited, in one chain of create-if-absent records.
//!
//! Each debit stands behind the one before it, so whoever debits has seen everything that was debited
//! (two attempts cannot both find money that is there once). A debit says what the calls before it came
//! to and what the next one may come to; without another one behind it, that call counts as reserved.

use crate::Error;
use crate::records::{Records, decode};
use agentfleet_documents::{Created, Documents};
use agentfleet_schema::records::DebitRecord;
use agentfleet_schema::{SessionId, Spent, keys};
use std::collections::BTreeMap;

/// What is known of the account of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debited {
    pub spent: Spent,
    /// The place of the last debit; 0 if there is none.
    pub last: u32,
}

/// Reads the account of a step.
pub async fn debited(
    documents: &dyn Documents,
    session: &SessionId,
    step: u32,
) -> Result<Debited, Error> {
    let folder = keys::debits(session, step);
    let listed = documents.list(&folder).await?;
    let mut places: Vec<u32> = listed
        .iter()
        .filter_map(|key| keys::debit_place(key))
        .collect();
    places.sort_unstable();
    let wanted: Vec<String> = places
        .iter()
        .map(|n| keys::debit(session, step, *n))
        .collect();
    let debits = Records::new(documents).read_many::<DebitRecord>(&wanted);
    // The last word of each attempt counts.
    let mut attempts: BTreeMap<String, Spent> = BTreeMap::new();
    for debit in debits.await?.into_iter().flatten() {
        attempts.insert(debit.nonce, debit.settled + debit.reserved);
    }
    Ok(Debited {
        spent: attempts.into_values().sum(),
        last: places.last().copied().unwrap_or_default(),
    })
}

/// Puts a debit at a place of the account; answers with the other attempt's that stands there, if so.
pub async fn debit(
    documents: &dyn Documents,
    (session, step): (&SessionId, u32),
    place: u32,
    debit: &DebitRecord,
) -> Result<Option<DebitRecord>, Error> {
    let (key, body) = object((session, step), place, debit);
    loop {
        if documents.create(&key, body.clone()).await? == Created::New {
            return Ok(None);
        }
        // A store may say that there is one and have stored none, so what can be read decides.
        if let Some(there) = documents.get(&key).await? {
            let there: DebitRecord = decode(&key, &there)?;
            return Ok((there.nonce != debit.nonce).then_some(there));
        }
    }
}

/// A debit at a place of the account, as it is stored.
pub fn object(
    (session, step): (&SessionId, u32),
    place: u32,
    debit: &DebitRecord,
) -> (String, Vec<u8>) {
    // Plain data: writing it as JSON cannot fail.
    let body = serde_json::to_vec(debit).unwrap_or_default();
    (keys::debit(session, step, place), body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::Database;

    fn tokens(tokens: u64) -> Spent {
        Spent {
            tokens,
            ..Spent::default()
        }
    }

    #[tokio::test]
    async fn the_last_word_of_each_attempt_counts_and_a_place_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let session = SessionId::from("s");
        let put = async |place, nonce: &str, settled, reserved| {
            let record = DebitRecord {
                nonce: nonce.to_owned(),
                settled: tokens(settled),
                reserved: tokens(reserved),
            };
            let other = debit(&documents, (&session, 3), place, &record).await;
            other.unwrap().is_none()
        };
        let account = async || debited(&documents, &session, 3).await.unwrap();
        assert_eq!(account().await, Debited::default());
        assert!(put(1, "a", 0, 50).await);
        // Its own debit again, after a reply that was lost.
        assert!(put(1, "a", 0, 50).await);
        assert!(!put(1, "b", 0, 70).await);
        assert!(put(2, "b", 0, 70).await);
        assert_eq!(account().await.spent, tokens(50 + 70));
        // `a` found out what its call came to, and `b` died.
        assert!(put(3, "a", 30, 0).await);
        let expected = Debited {
            spent: tokens(30 + 70),
            last: 3,
        };
        assert_eq!(account().await, expected);
        // Another step's account is another's.
        assert_eq!(debited(&documents, &session, 4).await.unwrap().last, 0);
    }
}
