//! Markdown as a terminal shows it.
//!
//! Headings, emphasis, lists, task lists, tables, quotes, code, links, images, rules; wrapped to the
//! width. Without colours nothing is lost that colours would say: headings keep their marks, code its
//! back quotes.
//!
//! [`render`] takes a whole text. [`MarkdownStream`] takes it in pieces and gives out blocks as they
//! are complete; both give the same lines, except that a stream cannot know of a link's target that
//! is only defined further down.

mod stream;
mod table;

pub use stream::MarkdownStream;

use crate::style::{
    BOLD, CODE, DIM, HEAD, ITALIC, LINK, Line, Look, PLAIN, STRIKE, over, paint_all,
};
use crate::text;
use anstyle::Style;
use pulldown_cmark::{Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

/// Renders a text; each line is ended.
pub fn render(markdown: &str, look: Look) -> String {
    paint_all(&lines(markdown, look), look.color)
}

/// Renders a text into lines no wider than the look.
pub fn lines(markdown: &str, look: Look) -> Vec<Line> {
    let mut writer = Writer::new(look);
    // Before parsing, which would tear an escape sequence into harmless-looking pieces.
    let markdown = text::clean_source(markdown);
    for event in Parser::new_ext(&markdown, options()) {
        writer.take(event);
    }
    writer.done()
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// What indents a block.
enum Container {
    Quote,
    /// A list item: its marker stands before its first line only.
    Item {
        marker: String,
        used: bool,
    },
}

struct List {
    /// Number of the next item; `None` has bullets.
    next: Option<u64>,
    /// Whether blank lines stand between its items.
    loose: bool,
}

enum Code {
    No,
    Block(String),
}

struct Writer {
    look: Look,
    out: Vec<Line>,
    /// Inline text of the block that is being read.
    inline: Line,
    styles: Vec<Style>,
    containers: Vec<Container>,
    lists: Vec<List>,
    /// A blank line stands before the next block.
    blank_due: bool,
    code: Code,
    /// Targets of the links that are open, with the text at their beginning.
    links: Vec<(Option<String>, usize)>,
    table: Option<table::Table>,
}

impl Writer {
    fn new(look: Look) -> Self {
        Self {
            look,
            out: Vec::new(),
            inline: Line::new(),
            styles: vec![PLAIN],
            containers: Vec::new(),
            lists: Vec::new(),
            blank_due: false,
            code: Code::No,
            links: Vec::new(),
            table: None,
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Code::Block(code) => code.push_str(&text),
                Code::No => self.say(&text),
            },
            Event::Code(code) => self.inline_code(&code),
            Event::Html(html) | Event::InlineHtml(html) => self.styled(html.trim_end(), DIM),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.styled(&text, CODE),
            Event::SoftBreak => self.say(" "),
            Event::HardBreak => self.say("\n"),
            Event::Rule => {
                self.before_block();
                let width = self.room().min(72);
                self.emit(&Line::of(&"─".repeat(width), DIM));
                self.blank_due = true;
            }
            Event::TaskListMarker(done) => self.say(if done { "☑ " } else { "☐ " }),
            // Footnotes are not enabled.
            Event::FootnoteReference(name) => self.say(&format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {
                if let (Some(list), Some(Container::Item { used: false, .. })) =
                    (self.lists.last_mut(), self.containers.last())
                {
                    list.loose = true;
                }
                self.before_block();
            }
            Tag::Heading { level, .. } => {
                self.before_block();
                self.styles.push(HEAD);
                if !self.look.color {
                    let marks = "#".repeat(heading_depth(level));
                    self.say(&format!("{marks} "));
                }
            }
            Tag::BlockQuote(_) => {
                self.flush_tight();
                self.before_block();
                self.containers.push(Container::Quote);
            }
            Tag::CodeBlock(_) => {
                self.flush_tight();
                self.before_block();
                self.code = Code::Block(String::new());
            }
            Tag::HtmlBlock => self.before_block(),
            Tag::List(first) => {
                self.flush_tight();
                if self.lists.is_empty() {
                    self.before_block();
                }
                self.lists.push(List {
                    next: first,
                    loose: false,
                });
            }
            Tag::Item => self.start_item(),
            Tag::Emphasis => self.push_style(ITALIC),
            Tag::Strong => self.push_style(BOLD),
            Tag::Strikethrough => self.push_style(STRIKE),
            Tag::Link {
                link_type,
                dest_url,
                ..
            } => {
                let target = match link_type {
                    LinkType::Autolink | LinkType::Email => None,
                    _ => Some(dest_url.into_string()),
                };
                self.links.push((target, self.inline.plain().len()));
                self.push_style(LINK);
            }
            Tag::Image { dest_url, .. } => {
                self.styled("[image: ", DIM);
                self.links
                    .push((Some(dest_url.into_string()), self.inline.plain().len()));
                self.push_style(PLAIN);
            }
            Tag::Table(alignments) => {
                self.flush_tight();
                self.before_block();
                self.table = Some(table::Table::new(alignments));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.inline = Line::new(),
            // None of these is enabled.
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn start_item(&mut self) {
        let marker = match self.lists.last_mut() {
            Some(List {
                next: Some(number), ..
            }) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            Some(List { next: None, .. }) | None => if self.lists.len() % 2 == 1 {
                "• "
            } else {
                "◦ "
            }
            .to_owned(),
        };
        self.before_block();
        self.containers.push(Container::Item {
            marker,
            used: false,
        });
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.flush();
                self.blank_due = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.blank_due = true;
            }
            TagEnd::HtmlBlock => {
                self.flush();
                self.blank_due = true;
            }
            TagEnd::BlockQuote(_) => {
                self.containers.pop();
                self.blank_due = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                let loose = self.lists.pop().is_some_and(|list| list.loose);
                self.blank_due = self.lists.is_empty() || loose;
            }
            TagEnd::Item => self.end_item(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link => {
                self.styles.pop();
                self.end_link();
            }
            TagEnd::Image => {
                self.styles.pop();
                self.styled("]", DIM);
                self.end_link();
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for line in table.render(self.room()) {
                        self.emit(&line);
                    }
                }
                self.blank_due = true;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn end_item(&mut self) {
        let had_paragraphs = self.inline.is_empty();
        self.flush_tight();
        if let Some(Container::Item { used: false, .. }) = self.containers.last() {
            // An item with nothing in it still has its marker.
            self.emit(&Line::new());
        }
        self.containers.pop();
        let loose = self.lists.last().is_some_and(|list| list.loose);
        self.blank_due = loose && had_paragraphs;
    }

    fn end_code(&mut self) {
        let Code::Block(code) = std::mem::replace(&mut self.code, Code::No) else {
            return;
        };
        for line in code.trim_end_matches('\n').split('\n') {
            let width = self.room().saturating_sub(4).max(1);
            for piece in hard_wrapped(line, width) {
                self.emit(&Line::of("    ", PLAIN).with(&piece, CODE));
            }
        }
        self.blank_due = true;
    }

    fn end_link(&mut self) {
        let Some((Some(target), from)) = self.links.pop() else {
            return;
        };
        let said = self
            .inline
            .plain()
            .get(from..)
            .unwrap_or_default()
            .to_owned();
        if !target.is_empty() && said != target {
            self.styled(&format!(" ({target})"), DIM);
        }
    }

    fn push_style(&mut self, style: Style) {
        let outer = self.style();
        self.styles.push(over(outer, style));
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or(PLAIN)
    }

    fn say(&mut self, text: &str) {
        let style = self.style();
        self.inline.push(text, style);
    }

    fn styled(&mut self, text: &str, style: Style) {
        let style = over(self.style(), style);
        self.inline.push(text, style);
    }

    fn inline_code(&mut self, code: &str) {
        if self.look.color {
            self.styled(code, CODE);
        } else {
            self.say(&format!("`{code}`"));
        }
    }

    /// The text of a tight item, which no paragraph surrounds, before what stands below it.
    fn flush_tight(&mut self) {
        if !self.inline.is_empty() {
            self.flush();
            self.blank_due = false;
        }
    }

    fn flush(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        if inline.is_empty() {
            return;
        }
        for line in inline.wrapped(self.room()) {
            self.emit(&line);
        }
    }

    fn before_block(&mut self) {
        self.flush_tight();
        if std::mem::take(&mut self.blank_due) && !self.out.is_empty() {
            let blank = self.prefix(true);
            self.out.push(blank);
        }
    }

    /// Columns inside the containers; never too few to say something.
    fn room(&self) -> usize {
        let taken: usize = self.containers.iter().map(indent).sum();
        self.look.width.saturating_sub(taken).max(8)
    }

    fn emit(&mut self, line: &Line) {
        let prefix = self.prefix(false);
        self.out.push(prefix.with_line(line));
        for container in &mut self.containers {
            if let Container::Item { used, .. } = container {
                *used = true;
            }
        }
    }

    /// What stands before a line; before a blank one, only what is not blank itself.
    fn prefix(&self, blank: bool) -> Line {
        let mut prefix = Line::new();
        let visible = if blank {
            let last = self
                .containers
                .iter()
                .rposition(|c| matches!(c, Container::Quote));
            last.map_or(0, |at| at + 1)
        } else {
            self.containers.len()
        };
        for (position, container) in self.containers.iter().take(visible).enumerate() {
            let last = blank && position + 1 == visible;
            match container {
                Container::Quote => prefix.push(if last { "│" } else { "│ " }, DIM),
                Container::Item {
                    marker,
                    used: false,
                } if !blank => prefix.push(marker, DIM),
                Container::Item { .. } => prefix.push(&" ".repeat(indent(container)), PLAIN),
            };
        }
        prefix
    }

    fn done(mut self) -> Vec<Line> {
        self.flush();
        self.out
    }
}

fn indent(container: &Container) -> usize {
    match container {
        Container::Quote => 2,
        Container::Item { marker, .. } => text::width(marker),
    }
}

fn heading_depth(level: HeadingLevel) -> usize {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

/// Code keeps its spaces: it is broken by columns alone.
fn hard_wrapped(line: &str, width: usize) -> Vec<String> {
    use unicode_segmentation::UnicodeSegmentation as _;
    let line = text::clean(line);
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for grapheme in line.graphemes(true) {
        let columns = text::width(grapheme);
        if used + columns > width && used > 0 {
            pieces.push(String::new());
            used = 0;
        }
        if let Some(last) = pieces.last_mut() {
            last.push_str(grapheme);
        }
        used += columns;
    }
    pieces
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
