//! Text as a terminal shows it: cleaned, measured, shortened, counted.
//!
//! Texts come from models, tools and documents. None of them may move the cursor, ring, retitle the
//! window, turn the reading direction or hide a part of itself: all of that is made visible here.

use agentfleet_schema::Cost;
use std::borrow::Cow;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Marks what was left out.
pub const ELLIPSIS: &str = "…";

/// The text with everything made visible that a terminal would act on, or that nobody would see: as JSON
/// escapes it, so that what is JSON stays so, with the same values. Line breaks and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    shown(text, true)
}

/// The same in one line: a value with a line feed in it must not look like two values.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, false)
}

/// A value as a JSON string: where it begins and ends is seen, and what stands in it exactly.
pub fn quoted(value: &str) -> String {
    line(&serde_json::Value::from(value).to_string()).into_owned()
}

/// Visible text as it is laid out: line breaks are line feeds, a tab becomes spaces.
pub fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text, "    ")
}

/// The same for source text in which a tab means something.
pub(crate) fn clean_source(text: &str) -> Cow<'_, str> {
    cleaned(text, "\t")
}

fn cleaned<'a>(text: &'a str, tab: &str) -> Cow<'a, str> {
    let shown = visible(text);
    if !shown.contains(['\r', '\t']) {
        return shown;
    }
    Cow::Owned(shown.replace("\r\n", "\n").replace('\t', tab))
}

fn shown(text: &str, lines: bool) -> Cow<'_, str> {
    // Most texts are plain, and some are long.
    if !text.chars().any(|c| c.is_control() || acts(c) || joins(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let stays = match c {
            '\n' | '\t' => lines,
            '\r' => lines && chars.peek() == Some(&'\n'),
            // Some scripts, and emoji, are written with them; beside ASCII they only hide.
            c if joins(c) => !before.is_ascii() && !acts(before) && !joins(before),
            c => !c.is_control() && !acts(c),
        };
        if stays {
            out.push(c);
        } else {
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    out.push_str(&format!("\\u{unit:04x}"));
                }),
            }
        }
        before = c;
    }
    Cow::Owned(out)
}

/// What reorders what follows, breaks lines, or is not seen at all.
fn acts(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
        | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Joiners and the choice of a picture, which have no width of their own.
fn joins(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
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
    let end = text.floor_char_boundary(max.saturating_mul(16).saturating_add(64));
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

/// A number and its noun: `1 step`, `3 steps`, `2 entities`.
pub fn counted(n: u64, noun: &str) -> String {
    let number = count(n);
    let stem = noun.strip_suffix('y');
    match stem.filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u'])) {
        _ if n == 1 => format!("1 {noun}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

/// Tokens in all, and how many of them came to nothing.
pub fn tokens(all: u64, wasted: u64) -> String {
    let all = counted(all, "token");
    match wasted {
        0 => all,
        wasted => format!("{all}, {} of them wasted", count(wasted)),
    }
}

/// What is known of a cost: `0.0213`, `at least 0.00045`, `unknown`.
pub fn money(cost: Cost) -> String {
    cost.told(|amount| amount_of(&format!("{amount:.9}")))
}

/// An amount that is written with nine decimals, without zeros that say nothing; at least two stay.
pub fn amount_of(nine: &str) -> String {
    let kept = nine.trim_end_matches('0').len();
    nine[..kept.max(nine.len().saturating_sub(7))].to_owned()
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
    fn what_a_terminal_acts_on_or_nobody_sees_is_made_visible() {
        for (dirty, expected) in [
            ("plain\nlines", "plain\nlines"),
            ("a\tb\r\nc\rd", "a    b\nc\\rd"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u001b[31mred\\u001b[0m"),
            ("\u{9b}2Jgone\u{7}", "\\u009b2Jgone\\u0007"),
            ("user\u{202e}txt.exe", "user\\u202etxt.exe"),
            ("pay\u{200b}pal\u{200d}s", "pay\\u200bpal\\u200ds"),
            (
                "می\u{200c}خواهم 👩\u{200d}🚀 ❤\u{fe0f}",
                "می\u{200c}خواهم 👩\u{200d}🚀 ❤\u{fe0f}",
            ),
            ("x\u{e0041}", "x\\udb40\\udc41"),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
        assert_eq!(visible("a\tb\r\nc\r"), "a\tb\r\nc\\r");
        assert_eq!(
            line("5\n  reason    fine\r\t"),
            "5\\n  reason    fine\\r\\t"
        );
        assert_eq!(quoted("a \\n\n\"\u{200b}"), r#""a \\n\n\"\u200b""#);
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
        assert_eq!(
            [
                counted(1, "entity"),
                counted(2, "entity"),
                counted(3, "day")
            ],
            ["1 entity", "2 entities", "3 days"]
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
            let seen = line(&text);
            prop_assert!(!seen.chars().any(|c| c.is_control() || acts(c)), "{seen:?}");
            prop_assert_eq!(line(seen.as_ref()), seen.as_ref());
            let laid_out = clean(&text).into_owned();
            prop_assert_eq!(clean(&laid_out), laid_out.as_str());
            let json = serde_json::json!({ "text": text });
            let shown = visible(&json.to_string()).into_owned();
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(json));
        }
    }
}
