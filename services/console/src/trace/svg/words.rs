//! Texts in boxes: how wide they are drawn, and where they break.
//!
//! A picture names no font of its own, so nobody knows the exact widths. These are those of DejaVu
//! Sans, the widest of the fonts that are asked for: what fits by them fits in the others.

use crate::text;
use unicode_segmentation::UnicodeSegmentation as _;

/// A way to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Type {
    /// Pixels of an em.
    pub size: f64,
    pub bold: bool,
}

impl Type {
    /// Pixels of a text in one line.
    pub(super) fn width(self, text: &str) -> f64 {
        let ems: f64 = text.graphemes(true).map(|g| self.ems(g)).sum();
        ems * self.size
    }

    fn ems(self, grapheme: &str) -> f64 {
        let mut chars = grapheme.chars();
        let (Some(first), None) = (chars.next(), chars.next()) else {
            // Letters with marks, and emoji.
            return text::width(grapheme).max(1) as f64 * 0.75;
        };
        let regular: f64 = match first {
            'i' | 'j' | 'l' | '\'' => 0.31,
            ' ' | ',' | '.' | ':' | ';' | '|' | 'I' | '·' => 0.34,
            'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '\\' | '-' | '!' => 0.43,
            's' | 'c' | 'z' | '"' | 'J' => 0.55,
            'm' | 'M' | 'W' | '@' | '%' | '…' | '—' => 1.0,
            'w' | '+' | '=' | '<' | '>' | '~' | '#' | '&' | '_' => 0.84,
            'Q' | 'O' | 'G' | 'D' | 'N' | 'H' | 'U' => 0.79,
            'a'..='z' | '0'..='9' | '?' | '*' | '$' | '`' => 0.64,
            'A'..='Z' => 0.70,
            other if other.is_ascii() => 0.64,
            _ => match text::width(grapheme) {
                0 => 0.0,
                1 => 0.75,
                _ => 1.05,
            },
        };
        if self.bold { regular * 1.12 } else { regular }
    }

    /// The text in at most `rows` lines no wider than `room` pixels; what is left out becomes an
    /// ellipsis.
    pub(super) fn wrapped(self, text: &str, room: f64, rows: usize) -> Vec<String> {
        // No row has more graphemes than pixels: reading a megabyte to show three lines is no use.
        let most = room as usize * rows;
        let text = text::preview(text, most.max(1));
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        for word in text.split(' ') {
            let longer = if line.is_empty() {
                word.to_owned()
            } else {
                format!("{line} {word}")
            };
            if self.width(&longer) <= room {
                line = longer;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            // A word that no line holds is broken where the line ends.
            for grapheme in word.graphemes(true) {
                if self.width(&line) + self.width(grapheme) > room && !line.is_empty() {
                    lines.push(std::mem::take(&mut line));
                }
                line.push_str(grapheme);
            }
            if lines.len() > rows {
                break;
            }
        }
        lines.push(line);
        lines.retain(|line| !line.is_empty());
        if lines.len() > rows {
            lines.truncate(rows);
            if let Some(last) = lines.last_mut() {
                *last = self.ended(last, room);
            }
        }
        lines
    }

    /// A line with an ellipsis at its end, which still fits.
    fn ended(self, line: &str, room: f64) -> String {
        let mut kept = line.trim_end();
        while !kept.is_empty() && self.width(kept) + self.width(text::ELLIPSIS) > room {
            let last = kept.grapheme_indices(true).next_back();
            kept = kept[..last.map_or(0, |(at, _)| at)].trim_end();
        }
        format!("{kept}{}", text::ELLIPSIS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: Type = Type {
        size: 12.0,
        bold: true,
    };

    #[test]
    fn lines_break_between_words_and_end_in_an_ellipsis() {
        for (text, rows, expected) in [
            ("", 3, &[][..]),
            ("short", 3, &["short"]),
            ("two words", 3, &["two", "words"]),
            ("one two three four", 2, &["one", "two…"]),
            ("mmmmm", 2, &["mmm", "mm"]),
            ("mmmmmmmm", 2, &["mmm", "mm…"]),
        ] {
            assert_eq!(NAME.wrapped(text, 48.0, rows), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_room(text in any::<String>(), rows in 1usize..5) {
            let lines = NAME.wrapped(&text, 80.0, rows);
            prop_assert!(lines.len() <= rows);
            for line in &lines {
                prop_assert!(NAME.width(line) <= 80.0, "{line:?}");
            }
        }
    }
}
