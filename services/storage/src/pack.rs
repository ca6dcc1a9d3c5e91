//! Bodies as they lie in the database: compressed where that saves room.
//!
//! What is stored is mostly JSON, which shrinks to a quarter. Fewer pages are written for every
//! step, which costs more than the packing. Packing is done before a unit of work begins, because
//! all units share one thread.

use crate::error::Error;
use std::sync::Arc;

/// Smaller bodies share a page with others as they are.
const WORTH_IT: usize = 512;
const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// A body ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed(Vec<u8>);

impl Packed {
    pub fn of(body: &[u8]) -> Self {
        if body.len() >= WORTH_IT {
            let packed = lz4_flex::block::compress_prepend_size(body);
            if packed.len() < body.len() {
                return Self(with_tag(LZ4, &packed));
            }
        }
        Self(with_tag(PLAIN, body))
    }

    /// A body as it lies in the database already.
    pub fn stored(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// What to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn with_tag(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len() + 1);
    all.push(tag);
    all.extend_from_slice(bytes);
    all
}

/// The body of what was stored.
pub fn unpack(stored: &[u8]) -> Result<Arc<[u8]>, Error> {
    match stored.split_first() {
        Some((&PLAIN, body)) => Ok(body.into()),
        Some((&LZ4, packed)) => lz4_flex::block::decompress_size_prepended(packed)
            .map(Arc::from)
            .map_err(|_| Error::Unpackable),
        Some(_) | None => Err(Error::Unpackable),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back(body in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let packed = Packed::of(&body);
            prop_assert!(packed.as_bytes().len() <= body.len() + 1);
            prop_assert_eq!(&*unpack(packed.as_bytes()).unwrap(), &*body);
        }

        #[test]
        fn no_bytes_make_unpacking_panic(stored in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(unpack(&stored));
        }
    }

    #[test]
    fn json_shrinks_and_short_texts_stay() {
        let text = r#"{"s":{"t":"i","i":"urn:trustgraph:agent:1/i1"}},"#.repeat(100);
        assert!(Packed::of(text.as_bytes()).as_bytes().len() * 4 < text.len());
        assert_eq!(Packed::of(b"short").as_bytes(), b"\0short");
    }
}
