//! From the text of a query to a checked algebra: parsing, refusals, bindings.
//!
//! Nothing here touches a store, so every implementation of the seam may send or run the result.

mod bind;
mod closed;
mod code;
mod parse;
mod refusal;
pub(crate) mod text;
pub(crate) mod walk;

#[cfg(test)]
pub(crate) use parse::tests::nested;
pub(crate) use parse::{depth, parse, parse_update};
