use crate::sample;
use agentfleet_console::lanes::*;
use agentfleet_console::trace::Trace;
#[test]
fn play() {
    let Ok(path) = std::env::var("H6_TTY") else { return };
    let name = std::env::var("H6_RUN").unwrap_or_default();
    let run = match name.as_str() { "failed" => sample::failed(), "hostile" => sample::hostile(), "single" => sample::single(), _ => sample::risk() };
    let out = || std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let settings = Settings { live: std::env::var("PLAIN").is_err(), progress_color: true, render_answer: std::env::var("PLAIN").is_err(), answer_color: true };
    let w: usize = std::env::var("COLS").unwrap().parse().unwrap(); let h: usize = std::env::var("ROWS").unwrap().parse().unwrap();
    let screen = Screen { width: w, height: h };
    let board = LaneBoard::new(run.root.clone(), sample::QUESTION, sample::START);
    let mut painter = Painter::new(board, settings, out(), out());
    let mut now = sample::START;
    for (at, event) in run.events() {
        while now + 100 <= at { now += 100; painter.tick(now, screen).unwrap(); std::thread::sleep(std::time::Duration::from_millis(20)); }
        painter.event(&event, at, screen).unwrap();
    }
    let trace = Trace::from_triples(&run.triples);
    let hints = vec![Hint::new("How it came about:", format!("agentfleet trace {}", run.root)), Hint::new("Ask your own question:", "agentfleet ask \"...\"")];
    painter.finish(&Closing::of(&trace, &run.root, hints), screen).unwrap();
}
