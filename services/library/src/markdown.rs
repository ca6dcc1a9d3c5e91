//! Markdown to titled passages: sections by heading, and one line for each table row that repeats
//! the column names, so that a row can be quoted alone.
//!
//! Links are their text and emphasis is gone; code keeps its marks, so that nobody takes it for prose.

use super::format::{Halt, Parsed};
use super::guard::Patience;
use super::html;
use super::outline::{Outline, item_mark, one_line, table_row};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Most marks of emphasis, links and code in one paragraph: the parser takes the square of their number.
const MAX_MARKS: usize = 20_000;
/// Events between two looks at the clock.
const EVENTS: usize = 4_096;

/// Reads a whole document.
pub(crate) fn parse(text: &str, patience: &Patience) -> Result<Parsed, Halt> {
    check_marks(text)?;
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_DEFINITION_LIST
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut reader = Reader::default();
    for (count, event) in Parser::new_ext(text, options).enumerate() {
        if count % EVENTS == 0 {
            patience.check()?;
        }
        reader.event(event);
    }
    reader.end_block();
    Ok(reader.into_parsed())
}

/// Refuses a paragraph that is all marks. Rows of tables are paragraphs of their own.
fn check_marks(text: &str) -> Result<(), Halt> {
    let mut marks = 0;
    for line in text.lines() {
        if line.trim().is_empty() || line.trim_start().starts_with('|') {
            marks = 0;
        }
        marks += line.bytes().filter(|byte| b"*_[`~".contains(byte)).count();
        if marks > MAX_MARKS {
            return Err(Halt::unreadable(format!(
                "has a paragraph with more than {MAX_MARKS} marks of emphasis, links and code"
            )));
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Reader {
    front_matter: FrontMatter,
    outline: Outline,
    text: String,
    /// What the next block starts with: the mark of a list item.
    mark: String,
    lists: Vec<Option<u64>>,
    /// Open images, whose text is not prose.
    images: usize,
    inside: Inside,
    table: Table,
}

#[derive(Debug, Default, PartialEq)]
enum Inside {
    #[default]
    Prose,
    Heading(usize),
    FrontMatter,
    Html,
    /// A block of code in this language, which may be empty.
    Code(String),
}

#[derive(Debug, Default)]
struct FrontMatter {
    title: Option<String>,
    description: Option<String>,
}

#[derive(Debug, Default)]
struct Table {
    header: Vec<String>,
    row: Vec<String>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.images == 0 => self.text.push_str(&text),
            Event::Code(text) if self.images == 0 => self.inline_code(&text),
            Event::Html(text) => self.text.push_str(&text),
            Event::SoftBreak => self.text.push(' '),
            Event::HardBreak => self.text.push('\n'),
            Event::TaskListMarker(done) => self.text.push_str(if done { "[x] " } else { "[ ] " }),
            // Inline tags, footnote marks and rules carry no words. `Text` in an image is its
            // description, which repeats the prose or names a badge.
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.end_block();
                self.inside = Inside::Heading(*level as usize);
            }
            Tag::MetadataBlock(_) => {
                self.end_block();
                self.inside = Inside::FrontMatter;
            }
            Tag::HtmlBlock => {
                self.end_block();
                self.inside = Inside::Html;
            }
            Tag::CodeBlock(kind) => {
                self.end_block();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.inside = Inside::Code(language);
            }
            Tag::List(first) => {
                self.end_block();
                self.lists.push(*first);
            }
            Tag::Item => {
                self.end_block();
                self.mark = item_mark(&mut self.lists);
            }
            Tag::Table(_) => {
                self.end_block();
                self.table = Table::default();
            }
            Tag::TableHead | Tag::TableRow => self.table.row.clear(),
            Tag::Image { .. } => self.images += 1,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.end_heading(),
            TagEnd::MetadataBlock(_) => {
                self.inside = Inside::Prose;
                self.front_matter = front_matter(&std::mem::take(&mut self.text));
                self.outline
                    .block(self.front_matter.description.as_deref().unwrap_or_default());
            }
            TagEnd::HtmlBlock => {
                self.inside = Inside::Prose;
                for item in html::fragment(&std::mem::take(&mut self.text)) {
                    item.add_to(&mut self.outline);
                }
            }
            TagEnd::CodeBlock => {
                let text = std::mem::take(&mut self.text);
                if let Inside::Code(language) = std::mem::take(&mut self.inside) {
                    self.end_term();
                    self.outline.code(&text, &language);
                }
            }
            TagEnd::List(_) => {
                self.end_block();
                self.lists.pop();
                self.mark.clear();
            }
            TagEnd::TableCell => {
                let cell = one_line(&std::mem::take(&mut self.text));
                self.table.row.push(cell);
            }
            TagEnd::TableHead => self.table.header = std::mem::take(&mut self.table.row),
            TagEnd::TableRow => {
                let row = std::mem::take(&mut self.table.row);
                self.text = table_row(&self.table.header, &row);
                self.end_block();
            }
            TagEnd::Image => self.images = self.images.saturating_sub(1),
            TagEnd::Paragraph
            | TagEnd::Item
            | TagEnd::BlockQuote(_)
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionListDefinition => self.end_block(),
            // A term goes in front of its definition.
            TagEnd::DefinitionListTitle => {
                self.mark = format!("{}: ", one_line(&std::mem::take(&mut self.text)));
            }
            _ => {}
        }
    }

    fn end_heading(&mut self) {
        let text = std::mem::take(&mut self.text);
        if let Inside::Heading(level) = std::mem::take(&mut self.inside) {
            self.outline.heading(level, &text);
        }
    }

    /// Code within a line, between its marks. Headings are names and go without.
    fn inline_code(&mut self, text: &str) {
        if matches!(self.inside, Inside::Heading(_)) {
            self.text.push_str(text);
            return;
        }
        let mark = if text.contains('`') { "``" } else { "`" };
        self.text += &format!("{mark}{text}{mark}");
    }

    /// A term whose definition begins with code stands above it.
    fn end_term(&mut self) {
        let mark = std::mem::take(&mut self.mark);
        if mark.chars().any(char::is_alphabetic) {
            self.outline.block(mark.trim_end());
        }
    }

    fn end_block(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            let mark = std::mem::take(&mut self.mark);
            self.outline.block(&format!("{mark}{text}"));
        }
    }

    fn into_parsed(self) -> Parsed {
        self.outline.into_parsed(self.front_matter.title, None)
    }
}

/// The lines of a YAML or TOML head that name the document. Nested values are not looked into.
fn front_matter(text: &str) -> FrontMatter {
    let value_of = |wanted: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once([':', '='])?;
            let value = value.trim();
            let quoted = ['"', '\''].iter().find_map(|quote| {
                value
                    .strip_prefix(*quote)
                    .and_then(|rest| rest.strip_suffix(*quote))
            });
            let value = quoted.unwrap_or(value);
            (name.trim_end() == wanted && !value.is_empty()).then(|| value.to_owned())
        })
    };
    FrontMatter {
        title: value_of("title"),
        description: value_of("description"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Parsed {
        super::parse(text, &Patience::of(0)).unwrap()
    }

    #[test]
    fn the_title_is_the_front_matters_or_the_first_heading() {
        for (text, title) in [
            (
                "---\ntitle: \"Annual report\"\nauthor: x\n---\n# Other\nText.",
                Some("Annual report"),
            ),
            ("+++\ntitle = 'Notes'\n+++\nText.", Some("Notes")),
            ("Intro.\n\n## First *heading*\nText.", Some("First heading")),
            ("Only text.", None),
        ] {
            assert_eq!(parse(text).title.as_deref(), title, "{text}");
        }
    }

    #[test]
    fn headings_form_a_path_without_the_title() {
        let long = "word ".repeat(50);
        let text = format!(
            "# Report\n\n{long}\n\n## Finances\n\n### Liquidity\n\n{long}\n\n## Staff\n\n{long}"
        );
        let headings: Vec<_> = parse(&text)
            .passages
            .into_iter()
            .map(|p| p.heading)
            .collect();
        assert_eq!(headings, ["", "Finances > Liquidity", "Staff"]);
    }

    #[test]
    fn headings_written_in_html_count() {
        let parsed = parse("<h1 align=\"center\">My tool</h1>\n\nText.\n");
        assert_eq!(parsed.title.as_deref(), Some("My tool"));
    }

    #[test]
    fn a_table_row_can_be_read_alone() {
        let text = "# T\n\n| Metric | 2024 | 2025 |\n|---|---|---|\n| Current ratio | 1.1 | 0.9 |\n| Debt | | 4 |\n";
        assert_eq!(
            parse(text).passages[0].text,
            "row: Metric = Current ratio; 2024 = 1.1; 2025 = 0.9\nrow: Metric = Debt; 2025 = 4"
        );
    }

    #[test]
    fn markup_is_gone_but_for_that_of_code_and_words_stay() {
        assert_eq!(parse("Term\n: Meaning\n").passages[0].text, "Term: Meaning");
        let text = "A **bold** [link](https://e.x/) with `code`.[^1]\n\n![badge](b.svg)\n\n- one\n- two\n  1. deep\n\n> quote\n\n```sh\nrun\n\nit\n```\n\n<div>html &amp; text<script>no()</script></div>\n\n[^1]: Footnote.";
        assert_eq!(
            parse(text).passages[0].text,
            "A bold link with `code`.\n- one\n- two\n  1. deep\nquote\n```sh\nrun\nit\n```\nhtml & text\nFootnote."
        );
    }
}
