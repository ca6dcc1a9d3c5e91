//! The side-effecting call of a step, and steps that end without one.
//!
//! A record that ends a step without having adopted the call of another attempt tells it all the same:
//! whatever was started stands in the history of the run.
//!
//! A step that ends without a call puts a fence where the intent of a call would be: whoever is still
//! about to make one finds it and stops. Where fence and record cannot be created together the fence
//! holds the record. Then it is the point of no return, and whoever finds it puts the record in its
//! place, so that nobody waits for an attempt that died between the two.

use crate::Error;
use crate::records::{Records, decode};
use agentfleet_documents::Documents;
use agentfleet_schema::keys::{self, CallPart};
use agentfleet_schema::records::{Call, IntentRecord, ResultRecord};
use agentfleet_schema::{Millis, SessionId, millis};
use std::time::Duration;

/// How long programs keep away from a fence that do not know that it holds a record, or that it was
/// committed with one. It is how long fences of such programs are kept away from.
const FENCE: Duration = Duration::from_secs(90);

/// What stands where the call of a step would.
#[derive(Debug)]
pub enum Standing {
    Nothing,
    Call(Box<IntentRecord>, u32),
    /// The record that ended the step without one; it may not be in its place.
    Ended(String),
}

/// Looks for the call of a step.
pub async fn standing(
    documents: &dyn Documents,
    (session, step): (&SessionId, u32),
) -> Result<Standing, Error> {
    let mut standing = Standing::Nothing;
    for key in documents.list(&keys::calls(session, step)).await? {
        let Some((number, CallPart::Intent)) = keys::call_part(&key) else {
            continue;
        };
        let Some(intent) = Records::new(documents).read::<IntentRecord>(&key).await? else {
            continue;
        };
        match intent.record {
            // Only a program that does not know of records in fences makes a call behind one, and the call
            // must be told.
            Some(record) => standing = Standing::Ended(record),
            None if intent.fence => {}
            // A step makes one call: whoever comes to it adopts the one that is there.
            None => return Ok(Standing::Call(Box::new(intent), number)),
        }
    }
    Ok(standing)
}

/// The call of another attempt, for the record of who ends the step over its head. Where nobody knows yet
/// what became of it, an equal call in the tree of `root` needs a person from now on.
pub async fn told(
    documents: &dyn Documents,
    root: &SessionId,
    (session, step): (&SessionId, u32),
    intent: IntentRecord,
    number: u32,
) -> Result<Call, Error> {
    let key = keys::result(session, step, number);
    let result: Option<ResultRecord> = Records::new(documents).read(&key).await?;
    if result.is_none() {
        let key = keys::unknown_call(root, &intent.tool, &intent.arguments);
        // Plain data: writing it as JSON cannot fail.
        let known = serde_json::to_vec(&intent).unwrap_or_default();
        documents.create(&key, known).await?;
    }
    Ok(intent.told(result))
}

/// A step that ends without a call.
#[derive(Clone, Debug)]
pub struct WithoutCall {
    pub session: SessionId,
    pub step: u32,
    pub now: Millis,
}

/// What came of putting a fence.
pub(crate) enum Fenced {
    /// It is there.
    Own,
    /// A call is there.
    Called,
    /// The step has ended with this record.
    Ended(String),
}

impl WithoutCall {
    /// The fence, with the record unless both are created together.
    pub fn fence(&self, nonce: &str, record: Option<&[u8]>) -> Vec<u8> {
        let fence = IntentRecord {
            nonce: nonce.to_owned(),
            fence: true,
            lease_until: self.now + millis(FENCE),
            record: record.map(|record| String::from_utf8_lossy(record).into_owned()),
            ..IntentRecord::default()
        };
        // Plain data: writing it as JSON cannot fail.
        serde_json::to_vec(&fence).unwrap_or_default()
    }

    /// Where the fence goes, behind those of older programs; `None` if a call is there. For who reads
    /// and creates as one.
    pub fn place<E>(
        &self,
        mut read: impl FnMut(&str) -> Result<Option<IntentRecord>, E>,
    ) -> Result<Option<String>, E> {
        let mut number = 0;
        loop {
            let key = keys::intent(&self.session, self.step, number);
            match read(&key)? {
                None => return Ok(Some(key)),
                Some(there) if !there.fence => return Ok(None),
                Some(_) => number += 1,
            }
        }
    }

    /// Puts the fence with the record in it.
    pub(crate) async fn put(
        &self,
        documents: &dyn Documents,
        nonce: &str,
        record: &[u8],
    ) -> Result<Fenced, Error> {
        let fence = self.fence(nonce, Some(record));
        let mut number = 0;
        loop {
            let key = keys::intent(&self.session, self.step, number);
            let Some(there) = documents.create_or_get(&key, fence.clone()).await? else {
                return Ok(Fenced::Own);
            };
            let there: IntentRecord = decode(&key, &there)?;
            match there.record {
                _ if !there.fence => return Ok(Fenced::Called),
                Some(_) if there.nonce == nonce => return Ok(Fenced::Own),
                Some(record) => {
                    let of = (&self.session, self.step);
                    return Ok(match standing(documents, of).await? {
                        Standing::Call(..) => Fenced::Called,
                        Standing::Nothing | Standing::Ended(_) => Fenced::Ended(record),
                    });
                }
                None => number += 1,
            }
        }
    }
}
