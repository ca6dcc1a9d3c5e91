//! Rows as a table for people: `sessions list`, `query`, `config list`, `dlq list`.
//!
//! The table fits the width: the widest columns are cut with an ellipsis, but for those that are to be
//! copied, and where there are too many columns to read, each row becomes a list.

use crate::columns::shared;
use crate::style::{BOLD, DIM, Line, Look, PLAIN, paint_all};
use crate::text;
use serde_json::Value;

/// Columns of the narrowest column worth reading, unless its content is narrower.
const NARROWEST: usize = 8;
const GAP: usize = 2;

/// Rows under headers. A row may be shorter than the headers; what is longer is dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub headers: Vec<String>,
    /// `Null` where there is no value.
    pub rows: Vec<Vec<Value>>,
    /// So many columns from the left are never cut: they are there to be copied.
    pub whole: usize,
}

impl Table {
    pub fn new<H: Into<String>>(headers: impl IntoIterator<Item = H>) -> Self {
        Self {
            headers: headers.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            whole: 0,
        }
    }

    pub fn push<V: Into<Value>>(&mut self, row: impl IntoIterator<Item = V>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    fn cell(&self, row: usize, column: usize) -> &Value {
        self.rows
            .get(row)
            .and_then(|row| row.get(column))
            .unwrap_or(&Value::Null)
    }

    /// Writes all rows; the text ends with a line feed. For a table that is not read on a terminal,
    /// give a width that cuts nothing.
    pub fn render(&self, look: Look) -> String {
        if self.rows.is_empty() {
            return paint_all(&[Line::of("(no rows)", DIM)], look.color);
        }
        let cells: Vec<Vec<String>> = (0..self.rows.len())
            .map(|row| {
                (0..self.headers.len())
                    .map(|at| text::one_line(&plain(self.cell(row, at))))
                    .collect()
            })
            .collect();
        let natural: Vec<usize> = self
            .headers
            .iter()
            .enumerate()
            .map(|(at, header)| {
                let widest = cells.iter().map(|row| text::width(&row[at])).max();
                widest.unwrap_or_default().max(text::width(header)).max(1)
            })
            .collect();
        let gaps = GAP * self.headers.len().saturating_sub(1);
        let (whole, others) = natural.split_at(self.whole.min(natural.len()));
        let taken = gaps + whole.iter().sum::<usize>();
        let lines = match shared(others, look.width.saturating_sub(taken), NARROWEST) {
            Some(widths) => self.grid(&cells, &[whole, &widths].concat()),
            None => self.records(&cells, look.width),
        };
        paint_all(&lines, look.color)
    }

    fn grid(&self, cells: &[Vec<String>], widths: &[usize]) -> Vec<Line> {
        let numeric: Vec<bool> = (0..widths.len()).map(|at| self.is_numeric(at)).collect();
        let mut lines = Vec::with_capacity(cells.len() + 1);
        let header = self.headers.iter().map(String::as_str);
        lines.push(grid_line(header, widths, &numeric, true));
        for row in cells {
            lines.push(grid_line(
                row.iter().map(String::as_str),
                widths,
                &numeric,
                false,
            ));
        }
        lines
    }

    /// Whether a column holds numbers and nothing else.
    fn is_numeric(&self, column: usize) -> bool {
        let values = || (0..self.rows.len()).map(|row| self.cell(row, column));
        values().any(Value::is_number) && values().all(|v| v.is_number() || v.is_null())
    }

    fn records(&self, cells: &[Vec<String>], width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for row in cells {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            for (header, cell) in self.headers.iter().zip(row) {
                if !cell.is_empty() {
                    let line = Line::of(header, BOLD).with(": ", BOLD).with(cell, PLAIN);
                    lines.extend(line.wrapped(width));
                }
            }
        }
        lines
    }
}

fn grid_line<'a>(
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
    numeric: &[bool],
    header: bool,
) -> Line {
    let style = if header { BOLD } else { PLAIN };
    let mut line = Line::new();
    // Spaces are written only once something follows them.
    let mut space = 0;
    for (at, (cell, width)) in cells.zip(widths).enumerate() {
        let cell = text::shorten(&text::one_line(cell), *width);
        let left = width - text::width(&cell);
        let to_the_right = numeric.get(at).copied().unwrap_or_default();
        if to_the_right {
            space += left;
        }
        if !cell.is_empty() {
            line.push(&" ".repeat(space), PLAIN).push(&cell, style);
            space = 0;
        }
        if !to_the_right {
            space += left;
        }
        space += GAP;
    }
    line
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn sample() -> Table {
        let mut table = Table::new(["session", "question", "tokens"]);
        table.push([
            json!("ab12"),
            json!("What, \"exactly\",\nis this?"),
            json!(1200),
        ]);
        table.push([json!("cd34"), json!("日本"), Value::Null]);
        table.push([json!("ef56")]);
        table
    }

    #[test]
    fn a_table_fits_the_width_and_sets_numbers_to_the_right() {
        assert_eq!(
            sample().render(Look::plain(80)),
            "\
session  question                   tokens
ab12     What, \"exactly\", is this?    1200
cd34     日本
ef56
"
        );
        assert_eq!(
            sample().render(Look::plain(30)),
            "\
session  question       tokens
ab12     What, \"exact…    1200
cd34     日本
ef56
"
        );
        let colored = sample().render(Look::colored(80));
        assert!(
            colored.starts_with("\u{1b}[1msession\u{1b}[0m"),
            "{colored:?}"
        );
    }

    #[test]
    fn too_narrow_a_terminal_gets_lists() {
        assert_eq!(
            sample().render(Look::plain(18)),
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
        assert_eq!(Table::new(["a"]).render(Look::plain(9)), "(no rows)\n");
    }

    proptest! {
        #[test]
        fn whatever_the_cells_nothing_breaks_and_a_wide_table_is_whole(
            headers in proptest::collection::vec(any::<String>(), 1..4),
            rows in proptest::collection::vec(proptest::collection::vec(any::<String>(), 0..5), 0..4),
            width in 0usize..60,
        ) {
            let mut table = Table::new(headers.clone());
            for row in &rows {
                table.push(row.iter().map(String::as_str));
            }
            let whole = table.render(Look::plain(usize::MAX));
            for cell in rows.iter().flat_map(|row| row.iter().take(headers.len())) {
                prop_assert!(whole.contains(text::one_line(cell).trim()));
            }
            table.render(Look::plain(width));
        }
    }
}
