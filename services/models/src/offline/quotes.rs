//! What is quoted, and how it is written as Markdown.
//!
//! The search has ranked the passages, so the first are taken. Invariant: every quotation stands word
//! for word in an observation and carries its source; code keeps its lines.

use super::observation::Passage;
use agentfleet_schema::words::covered;

/// Most passages quoted, and most statements.
const MOST_PASSAGES: usize = 3;
const MOST_FACTS: usize = 5;
/// Most characters of one quotation: more than any passage of the library has.
const MOST_CHARS: usize = 4_000;

/// The passages that the search ranked first, and the statements that have most of the terms: those
/// before the passages where one of them has all, or more than any passage.
pub(super) fn choose(terms: &[String], found: &[Passage]) -> Vec<Passage> {
    let share = |p: &Passage| {
        let whole = format!("{}\n{}\n{}", p.source, p.heading, p.text);
        covered(terms, if p.is_fact { &p.text } else { &whole })
    };
    let best = |facts: bool| {
        let shares = found.iter().filter(|p| p.is_fact == facts).map(share);
        shares.max().unwrap_or_default()
    };
    let (text, fact) = (best(false), best(true));
    let least = text.max(fact).div_ceil(2).max(1);
    let passages = found
        .iter()
        .filter(|p| !p.is_fact && share(p) >= least)
        .take(MOST_PASSAGES);
    let mut facts: Vec<&Passage> = found
        .iter()
        .filter(|p| p.is_fact && share(p) >= least)
        .collect();
    facts.sort_by_key(|p| std::cmp::Reverse(share(p)));
    facts.truncate(MOST_FACTS);
    let facts = facts.into_iter();
    let all: Vec<&Passage> = if fact > text || fact > 0 && fact == terms.len() {
        facts.chain(passages).collect()
    } else {
        passages.chain(facts).collect()
    };
    let mut kept: Vec<Passage> = Vec::new();
    for passage in all {
        if !kept.contains(passage) {
            kept.push(passage.clone());
        }
    }
    kept
}

/// Block quotations, each ending with its source; statements of one source share one.
pub(super) fn blocks(chosen: &[Passage]) -> Vec<String> {
    let groups = chosen.chunk_by(|a, b| a.is_fact && b.is_fact && a.source == b.source);
    groups.map(block).collect()
}

fn block(group: &[Passage]) -> String {
    let first = &group[0];
    let mut out = String::new();
    if first.is_fact {
        for fact in group {
            out += &format!("> - {}\n", escaped(&fact.text));
        }
    } else {
        out = quoted(&first.text);
    }
    let under = if first.heading.is_empty() {
        String::new()
    } else {
        format!(", under \"{}\"", first.heading)
    };
    format!("{out}>\n> Source: {}{under}", first.source)
}

/// The lines of a passage, each a paragraph of its own unless it belongs to a list or to code.
fn quoted(text: &str) -> String {
    let cut = text.char_indices().nth(MOST_CHARS).map(|(end, _)| end);
    let whole = &text[..cut.unwrap_or(text.len())];
    let mut out = String::new();
    let mut fence = "";
    let mut before_is_item = false;
    for line in whole.lines().filter(|line| !line.trim().is_empty()) {
        if !fence.is_empty() {
            out += &format!("> {line}\n");
            if line == fence {
                fence = "";
            }
            continue;
        }
        let ticks = line.len() - line.trim_start_matches('`').len();
        let is_item = is_item(line);
        if !out.is_empty() && (!is_item || !before_is_item) {
            out += ">\n";
        }
        before_is_item = is_item;
        if ticks >= 3 && !line[ticks..].contains('`') {
            fence = &line[..ticks];
            out += &format!("> {line}\n");
        } else if let Some(heading) = line.strip_prefix("## ") {
            out += &format!("> **{}**\n", escaped(heading));
        } else if let Some(row) = line.strip_prefix("row: ") {
            out += &format!("> - Row: {}\n", escaped(row));
        } else {
            out += &format!("> {}\n", escaped(line));
        }
    }
    if !fence.is_empty() {
        out += &format!("> {fence}\n");
    }
    if cut.is_some() {
        out += ">\n> …\n";
    }
    out
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < line.len() && number.starts_with(". ");
    is_numbered || line.starts_with("- ") || line.starts_with("row: ")
}

/// Plain text as Markdown that keeps its backslashes: one before punctuation would vanish as an
/// escape. Within code spans nothing is an escape.
fn escaped(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '`']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let taken = if ticks == 0 {
            let escapes = rest[1..].starts_with(|c: char| c.is_ascii_punctuation());
            out.push_str(if escapes { r"\\" } else { r"\" });
            1
        } else {
            let span = span(rest, ticks);
            out.push_str(&rest[..span]);
            span
        };
        rest = &rest[taken..];
    }
    out + rest
}

/// How long a code span is that opens with this many back quotes; only they, if none closes it.
fn span(text: &str, ticks: usize) -> usize {
    let mut at = ticks;
    while let Some(next) = text[at..].find('`') {
        at += next;
        let run = text[at..].len() - text[at..].trim_start_matches('`').len();
        at += run;
        if run == ticks {
            return at;
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_keeps_its_backslashes_as_markdown() {
        for (text, expected) in [
            (r"C:\dir\file and \n", r"C:\dir\file and \n"),
            (r"\d{2}\.log", r"\d{2}\\.log"),
            (r"\\server\_old\*.cfg", r"\\\server\\_old\\*.cfg"),
            (r"`\*.log` and \*.log", r"`\*.log` and \\*.log"),
            (r"``a`\*`` \*", r"``a`\*`` \\*"),
            (r"open ` \*", r"open ` \\*"),
            (r"ends in \", r"ends in \"),
        ] {
            assert_eq!(escaped(text), expected, "{text}");
        }
    }

    #[test]
    fn a_passage_keeps_its_paragraphs_its_lists_and_its_code() {
        let text = "Prepare it:\n```sh\n# first\n\nfrob --init\n```\n- one\n- two\nrow: a = 1\n## Then\nIt works.";
        assert_eq!(
            quoted(text),
            "> Prepare it:\n>\n> ```sh\n> # first\n> frob --init\n> ```\n>\n> - one\n> - two\n\
             > - Row: a = 1\n>\n> **Then**\n>\n> It works.\n"
        );
    }
}
