//! Markdown that arrives in pieces.
//!
//! A block is given out once nothing that may follow can change it: when another one has begun, or
//! when its own end is there. Only whole lines count, because the beginning of a line can read as
//! something else than the line (`#` alone is a heading, `#tag` is text).

use super::{lines, options};
use crate::style::{paint_all, Line, Look};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// Renders a text that grows.
#[derive(Clone, Debug)]
pub struct MarkdownStream {
    look: Look,
    /// Text that was not given out yet.
    pending: String,
    begun: bool,
}

impl MarkdownStream {
    pub fn new(look: Look) -> Self {
        Self { look, pending: String::new(), begun: false }
    }

    /// Takes a piece, and gives the lines of every block that is complete with it. May be empty.
    pub fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        let done = complete(&self.pending);
        if done == 0 {
            return String::new();
        }
        let rest = self.pending.split_off(done);
        let block = std::mem::replace(&mut self.pending, rest);
        self.given_out(&block)
    }

    /// The rest, when no more will come.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        self.given_out(&rest)
    }

    /// What is held back, as it would look now: for a live view that is drawn again.
    pub fn unfinished(&self) -> Vec<Line> {
        lines(&self.pending, self.look)
    }

    /// The width from here on; a terminal may change it.
    pub fn set_width(&mut self, width: usize) {
        self.look.width = width;
    }

    fn given_out(&mut self, markdown: &str) -> String {
        let lines = lines(markdown, self.look);
        if lines.is_empty() {
            return String::new();
        }
        let mut out = String::new();
        if self.begun {
            out.push('\n');
        }
        self.begun = true;
        out.push_str(&paint_all(&lines, self.look.color));
        out
    }
}

/// Bytes of `text` that hold complete blocks only.
fn complete(text: &str) -> usize {
    let Some(end) = text.rfind('\n') else { return 0 };
    let whole_lines = &text[..=end];
    let mut last = 0..0;
    let mut depth = 0_u32;
    let mut closed = false;
    for (event, range) in Parser::new_ext(whole_lines, options()).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    last = range.clone();
                    closed = closes_itself(&tag, whole_lines.get(range).unwrap_or_default());
                }
                depth += 1;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    // A paragraph goes on over line breaks, but not over a blank line.
                    let after = whole_lines.get(last.end..).unwrap_or_default();
                    let block = whole_lines.get(last.clone()).unwrap_or_default();
                    closed |= ends_at_blank(tag) && (blank_follows(after) || block.ends_with("\n\n"));
                }
            }
            Event::Rule if depth == 0 => {
                last = range;
                closed = true;
            }
            Event::Text(_)
            | Event::Code(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }
    if closed { last.end } else { last.start }
}

/// Whether the block shows its own end.
fn closes_itself(tag: &Tag<'_>, block: &str) -> bool {
    match tag {
        Tag::Heading { .. } => true,
        Tag::CodeBlock(CodeBlockKind::Fenced(_)) => {
            let mut lines = block.trim_end().lines();
            let opening = lines.next().unwrap_or_default().trim_start();
            let fence: String = opening
                .chars()
                .take_while(|c| opening.starts_with(*c) && matches!(c, '`' | '~'))
                .collect();
            lines.next_back().is_some_and(|last| {
                let last = last.trim();
                last.starts_with(&fence) && last.chars().all(|c| fence.starts_with(c))
            })
        }
        _ => false,
    }
}

/// Whether a blank line ends the block for good. A list or an indented code block may go on after
/// one.
fn ends_at_blank(tag: TagEnd) -> bool {
    matches!(tag, TagEnd::Paragraph | TagEnd::Table | TagEnd::BlockQuote(_))
}

fn blank_follows(after: &str) -> bool {
    // The block's own line feed may or may not be part of its range.
    let mut lines = after.split('\n');
    let first = lines.next().unwrap_or_default();
    first.trim().is_empty()
        && lines.next().is_some_and(|line| line.trim().is_empty())
        && (after.starts_with('\n') || !after.is_empty())
}
