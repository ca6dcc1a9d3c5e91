//! Styled lines: what to say and how it looks, kept apart from escape codes until the very end.
//!
//! Colours are the terminal's own sixteen, so that they follow its theme, dark or light.

use crate::text;
use anstyle::{AnsiColor, Effects, Style};
use unicode_segmentation::UnicodeSegmentation as _;

/// How something is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns there are.
    pub width: usize,
    /// Whether escape codes are wanted.
    pub color: bool,
}

impl Look {
    /// Without colours.
    pub const fn plain(width: usize) -> Self {
        Self {
            width,
            color: false,
        }
    }

    pub const fn colored(width: usize) -> Self {
        Self { width, color: true }
    }
}

pub const PLAIN: Style = Style::new();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub(crate) const ITALIC: Style = Style::new().italic();
pub(crate) const STRIKE: Style = Style::new().strikethrough();
pub(crate) const NAME: Style = color(AnsiColor::Cyan);
pub(crate) const GOOD: Style = color(AnsiColor::Green);
pub(crate) const BAD: Style = color(AnsiColor::Red).bold();
pub(crate) const WARN: Style = color(AnsiColor::Yellow);
pub(crate) const CODE: Style = color(AnsiColor::Cyan);
pub(crate) const LINK: Style = color(AnsiColor::Blue).underline();
pub(crate) const HEAD: Style = color(AnsiColor::Magenta).bold();

const fn color(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
}

/// The look of both: effects add up, the inner colour wins.
pub(crate) fn over(outer: Style, inner: Style) -> Style {
    let effects: Effects = outer.get_effects() | inner.get_effects();
    Style::new()
        .fg_color(inner.get_fg_color().or(outer.get_fg_color()))
        .effects(effects)
}

/// A piece of a line in one style. Its text has no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    text: String,
    style: Style,
}

/// One line, or, before it is wrapped, one paragraph that may hold line feeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    spans: Vec<Span>,
}

impl Line {
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of one style.
    pub fn of(text: &str, style: Style) -> Self {
        let mut line = Self::new();
        line.push(text, style);
        line
    }

    /// Adds cleaned text.
    pub fn push(&mut self, text: &str, style: Style) -> &mut Self {
        let text = text::clean(text);
        if text.is_empty() {
            return self;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(&text),
            _ => self.spans.push(Span {
                text: text.into_owned(),
                style,
            }),
        }
        self
    }

    #[must_use]
    pub fn with(mut self, text: &str, style: Style) -> Self {
        self.push(text, style);
        self
    }

    pub(crate) fn with_line(mut self, other: &Self) -> Self {
        self.append(other);
        self
    }

    pub fn append(&mut self, other: &Self) -> &mut Self {
        for span in &other.spans {
            self.push(&span.text, span.style);
        }
        self
    }

    /// The same line with a style under all of it.
    pub(crate) fn over(&self, style: Style) -> Self {
        let mut line = Self::new();
        for span in &self.spans {
            line.push(&span.text, over(style, span.style));
        }
        line
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| text::width(&span.text)).sum()
    }

    pub fn plain(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The same line in no more than `max` columns.
    #[must_use]
    pub fn shortened(&self, max: usize) -> Self {
        if self.width() <= max {
            return self.clone();
        }
        let mut out = Self::new();
        let mut room = max;
        for (position, span) in self.spans.iter().enumerate() {
            let columns = text::width(&span.text);
            let is_last = position + 1 == self.spans.len();
            if columns < room || (columns == room && is_last) {
                out.push(&span.text, span.style);
                room -= columns;
                continue;
            }
            // Something is cut here or right after: the ellipsis needs a column.
            let cut = if columns == room {
                text::shorten(&format!("{} ", span.text), room)
            } else {
                text::shorten(&span.text, room)
            };
            out.push(&cut, span.style);
            break;
        }
        out
    }

    /// Breaks at line feeds, and at spaces so that no line is wider than `max`; a word that is too
    /// long is broken where it must be.
    pub fn wrapped(&self, max: usize) -> Vec<Self> {
        let mut wrap = Wrap {
            max: max.max(1),
            lines: vec![Self::new()],
            ..Wrap::default()
        };
        for span in &self.spans {
            for grapheme in span.text.graphemes(true) {
                wrap.take(grapheme, span.style);
            }
        }
        wrap.word_done();
        wrap.lines
    }

    /// With escape codes, or without.
    pub fn paint(&self, colored: bool) -> String {
        if !colored {
            return self.plain();
        }
        let mut out = String::new();
        for span in &self.spans {
            if span.style == PLAIN {
                out.push_str(&span.text);
            } else {
                let style = span.style;
                out.push_str(&format!("{style}{}{style:#}", span.text));
            }
        }
        out
    }
}

/// Greedy line breaking.
#[derive(Default)]
struct Wrap {
    max: usize,
    lines: Vec<Line>,
    used: usize,
    word: Line,
    word_width: usize,
    gap: Line,
    gap_width: usize,
}

impl Wrap {
    fn take(&mut self, grapheme: &str, style: Style) {
        let columns = text::width(grapheme);
        match grapheme {
            "\n" | "\r\n" => {
                self.word_done();
                self.line_done();
            }
            " " => {
                self.word_done();
                self.gap.push(" ", style);
                self.gap_width += 1;
            }
            _ => {
                // Wide characters have no spaces between words: each may begin a line.
                if columns > 1 || self.word_width + columns > self.max {
                    self.word_done();
                }
                self.word.push(grapheme, style);
                self.word_width += columns;
                if columns > 1 {
                    self.word_done();
                }
            }
        }
    }

    fn word_done(&mut self) {
        if self.word.is_empty() {
            return;
        }
        if self.used > 0 && self.used + self.gap_width + self.word_width > self.max {
            self.line_done();
        }
        let gap = std::mem::take(&mut self.gap);
        // A gap at the beginning of a broken line is dropped, indentation of the first one kept.
        if self.used > 0 || (self.lines.len() == 1 && self.gap_width + self.word_width <= self.max)
        {
            self.used += self.gap_width;
            self.last().append(&gap);
        }
        self.gap_width = 0;
        let word = std::mem::take(&mut self.word);
        self.used += self.word_width;
        self.word_width = 0;
        self.last().append(&word);
    }

    fn line_done(&mut self) {
        self.gap = Line::new();
        self.gap_width = 0;
        self.used = 0;
        self.lines.push(Line::new());
    }

    fn last(&mut self) -> &mut Line {
        if self.lines.is_empty() {
            self.lines.push(Line::new());
        }
        let at = self.lines.len() - 1;
        &mut self.lines[at]
    }
}

/// Lines as one text, each ended.
pub fn paint_all(lines: &[Line], colored: bool) -> String {
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.paint(colored));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wrapped(text: &str, max: usize) -> Vec<String> {
        Line::of(text, PLAIN)
            .wrapped(max)
            .iter()
            .map(Line::plain)
            .collect()
    }

    #[test]
    fn wraps_at_spaces_and_breaks_only_what_cannot_fit() {
        let table: [(&str, usize, &[&str]); 6] = [
            ("one two three", 7, &["one two", "three"]),
            ("one\ntwo", 80, &["one", "two"]),
            ("abcdefgh ij", 4, &["abcd", "efgh", "ij"]),
            ("漢字漢字", 5, &["漢字", "漢字"]),
            ("a  b", 80, &["a  b"]),
            ("", 10, &[""]),
        ];
        for (text, max, expected) in table {
            assert_eq!(wrapped(text, max), expected, "{text:?} in {max}");
        }
    }

    #[test]
    fn escape_codes_stand_around_styled_text_only() {
        let line = Line::of("a", PLAIN).with("b", BOLD);
        assert_eq!(line.paint(true), "a\u{1b}[1mb\u{1b}[0m");
        assert_eq!(line.paint(false), "ab");
        assert_eq!(line.shortened(1).plain(), "…");
        assert_eq!(
            Line::of("ab", PLAIN).with("cd", BOLD).shortened(2).plain(),
            "a…"
        );
        assert_eq!(
            Line::of("ab", PLAIN).with("cd", BOLD).shortened(3).plain(),
            "ab…"
        );
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_no_word_is_lost(text in "[a-z 漢]{0,80}", max in 2usize..30) {
            let lines = wrapped(&text, max);
            prop_assert!(lines.iter().all(|line| text::width(line) <= max), "{lines:?}");
            let bare = |text: &str| text.replace(' ', "");
            prop_assert_eq!(bare(&lines.concat()), bare(&text));
        }

        #[test]
        fn shortening_keeps_to_the_columns(text in any::<String>(), more in any::<String>(), max in 0usize..20) {
            let line = Line::of(&text::one_line(&text), BOLD).with(&text::one_line(&more), PLAIN);
            prop_assert!(line.shortened(max).width() <= max);
        }
    }
}
