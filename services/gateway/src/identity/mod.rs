//! Who comes in at the door, what they may do there, and what is written of it.
//!
//! - `keyring`: API keys, as they are stored: hashed, and revoked by a record of their own.
//! - the log of what was refused, answered and changed is `agentfleet_runs::audit`.
//! - `signed`: callers with a token of an OpenID Connect issuer.
//! - `door`: the middleware that finds out who sent a request, and counts them.
//! - `caller`: what a handler knows of them, and whose data they see.

mod caller;
mod door;
mod keyring;
mod rights;
mod signed;

pub use agentfleet_runs::audit::{Audit, Logged, Report, logged, verify};
pub(crate) use caller::{Caller, tenant_of, tenants_of};
pub(crate) use door::{Door, enter};
pub use keyring::{NewKey, create_key, keys, revoke_key};
