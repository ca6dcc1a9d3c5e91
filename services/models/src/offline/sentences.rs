//! Cuts a passage into what can be quoted: sentences, list items, table rows, each with the heading
//! it stands under.

/// Longest piece quoted whole, in characters; longer ones are cut at a word.
const LONGEST: usize = 500;

/// One quotable piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub text: String,
    /// The headings above it, the outermost first.
    pub heading: String,
    /// Its paragraph: neighbours of one paragraph may be quoted together.
    pub paragraph: usize,
}

/// The quotable pieces of a text, in order.
pub(super) fn split(text: &str) -> Vec<Sentence> {
    let mut out: Vec<Sentence> = Vec::new();
    let mut headings: Vec<(usize, &str)> = Vec::new();
    let mut heading = String::new();
    let mut paragraph = 0;
    let mut running = String::new();
    let flush = |running: &mut String, heading: &str, paragraph: usize, out: &mut Vec<Sentence>| {
        for text in of_prose(running) {
            out.push(Sentence {
                text,
                heading: heading.to_owned(),
                paragraph,
            });
        }
        running.clear();
    };
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || is_rule(line) {
            flush(&mut running, &heading, paragraph, &mut out);
            paragraph += 1;
        } else if let Some((level, title)) = heading_of(line) {
            flush(&mut running, &heading, paragraph, &mut out);
            paragraph += 1;
            headings.retain(|(above, _)| *above < level);
            headings.push((level, title));
            let titles: Vec<&str> = headings.iter().map(|(_, title)| *title).collect();
            heading = titles.join(" > ");
        } else if let Some(item) = item_of(line) {
            flush(&mut running, &heading, paragraph, &mut out);
            paragraph += 1;
            running.push_str(item);
        } else if line.starts_with('|') || is_record(line) {
            flush(&mut running, &heading, paragraph, &mut out);
            out.push(Sentence {
                text: row(line),
                heading: heading.clone(),
                paragraph,
            });
            paragraph += 1;
        } else {
            if !running.is_empty() {
                running.push(' ');
            }
            running.push_str(line);
        }
    }
    flush(&mut running, &heading, paragraph, &mut out);
    out.retain(|sentence| sentence.text.chars().any(char::is_alphanumeric));
    out
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
    fn a_very_long_sentence_is_cut_at_a_word() {
        let long = "word ".repeat(300);
        let found = split(&long);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.chars().count() <= LONGEST + 2);
        assert!(found[0].text.ends_with("word …"));
    }
}
