//! A tree of lines, drawn into the width there is.

use super::WIDEST;
use crate::style::{DIM, Line, PLAIN};
use crate::text;
use anstyle::Style;

/// Lines a title may take.
const TITLE_LINES: usize = 3;

/// A node of the drawing: its title with remarks after or below it, more lines, and branches.
#[derive(Default)]
pub(super) struct Branch {
    pub(super) title: Line,
    pub(super) remarks: Line,
    pub(super) details: Vec<Detail>,
    pub(super) branches: Vec<Branch>,
}

/// A line below a title.
pub(super) enum Detail {
    /// Over as many lines as it takes.
    Whole(Line),
    /// In one line, cut where it ends.
    Glimpse(Line),
}

impl Branch {
    pub(super) fn new(title: Line) -> Self {
        Self {
            title,
            ..Self::default()
        }
    }

    pub(super) fn whole(&mut self, line: Line) {
        self.details.push(Detail::Whole(line));
    }

    pub(super) fn glimpse(&mut self, label: &str, text: &str, style: Style) {
        let text = text::preview(text, WIDEST);
        if !text.is_empty() {
            self.details
                .push(Detail::Glimpse(Line::of(label, DIM).with(&text, style)));
        }
    }

    pub(super) fn draw(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        self.draw_below(&Line::new(), &Line::new(), width, &mut lines);
        lines
    }

    pub(super) fn draw_below(&self, first: &Line, rest: &Line, width: usize, out: &mut Vec<Line>) {
        let room = width.saturating_sub(first.width());
        let beside = self.title.width() + 2 + self.remarks.width() <= room;
        for (position, line) in self
            .title
            .wrapped(room)
            .iter()
            .take(TITLE_LINES)
            .enumerate()
        {
            let prefix = if position == 0 {
                first.clone()
            } else {
                self.detail_prefix(rest)
            };
            out.push(prefix.with_line(line));
        }
        if !self.remarks.is_empty() {
            match out.last_mut() {
                Some(head) if beside => {
                    *head = head.clone().with("  ", PLAIN).with_line(&self.remarks);
                }
                Some(_) | None => {
                    let prefix = self.detail_prefix(rest);
                    let room = width.saturating_sub(prefix.width());
                    let lines = self.remarks.wrapped(room);
                    out.extend(lines.iter().map(|line| prefix.clone().with_line(line)));
                }
            }
        }
        for detail in &self.details {
            let prefix = self.detail_prefix(rest);
            let room = width.saturating_sub(prefix.width());
            let lines = match detail {
                Detail::Whole(line) => line.wrapped(room),
                Detail::Glimpse(line) => vec![line.shortened(room)],
            };
            out.extend(lines.iter().map(|line| prefix.clone().with_line(line)));
        }
        for (position, branch) in self.branches.iter().enumerate() {
            let last = position + 1 == self.branches.len();
            let (turn, pass) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            branch.draw_below(
                &rest.clone().with(turn, DIM),
                &rest.clone().with(pass, DIM),
                width,
                out,
            );
        }
    }

    /// Before a line below the title: the trunk goes on if branches follow.
    pub(super) fn detail_prefix(&self, rest: &Line) -> Line {
        rest.clone().with(
            if self.branches.is_empty() {
                "   "
            } else {
                "│  "
            },
            DIM,
        )
    }
}
