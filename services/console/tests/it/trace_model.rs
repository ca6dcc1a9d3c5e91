//! The model of a trace, from whole, partial, shuffled and broken graphs.

use crate::sample;
use agentfleet_console::style::Look;
use agentfleet_console::trace::{Format, Trace};

#[test]
fn dump() {
    for (name, run) in [("risk", sample::risk()), ("running", sample::running()), ("single", sample::single()), ("hostile", sample::hostile()), ("failed", sample::failed())] {
        let trace = Trace::from_triples(&run.triples);
        for f in Format::ALL {
            let t = trace.render(f, Look::plain(100), &|u| run.text(u));
            std::fs::write(format!("/tmp/h6/{name}.{}", f.as_str()), t).unwrap();
        }
        let t = trace.render(Format::Tree, Look::colored(100), &|u| run.text(u));
        std::fs::write(format!("/tmp/h6/{name}.ansi"), t).unwrap();
    }
}
