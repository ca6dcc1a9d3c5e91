//! The live view of a run: one lane for each session, and the root's answer below.
//!
//! [`LaneBoard`] is the model: events and instants go in, lines come out, and it has no clock and no
//! terminal. [`Painter`] puts it on a terminal, or where there is none writes a line for each thing
//! worth telling. [`Closing`] is what stands below the answer.
//!
//! Which lanes there are follows from the fan-outs: the ids of subagents are derived from their
//! parent's, so their lanes stand there, waiting, before they say a word.

mod board;
mod closing;
mod lane;
mod painter;
mod view;

pub use board::{LaneBoard, News};
pub use closing::{Closing, Hint};
pub use lane::{Lane, LaneState};
pub use painter::{AnswerAs, Painter, Screen, Settings};
