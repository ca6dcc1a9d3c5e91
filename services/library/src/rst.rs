//! reStructuredText to titled passages: sections by their underlines, directives, and code as code.
//!
//! The open end of a paragraph (`::`) and directives for code make the indented lines below them a block
//! of code. Other directives give their content; those that only steer the layout are left out.

use super::format::Parsed;
use super::outline::{Outline, one_line};

/// Directives whose content is code; what stands behind them is its language.
const CODE: &[&str] = &[
    "code",
    "code-block",
    "sourcecode",
    "parsed-literal",
    "highlight",
    "doctest",
    "testcode",
    "math",
];
/// Directives whose content nobody reads.
const LAYOUT: &[&str] = &[
    "contents",
    "figure",
    "image",
    "include",
    "index",
    "meta",
    "module",
    "currentmodule",
    "only",
    "raw",
    "sectionauthor",
    "tabularcolumns",
    "testsetup",
    "toctree",
];

/// Reads a whole file.
pub(crate) fn parse(text: &str) -> Parsed {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut reader = Reader::default();
    let mut at = 0;
    while at < lines.len() {
        at = reader.next(&lines, at);
    }
    reader.end_paragraph();
    reader.outline.into_parsed(None, None)
}

#[derive(Default)]
struct Reader {
    outline: Outline,
    /// Styles of section titles in the order they came, each a level: the mark, and whether it stands
    /// above as well.
    levels: Vec<(char, bool)>,
    paragraph: Vec<String>,
}

impl Reader {
    /// Reads what begins at a line, and returns the line after it.
    fn next(&mut self, lines: &[&str], at: usize) -> usize {
        let line = lines[at];
        if line.is_empty() {
            self.end_paragraph();
            return at + 1;
        }
        let below = lines.get(at + 1).copied().unwrap_or_default();
        // A title between two rules, or above one.
        if let Some(mark) = rule(line)
            && self.paragraph.is_empty()
            && lines.get(at + 2).and_then(|line| rule(line)) == Some(mark)
            && !below.trim().is_empty()
        {
            self.title((mark, true), below);
            return at + 3;
        }
        if let Some(mark) = rule(below)
            && self.paragraph.is_empty()
            && !line.starts_with(' ')
            && below.chars().count() + 2 >= line.chars().count()
        {
            self.title((mark, false), line);
            return at + 2;
        }
        if rule(line).is_some() {
            self.end_paragraph();
            return at + 1;
        }
        if let Some(explicit) = line.trim_start().strip_prefix(".. ") {
            self.end_paragraph();
            return self.explicit(explicit, lines, at);
        }
        if line.trim_start().starts_with(">>> ") && self.paragraph.is_empty() {
            let end = lines[at..].iter().position(|line| line.is_empty());
            let end = end.map_or(lines.len(), |count| at + count);
            self.outline.code(&lines[at..end].join("\n"), "");
            return end;
        }
        if is_item(line) {
            self.end_paragraph();
        }
        if let Some(announced) = line.strip_suffix("::") {
            let colon = if announced.trim().is_empty() || announced.ends_with(' ') {
                ""
            } else {
                ":"
            };
            self.paragraph
                .push(format!("{}{colon}", announced.trim_end()));
            // A paragraph may end so; elsewhere the marks are text.
            if below.is_empty() {
                self.end_paragraph();
                return self.code("", lines, at + 1, indent(line));
            }
            return at + 1;
        }
        self.paragraph.push(line.to_owned());
        at + 1
    }

    /// `.. name:: argument` with its content, or a comment or a target, which have nothing to read.
    fn explicit(&mut self, text: &str, lines: &[&str], at: usize) -> usize {
        let own = indent(lines[at]);
        let Some((name, argument)) = text.split_once("::").filter(|(name, _)| is_name(name)) else {
            return end_of_block(lines, at + 1, own);
        };
        let argument = argument.trim();
        let bare = name.rsplit(':').next().unwrap_or(name);
        if CODE.contains(&bare) {
            return self.code(argument, lines, at + 1, own);
        }
        if LAYOUT.contains(&bare) {
            return end_of_block(lines, at + 1, own);
        }
        // `.. note:: text` and `.. function:: name(...)`: the content follows and is read as any other.
        self.outline.block(&plain(argument));
        let mut next = at + 1;
        while lines
            .get(next)
            .is_some_and(|line| line.trim_start().starts_with(':'))
        {
            next += 1;
        }
        next
    }

    /// The lines from here on that are further indented, as code.
    fn code(&mut self, language: &str, lines: &[&str], from: usize, above: usize) -> usize {
        let end = end_of_block(lines, from, above);
        let is_option = |line: &&&str| line.is_empty() || line.trim_start().starts_with(':');
        let options = lines[from..end].iter().take_while(is_option).count();
        let body = &lines[from + options..end];
        let shared = body
            .iter()
            .filter(|line| !line.is_empty())
            .map(|line| indent(line))
            .min();
        let shared = shared.unwrap_or_default();
        let body: Vec<&str> = body
            .iter()
            .map(|line| line.get(shared..).unwrap_or_default())
            .collect();
        self.outline.code(&body.join("\n"), language);
        end
    }

    fn title(&mut self, style: (char, bool), text: &str) {
        self.end_paragraph();
        let known = self.levels.iter().position(|known| *known == style);
        let level = known.unwrap_or_else(|| {
            self.levels.push(style);
            self.levels.len() - 1
        });
        self.outline.heading(level + 1, &plain(text));
    }

    fn end_paragraph(&mut self) {
        let lines = std::mem::take(&mut self.paragraph);
        self.outline.block(&plain(&lines.join(" ")));
    }
}

/// The mark of a line that is nothing but one mark, at least twice.
fn rule(line: &str) -> Option<char> {
    let mark = line.chars().next().filter(char::is_ascii_punctuation)?;
    (line.len() >= 3 && line.chars().all(|c| c == mark)).then_some(mark)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_:+.".contains(c))
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == '#');
    let is_numbered = rest.len() < line.len() && rest.starts_with(". ");
    is_numbered || line.starts_with("- ") || line.starts_with("* ")
}

/// The first line from here on that is indented no further than `above` and not empty.
fn end_of_block(lines: &[&str], from: usize, above: usize) -> usize {
    let ends = |line: &&str| !line.is_empty() && indent(line) <= above;
    let found = lines.get(from..).unwrap_or_default().iter().position(ends);
    found.map_or(lines.len(), |count| from + count)
}

/// Text without its marks: roles and references are their words, literals are code.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = one_line(text);
    // `:role:`text`` and `text <target>`_ are their text; ``code`` is `code`.
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let mark = "`".repeat(ticks.min(2));
        let start = at + mark.len();
        let Some(length) = rest[start..].find(&mark) else {
            break;
        };
        let own = rest[start..start + length].to_owned();
        let mut before = rest[..at].to_owned();
        let after = rest[start + length + mark.len()..]
            .trim_start_matches('_')
            .to_owned();
        if mark.len() == 1 {
            let role = before.strip_suffix(':').and_then(|text| text.rfind(':'));
            if let Some(role) = role.filter(|at| is_name(before[at + 1..].trim_end_matches(':'))) {
                before.truncate(role);
            }
            let shown = own.split_once(" <").map_or(own.as_str(), |(text, _)| text);
            out += &format!("{before}{}", shown.trim_start_matches(['~', '!']));
        } else {
            out += &format!("{before}`{own}`");
        }
        rest = after;
    }
    (out + &rest).replace("**", "").replace("\\ ", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_directives_and_code_are_told_apart() {
        let long = "word ".repeat(45);
        let text = format!(
            "=====\nTools\n=====\n\n.. toctree::\n   :maxdepth: 2\n\n   one\n\nUse the :func:`~os.open` call of `the\nmanual <https://e.org>`_ with ``flags``:: and more.\n{long}\n\n\
             Setup\n-----\n\nRun this::\n\n    # configure\n\n    frob --init\n\nThen it works.\n{long}\n\n\
             .. note:: Take care.\n   It is hot.\n\n.. code-block:: python\n   :linenos:\n\n   a = 1\n\n.. a comment\n   of two lines\n\n\
             Deep\n~~~~\n\n- one\n- two\n\n>>> 1 + 1\n2\n\n{long}\n\nAgain\n-----\n\nThe end. {long}\n"
        );
        let parsed = parse(&text);
        assert_eq!(parsed.title.as_deref(), Some("Tools"));
        let told: Vec<(&str, String)> = parsed
            .passages
            .iter()
            .map(|p| (p.heading.as_str(), p.text.replace(long.trim(), "LONG")))
            .collect();
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(heading, text)| (*heading, text.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    "",
                    "Use the os.open call of the manual with `flags`:: and more. LONG"
                ),
                (
                    "Setup",
                    "Run this:\n```\n# configure\nfrob --init\n```\nThen it works. LONG\nTake care.\nIt is hot.\n```python\na = 1\n```"
                ),
                ("Setup > Deep", "- one\n- two\n```\n>>> 1 + 1\n2\n```\nLONG"),
                ("Again", "The end. LONG"),
            ]
        );
    }

    #[test]
    fn what_is_cut_short_is_read_as_far_as_it_goes() {
        for text in [
            "",
            "::",
            ".. ",
            ".. code::",
            "===",
            "a\n===",
            "===\na",
            "`",
            "a ``b",
            ":x:`y",
            "..\n\n::\n\n  é",
        ] {
            let parsed = parse(text);
            assert!(parsed.passages.len() <= 1, "{text}");
        }
    }
}
