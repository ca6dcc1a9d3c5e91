//! The HTTP door: requests in, events and results out, traces, documents, read-only SPARQL.
//!
//! Owns the HTTP interface that `docs/http-api.md` describes, and nothing of a run: everything it
//! answers with is in the records, the retained responses and the graph, so a gateway may die at
//! any moment, and any number of them may serve one fleet.
//!
//! - [`Gateway::serve`] binds first, so that the address is known, and then serves until it is told
//!   to stop: streams end with a comment that says how to resume, requests get a grace period.
//! - `endpoint` lists the endpoints, `problem` every error with its status, `description` tells
//!   both in OpenAPI. `guard` is what every request passes.
//! - `accept` takes a request in at most once for each session; `session` reads what became of it.
//!
//! Who is behind the door is found out by a token or an API key, unless nobody is asked: see `identity`. No web
//! page is answered: see `guard`.

mod accept;
mod approvals;
mod begun;
mod conversation;
mod description;
mod document;
mod endpoint;
mod error;
mod events;
mod guard;
mod health;
mod identity;
mod index;
mod intake;
mod negotiate;
mod options;
mod params;
mod problem;
mod rdf;
mod rooms;
mod seams;
mod server;
mod session;
mod sessions;
mod sparql;
mod state;
mod tls;
mod trace;
mod update;

pub use accept::{Intake, Taken};
pub use error::Error;
pub use identity::{Audit, Logged, NewKey, Report, create_key, keys, logged, revoke_key, verify};
pub use intake::check_collection;
pub use options::{Doors, Options};
pub use problem::{Code, Problem};
pub use rdf::written;
pub use seams::{Check, Collections, Failure, Status};
pub use server::Gateway;
pub use state::Parts;
pub use tls::{Lifetime, TlsFiles};
pub use trace::{roots_of, texts_of, trace_of};

/// The OpenAPI document that `GET /openapi.json` answers with.
pub fn openapi() -> serde_json::Value {
    description::document()
}
