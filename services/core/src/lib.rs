//! Decisions only: what a message asks for, what to do next, what came of it, and how it is told.
//!
//! No IO, no async, no clock, no randomness: instants and ids come in as arguments, effects go out
//! as values. A driver parses a request into a [`Turn`], feeds it [`Input`]s, carries out each
//! [`Order`] it answers with, and [`assemble`](commit::assemble)s the committed record from the end.

pub mod approval;
pub mod attempt;
pub mod audit;
pub mod bounds;
pub mod cited;
pub mod commit;
pub mod conductor;
pub mod conversation;
mod cut;
pub mod deadline;
pub mod discovery;
pub mod error;
pub mod fan_in;
pub mod fork;
mod gate;
pub mod history;
pub mod json;
pub mod known;
pub mod limits;
pub mod memories;
pub mod order;
pub mod patterns;
pub mod pipeline;
pub mod prices;
mod principal;
pub mod provenance;
pub mod quota;
pub mod react_format;
pub mod replay;
pub mod reply;
pub mod routing;
pub mod say;
pub mod so_far;
pub mod specialists;
pub mod task_types;
pub mod tools;
pub mod turn;
pub mod words;

pub use attempt::{Ending, Overruled, Prepared};
pub use commit::{Assembled, Commit};
pub use error::Rejection;
pub use limits::{FleetLimits, Limits};
pub use order::{
    AfterCut, Answer, FanOut, Finish, Input, ModelAsk, ModelFailure, Order, Outcome, Reply, Said,
    StreamAs, ToolOutcome, ToolUse,
};
pub use principal::on_behalf;
pub use reply::ReplyTopics;
pub use turn::{Situation, Turn};
