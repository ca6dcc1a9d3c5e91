//! The lanes as lines of a terminal, as they are at one instant.

use super::board::LaneBoard;
use super::lane::{Lane, LaneState};
use crate::style::{BAD, BOLD, DIM, GOOD, Line, Look, NAME, PLAIN, WARN};
use crate::text;
use agentfleet_schema::Millis;
use anstyle::Style;
use std::collections::BTreeSet;

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Stands for it where nothing moves any more.
const STILL: &str = "●";
/// How long each picture of the spinner stays.
const SPIN: Millis = 100;
/// Columns a label takes at most, and at least where there is room for anything else.
const LABEL: (usize, usize) = (60, 16);
const STATE: usize = 16;
const TIME: usize = 8;

impl LaneBoard {
    /// The lanes in at most `height` lines of at most `width` columns. Where they are more, those
    /// that have something to show stay, and the last line counts the rest.
    pub fn render(&self, width: usize, height: usize, now: Millis) -> Vec<Line> {
        self.lines(width, height, now, spinner(now))
    }

    /// As [`LaneBoard::render`], for lanes that will not be redrawn.
    pub(super) fn render_still(&self, width: usize, height: usize, now: Millis) -> Vec<Line> {
        self.lines(width, height, now, STILL)
    }

    fn lines(&self, width: usize, height: usize, now: Millis, busy: &'static str) -> Vec<Line> {
        let lanes = self.lanes();
        if height == 0 {
            return Vec::new();
        }
        let shown = if lanes.len() <= height {
            (0..lanes.len()).collect()
        } else {
            self.most_telling(height - 1)
        };
        let widest = shown
            .iter()
            .map(|at| prefix(&lanes[*at]) + text::width(&text::preview(&lanes[*at].label, LABEL.0)))
            .max()
            .unwrap_or_default();
        let label = widest.min(LABEL.0).min((width * 9 / 20).max(LABEL.1));
        let mut lines: Vec<Line> = shown
            .iter()
            .map(|at| {
                self.lane_line(*at, label, width, now, busy)
                    .shortened(width)
            })
            .collect();
        if shown.len() < lanes.len() {
            lines.push(self.rest(&shown).shortened(width));
        }
        lines
    }

    fn lane_line(
        &self,
        at: usize,
        label: usize,
        width: usize,
        now: Millis,
        busy: &'static str,
    ) -> Line {
        let lane = &self.lanes()[at];
        let (sign, style) = sign(lane, busy);
        let mut line = Line::of(&"  ".repeat(lane.depth), PLAIN)
            .with(sign, style)
            .with(" ", PLAIN);
        let room = label.saturating_sub(prefix(lane) - 2);
        let name = if lane.label.is_empty() {
            lane.session.as_str()
        } else {
            &lane.label
        };
        let name = text::preview(name, room);
        let padding = room - text::width(&name);
        line.push(&name, if lane.depth == 0 { BOLD } else { PLAIN });
        line.push(&" ".repeat(padding), PLAIN);
        let mut words = lane.state.words();
        let open = self.open_children(at);
        if lane.state == LaneState::Waiting && open > 0 {
            words = format!("waiting for {open}");
        }
        line.push(
            &format!("  {:<STATE$}", text::shorten(&words, STATE)),
            style,
        );
        let elapsed = lane.elapsed(now).map(text::duration).unwrap_or_default();
        line.push(&format!("{elapsed:>TIME$}  "), DIM);
        let said = if lane.is_speaking() {
            end_of(&lane.snippet)
        } else {
            text::preview(&lane.snippet, width)
        };
        line.push(&said, DIM);
        line
    }

    /// The lanes that fit: the root, then who is at work, then who went wrong, then who waits, then
    /// who is done; each in its place.
    fn most_telling(&self, room: usize) -> BTreeSet<usize> {
        let mut order: Vec<usize> = (0..self.lanes().len()).collect();
        order.sort_by_key(|at| (*at > 0, urgency(&self.lanes()[*at].state), *at));
        order.into_iter().take(room).collect()
    }

    fn rest(&self, shown: &BTreeSet<usize>) -> Line {
        let hidden: Vec<&Lane> = self
            .lanes()
            .iter()
            .enumerate()
            .filter(|(at, _)| !shown.contains(at))
            .map(|(_, l)| l)
            .collect();
        let count = |wanted: fn(&LaneState) -> bool| {
            hidden.iter().filter(|lane| wanted(&lane.state)).count() as u64
        };
        let kinds = [
            ("at work", count(LaneState::is_active)),
            (
                "waiting",
                count(|state| matches!(state, LaneState::Waiting)),
            ),
            ("done", count(|state| matches!(state, LaneState::Done))),
            (
                "failed",
                count(|state| matches!(state, LaneState::Failed(_))),
            ),
            (
                "late",
                count(|state| matches!(state, LaneState::Missed | LaneState::Late)),
            ),
        ];
        let kinds: Vec<String> = kinds
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{} {kind}", text::count(*count)))
            .collect();
        let more = text::count(hidden.len() as u64);
        Line::of(&format!("  … and {more} more: {}", kinds.join(", ")), DIM)
    }
}

/// Columns before a label.
fn prefix(lane: &Lane) -> usize {
    2 * lane.depth + 2
}

fn urgency(state: &LaneState) -> u8 {
    match state {
        LaneState::Calling(_) | LaneState::Thinking | LaneState::Answering => 0,
        LaneState::Failed(_) | LaneState::Missed | LaneState::Late => 1,
        LaneState::Waiting => 2,
        LaneState::Done => 3,
    }
}

fn spinner(now: Millis) -> &'static str {
    let picture = now.div_euclid(SPIN).rem_euclid(SPINNER.len() as Millis);
    SPINNER[picture as usize]
}

fn sign(lane: &Lane, busy: &'static str) -> (&'static str, Style) {
    match &lane.state {
        LaneState::Waiting => ("○", DIM),
        LaneState::Thinking | LaneState::Calling(_) | LaneState::Answering => (busy, NAME),
        LaneState::Done => ("✔", GOOD),
        LaneState::Failed(_) => ("✖", BAD),
        LaneState::Missed | LaneState::Late => ("!", WARN),
    }
}

/// The end of a running text in one line: what came last is what matters.
fn end_of(text: &str) -> String {
    const END: usize = 70;
    let line = text::one_line(text);
    let columns = text::width(&line);
    if columns <= END {
        return line;
    }
    let mut over = columns - END + 1;
    let mut from = 0;
    for (at, c) in line.char_indices() {
        if over == 0 {
            from = at;
            break;
        }
        over = over.saturating_sub(text::width(c.encode_utf8(&mut [0; 4])));
    }
    format!("{}{}", text::ELLIPSIS, &line[from..])
}

/// A rule with a word in it, between the lanes and what follows.
pub(super) fn heading(word: &str, look: Look) -> Line {
    let room = look.width.min(72).saturating_sub(text::width(word) + 4);
    Line::of("── ", DIM)
        .with(word, BOLD)
        .with(" ", DIM)
        .with(&"─".repeat(room), DIM)
}
