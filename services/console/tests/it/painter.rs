//! The live view on a terminal, looked at through a terminal emulator, and away from one.

use crate::sample::{self, QUESTION, Run, START};
use agentfleet_console::lanes::{AnswerAs, Closing, Hint, LaneBoard, Painter, Screen, Settings};
use agentfleet_console::trace::Trace;
use agentfleet_runtime::client::Event;
use agentfleet_schema::{AgentResponse, MessageType, SessionId, uris};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

const LIVE: Settings = Settings {
    live: true,
    progress_color: false,
    answer: AnswerAs::Rendered,
    answer_color: false,
};
const AWAY: Settings = Settings {
    live: false,
    answer: AnswerAs::Whole,
    ..LIVE
};

/// Both writers of one terminal.
#[derive(Clone)]
struct Terminal(Rc<RefCell<vt100::Parser>>);

impl Terminal {
    fn new(screen: Screen) -> Self {
        Self(Rc::new(RefCell::new(vt100::Parser::new(
            screen.height as u16,
            screen.width as u16,
            10_000,
        ))))
    }

    fn resize(&self, screen: Screen) {
        self.0
            .borrow_mut()
            .screen_mut()
            .set_size(screen.height as u16, screen.width as u16);
    }

    /// Everything from the first row ever written, without trailing blanks.
    fn text(&self) -> String {
        let mut parser = self.0.borrow_mut();
        let (height, width) = parser.screen().size();
        let mut lines = Vec::new();
        parser.screen_mut().set_scrollback(usize::MAX);
        let above = parser.screen().scrollback();
        for offset in (1..=above).rev() {
            parser.screen_mut().set_scrollback(offset);
            lines.extend(parser.screen().rows(0, width).next());
        }
        parser.screen_mut().set_scrollback(0);
        lines.extend(parser.screen().rows(0, width).take(height as usize));
        lines.join("\n").trim_end().to_owned()
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // What the line discipline of a terminal does.
        let text = String::from_utf8_lossy(bytes)
            .replace("\r\n", "\n")
            .replace('\n', "\r\n");
        self.0.borrow_mut().process(text.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn closing(run: &Run) -> Closing {
    let trace = Trace::from_triples(&run.triples);
    Closing::of(
        &trace,
        &run.root,
        &run.text(&uris::answer_document(&run.root))
            .unwrap_or_default(),
        vec![Hint::new("See it:", "agentfleet trace x")],
    )
}

/// Plays a run, with a redraw every 50 ms, on screens that change as told.
fn played(run: &Run, screens: &[Screen]) -> (Terminal, Screen) {
    let terminal = Terminal::new(screens[0]);
    let board = LaneBoard::new(run.root.clone(), QUESTION, START);
    let mut painter = Painter::new(board, LIVE, terminal.clone(), terminal.clone());
    let mut now = START;
    let mut screen = screens[0];
    let events = run.events();
    let count = events.len();
    for (position, (when, event)) in events.iter().enumerate() {
        while now + 50 <= *when {
            now += 50;
            painter.tick(now, screen).unwrap();
        }
        let next = screens[position * screens.len() / count];
        if next != screen {
            screen = next;
            terminal.resize(screen);
        }
        painter.event(event, *when, screen).unwrap();
    }
    painter.finish(&closing(run), screen).unwrap();
    (terminal, screen)
}

fn occurrences(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn after_a_run_lanes_answer_and_closing_stand_there_once() {
    for height in [6, 10, 24, 60] {
        let (terminal, _) = played(&sample::risk(), &[Screen { width: 90, height }]);
        let text = terminal.text();
        for once in [
            "Analyse financial health",
            "not waited for",
            "── answer ──",
            "Risk profile of Company X",
            "revenue, m EUR",
            "Two outlets repeat the same complaint.",
            "── confidence ──",
            "Financial health  0.80  ████████░░",
            "annual-report-2025.md",
            "See it:  agentfleet trace x",
        ] {
            assert_eq!(
                occurrences(&text, once),
                1,
                "{once} on {height} rows:\n{text}"
            );
        }
        let place = |what: &str| text.find(what).unwrap();
        assert!(place("Analyse financial") < place("── answer"), "{text}");
        assert!(place("Two outlets") < place("── confidence"), "{text}");
        assert!(
            !text.contains("answering ·"),
            "the live part is gone:\n{text}"
        );
    }
}

#[test]
fn a_thousand_lanes_on_a_small_screen_do_not_garble_it() {
    let screen = Screen {
        width: 40,
        height: 8,
    };
    let terminal = Terminal::new(screen);
    let mut shell = terminal.clone();
    shell.write_all(b"$ agentfleet ask\n").unwrap();
    let root = SessionId::new("root");
    let board = LaneBoard::new(root.clone(), "many", 0);
    let mut painter = Painter::new(board, LIVE, terminal.clone(), terminal.clone());
    let child = |index| SessionId::child(&root, 0, index, "nonce");
    let children = |content: &str| {
        let count = if content.starts_with("Fanned out") {
            1_000
        } else {
            0
        };
        (0..count).map(child).collect()
    };
    let status = |content: &str, session: &SessionId| {
        Event::Note(Box::new(AgentResponse {
            message_type: MessageType::Status,
            content: content.into(),
            session_id: session.clone(),
            step: Some(0),
            subagents: children(content),
            ..AgentResponse::default()
        }))
    };
    painter
        .event(&status("Fanned out to 1000 subagents", &root), 0, screen)
        .unwrap();
    for index in 0..300 {
        let child = child(index);
        painter
            .event(
                &status("Completed: answered", &child),
                i64::from(index) * 70,
                screen,
            )
            .unwrap();
    }
    let text = terminal.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8, "the prompt and seven rows:\n{text}");
    assert_eq!(lines[0], "$ agentfleet ask");
    assert_eq!(occurrences(&text, "many"), 1, "{text}");
    assert!(lines[7].contains("more"), "{text}");
}

#[test]
fn a_screen_that_changes_loses_nothing_that_stands() {
    let wide = Screen {
        width: 100,
        height: 30,
    };
    let narrow = Screen {
        width: 50,
        height: 30,
    };
    // Lower screens are left out: this emulator drops the lowest rows, where terminals scroll.
    let (terminal, _) = played(
        &sample::risk(),
        &[wide, narrow, wide, narrow, Screen { height: 40, ..wide }],
    );
    let text = terminal.text();
    assert_eq!(occurrences(&text, "── answer ──"), 1, "{text}");
    assert_eq!(occurrences(&text, "Two outlets repeat"), 1, "{text}");
}

#[test]
fn away_from_a_terminal_the_answer_is_markdown_and_progress_is_lines() {
    let run = sample::risk();
    let (mut progress, mut answer) = (Vec::new(), Vec::new());
    {
        let board = LaneBoard::new(run.root.clone(), QUESTION, START);
        let mut painter = Painter::new(board, AWAY, &mut progress, &mut answer);
        let screen = Screen {
            width: 100,
            height: 24,
        };
        for (when, event) in run.events() {
            painter.event(&event, when, screen).unwrap();
            painter.tick(when, screen).unwrap();
        }
        painter.finish(&closing(&run), screen).unwrap();
    }
    let answer = String::from_utf8(answer).unwrap();
    let document = Trace::from_triples(&run.triples)
        .session(&run.root)
        .unwrap()
        .conclusion
        .clone();
    let text = run.text(&document.unwrap().document.unwrap()).unwrap();
    assert_eq!(answer, format!("{text}\n"), "exactly the committed text");
    let progress = String::from_utf8(progress).unwrap();
    assert!(!progress.contains('\u{1b}'), "{progress}");
    for line in [
        "   0.6 s  Routed: task type `risk-assessment` of 4, pattern `supervisor` of 2",
        "   0.9 s  1 Analyse financial health and stability of Company X",
        "   0.9 s  Fanned out to 4 subagents",
        "[3.1] Collect press coverage of Company X: Look it up.",
        "answers: Coverage is mixed",
        "── sources",
    ] {
        assert!(progress.contains(line), "{line}\n{progress}");
    }
}

/// What a pipe gets of an answer: before its end, and in all.
fn piped(events: &[Event], root: &SessionId) -> (String, String) {
    let settings = Settings {
        answer: AnswerAs::Streamed,
        ..AWAY
    };
    let answer = Rc::new(RefCell::new(Vec::new()));
    struct Pipe(Rc<RefCell<Vec<u8>>>);
    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let screen = Screen {
        width: 100,
        height: 24,
    };
    let board = LaneBoard::new(root.clone(), QUESTION, START);
    let pipe = Pipe(Rc::clone(&answer));
    let mut painter = Painter::new(board, settings, std::io::sink(), pipe);
    let mut before = String::new();
    let text = || String::from_utf8(answer.borrow().clone()).unwrap();
    for event in events {
        if matches!(event, Event::End { .. }) {
            before = text();
        }
        painter.event(event, START, screen).unwrap();
    }
    (before, text())
}

#[test]
fn a_pipe_gets_the_answer_while_it_comes() {
    let root = SessionId::new("r");
    let chunk = |message: &str, text: &str| Event::Chunk {
        session: root.clone(),
        message_id: message.into(),
        kind: MessageType::Answer,
        text: text.into(),
    };
    let end = |text: &str| Event::End {
        text: text.into(),
        error: None,
        response: Box::new(AgentResponse {
            session_id: root.clone(),
            ..AgentResponse::default()
        }),
    };
    for (events, before, whole) in [
        (
            vec![
                chunk("a", "It "),
                chunk("a", "is so."),
                end("It is so.\n\nBut."),
            ],
            "It is so.",
            "It is so.\n\nBut.\n",
        ),
        (vec![end("All at once.\n")], "", "All at once.\n"),
        // The worker died: the next one says the same, or something else.
        (
            vec![chunk("a", "It "), chunk("b", "It is"), end("It is.")],
            "It ",
            "It is.\n",
        ),
        (
            vec![chunk("a", "It "), chunk("b", "No."), end("No.")],
            "It ",
            "It \n\n---\n\nNo.\n",
        ),
    ] {
        let (early, all) = piped(&events, &root);
        assert_eq!((early.as_str(), all.as_str()), (before, whole));
    }
}

#[test]
fn no_line_of_progress_stands_inside_the_answer() {
    let root = SessionId::new("r");
    let chunk = |text: &str| Event::Chunk {
        session: root.clone(),
        message_id: "a".into(),
        kind: MessageType::Answer,
        text: text.into(),
    };
    let response = |text: &str| AgentResponse {
        message_type: MessageType::Status,
        session_id: root.clone(),
        content: text.into(),
        ..AgentResponse::default()
    };
    let status = |text: &str| Event::Note(Box::new(response(text)));
    let end = Event::End {
        text: "It is so.".into(),
        error: None,
        response: Box::new(response("")),
    };
    let settings = Settings {
        answer: AnswerAs::Streamed,
        ..AWAY
    };
    let screen = Screen {
        width: 100,
        height: 24,
    };
    // Standard output and standard error are one pipe.
    let both = Terminal::new(screen);
    let board = LaneBoard::new(root.clone(), QUESTION, START);
    let mut painter = Painter::new(board, settings, both.clone(), both.clone());
    for event in [
        status("Looks it up"),
        chunk("It "),
        status("Draws nearer"),
        chunk("is"),
        end,
    ] {
        painter.event(&event, START, screen).unwrap();
    }
    let text = both.text();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let told = |part: &str| lines.iter().position(|line| line.contains(part));
    let answer = lines.iter().position(|line| *line == "It is so.");
    assert!(answer.is_some(), "{text}");
    assert!(
        told("Looks it up") < answer && told("Draws nearer") > answer,
        "{text}"
    );
    // Who leaves in the middle of a line ends it.
    let both = Terminal::new(screen);
    let board = LaneBoard::new(root.clone(), QUESTION, START);
    let mut painter = Painter::new(board, settings, both.clone(), both.clone());
    painter.event(&chunk("It "), START, screen).unwrap();
    painter
        .event(&status("Draws nearer"), START, screen)
        .unwrap();
    painter.leave(screen).unwrap();
    let text = both.text();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "It", "{text}");
    assert!(lines[1].contains("Draws nearer"), "{text}");
}

#[test]
fn an_error_says_what_to_do() {
    let (terminal, _) = played(
        &sample::failed(),
        &[Screen {
            width: 80,
            height: 20,
        }],
    );
    let text = terminal.text();
    assert!(
        text.contains("✖ the key was refused\n  set another key"),
        "{text}"
    );
    assert!(!text.contains("── answer"), "{text}");
    let mut progress = Vec::new();
    let run = sample::failed();
    let board = LaneBoard::new(run.root.clone(), QUESTION, START);
    let mut painter = Painter::new(board, AWAY, &mut progress, std::io::sink());
    for (when, event) in run.events() {
        painter
            .event(
                &event,
                when,
                Screen {
                    width: 80,
                    height: 20,
                },
            )
            .unwrap();
    }
    drop(painter);
    let progress = String::from_utf8(progress).unwrap();
    assert!(progress.contains("✖ the key was refused"), "{progress}");
}

#[test]
fn what_another_part_of_the_program_prints_stands_above_the_lanes() {
    let screen = Screen {
        width: 60,
        height: 10,
    };
    let terminal = Terminal::new(screen);
    let board = LaneBoard::new("root".into(), "question", 0);
    let mut painter = Painter::new(board, LIVE, terminal.clone(), terminal.clone());
    painter.tick(1, screen).unwrap();
    painter.clear(screen).unwrap();
    terminal.clone().write_all(b"a warning\n").unwrap();
    painter.tick(2, screen).unwrap();
    let text = terminal.text();
    assert_eq!(text.lines().next(), Some("a warning"), "{text}");
    assert_eq!(occurrences(&text, "question"), 1, "{text}");
}
