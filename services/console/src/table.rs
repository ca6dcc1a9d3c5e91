//! Rows as a table for people: `sessions list`, `query`, `config list`, `dlq list`.
//!
//! The table fits the width: the widest columns are cut with an ellipsis, but for those that are to be
//! copied, and where there are too many columns to read, each row becomes a list.

use crate::columns::shared;
use crate::style::{BOLD, DIM, Line, Look, PLAIN, paint_all};
use crate::text;
use anstyle::Style;

/// Columns of the narrowest column worth reading, unless its content is narrower.
const NARROWEST: usize = 8;
const GAP: usize = 2;

/// Writes rows under headers; the text ends with a line feed. A row may be shorter than the headers; what is
/// longer is dropped. So many columns from the left as `whole` are never cut: they are there to be copied. For
/// a table that is not read on a terminal, give a width that cuts nothing.
pub fn render(headers: &[&str], whole: usize, rows: &[Vec<String>], look: Look) -> String {
    if rows.is_empty() {
        return paint_all(&[Line::of("(no rows)", DIM)], look.color);
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().map(|cell| text::one_line(cell));
            let cells = cells.chain(std::iter::repeat(String::new()));
            cells.take(headers.len()).collect()
        })
        .collect();
    let natural: Vec<usize> = headers
        .iter()
        .enumerate()
        .map(|(at, header)| {
            let widest = cells.iter().map(|row| text::width(&row[at])).max();
            widest.unwrap_or_default().max(text::width(header)).max(1)
        })
        .collect();
    let gaps = GAP * headers.len().saturating_sub(1);
    let (whole, others) = natural.split_at(whole.min(natural.len()));
    let taken = gaps + whole.iter().sum::<usize>();
    let lines = match shared(others, look.width.saturating_sub(taken), NARROWEST) {
        Some(widths) => grid(headers, &cells, &[whole, &widths].concat()),
        None => records(headers, &cells, look.width),
    };
    paint_all(&lines, look.color)
}

fn grid(headers: &[&str], cells: &[Vec<String>], widths: &[usize]) -> Vec<Line> {
    let header = grid_line(headers.iter().copied(), widths, BOLD);
    let rows = cells.iter();
    let rows = rows.map(|row| grid_line(row.iter().map(String::as_str), widths, PLAIN));
    std::iter::once(header).chain(rows).collect()
}

fn records(headers: &[&str], cells: &[Vec<String>], width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in cells {
        if !lines.is_empty() {
            lines.push(Line::new());
        }
        for (header, cell) in headers.iter().zip(row) {
            if !cell.is_empty() {
                let line = Line::of(header, BOLD).with(": ", BOLD).with(cell, PLAIN);
                lines.extend(line.wrapped(width));
            }
        }
    }
    lines
}

fn grid_line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], style: Style) -> Line {
    let mut line = Line::new();
    // Spaces are written only once something follows them.
    let mut space = 0;
    for (cell, width) in cells.zip(widths) {
        let cell = text::shorten(&text::one_line(cell), *width);
        if !cell.is_empty() {
            line.push(&" ".repeat(space), PLAIN).push(&cell, style);
            space = 0;
        }
        space += width - text::width(&cell) + GAP;
    }
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const HEADERS: [&str; 3] = ["session", "question", "tokens"];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        vec![
            row(&["ab12", "What, \"exactly\",\nis this?", "1200"]),
            row(&["cd34", "日本", ""]),
            row(&["ef56"]),
        ]
    }

    fn sample(look: Look) -> String {
        render(&HEADERS, 0, &rows(), look)
    }

    #[test]
    fn a_table_fits_the_width() {
        assert_eq!(
            sample(Look::plain(80)),
            "\
session  question                   tokens
ab12     What, \"exactly\", is this?  1200
cd34     日本
ef56
"
        );
        assert_eq!(
            sample(Look::plain(30)),
            "\
session  question       tokens
ab12     What, \"exact…  1200
cd34     日本
ef56
"
        );
        let colored = sample(Look::colored(80));
        assert!(
            colored.starts_with("\u{1b}[1msession\u{1b}[0m"),
            "{colored:?}"
        );
    }

    #[test]
    fn too_narrow_a_terminal_gets_lists() {
        assert_eq!(
            sample(Look::plain(18)),
            "\
session: ab12
question: What,
\"exactly\", is
this?
tokens: 1200

session: cd34
question: 日本

session: ef56
"
        );
        assert_eq!(render(&["a"], 0, &[], Look::plain(9)), "(no rows)\n");
    }

    proptest! {
        #[test]
        fn whatever_the_cells_nothing_breaks_and_a_wide_table_is_whole(
            headers in proptest::collection::vec(any::<String>(), 1..4),
            rows in proptest::collection::vec(proptest::collection::vec(any::<String>(), 0..5), 0..4),
            width in 0usize..60,
        ) {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let whole = render(&headers, 0, &rows, Look::plain(usize::MAX));
            for cell in rows.iter().flat_map(|row| row.iter().take(headers.len())) {
                prop_assert!(whole.contains(text::one_line(cell).trim()));
            }
            render(&headers, 0, &rows, Look::plain(width));
        }
    }
}
