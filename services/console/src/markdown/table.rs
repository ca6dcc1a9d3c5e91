//! Tables: columns share the width, cells wrap. Where columns would be too narrow to read, each row
//! becomes a list of its cells.

use crate::style::{Line, BOLD, DIM, PLAIN};
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
        Self { alignments, rows: Vec::new() }
    }

    pub(super) fn render(&self, width: usize) -> Vec<Line> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        if count == 0 {
            return Vec::new();
        }
        let natural: Vec<usize> = (0..count)
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).map(Line::width).max())
            .map(|widest| widest.unwrap_or_default().max(1))
            .collect();
        match shared(&natural, width.saturating_sub(3 * (count - 1))) {
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
        let Some((header, rows)) = self.rows.split_first() else { return out };
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

/// Widths that fit into `room`, taken from the widest columns first; `None` if no column would be
/// worth reading.
fn shared(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    if natural.iter().sum::<usize>() <= room {
        return Some(natural.to_vec());
    }
    let least: usize = natural.iter().map(|width| (*width).min(NARROWEST)).sum();
    if least > room {
        return None;
    }
    // The largest cap under which all fit: narrow columns keep what they need.
    let total = |cap: usize| natural.iter().map(|width| (*width).min(cap)).sum::<usize>();
    let mut cap = NARROWEST;
    while total(cap + 1) <= room {
        cap += 1;
    }
    let mut widths: Vec<usize> = natural.iter().map(|width| (*width).min(cap)).collect();
    let mut left = room - total(cap);
    for (width, wanted) in widths.iter_mut().zip(natural) {
        if left > 0 && *width < *wanted {
            *width += 1;
            left -= 1;
        }
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_give_way_and_narrow_ones_keep_what_they_need() {
        assert_eq!(shared(&[3, 10], 20), Some(vec![3, 10]));
        assert_eq!(shared(&[3, 40, 40], 43), Some(vec![3, 20, 20]));
        assert_eq!(shared(&[3, 40, 41], 44), Some(vec![3, 21, 20]));
        assert_eq!(shared(&[40, 40, 40], 17), None);
        assert_eq!(shared(&[40, 40, 40], 18), Some(vec![6, 6, 6]));
    }
}
