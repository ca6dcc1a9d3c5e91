//! Plain text to titled passages: paragraphs between blank lines, underlined or capital headings.
//!
//! Reads line by line, so that a long log costs no more memory than a short one.

use super::format::Halt;
use super::outline::one_line;
use super::passage::{Packer, Passage};
use std::io::BufRead;

/// Most bytes of a line; a longer one is cut into several.
const MAX_LINE: u64 = 64 * 1024;
/// A line of this many characters was probably wrapped, so the next one goes on with it.
const WRAPPED: usize = 50;
/// Lines of prose are at least so long where they are wrapped, and have so many words: shorter ones are
/// verses, addresses and commands, whose line ends mean something.
const NARROWEST: usize = 30;
const FEWEST_WORDS: usize = 4;
/// Most lines of a paragraph before it is handed on.
const MAX_PARAGRAPH: usize = 200;

/// Reads a whole text. `out` gets passages as they are ready, and may stop the reading.
pub(crate) fn parse(
    reader: &mut dyn BufRead,
    title: &str,
    out: &mut dyn FnMut(Vec<Passage>) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let mut text = Text {
        packer: Packer::new(title),
        ..Text::default()
    };
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        let mut limited = std::io::Read::take(&mut *reader, MAX_LINE);
        let read = limited.read_until(b'\n', &mut line).map_err(Halt::io)?;
        if read == 0 {
            break;
        }
        number += 1;
        // A cut may fall inside a character: its rest is read with it.
        while line.last() != Some(&b'\n') && incomplete(&line) {
            let mut one = std::io::Read::take(&mut *reader, 1);
            if one.read_until(b'\n', &mut line).map_err(Halt::io)? == 0 {
                break;
            }
        }
        let valid = std::str::from_utf8(&line)
            .map_err(|_| Halt::unreadable(format!("line {number} is not UTF-8 text")))?;
        if valid.contains('\0') {
            return Err(Halt::unreadable(format!("line {number} holds binary data")));
        }
        text.line(valid.trim_end());
        if !text.ready.is_empty() {
            out(std::mem::take(&mut text.ready))?;
        }
    }
    text.end_paragraph();
    let Text {
        packer, mut ready, ..
    } = text;
    packer.finish(&mut ready);
    out(ready)
}

/// The first line that says something, where it is short enough to be a title.
pub(crate) fn title(head: &str) -> Option<String> {
    let mut lines = head.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.find(|line| !is_rule(line))?;
    let title = plain(first);
    let sentence = title.ends_with(['.', ',', ';', ':']);
    (title.chars().count() <= 100 && title.chars().any(char::is_alphabetic) && !sentence)
        .then_some(title)
}

fn incomplete(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

#[derive(Debug, Default)]
struct Text {
    packer: Packer,
    headings: Vec<String>,
    /// Underlining characters in the order they came: each is a level of headings.
    levels: Vec<char>,
    paragraph: Vec<String>,
    ready: Vec<Passage>,
}

impl Text {
    fn line(&mut self, line: &str) {
        if line.trim().is_empty() {
            self.end_paragraph();
            return;
        }
        if is_rule(line.trim()) {
            match self.paragraph.as_slice() {
                [heading] if underlines(line, heading) => {
                    let heading = heading.clone();
                    self.paragraph.clear();
                    self.open(line.trim().chars().next().unwrap_or('='), &heading);
                }
                _ => self.end_paragraph(),
            }
            return;
        }
        self.paragraph.push(line.to_owned());
        if self.paragraph.len() >= MAX_PARAGRAPH {
            self.end_paragraph();
        }
    }

    fn open(&mut self, mark: char, heading: &str) {
        let level = self
            .levels
            .iter()
            .position(|known| *known == mark)
            .unwrap_or_else(|| {
                self.levels.push(mark);
                self.levels.len() - 1
            });
        self.headings.truncate(level);
        self.headings.push(plain(heading));
    }

    fn end_paragraph(&mut self) {
        let lines = std::mem::take(&mut self.paragraph);
        if let [line] = lines.as_slice()
            && is_capital_heading(line)
        {
            let line = line.clone();
            self.open('A', &line);
            return;
        }
        let mut text = String::new();
        let width = lines.iter().map(|line| line.chars().count()).max();
        let width = width.unwrap_or_default();
        let mut before: Option<&String> = None;
        for line in &lines {
            let joined = before.is_some_and(|before| is_wrapped(before, line, width));
            if !text.is_empty() {
                text.push(if joined { ' ' } else { '\n' });
            }
            text.push_str(if joined { line.trim_start() } else { line });
            before = Some(line);
        }
        self.packer.push(&self.headings, &text, &mut self.ready);
    }
}

/// A line that underlines a heading or separates parts.
fn is_rule(line: &str) -> bool {
    let mut chars = line.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    "=-~^\"'#*+_`:".contains(first) && line.len() >= 3 && chars.all(|c| c == first)
}

/// Whether a rule belongs to the line above: it is not indented, and about as long.
fn underlines(rule: &str, heading: &str) -> bool {
    indent(rule) == 0 && indent(heading) == 0 && rule.len() + 3 >= heading.trim().chars().count()
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|c| c.is_whitespace()).count()
}

/// Whether a line was wrapped, and the next one is its rest. `width` is that of the longest line of their
/// paragraph: where the next word would have fitted, the line end is meant, unless a sentence goes on.
fn is_wrapped(line: &str, next: &str, width: usize) -> bool {
    if !(indent(next) == indent(line) || indent(next) == hang(line))
        || !goes_on(next)
        || is_code(line)
    {
        return false;
    }
    let length = line.chars().count();
    if length >= WRAPPED {
        return true;
    }
    if width < NARROWEST || line.split_whitespace().count() < FEWEST_WORDS {
        return false;
    }
    let word = next.split_whitespace().next().unwrap_or_default();
    let is_full = length + 1 + word.chars().count() > width;
    let ends = line.ends_with(['.', '!', '?']);
    is_full || !ends && word.starts_with(char::is_lowercase)
}

/// How far the text of a line is indented, behind the mark of a list.
fn hang(line: &str) -> usize {
    let text = line.trim_start();
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = number.len() < text.len();
    let rest = ["- ", "* ", "+ ", "• "]
        .iter()
        .find_map(|mark| text.strip_prefix(mark));
    let numbered = || number.strip_prefix(". ").or(number.strip_prefix(") "));
    let rest = rest.or_else(|| is_number.then(numbered).flatten());
    let rest = rest.map_or(text, str::trim_start);
    line.chars().count() - rest.chars().count()
}

/// Whether a line can be the rest of a wrapped one.
fn goes_on(line: &str) -> bool {
    let start = line.trim_start().chars().next();
    !is_code(line) && start.is_some_and(|c| c.is_alphanumeric() || "\"'(`:".contains(c))
}

/// Whether a line looks like a program's, whose line ends mean something.
fn is_code(line: &str) -> bool {
    let line = line.trim_end();
    [" = ", "==", "->", "=>", "{", "}", "</"]
        .iter()
        .any(|mark| line.contains(mark))
        || line.ends_with([':', ';', '\\', '|'])
}

/// A heading without marks of its markup.
fn plain(heading: &str) -> String {
    one_line(&heading.replace('`', ""))
}

fn is_capital_heading(line: &str) -> bool {
    let letters = line.chars().filter(|c| c.is_alphabetic());
    letters.clone().count() >= 3
        && letters.clone().all(char::is_uppercase)
        && line.split_whitespace().count() <= 10
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<Passage>, Halt> {
        let mut all = Vec::new();
        parse(&mut &text[..], "", &mut |mut passages| {
            all.append(&mut passages);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn paragraphs_and_headings_are_found() {
        let long = "word ".repeat(50);
        let text =
            format!("REGISTER OF CASES\n\n{long}\n\nCases\n=====\n\n{long}\n\nOpen\n----\n{long}");
        let found = read(text.as_bytes()).unwrap();
        let headings: Vec<_> = found.into_iter().map(|p| p.heading).collect();
        assert_eq!(
            headings,
            [
                "REGISTER OF CASES",
                "REGISTER OF CASES > Cases",
                "REGISTER OF CASES > Cases > Open"
            ]
        );
    }

    #[test]
    fn wrapped_lines_are_joined_and_lists_are_not() {
        let text = "This line was wrapped by an editor at its right margin\nand goes on here.\n- one\n- two\n";
        assert_eq!(
            read(text.as_bytes()).unwrap()[0].text,
            "This line was wrapped by an editor at its right margin and goes on here.\n- one\n- two"
        );
    }

    #[test]
    fn a_sentence_is_whole_however_narrow_it_was_wrapped() {
        for (text, expected) in [
            (
                "Refunds are paid within thirty days of\nthe request, to the account that the\norder was paid from. Nobody is asked.\n",
                "Refunds are paid within thirty days of the request, to the account that the order was paid from. \
                 Nobody is asked.",
            ),
            // Broken where the sense is, not where the margin is.
            (
                "The carrier keeps the parcel for a week\nand sends it back after that,\nunless somebody calls about it.\n",
                "The carrier keeps the parcel for a week and sends it back after that, unless somebody calls about it.",
            ),
            (
                "- The first of the points goes on over the\n  margin of the page\n- two\n",
                "- The first of the points goes on over the margin of the page\n- two",
            ),
            (
                "Ada Example\n12 Long Street\nOslo\n",
                "Ada Example\n12 Long Street\nOslo",
            ),
            (
                "apt update\napt install one\n",
                "apt update\napt install one",
            ),
        ] {
            let found = read(text.as_bytes()).unwrap();
            assert_eq!(found[0].text, expected);
        }
    }

    #[test]
    fn lines_of_programs_stay_apart_and_make_no_headings() {
        let text = "    class CustomReporter(ExceptionReporterOfTheProject):\n        def get(self): pass\n\n>>> long.call(with, several, arguments, that, fill, it)\n>>>\n\nA long line of words that was not underlined at all\n---\n";
        let found = read(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].heading, "");
        assert_eq!(
            found[0].text,
            text.trim_end()
                .trim_end_matches("---")
                .trim_end()
                .replace("\n\n", "\n")
        );
    }

    #[test]
    fn what_is_not_text_is_named_with_its_line() {
        for (bytes, reason) in [
            (&b"ok\n\xff\xfe"[..], "line 2 is not UTF-8 text"),
            (&b"ok\nb\0d"[..], "line 2 holds binary data"),
        ] {
            assert_eq!(read(bytes).unwrap_err(), Halt::unreadable(reason));
        }
    }

    #[test]
    fn a_line_without_end_is_cut_between_characters() {
        let text = "ä".repeat(100_000);
        let found = read(text.as_bytes()).unwrap();
        assert_eq!(
            found
                .iter()
                .map(|p| p.text.matches('ä').count())
                .sum::<usize>(),
            100_000
        );
    }

    #[test]
    fn a_first_line_is_a_title_unless_it_is_a_sentence() {
        for (head, expected) in [
            ("\n=====\nMy notes\n=====\n", Some("My notes")),
            ("This is a sentence.\n", None),
            ("12 34\n", None),
            ("", None),
        ] {
            assert_eq!(title(head).as_deref(), expected, "{head}");
        }
    }
}
