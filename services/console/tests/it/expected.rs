//! What was looked at and found right, kept in `tests/expected/`.
//!
//! After a change that is meant, write the files anew with `UPDATE_EXPECTED=1 cargo test` and look at
//! them again.

use crate::sample::{self, Run};
use agentfleet_console::lanes::{Closing, Hint};
use agentfleet_console::style::Look;
use agentfleet_console::trace::{Format, Trace};
use agentfleet_schema::uris;
use std::path::Path;

fn same(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/expected")
        .join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, shown).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((number, (a, b))) = expected
        .lines()
        .zip(shown.lines())
        .enumerate()
        .find(|(_, (a, b))| a != b)
    {
        panic!("{name}, line {}:\nexpected: {a}\nshown:    {b}", number + 1);
    }
    assert_eq!(expected, shown, "{name} has another length");
}

fn shown(run: &Run, format: Format, look: Look) -> String {
    Trace::from_triples(&run.triples).render(format, look, &|uri| run.text(uri))
}

#[test]
fn a_supervisor_run_looks_right_in_every_format() {
    let run = sample::risk();
    for (format, name) in [
        (Format::Tree, "risk.tree.txt"),
        (Format::Mermaid, "risk.mmd"),
        (Format::Svg, "risk.svg"),
        (Format::Json, "risk.json"),
        (Format::ProvJson, "risk.prov.json"),
    ] {
        same(name, &shown(&run, format, Look::plain(100)));
    }
    same(
        "risk.tree.ansi",
        &shown(&run, Format::Tree, Look::colored(72)),
    );
}

#[test]
fn other_runs_look_right() {
    for (name, run) in [
        ("running", sample::running()),
        ("single", sample::single()),
        ("hostile", sample::hostile()),
        ("failed", sample::failed()),
        ("nothing", Run::default()),
    ] {
        same(
            &format!("{name}.tree.txt"),
            &shown(&run, Format::Tree, Look::plain(80)),
        );
        same(
            &format!("{name}.mmd"),
            &shown(&run, Format::Mermaid, Look::plain(80)),
        );
    }
    same(
        "hostile.svg",
        &shown(&sample::hostile(), Format::Svg, Look::plain(80)),
    );
}

#[test]
fn the_closing_says_how_sure_what_from_and_where_to_go_next() {
    let run = sample::risk();
    let trace = Trace::from_triples(&run.triples);
    let hints = vec![
        Hint::new(
            "How it came about:",
            format!("agentfleet trace {}", run.root),
        ),
        Hint::new("Ask your own question:", "agentfleet ask \"...\""),
    ];
    let answer = run.text(&uris::answer_document(&run.root)).unwrap();
    let closing = Closing::of(&trace, &run.root, &answer, hints);
    let text = |width| {
        let lines = closing.lines(Look::plain(width));
        lines
            .iter()
            .map(|line| line.plain() + "\n")
            .collect::<String>()
    };
    same(
        "risk.closing.txt",
        &format!("{}\n=====\n\n{}", text(100), text(44)),
    );
}
