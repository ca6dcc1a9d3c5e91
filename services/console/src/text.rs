//! Text as a terminal shows it: cleaned, measured, shortened, counted.
//!
//! Texts come from models, tools and documents. None of them may move the cursor, ring, retitle the
//! window or turn the reading direction: everything a terminal would act on is taken out here.

use std::borrow::Cow;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Marks what was left out.
pub const ELLIPSIS: &str = "…";

/// The text without anything a terminal acts on. Line feeds stay; a tab becomes spaces.
pub fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text, "    ")
}

/// The same for source text in which a tab means something.
pub(crate) fn clean_source(text: &str) -> Cow<'_, str> {
    cleaned(text, "\t")
}

fn cleaned<'a>(text: &'a str, tab: &str) -> Cow<'a, str> {
    if !text.chars().any(|c| c != '\n' && acts(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str(tab),
            '\r' if chars.peek() != Some(&'\n') => out.push('\n'),
            '\u{1b}' => skip_sequence(&mut chars),
            c if acts(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Control characters, and the invisible ones that reorder what follows.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The rest of an escape sequence: parameters and all, so that no `[31m` is left behind.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            for c in chars.by_ref() {
                if ('\u{40}'..='\u{7e}').contains(&c) {
                    break;
                }
            }
        }
        Some(']' | 'P' | '^' | '_' | 'X') => {
            chars.next();
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    break;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    break;
                }
            }
        }
        Some(_) | None => {}
    }
}

/// The text in one line: cleaned, white space drawn together.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(4096));
    for word in clean(text).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Columns of a text that has no line feed.
pub fn width(text: &str) -> usize {
    text.width()
}

/// At most `max` columns of one line; what is cut ends in an ellipsis.
pub fn shorten(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    if max == 0 {
        return String::new();
    }
    let mut out = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        let columns = width(grapheme);
        if used + columns > max - 1 {
            break;
        }
        out.push_str(grapheme);
        used += columns;
    }
    out.truncate(out.trim_end().len());
    out.push_str(ELLIPSIS);
    out
}

/// One line of `text`, no wider than `max`.
pub fn preview(text: &str, max: usize) -> String {
    // Graphemes are at least a byte wide; reading a megabyte to show a line is no use.
    let mut end = text.len().min(max.saturating_mul(16).saturating_add(64));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let line = one_line(&text[..end]);
    if end < text.len() && width(&line) <= max {
        return shorten(&format!("{line} {ELLIPSIS}"), max);
    }
    shorten(&line, max)
}

/// A number with separators: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number and its noun: `1 step`, `3 steps`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

/// A length of time, as short as it can be read: `640 ms`, `2.4 s`, `3 min 05 s`, `2 h 10 min`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => {
            let tenths = ms / 100;
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
        60_000..3_600_000 => format!("{} min {:02} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {:02} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_a_terminal_acts_on_is_left() {
        for (dirty, expected) in [
            ("plain\nlines", "plain\nlines"),
            ("a\tb\r\nc\rd", "a    b\nc\nd"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9b}2Jgone\u{7}", "2Jgone"),
            ("user\u{202e}txt.exe", "usertxt.exe"),
            ("open\u{1b}[", "open"),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
    }

    #[test]
    fn shortens_by_columns_and_never_splits_a_grapheme() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("ab cd", 4, "ab…"),
            ("漢字漢字", 5, "漢字…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("abc", 0, ""),
        ] {
            assert_eq!(shorten(text, max), expected, "{text:?} in {max}");
        }
        assert_eq!(preview("two\n  lines", 80), "two lines");
        assert_eq!(preview(&"word ".repeat(1000), 9), "word wor…");
    }

    #[test]
    fn numbers_read_at_a_glance() {
        assert_eq!(
            [count(0), count(999), count(1_234_567)],
            ["0", "999", "1,234,567"]
        );
        assert_eq!(
            [counted(1, "step"), counted(0, "step")],
            ["1 step", "0 steps"]
        );
        let times = [640, 2_449, 59_999, 185_000, 7_810_000].map(duration);
        assert_eq!(
            times,
            ["640 ms", "2.4 s", "59.9 s", "3 min 05 s", "2 h 10 min"]
        );
    }

    proptest! {
        #[test]
        fn any_text_fits_its_columns(text in any::<String>(), max in 0usize..40) {
            let short = preview(&text, max);
            prop_assert!(width(&short) <= max, "{short:?}");
            prop_assert!(!clean(&text).chars().any(|c| c != '\n' && acts(c)));
        }
    }
}
