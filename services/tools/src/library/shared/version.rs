//! A loaded version of a document as objects of the store: parts of some hundred kilobytes, none of
//! which changes. The last part holds what the document is, because its totals are known last.

use super::log::{decode, encode};
use crate::Error;
use crate::library::passage::Passage;
use crate::library::store::NewSource;
use agentfleet_schema::Millis;
use serde::{Deserialize, Serialize};

/// Bytes of text after which a part is full. A part is stored by one request, which has a time limit.
pub(crate) const PART: usize = 512 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Of the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) header: Option<Header>,
    pub(crate) passages: Vec<Passage>,
}

/// What a document is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) uri: String,
    pub(crate) title: String,
    pub(crate) path: String,
    pub(crate) origin: String,
    pub(crate) digest: String,
    pub(crate) media_type: String,
    pub(crate) bytes: u64,
    pub(crate) loaded_at: Millis,
    #[serde(default)]
    pub(crate) triples: u64,
}

impl Part {
    pub(crate) fn encode(&self, key: &str) -> Result<Vec<u8>, Error> {
        encode(key, self)
    }

    pub(crate) fn decode(key: &str, body: &[u8]) -> Result<Self, Error> {
        decode(key, body)
    }
}

impl Header {
    pub(crate) fn new(source: NewSource, loaded_at: Millis, triples: u64) -> Self {
        Self {
            uri: source.uri,
            title: source.title,
            path: source.path,
            origin: source.origin,
            digest: source.digest,
            media_type: source.media_type.into_owned(),
            bytes: source.bytes,
            loaded_at,
            triples,
        }
    }

    /// The document as it goes into the local index.
    pub(crate) fn source(self, version: &str) -> NewSource {
        NewSource {
            uri: self.uri,
            title: self.title,
            path: self.path,
            origin: self.origin,
            digest: self.digest,
            media_type: self.media_type.into(),
            bytes: self.bytes,
            loaded_at: Some(self.loaded_at),
            version: Some(version.to_owned()),
        }
    }
}

/// About how much a passage takes.
pub(crate) fn weight(passage: &Passage) -> usize {
    let entity = passage.entity.as_ref().map_or(0, String::len);
    passage.text.len() + passage.heading.len() + entity + 32
}
