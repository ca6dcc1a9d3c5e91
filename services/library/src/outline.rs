//! The shape that Markdown, HTML and plain text share: blocks of text below a path of headings.

use super::format::Parsed;
use super::passage::{Packer, ROW, code};

/// Deepest list whose items are still indented further: a file of nothing but nested lists would grow
/// with the square of its size.
const MAX_INDENT: usize = 16;

/// Collects the blocks of one document in their order.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    first_heading: Option<String>,
    /// Open headings by level, the top one first; a level that was skipped is empty.
    headings: Vec<String>,
    blocks: Vec<(Vec<String>, String)>,
}

impl Outline {
    /// Opens a heading; `level` 1 is the top.
    pub(crate) fn heading(&mut self, level: usize, text: &str) {
        let text = one_line(text);
        if self.first_heading.is_none() && !text.is_empty() {
            self.first_heading = Some(text.clone());
        }
        self.part(level, &text);
    }

    /// Begins a part that is no name for the whole: a page, a sheet.
    pub(crate) fn part(&mut self, level: usize, text: &str) {
        let text = one_line(text);
        if text.is_empty() {
            return;
        }
        let above = level.saturating_sub(1);
        self.headings.truncate(above);
        self.headings.resize(above, String::new());
        self.headings.push(text);
    }

    /// Adds a block below the open headings.
    pub(crate) fn block(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let open = self
                .headings
                .iter()
                .filter(|h| !h.is_empty())
                .cloned()
                .collect();
            self.blocks.push((open, text.trim_end().to_owned()));
        }
    }

    /// Adds a block of code below the open headings.
    pub(crate) fn code(&mut self, text: &str, language: &str) {
        if let Some(block) = code(text, language) {
            self.block(&block);
        }
    }

    /// The passages, titled by what the document says of itself, else by its first heading.
    pub(crate) fn into_parsed(self, own: Option<String>, otherwise: Option<String>) -> Parsed {
        // A changelog begins with its newest version, which is no name for the whole.
        let names = |title: &String| title.chars().next().is_some_and(char::is_alphabetic);
        let title = own.or(self.first_heading.filter(names)).or(otherwise);
        let mut packer = Packer::new(title.as_deref().unwrap_or_default());
        let mut passages = Vec::new();
        for (headings, text) in &self.blocks {
            packer.push(headings, text, &mut passages);
        }
        packer.finish(&mut passages);
        Parsed { title, passages }
    }
}

/// Text with every run of white space as one space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text in one line, cut where it is long.
pub fn shortened(text: &str, most: usize) -> String {
    cut(&one_line(text), most)
}

/// At most so many characters of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

/// The mark of the next item of the innermost list; a list without a number has plain marks.
pub(crate) fn item_mark(lists: &mut [Option<u64>]) -> String {
    let indent = "  ".repeat(lists.len().saturating_sub(1).min(MAX_INDENT));
    match lists.last_mut() {
        Some(Some(number)) => {
            *number += 1;
            format!("{indent}{}. ", *number - 1)
        }
        _ => format!("{indent}- "),
    }
}

/// A table row that can be read without its table, marked as a row: each cell after the name of its
/// column. Empty if no cell holds anything.
pub(crate) fn table_row(header: &[String], cells: &[String]) -> String {
    let filled = cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| !cell.is_empty());
    if header.len() == cells.len() {
        let named = filled.map(|(at, cell)| match header[at].as_str() {
            "" => cell.clone(),
            name => format!("{name} = {cell}"),
        });
        return marked(&named.collect::<Vec<_>>().join("; "));
    }
    let cells: Vec<&str> = filled.map(|(_, cell)| cell.as_str()).collect();
    marked(&cells.join(" | "))
}

fn marked(row: &str) -> String {
    if row.is_empty() {
        String::new()
    } else {
        format!("{ROW}{row}")
    }
}
