//! The live view's model: what each event means, and what is shown of it.

use crate::sample::{self, QUESTION, Run, START};
use agentfleet_console::lanes::{LaneBoard, LaneState, News};
use agentfleet_runtime::client::Event;
use agentfleet_schema::records::CompletionStatus;
use agentfleet_schema::{AgentResponse, MessageType, SessionId};
use proptest::prelude::*;

fn board(run: &Run) -> LaneBoard {
    LaneBoard::new(run.root.clone(), QUESTION, START)
}

fn states(board: &LaneBoard) -> Vec<String> {
    board
        .lanes()
        .iter()
        .map(|lane| lane.state.words())
        .collect()
}

/// The board of a run as it stood at some milliseconds after its start.
fn at(run: &Run, ms: i64) -> LaneBoard {
    let mut board = board(run);
    for (when, event) in run.events() {
        if when <= START + ms {
            board.apply(&event, when);
        }
    }
    board
}

fn text(board: &LaneBoard, width: usize, height: usize, now: i64) -> String {
    board
        .render(width, height, START + now)
        .iter()
        .map(|line| format!("{}\n", line.plain().trim_end()))
        .collect()
}

#[test]
fn lanes_follow_what_their_sessions_do() {
    let run = sample::risk();
    for (ms, expected) in [
        (0, vec!["waiting"]),
        (700, vec!["thinking"]),
        (
            950,
            vec!["waiting", "waiting", "waiting", "waiting", "waiting"],
        ),
        (
            1_100,
            vec!["waiting", "thinking", "thinking", "waiting", "waiting"],
        ),
        (
            2_000,
            vec![
                "waiting",
                "thinking",
                "answering",
                "waiting",
                "thinking",
                "thinking",
                "waiting",
            ],
        ),
        (
            4_500,
            vec![
                "waiting", "done", "done", "done", "done", "done", "thinking",
            ],
        ),
        (
            10_450,
            vec![
                "answering",
                "done",
                "done",
                "done",
                "done",
                "done",
                "not waited for",
            ],
        ),
    ] {
        assert_eq!(states(&at(&run, ms)), expected, "after {ms} ms");
    }
}

#[test]
fn subagents_have_their_goals_before_they_say_a_word() {
    let board = at(&sample::risk(), 950);
    let goals: Vec<_> = board
        .lanes()
        .iter()
        .map(|lane| lane.label.as_str())
        .collect();
    assert_eq!(goals[0], QUESTION);
    assert!(goals[1].starts_with("Analyse financial"), "{goals:?}");
    assert!(goals[4].starts_with("Assess supply"), "{goals:?}");
    assert!(board.lanes()[1..].iter().all(|lane| lane.began.is_none()));
}

#[test]
fn a_result_that_comes_after_the_answer_is_late() {
    let run = sample::risk();
    let mut board = board(&run);
    let events = run.events();
    for (when, event) in events
        .iter()
        .filter(|(_, event)| !matches!(event, Event::End { .. }))
    {
        board.apply(event, *when);
    }
    assert_eq!(board.lanes().last().unwrap().state, LaneState::Late);
    assert!(!board.is_over());
}

#[test]
fn the_answer_comes_out_in_pieces_that_add_up() {
    for run in [sample::risk(), sample::single(), sample::hostile()] {
        let mut board = board(&run);
        let (mut answer, mut begun, mut ended) = (String::new(), 0, None);
        for (when, event) in run.events() {
            for news in board.apply(&event, when) {
                match news {
                    News::AnswerBegins { again } => {
                        assert!(!again);
                        begun += 1;
                    }
                    News::AnswerText(piece) => answer.push_str(&piece),
                    News::Ended { text, error } => ended = Some((text, error)),
                    News::Happened(_) => {}
                }
            }
        }
        assert_eq!(begun, 1);
        assert_eq!(ended, Some((answer, None)));
        assert!(board.is_over());
    }
}

#[test]
fn an_answer_begun_by_a_dead_worker_begins_again() {
    let root = SessionId::new("root");
    let chunk = |message: &str, text: &str| Event::Chunk {
        session: root.clone(),
        message_id: message.into(),
        kind: MessageType::Answer,
        text: text.into(),
    };
    let end = |message: &str, text: &str| Event::End {
        text: text.into(),
        error: None,
        response: Box::new(AgentResponse {
            message_id: message.into(),
            session_id: root.clone(),
            ..AgentResponse::default()
        }),
    };
    let ended = |text: &str| News::Ended {
        text: text.into(),
        error: None,
    };
    let piece = |text: &str| News::AnswerText(text.into());
    let begins = |again| News::AnswerBegins { again };
    for (events, expected) in [
        (
            vec![chunk("a", "it is "), chunk("a", "4"), end("a", "it is 4.")],
            vec![
                begins(false),
                piece("it is "),
                piece("4"),
                piece("."),
                ended("it is 4."),
            ],
        ),
        (
            // White space around a text is not always committed.
            vec![chunk("a", "\nit is 4\n"), end("a-whole", "it is 4")],
            vec![
                begins(false),
                piece("\nit is 4\n"),
                piece(""),
                ended("it is 4"),
            ],
        ),
        (
            vec![
                chunk("dead", "it is 5"),
                chunk("b", "it is 4"),
                end("b", "it is 4"),
            ],
            vec![
                begins(false),
                piece("it is 5"),
                begins(true),
                piece("it is 4"),
                piece(""),
                ended("it is 4"),
            ],
        ),
        (
            vec![chunk("dead", "it is 5"), end("b", "it is 4")],
            vec![
                begins(false),
                piece("it is 5"),
                begins(true),
                piece("it is 4"),
                ended("it is 4"),
            ],
        ),
        (
            vec![end("b", "it is 4")],
            vec![begins(false), piece("it is 4"), ended("it is 4")],
        ),
    ] {
        let mut board = LaneBoard::new(root.clone(), "q", 0);
        let news: Vec<News> = events
            .iter()
            .flat_map(|event| board.apply(event, 1))
            .collect();
        assert_eq!(news, expected);
        assert_eq!(
            board.apply(&events[0], 2),
            [],
            "nothing comes after the end"
        );
    }
}

/// The subagent at `index` of the only fan-out.
fn child(index: u32) -> SessionId {
    SessionId::child(&"root".into(), 1, index, "nonce")
}

/// A status message of a session, with the subagents that it tells of.
fn status(content: &str, session: &SessionId, subagents: u32) -> Event {
    Event::Note(Box::new(AgentResponse {
        message_type: MessageType::Status,
        content: content.into(),
        session_id: session.clone(),
        step: Some(1),
        subagents: (0..subagents).map(child).collect(),
        ..AgentResponse::default()
    }))
}

fn action(call: &str, session: &SessionId) -> Event {
    Event::Message {
        message_id: "m".into(),
        text: call.into(),
        response: Box::new(AgentResponse {
            message_type: MessageType::Action,
            content: call.into(),
            end_of_message: true,
            session_id: session.clone(),
            step: Some(1),
            ..AgentResponse::default()
        }),
    }
}

#[test]
fn a_tool_and_a_failure_are_named() {
    let root = SessionId::new("root");
    let mut board = LaneBoard::new(root.clone(), "q", 0);
    board.apply(&status("Fanned out to 2 subagents", &root, 2), 10);
    assert_eq!(states(&board), ["waiting", "waiting", "waiting"]);
    let call = "search(query: \"lock gate\")";
    let chunk = Event::Chunk {
        session: child(0),
        message_id: "m".into(),
        kind: MessageType::Action,
        text: call.into(),
    };
    assert_eq!(
        board.apply(&chunk, 20),
        [],
        "it is news once, when it is committed"
    );
    assert_eq!(board.lanes()[1].state, LaneState::Calling("search".into()));
    assert_eq!(board.lanes()[1].snippet, call);
    let news = board.apply(&action(call, &child(0)), 25);
    let [News::Happened(line)] = &news[..] else {
        panic!("{news:?}")
    };
    assert_eq!(line.plain(), format!("[1] calls {call}"));
    assert_eq!(board.lanes()[1].state, LaneState::Calling("search".into()));
    board.apply(&status("Completed: timeout", &child(0), 0), 30);
    assert_eq!(
        board.lanes()[1].state,
        LaneState::Failed(CompletionStatus::Timeout)
    );
    board.apply(&status("Completed: answered", &child(1), 0), 40);
    assert_eq!(
        states(&board),
        ["thinking", "timeout", "done"],
        "nobody is waited for any more"
    );
}

#[test]
fn lanes_are_shown_with_state_time_and_words() {
    let board = at(&sample::risk(), 2_000);
    assert_eq!(
        text(&board, 96, 20, 2_000),
        "\
○ Assess the risk profile of Company X as a…   waiting for 4      2.0 s  The framing names four…
  ⠋ Analyse financial health and stability o…  thinking          950 ms  The ratios are in the…
  ⠋ Review regulatory filings, sanctions and…  answering         991 ms  No sanctions hit. One…
  ○ Analyse news sentiment and public reputa…  waiting for 2     390 ms  Press and customers ar…
    ⠋ Collect press coverage of Company X      thinking          243 ms  Look it up.
    ⠋ Collect customer reviews of Company X    thinking          242 ms  Look it up.
  ○ Assess supply chain dependencies and ope…  waiting
"
    );
}

#[test]
fn more_lanes_than_rows_fold_into_a_count() {
    let root = SessionId::new("root");
    let mut board = LaneBoard::new(root.clone(), "q", 0);
    board.apply(&status("Fanned out to 1000 subagents", &root, 1_000), 0);
    for index in 0..500 {
        board.apply(&status("Completed: answered", &child(index), 0), 1);
    }
    board.apply(&status("Completed: error", &child(500), 0), 1);
    board.apply(&action("x()", &child(700)), 1);
    let shown = text(&board, 60, 5, 10);
    assert_eq!(shown.lines().count(), 5, "{shown}");
    assert!(
        shown.contains("calling x") && shown.contains("failed"),
        "{shown}"
    );
    assert!(
        shown.ends_with("  … and 997 more: 497 waiting, 500 done\n"),
        "{shown}"
    );
    assert_eq!(text(&board, 60, 0, 10), "");
    assert_eq!(text(&board, 60, 1, 10).lines().count(), 1);
}

proptest! {
    #[test]
    fn events_in_any_order_never_break_the_view(
        seed in any::<u64>(),
        width in 1usize..120,
        height in 0usize..12,
    ) {
        let run = sample::risk();
        let mut events = run.events();
        let mut state = seed;
        for at in (1..events.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            events.swap(at, (state >> 33) as usize % (at + 1));
        }
        let mut board = board(&run);
        for (when, event) in &events {
            board.apply(event, *when);
            let lines = board.render(width, height, *when);
            prop_assert!(lines.len() <= height);
            prop_assert!(lines.iter().all(|line| line.width() <= width));
        }
        prop_assert_eq!(board.lanes().iter().filter(|lane| lane.session == run.root).count(), 1);
    }
}
