//! The model of a trace, from whole, partial, shuffled and broken graphs.

use crate::sample;
use agentfleet_console::trace::model::{State, Step};
use agentfleet_console::trace::Trace;

#[test]
fn a_supervisor_run_is_read_whole() {
    let run = sample::risk();
    let trace = Trace::from_triples(&run.triples);
    for s in &trace.sessions {
        println!("{:#?}", s);
    }
    for (at, e) in run.events() { println!("{} {:?}", at - sample::START, e); }
}
