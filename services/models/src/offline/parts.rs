//! Finds the parts that a text enumerates: `financial, legal and technical dimensions`, or a list.

use agentfleet_schema::words::is_stop_word;

/// Most parts; a longer row is a list of data.
const MOST: usize = 12;
/// Most words of a part in a row.
const PART_WORDS: usize = 3;
/// Words that lead a row in, or that a sentence begins with.
const LEADS: &[&str] = &[
    "across",
    "along",
    "analyse",
    "analyze",
    "assess",
    "compare",
    "consider",
    "cover",
    "evaluate",
    "including",
    "namely",
    "rate",
    "regarding",
    "review",
    "terms",
    "weigh",
];
/// Nouns that close a row and say what it is a row of: two parts are enough then.
const SIDES: &[&str] = &[
    "angles",
    "aspects",
    "criteria",
    "dimensions",
    "facets",
    "factors",
    "implications",
    "perspectives",
    "sides",
    "viewpoints",
];

/// Parts, and the text before and after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub items: Vec<String>,
    pub before: String,
    pub after: String,
}

/// The parts of the first row or list of a text that has one.
pub(super) fn find(text: &str) -> Option<Parts> {
    listed(text).or_else(|| {
        let mut start = 0;
        text.split_inclusive(['.', ';', ':', '?', '!', '\n'])
            .find_map(|piece| {
                let at = start;
                start += piece.len();
                row(
                    text,
                    at,
                    piece.trim_end_matches(['.', ';', ':', '?', '!', '\n']),
                )
            })
    })
}

/// `- one` and `- two`, or `1. one` and `2. two`, below a question.
fn listed(text: &str) -> Option<Parts> {
    let item = |line: &str| {
        let line = line.trim();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let marks: &[&str] = if rest.len() < line.len() {
            &[". ", ") "]
        } else {
            &["- ", "* "]
        };
        let item = marks.iter().find_map(|mark| rest.strip_prefix(mark))?;
        Some(item.trim().trim_end_matches(['.', ';', ',']).to_owned())
    };
    let items: Vec<String> = text.lines().filter_map(item).collect();
    let others: Vec<&str> = text.lines().filter(|line| item(line).is_none()).collect();
    (2..=MOST).contains(&items.len()).then(|| Parts {
        items,
        before: others.join(" ").trim().trim_end_matches(':').to_owned(),
        after: String::new(),
    })
}

/// `a, b and c` within a sentence; `start` is where the sentence stands in the text.
fn row(text: &str, start: usize, sentence: &str) -> Option<Parts> {
    let (rest, last) = [" and ", " or "]
        .iter()
        .filter_map(|word| sentence.rfind(word).map(|at| (at, at + word.len())))
        .max()?;
    // The last part ends at a word that goes on with the sentence, or at the noun for the row.
    let tail = &sentence[last..];
    let mut words = words_of(tail);
    let end = words
        .iter()
        .position(|(_, word)| is_lead(word))
        .unwrap_or(words.len());
    words.truncate(end);
    let side = words
        .iter()
        .rposition(|(_, word)| SIDES.contains(&word.as_str()));
    let is_marked = side.is_some_and(|at| at > 0);
    words.truncate(side.filter(|at| *at > 0).unwrap_or(words.len()));
    let ends = last + words.last().map(|(at, word)| at + word.len())?;
    let mut items = vec![sentence[last..ends].trim().to_owned()];
    let mut begins = last;
    let mut at = rest;
    let head = sentence[..rest].trim_end_matches(',');
    for piece in head.rsplit(", ") {
        let words = words_of(piece);
        let lead = words.iter().rposition(|(_, word)| is_lead(word));
        let own = &words[lead.map_or(0, |at| at + 1)..];
        let is_first = piece.len() == at.min(head.len());
        // A sentence begins with a verb.
        let own = if is_first && lead.is_none() && own.len() > 1 {
            &own[1..]
        } else {
            own
        };
        let Some((from, _)) = own.first() else { break };
        if own.len() > PART_WORDS {
            break;
        }
        at = at.min(head.len()) - piece.len();
        begins = at + from;
        items.push(piece[*from..].trim().to_owned());
        if lead.is_some() || at == 0 {
            break;
        }
        at -= ", ".len();
    }
    items.reverse();
    let least = if is_marked { 2 } else { 3 };
    let fits = items.iter().all(|item| words_of(item).len() <= PART_WORDS);
    ((least..=MOST).contains(&items.len()) && fits).then(|| Parts {
        items,
        before: text[..start + begins].to_owned(),
        after: text[start + ends..].to_owned(),
    })
}

/// Words in lower case, each with where it begins.
fn words_of(text: &str) -> Vec<(usize, String)> {
    let mut at = 0;
    let pieces = text.split_inclusive(' ').map(|piece| {
        let start = at;
        at += piece.len();
        (start, piece.trim().to_lowercase())
    });
    pieces.filter(|(_, word)| !word.is_empty()).collect()
}

fn is_lead(word: &str) -> bool {
    is_stop_word(word) || LEADS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_lists_are_found_and_ordinary_sentences_are_none() {
        let cases: &[(&str, &[&str])] = &[
            (
                "Analyse across financial, reputational, legal and operational dimensions using sound methods.",
                &["financial", "reputational", "legal", "operational"],
            ),
            (
                "Compare cost, speed, and safety of the two ferries",
                &["cost", "speed", "safety"],
            ),
            (
                "Rank the ports: depth, access or tides",
                &["depth", "access", "tides"],
            ),
            ("Cover legal and ethical aspects.", &["legal", "ethical"]),
            (
                "Assess the bridge:\n- load\n- corrosion;",
                &["load", "corrosion"],
            ),
            (
                "Answer:\n1. Who built it?\n2. When?",
                &["Who built it?", "When?"],
            ),
            (
                "Does the crate support look-around and backreferences?",
                &[],
            ),
            (
                "Assess the risk profile of Company X as a potential partner",
                &[],
            ),
            ("When is the term loan due?", &[]),
            (
                "Why did the bridge close after it had been opened, repaired at some considerable expense and painted?",
                &[],
            ),
            ("", &[]),
        ];
        for (text, expected) in cases {
            let items = find(text).map(|parts| parts.items).unwrap_or_default();
            assert_eq!(&items, expected, "{text}");
        }
    }
}
