//! Rows as a table for people, as CSV, or as JSON: `sessions list`, `query`, `config list`, `dlq list`.
//!
//! The table fits the width: the widest columns are cut with an ellipsis, but for those that are to be
//! copied, and where there are too many columns to read, each row becomes a list. CSV and JSON never lose anything.

use crate::columns::shared;
use crate::style::{BOLD, DIM, Line, Look, PLAIN, paint_all};
use crate::text;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::str::FromStr;

/// Columns of the narrowest column worth reading, unless its content is narrower.
const NARROWEST: usize = 8;
const GAP: usize = 2;

/// A way to write rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFormat {
    #[default]
    Table,
    Csv,
    Json,
}

impl TableFormat {
    pub const ALL: [Self; 3] = [Self::Table, Self::Csv, Self::Json];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }
}

impl FromStr for TableFormat {
    type Err = UnknownTableFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == text);
        found.ok_or_else(|| UnknownTableFormat(text.to_owned()))
    }
}

/// A format that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}` (available: `table`, `csv`, `json`)")]
pub struct UnknownTableFormat(String);

/// Rows under headers. A row may be shorter than the headers; what is longer is dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub headers: Vec<String>,
    /// `Null` where there is no value. Numbers and truth values keep their type in JSON.
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

    /// Writes all rows; the text ends with a line feed. For a table that is not read on a terminal,
    /// give a width that cuts nothing.
    pub fn render(&self, format: TableFormat, look: Look) -> String {
        match format {
            TableFormat::Table => self.table(look),
            TableFormat::Csv => self.csv(),
            TableFormat::Json => self.json(),
        }
    }

    fn cell(&self, row: usize, column: usize) -> &Value {
        self.rows
            .get(row)
            .and_then(|row| row.get(column))
            .unwrap_or(&Value::Null)
    }

    fn table(&self, look: Look) -> String {
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

    fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        // Writing to memory fails only for rows of unequal length, and these are equal.
        let _ = writer.write_record(&self.headers);
        for row in 0..self.rows.len() {
            let _ =
                writer.write_record((0..self.headers.len()).map(|at| plain(self.cell(row, at))));
        }
        String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
    }

    fn json(&self) -> String {
        let names = distinct(&self.headers);
        let mut out = String::from("[");
        for row in 0..self.rows.len() {
            out.push_str(if row == 0 { "\n" } else { ",\n" });
            let object = Object {
                table: self,
                names: &names,
                row,
            };
            // Text keys and plain values: writing them as JSON cannot fail.
            out.push_str(&serde_json::to_string(&object).unwrap_or_default());
        }
        out.push_str(if self.rows.is_empty() { "]\n" } else { "\n]\n" });
        out
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

/// One row as an object, its fields in the order of the headers.
struct Object<'a> {
    table: &'a Table,
    names: &'a [String],
    row: usize,
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.names.len()))?;
        for (at, name) in self.names.iter().enumerate() {
            map.serialize_entry(name, self.table.cell(self.row, at))?;
        }
        map.end()
    }
}

/// Names that differ: the second `a` becomes `a_2`.
fn distinct(headers: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(headers.len());
    for header in headers {
        let mut name = header.clone();
        let mut count = 1;
        while names.contains(&name) {
            count += 1;
            name = format!("{header}_{count}");
        }
        names.push(name);
    }
    names
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
            sample().render(TableFormat::Table, Look::plain(80)),
            "\
session  question                   tokens
ab12     What, \"exactly\", is this?    1200
cd34     日本
ef56
"
        );
        assert_eq!(
            sample().render(TableFormat::Table, Look::plain(30)),
            "\
session  question       tokens
ab12     What, \"exact…    1200
cd34     日本
ef56
"
        );
        let colored = sample().render(TableFormat::Table, Look::colored(80));
        assert!(
            colored.starts_with("\u{1b}[1msession\u{1b}[0m"),
            "{colored:?}"
        );
    }

    #[test]
    fn too_narrow_a_terminal_gets_lists() {
        assert_eq!(
            sample().render(TableFormat::Table, Look::plain(18)),
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
        assert_eq!(
            Table::new(["a"]).render(TableFormat::Table, Look::plain(9)),
            "(no rows)\n"
        );
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        assert_eq!(
            sample().render(TableFormat::Csv, Look::plain(10)),
            "session,question,tokens\nab12,\"What, \"\"exactly\"\",\nis this?\",1200\ncd34,日本,\nef56,,\n"
        );
    }

    #[test]
    fn json_is_an_array_of_objects_in_the_order_of_the_headers() {
        let mut table = Table::new(["z", "a", "z"]);
        table.push([json!(1), json!(null), json!("x")]);
        let text = table.render(TableFormat::Json, Look::plain(10));
        assert_eq!(text, "[\n{\"z\":1,\"a\":null,\"z_2\":\"x\"}\n]\n");
        assert_eq!(
            Table::new(["z"]).render(TableFormat::Json, Look::plain(10)),
            "[]\n"
        );
        let error = "xml".parse::<TableFormat>().unwrap_err().to_string();
        assert!(error.contains("`csv`"), "{error}");
    }

    proptest! {
        #[test]
        fn whatever_the_cells_no_format_loses_or_breaks(
            headers in proptest::collection::vec(any::<String>(), 1..4),
            rows in proptest::collection::vec(proptest::collection::vec(any::<String>(), 0..5), 0..4),
            width in 0usize..60,
        ) {
            let mut table = Table::new(headers.clone());
            for row in &rows {
                table.push(row.iter().map(String::as_str));
            }
            let _ = table.render(TableFormat::Table, Look::plain(width));
            let json: Vec<serde_json::Map<String, Value>> =
                serde_json::from_str(&table.render(TableFormat::Json, Look::plain(width))).unwrap();
            prop_assert_eq!(json.len(), rows.len());
            let csv = table.render(TableFormat::Csv, Look::plain(width));
            let mut reader = csv::Reader::from_reader(csv.as_bytes());
            for (row, record) in reader.records().enumerate() {
                let record = record.unwrap();
                prop_assert_eq!(record.len(), headers.len());
                for (at, cell) in record.iter().enumerate() {
                    let expected = rows[row].get(at).map_or("", String::as_str);
                    prop_assert_eq!(cell, expected);
                }
            }
        }
    }
}
