//! A loaded version of a document as objects of the store: parts of some hundred kilobytes, none of
//! which changes. The last part holds what the document is, because its totals are known last.

use crate::passage::Passage;
use crate::store::NewSource;
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
    #[serde(flatten)]
    pub(crate) source: NewSource,
    #[serde(default)]
    pub(crate) triples: u64,
}

/// About how much a passage takes.
pub(crate) fn weight(passage: &Passage) -> usize {
    let entity = passage.entity.as_ref().map_or(0, String::len);
    passage.text.len() + passage.heading.len() + entity + 32
}
