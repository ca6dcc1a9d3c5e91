//! Rows of a CSV or TSV file, each a passage of its own: `row: column = value; column = value`.
//!
//! Lines that begin with `#` above the header describe the file: the first is its title, and
//! the others are kept as its first passage. The separator is the one the header uses most.

use super::format::Halt;
use super::outline::{cut, shortened, table_row};
use super::passage::Passage;
use super::reader::skip_mark;
use csv::{ByteRecord, ReaderBuilder};
use std::cell::Cell;
use std::io::{BufRead, Read};
use std::rc::Rc;

/// Most characters of one value in a passage.
const MAX_VALUE: usize = 500;
/// Most characters of a row's passage.
const MAX_ROW: usize = 2_000;
/// Most bytes of a row in the file: more means that a quote was left open.
const MAX_ROW_BYTES: u64 = 4 * 1024 * 1024;
/// Passages handed on at once.
const BATCH: usize = 256;

/// What stands above the header.
#[derive(Debug, Default)]
pub(crate) struct Preface {
    pub(crate) lines: Vec<String>,
    /// How many lines of the file that is.
    count: u64,
}

impl Preface {
    pub(crate) fn title(&self) -> Option<String> {
        self.lines.first().cloned()
    }
}

/// Takes the describing lines off the front.
pub(crate) fn preface(reader: &mut dyn BufRead) -> Result<Preface, Halt> {
    let mut preface = Preface::default();
    skip_mark(reader)?;
    while reader.fill_buf().map_err(Halt::io)?.first() == Some(&b'#') {
        let mut line = Vec::new();
        reader
            .take(MAX_ROW_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(Halt::io)?;
        preface.count += 1;
        let text = std::str::from_utf8(&line).map_err(|_| not_utf8(preface.count))?;
        let text = text.trim_start_matches('#').trim();
        if !text.is_empty() {
            preface.lines.push(text.to_owned());
        }
    }
    Ok(preface)
}

/// Reads the rows below the preface.
pub(crate) fn parse(
    reader: &mut dyn BufRead,
    preface: &Preface,
    out: &mut dyn FnMut(Vec<Passage>) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let separator = separator(reader.fill_buf().map_err(Halt::io)?);
    let since_row = Rc::new(Cell::new(0));
    let bounded = Bounded {
        inner: reader,
        since_row: Rc::clone(&since_row),
    };
    let mut rows = ReaderBuilder::new()
        .delimiter(separator)
        .flexible(true)
        .from_reader(bounded);
    let failed = |error: &csv::Error| {
        let line = error.position().map_or(0, csv::Position::line) + preface.count;
        Halt::unreadable(format!("row near line {line}: {error}"))
    };
    let header = text(
        rows.byte_headers().map_err(|error| failed(&error))?,
        1 + preface.count,
    )?;
    let mut passages = Vec::new();
    // The first line is the title, which stands with every passage anyway.
    if preface.lines.len() > 1 {
        let text = cut(&preface.lines[1..].join("\n"), MAX_ROW);
        passages.push(Passage {
            text,
            ..Passage::default()
        });
    }
    let mut record = ByteRecord::new();
    let mut number = 0_u64;
    loop {
        since_row.set(0);
        if !rows
            .read_byte_record(&mut record)
            .map_err(|error| failed(&error))?
        {
            break;
        }
        number += 1;
        let line = record.position().map_or(0, csv::Position::line) + preface.count;
        let cells = text(&record, line)?;
        let text = cut(&table_row(&header, &cells), MAX_ROW);
        if !text.is_empty() {
            passages.push(Passage {
                heading: format!("row {number}"),
                text,
                entity: None,
            });
        }
        if passages.len() >= BATCH {
            out(std::mem::take(&mut passages))?;
        }
    }
    out(passages)
}

fn text(record: &ByteRecord, line: u64) -> Result<Vec<String>, Halt> {
    let cell = |bytes| {
        let text = std::str::from_utf8(bytes).map_err(|_| not_utf8(line))?;
        Ok(shortened(text, MAX_VALUE))
    };
    record.iter().map(cell).collect()
}

fn not_utf8(line: u64) -> Halt {
    Halt::unreadable(format!("line {line} is not UTF-8 text"))
}

/// The separator that stands most often in the header, outside of quotes.
fn separator(head: &[u8]) -> u8 {
    let mut quoted = false;
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0), (b'|', 0)];
    for byte in head.iter().take_while(|byte| **byte != b'\n') {
        if *byte == b'"' {
            quoted = !quoted;
        }
        if let Some(entry) = counts
            .iter_mut()
            .find(|(known, _)| known == byte && !quoted)
        {
            entry.1 += 1;
        }
    }
    // The first of equals, so that a single column is read with commas.
    counts
        .iter()
        .rev()
        .max_by_key(|(_, count)| *count)
        .map_or(b',', |(byte, _)| *byte)
}

/// Refuses a row without end before it fills the memory.
struct Bounded<'r> {
    inner: &'r mut dyn BufRead,
    since_row: Rc<Cell<u64>>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.since_row.set(self.since_row.get() + read as u64);
        if self.since_row.get() > MAX_ROW_BYTES {
            return Err(std::io::Error::other(
                "a row is longer than 4 MiB; is a quote left open?",
            ));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Passage>, Halt> {
        let reader = &mut &bytes[..];
        let preface = preface(reader)?;
        let mut all = Vec::new();
        parse(reader, &preface, &mut |mut passages| {
            all.append(&mut passages);
            Ok(())
        })?;
        Ok(all)
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        read(bytes).unwrap().into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn each_row_repeats_its_columns() {
        for (text, expected) in [
            ("a,b\n1,2\n,3\n", vec!["row: a = 1; b = 2", "row: b = 3"]),
            ("a;b\n1,5;2\n", vec!["row: a = 1,5; b = 2"]),
            ("a\tb\n1\t\"x\ny\"\n", vec!["row: a = 1; b = x y"]),
            ("\u{feff}a,b\n1,2\n", vec!["row: a = 1; b = 2"]),
            ("a,b\n1,2,3\n", vec!["row: 1 | 2 | 3"]),
            (
                "# Title\n# more\na,b\n1,2\n",
                vec!["more", "row: a = 1; b = 2"],
            ),
            ("a\n1\n", vec!["row: a = 1"]),
            ("a,b\n\n,\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(texts(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn values_and_rows_are_bounded() {
        let long = "x".repeat(5_000);
        let text = texts(format!("a,b,c,d,e,f\n{}\n", [long.as_str(); 6].join(",")).as_bytes());
        assert_eq!(text[0].chars().count(), MAX_ROW + 3);
    }

    #[test]
    fn an_open_quote_and_bad_bytes_are_named() {
        let mut open = b"a,b\n\"".to_vec();
        open.resize(6 * 1024 * 1024, b'x');
        for (bytes, expected) in [
            (
                open.as_slice(),
                "a row is longer than 4 MiB; is a quote left open?",
            ),
            (&b"# t\na\nb\n\xff\n"[..], "line 4 is not UTF-8 text"),
        ] {
            let Err(Halt::Unreadable(reason)) = read(bytes) else {
                unreachable!()
            };
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
