//! Markdown that arrives in pieces.
//!
//! A block is given out once nothing that may follow can change it: when another one has begun, or
//! when its own end is there. Only whole lines count, because the beginning of a line can read as
//! something else than the line (`#` alone is a heading, `#tag` is text).

use super::{lines, options};
use crate::style::{Line, Look, paint_all};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

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
        Self {
            look,
            pending: String::new(),
            begun: false,
        }
    }

    /// Takes a piece, and gives the lines of every block that is complete with it. May be empty.
    pub fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        let done = if text.contains('\n') {
            complete(&self.pending)
        } else {
            0
        };
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

    /// Whether a block was given out yet.
    pub fn has_begun(&self) -> bool {
        self.begun
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
    let Some(end) = text.rfind('\n') else {
        return 0;
    };
    let whole_lines = &text[..=end];
    let Some(last) = blocks(whole_lines).last else {
        return 0;
    };
    let start = line_of(whole_lines, last.start);
    let closed = match last.ends {
        Ends::WhenAnotherBegins => false,
        Ends::AtBlankLine => whole_lines
            .lines()
            .next_back()
            .is_some_and(|l| l.trim().is_empty()),
        Ends::ByItself => {
            // A line of plain text joins whatever is still open. If it stands alone, nothing is.
            let probed = format!("{}x\n", &whole_lines[start..]);
            blocks(&probed).count > 1
        }
    };
    if closed {
        line_after(whole_lines, last.end)
    } else {
        start
    }
}

/// What closes a block for good.
enum Ends {
    /// Its own last line, or the blank line after it.
    ByItself,
    /// A quote goes on after a line that is blank but for its mark.
    AtBlankLine,
    /// Lists and indented code go on after blank lines, if more of their kind follows.
    WhenAnotherBegins,
}

struct Blocks {
    count: usize,
    last: Option<Last>,
}

struct Last {
    start: usize,
    end: usize,
    ends: Ends,
}

/// The blocks at the top.
fn blocks(text: &str) -> Blocks {
    let mut blocks = Blocks {
        count: 0,
        last: None,
    };
    let mut depth = 0_u32;
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        let ends = match &event {
            Event::Start(tag) => {
                depth += 1;
                match tag {
                    Tag::List(_) | Tag::CodeBlock(CodeBlockKind::Indented) => {
                        Ends::WhenAnotherBegins
                    }
                    Tag::BlockQuote(_) => Ends::AtBlankLine,
                    _ => Ends::ByItself,
                }
            }
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            _ => Ends::ByItself,
        };
        let begins = matches!(event, Event::Start(_)) && depth == 1;
        if begins || depth == 0 {
            blocks.count += 1;
            blocks.last = Some(Last {
                start: range.start,
                end: range.end,
                ends,
            });
        }
    }
    blocks
}

/// Where the line begins that holds `at`: a block's range leaves its indentation out.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |feed| feed + 1)
}

/// Where the line begins that follows the one `at` ends.
fn line_after(text: &str, at: usize) -> usize {
    if text[..at].ends_with('\n') {
        return at;
    }
    text[at..]
        .find('\n')
        .map_or(text.len(), |feed| at + feed + 1)
}
