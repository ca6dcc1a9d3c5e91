//! Tables: columns share the width, cells wrap. Where columns would be too narrow to read, each row
//! becomes a list of its cells.

use crate::columns::shared;
use crate::style::{BOLD, DIM, Line, PLAIN};
use pulldown_cmark::Alignment;

/// Columns of the narrowest column worth reading, unless its content is narrower.
const NARROWEST: usize = 6;

pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The first is the header.
    pub rows: Vec<Vec<Line>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self {
            alignments,
            rows: Vec::new(),
        }
    }

    pub(super) fn render(&self, width: usize) -> Vec<Line> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        if count == 0 {
            return Vec::new();
        }
        let natural: Vec<usize> = (0..count)
            .map(|at| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(at))
                    .map(Line::width)
                    .max()
            })
            .map(|widest| widest.unwrap_or_default().max(1))
            .collect();
        match shared(&natural, width.saturating_sub(3 * (count - 1)), NARROWEST) {
            Some(widths) => self.grid(&widths),
            None => self.records(width),
        }
    }

    fn grid(&self, widths: &[usize]) -> Vec<Line> {
        let mut out = Vec::new();
        for (position, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Line>> = widths
                .iter()
                .enumerate()
                .map(|(at, width)| {
                    let cell = row.get(at).cloned().unwrap_or_default();
                    let cell = if position == 0 { bold(&cell) } else { cell };
                    cell.wrapped(*width)
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            for line_number in 0..height {
                let mut line = Line::new();
                for (at, width) in widths.iter().enumerate() {
                    if at > 0 {
                        line.push(" │ ", DIM);
                    }
                    let cell = cells[at].get(line_number).cloned().unwrap_or_default();
                    let last = at + 1 == widths.len();
                    self.align(&mut line, &cell, at, *width, last);
                }
                out.push(line);
            }
            if position == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                out.push(Line::of(&rules.join("─┼─"), DIM));
            }
        }
        out
    }

    fn align(&self, line: &mut Line, cell: &Line, at: usize, width: usize, last: bool) {
        let space = width.saturating_sub(cell.width());
        let before = match self.alignments.get(at) {
            Some(Alignment::Right) => space,
            Some(Alignment::Center) => space / 2,
            Some(Alignment::Left | Alignment::None) | None => 0,
        };
        line.push(&" ".repeat(before), PLAIN).append(cell);
        if !last {
            line.push(&" ".repeat(space - before), PLAIN);
        }
    }

    fn records(&self, width: usize) -> Vec<Line> {
        let mut out = Vec::new();
        let Some((header, rows)) = self.rows.split_first() else {
            return out;
        };
        for row in rows {
            if !out.is_empty() {
                out.push(Line::new());
            }
            for (at, cell) in row.iter().enumerate() {
                let mut line = bold(header.get(at).unwrap_or(&Line::new()));
                line.push(": ", BOLD).append(cell);
                out.extend(line.wrapped(width));
            }
        }
        if rows.is_empty() {
            out.extend(header.iter().flat_map(|cell| bold(cell).wrapped(width)));
        }
        out
    }
}

fn bold(cell: &Line) -> Line {
    cell.over(BOLD)
}
