//! Cuts a passage into what can be quoted: sentences, list items, table rows, blocks of code, each
//! with the heading it stands under.
//!
//! A line ends a piece unless the next one plainly goes on with it: what stood apart in the source
//! is never run together.

/// Longest piece quoted whole, in characters; longer ones are cut at a word.
const LONGEST: usize = 500;
/// Most lines of code quoted.
const MOST_LINES: usize = 12;
/// A line of this many characters was probably wrapped.
const WRAPPED: usize = 60;
/// How a search marks a line that renders a row of a table.
const ROW: &str = "row: ";

/// What a piece is, which decides how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Prose,
    /// A row of a table, each cell after its column.
    Row,
    /// Lines of code between their fences.
    Code,
}

/// One quotable piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub text: String,
    pub kind: Kind,
    /// The headings above it, the outermost first.
    pub heading: String,
    /// Its paragraph: neighbours of one paragraph may be quoted together.
    pub paragraph: usize,
}

/// The quotable pieces of a text, in order.
pub(super) fn split(text: &str) -> Vec<Sentence> {
    let mut cutter = Cutter::default();
    for line in text.lines() {
        cutter.line(line);
    }
    cutter.end_code();
    cutter.end_paragraph();
    let mut out = cutter.out;
    out.retain(|sentence| sentence.text.chars().any(char::is_alphanumeric));
    out
}

#[derive(Debug, Default)]
struct Cutter<'t> {
    out: Vec<Sentence>,
    headings: Vec<(usize, &'t str)>,
    paragraph: usize,
    running: String,
    /// The last line of the running paragraph.
    last: &'t str,
    /// The open block of code: its fence and the lines so far.
    code: Option<(&'t str, Vec<&'t str>)>,
}

impl<'t> Cutter<'t> {
    fn line(&mut self, raw: &'t str) {
        let line = raw.trim();
        if let Some((fence, lines)) = &mut self.code {
            if line.starts_with(*fence) && line.trim_start_matches('`').is_empty() {
                self.end_code();
            } else {
                lines.push(raw.trim_end());
            }
            return;
        }
        let indent = raw.len() - raw.trim_start().len();
        if let Some(fence) = fence_of(line) {
            self.end_paragraph();
            self.code = Some((fence, vec![line]));
        } else if line.is_empty() || is_rule(line) {
            self.end_paragraph();
        } else if let Some((level, title)) = heading_of(line).filter(|_| indent < 4) {
            self.end_paragraph();
            self.headings.retain(|(above, _)| *above < level);
            self.headings.push((level, title));
        } else if let Some(item) = item_of(line) {
            self.end_paragraph();
            self.running.push_str(item);
            self.last = line;
        } else if let Some(cells) = line.strip_prefix(ROW) {
            self.end_paragraph();
            self.push(shortened(cells), Kind::Row);
        } else if line.starts_with('|') {
            self.end_paragraph();
            self.push(row(line), Kind::Row);
        } else if is_record(line) {
            self.end_paragraph();
            self.push(row(line), Kind::Prose);
        } else {
            if !self.running.is_empty() && !goes_on(self.last, line) {
                self.end_paragraph();
            }
            if !self.running.is_empty() {
                self.running.push(' ');
            }
            self.running.push_str(line);
            self.last = line;
        }
    }

    fn end_paragraph(&mut self) {
        let running = std::mem::take(&mut self.running);
        for text in of_prose(&running) {
            self.add(text, Kind::Prose);
        }
        self.paragraph += 1;
    }

    /// A piece that is a paragraph of its own.
    fn push(&mut self, text: String, kind: Kind) {
        self.add(text, kind);
        self.paragraph += 1;
    }

    fn add(&mut self, text: String, kind: Kind) {
        let titles: Vec<&str> = self.headings.iter().map(|(_, title)| *title).collect();
        self.out.push(Sentence {
            text,
            kind,
            heading: titles.join(" > "),
            paragraph: self.paragraph,
        });
    }

    fn end_code(&mut self) {
        let Some((fence, lines)) = self.code.take() else {
            return;
        };
        let (open, body) = lines.split_first().map_or(("", &[][..]), |(o, b)| (*o, b));
        let mut shown: Vec<&str> = body.iter().copied().take(MOST_LINES).collect();
        if body.len() > MOST_LINES {
            shown.push("…");
        }
        if shown.iter().any(|line| !line.trim().is_empty()) {
            self.push(format!("{open}\n{}\n{fence}", shown.join("\n")), Kind::Code);
        }
    }
}

/// The marks that open a block of code, if a line does.
fn fence_of(line: &str) -> Option<&str> {
    let length = line.len() - line.trim_start_matches('`').len();
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

/// Whether a line is the rest of the sentence that the line before began.
fn goes_on(before: &str, line: &str) -> bool {
    let ended = before.ends_with(['.', '!', '?', ':', '"', '”', ')']);
    if ended || looks_like_code(before) || looks_like_code(line) {
        return false;
    }
    let first = line.chars().next();
    let long = before.chars().count() >= WRAPPED;
    first.is_some_and(char::is_lowercase) || long && first.is_some_and(char::is_alphanumeric)
}

fn looks_like_code(line: &str) -> bool {
    [" = ", "==", "->", "=>", "{", "}", "</", "::", "();"]
        .iter()
        .any(|mark| line.contains(mark))
        || line.ends_with(['\\', '|'])
        || line.ends_with(';') && line.contains(['(', '=', '*'])
}

fn is_rule(line: &str) -> bool {
    line.len() >= 3
        && line
            .chars()
            .all(|c| matches!(c, '-' | '=' | '*' | '_' | '|' | ':' | ' '))
}

/// A heading's level and title.
fn heading_of(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let is_heading = (1..=6).contains(&level) && rest.starts_with(' ');
    is_heading.then(|| (level, rest.trim().trim_end_matches('#').trim()))
}

/// A line of a table without markup: fields parted by tabs or by commas without a space.
fn is_record(line: &str) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let parts_fields = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + 1..].chars().next();
        let tight = before.is_some() && after.is_some_and(|c| !c.is_whitespace());
        tight && !(digit(before) && digit(after))
    };
    let ends_a_sentence = line.ends_with(['.', '!', '?']);
    !ends_a_sentence
        && (line.contains('\t') || line.match_indices(',').any(|(at, _)| parts_fields(at)))
}

fn item_of(line: &str) -> Option<&str> {
    if let Some(item) = ["- ", "* ", "• ", "+ "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark))
    {
        return Some(item.trim());
    }
    let end = line.find(['.', ')'])?;
    let number = !line[..end].is_empty() && line[..end].chars().all(|c| c.is_ascii_digit());
    (number && end <= 2 && line[end + 1..].starts_with(' ')).then(|| line[end + 1..].trim())
}

fn row(line: &str) -> String {
    line.trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" | ")
}

/// Sentences of running text.
fn of_prose(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !matches!(c, '.' | '!' | '?' | '…') {
            continue;
        }
        // Closing quotes and brackets belong to the sentence.
        let mut end = at + c.len_utf8();
        while let Some((next, closing)) = chars.peek().copied() {
            if !matches!(
                closing,
                '"' | '”' | '\'' | '’' | ')' | ']' | '.' | '!' | '?'
            ) {
                break;
            }
            end = next + closing.len_utf8();
            chars.next();
        }
        let rest = &text[end..];
        let gap = rest.starts_with(char::is_whitespace);
        let next = rest.trim_start().chars().next();
        let starts_anew = next.is_none_or(|n| !n.is_lowercase());
        if (gap || rest.is_empty())
            && starts_anew
            && !(c == '.' && next.is_some() && ends_in_abbreviation(&text[start..at]))
        {
            out.push(shortened(&text[start..end]));
            start = end;
        }
    }
    if !text[start..].trim().is_empty() {
        out.push(shortened(&text[start..]));
    }
    out
}

/// Whether the stop that follows belongs to a word: "Inc.", "e.g.", "J. Doe".
fn ends_in_abbreviation(before: &str) -> bool {
    const ABBREVIATIONS: &[&str] = &[
        "approx", "art", "cf", "co", "corp", "dr", "e.g", "ed", "est", "fig", "i.e", "inc", "jr",
        "ltd", "mr", "mrs", "ms", "no", "nos", "p", "para", "pp", "prof", "sec", "sr", "st", "vol",
        "vs",
    ];
    let word = before
        .rsplit(|c: char| c.is_whitespace() || c == '(')
        .next()
        .unwrap_or_default();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    // "Company X." ends a sentence; "J. Doe" does not. A name before the letter tells them apart.
    let after_a_name = initial
        && before
            .trim_end_matches(word)
            .split_whitespace()
            .last()
            .is_some_and(|previous| {
                previous.chars().next().is_some_and(char::is_uppercase)
                    && previous.chars().count() > 2
            });
    initial && !after_a_name || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => {
            let cut = text[..end].rfind(' ').unwrap_or(end);
            format!("{} …", text[..cut].trim_end())
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_cut_at_the_ends_of_sentences_only() {
        let texts = |text| split(text).into_iter().map(|s| s.text).collect::<Vec<_>>();
        let cases: &[(&str, &[&str])] = &[
            ("One. Two! Three?", &["One.", "Two!", "Three?"]),
            (
                "It fell by 4.2 percent. It rose.",
                &["It fell by 4.2 percent.", "It rose."],
            ),
            (
                "Acme Inc. lost. See e.g. the annex.",
                &["Acme Inc. lost.", "See e.g. the annex."],
            ),
            (
                "Signed by J. Doe of Company X. It holds.",
                &["Signed by J. Doe of Company X.", "It holds."],
            ),
            (
                "He said \"no.\" Then he left.",
                &["He said \"no.\"", "Then he left."],
            ),
            ("a line\nthat goes on. next", &["a line that goes on. next"]),
            (
                "A title\nA line of its own",
                &["A title", "A line of its own"],
            ),
            ("Run:\ncargo test", &["Run:", "cargo test"]),
            ("It is due;\nso they say.", &["It is due; so they say."]),
            ("let a = 1;\nlet b = 2;", &["let a = 1;", "let b = 2;"]),
            (
                "row: beds = 12; place = Kiel. Old\nrow: beds = 7",
                &["beds = 12; place = Kiel. Old", "beds = 7"],
            ),
            (
                "- first\n- second. Third.\n1) fourth",
                &["first", "second.", "Third.", "fourth"],
            ),
            ("| a | b |\n|---|---|\n| 1 | 2 |", &["a | b", "1 | 2"]),
            (
                "place,beds\nKiel,12\nOslo,7",
                &["place,beds", "Kiel,12", "Oslo,7"],
            ),
            (
                "It cost 41,000 euros, or\nmore.",
                &["It cost 41,000 euros, or more."],
            ),
            ("…\n---\n", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(&texts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_piece_knows_its_heading_and_paragraph() {
        let found = split("# Costs\nOne. Two.\n\nThree.\n## Repairs ##\nFour.\n# Risks\nFive.");
        let told: Vec<(&str, &str, usize)> = found
            .iter()
            .map(|s| (s.text.as_str(), s.heading.as_str(), s.paragraph))
            .collect();
        assert_eq!(
            told,
            [
                ("One.", "Costs", 1),
                ("Two.", "Costs", 1),
                ("Three.", "Costs", 2),
                ("Four.", "Costs > Repairs", 3),
                ("Five.", "Risks", 4),
            ]
        );
    }

    #[test]
    fn code_stays_whole_and_its_comments_are_no_headings() {
        let text =
            "Set it up.\n```sh\n# configure it\nfrob --init\n```\nThen it works.\n    # indented\n";
        let found = split(text);
        let told: Vec<(&str, Kind, &str)> = found
            .iter()
            .map(|s| (s.text.as_str(), s.kind, s.heading.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("Set it up.", Kind::Prose, ""),
                ("```sh\n# configure it\nfrob --init\n```", Kind::Code, ""),
                ("Then it works.", Kind::Prose, ""),
                ("# indented", Kind::Prose, ""),
            ]
        );
        let open = split("````\na\n```\nb");
        assert_eq!(open[0].text, "````\na\n```\nb\n````");
        let long = split(&format!("```\n{}```", "line\n".repeat(40)));
        assert!(long[0].text.ends_with("line\n…\n```"), "{}", long[0].text);
    }

    #[test]
    fn a_very_long_sentence_is_cut_at_a_word() {
        let long = "word ".repeat(300);
        let found = split(&long);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.chars().count() <= LONGEST + 2);
        assert!(found[0].text.ends_with("word …"));
    }
}
