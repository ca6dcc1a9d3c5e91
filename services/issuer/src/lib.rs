//! Tokens of an OpenID Connect issuer: whether one counts, and whose it is.
//!
//! A token counts if one of the issuer's keys signed it, for this fleet, and its time has come and is not over.
//! What it says is turned into the principal and the roles that an API key gives, so nothing behind the door
//! knows the difference.
//!
//! - `token`: the signed text, taken apart. Signatures are checked by `ring`.
//! - `key_set`: the keys that an issuer publishes.
//! - `claims`: what is read from a token that counts.
//! - `unambiguous`: JSON in which no name stands twice.
//! - `issuer`: where the keys come from, and how long they are kept.

mod claims;
mod issuer;
mod key_set;
mod token;
mod unambiguous;

pub use claims::{Bearer, ClaimNames};
pub use issuer::{Issuer, Options, Waits};
pub use token::{MAX_TOKEN, looks_signed};

/// Why a token does not count. What it says never holds the token, nor a part of it that was not checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The issuer's keys cannot be had, so nobody knows.
    #[error("the keys of the issuer cannot be read: {0}")]
    Away(String),
    /// Nothing shows that the issuer made it.
    #[error("the token is not proven: {0}")]
    Unproven(String),
    /// The issuer made it, and its time is over.
    #[error("the token expired")]
    Expired(Whose),
    /// The issuer made it, and it is of no use here.
    #[error("the token does not fit: {1}")]
    Unfit(Whose, String),
}

impl Refused {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Away(_) => "issuer-away",
            Self::Unproven(_) => "unproven-token",
            Self::Expired(_) => "expired-token",
            Self::Unfit(..) => "unfit-token",
        }
    }

    /// Whose token it is, where the issuer said so.
    pub fn whose(&self) -> Whose {
        match self {
            Self::Away(_) | Self::Unproven(_) => Whose::default(),
            Self::Expired(whose) | Self::Unfit(whose, _) => whose.clone(),
        }
    }
}

/// Name and tenant in a token that the issuer made; empty where it does not say them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    pub name: String,
    pub tenant: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{url}` is no address of an issuer: {reason}")]
    Address { url: String, reason: String },
    #[error("certificates cannot be read from `{path}`: {reason}")]
    Certificates { path: String, reason: String },
    #[error("the HTTP client cannot be built: {0}")]
    Client(String),
}
