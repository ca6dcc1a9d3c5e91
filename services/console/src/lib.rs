//! Everything the command line shows to people.
pub mod markdown;
pub mod style;
pub mod text;
pub mod trace;
