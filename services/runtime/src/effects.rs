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
use agentfleet_schema::SessionId;
use agentfleet_schema::keys;
use agentfleet_schema::records::{Call, IntentRecord, ResultRecord};

/// What stands where the call of a step would.
#[derive(Debug)]
pub enum Standing {
    Nothing,
    Call(Box<IntentRecord>),
    /// The record that ended the step without one; it may not be in its place.
    Ended(String),
}

/// Looks for the call of a step: another attempt adopts the first one, and makes none of its own.
pub async fn standing(
    documents: &dyn Documents,
    (session, step): (&SessionId, u32),
) -> Result<Standing, Error> {
    let key = keys::intent(session, step, 0);
    let there = Records::new(documents).read::<IntentRecord>(&key).await?;
    Ok(match there {
        None => Standing::Nothing,
        Some(IntentRecord {
            record: Some(record),
            ..
        }) => Standing::Ended(record),
        // It was committed together with the record.
        Some(intent) if intent.fence => Standing::Nothing,
        Some(intent) => Standing::Call(Box::new(intent)),
    })
}

/// The call of another attempt, for the record of who ends the step over its head. Where nobody knows yet
/// what became of it, an equal call in the tree of `root` needs a person from now on.
pub async fn told(
    documents: &dyn Documents,
    root: &SessionId,
    (session, step): (&SessionId, u32),
    intent: IntentRecord,
) -> Result<Call, Error> {
    let key = keys::result(session, step, 0);
    let result: Option<ResultRecord> = Records::new(documents).read(&key).await?;
    if result.is_none() {
        let key = keys::unknown_call(root, &intent.tool, &intent.arguments);
        // Plain data: writing it as JSON cannot fail.
        let known = serde_json::to_vec(&intent).unwrap_or_default();
        documents.create(&key, known).await?;
    }
    Ok(intent.told(result))
}

/// What came of putting a fence.
pub(crate) enum Fenced {
    /// It is there.
    Own,
    /// A call is there.
    Called,
    /// The step has ended with this record; `None` if it is in its place.
    Ended(Option<String>),
}

/// A fence, with the record unless both are created together.
pub fn fence(nonce: &str, record: Option<&[u8]>) -> Vec<u8> {
    let fence = IntentRecord {
        nonce: nonce.to_owned(),
        fence: true,
        record: record.map(|record| String::from_utf8_lossy(record).into_owned()),
        ..IntentRecord::default()
    };
    // Plain data: writing it as JSON cannot fail.
    serde_json::to_vec(&fence).unwrap_or_default()
}

/// Puts a fence with the record in it at the key of a call.
pub(crate) async fn put(
    documents: &dyn Documents,
    key: &str,
    nonce: &str,
    record: &[u8],
) -> Result<Fenced, Error> {
    let own = fence(nonce, Some(record));
    let Some(there) = documents.create_or_get(key, own).await? else {
        return Ok(Fenced::Own);
    };
    let there: IntentRecord = decode(key, &there)?;
    Ok(match there.record {
        _ if !there.fence => Fenced::Called,
        _ if there.nonce == nonce => Fenced::Own,
        record => Fenced::Ended(record),
    })
}
