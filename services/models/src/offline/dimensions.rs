//! Finds the parts that a question or its framing enumerates: "across cost, speed and safety",
//! "A vs B", bullet lists. The offline model splits work along these and never along its own ideas.

use super::terms::{is_instruction, is_stop_word, stem};
use std::ops::Range;

/// Most parts taken from one enumeration; beyond it, it is hardly one.
const MOST: usize = 12;
/// Most words of one part within a sentence.
const PART_WORDS: usize = 4;

/// What the parts are, which decides how a goal is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sides of one matter: "cost", "safety".
    Dimensions,
    /// Things in their own right: names to compare, points of a list.
    Parts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Question,
    Framing,
}

impl Origin {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Framing => "framing",
        }
    }
}

/// An enumeration and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Enumeration {
    pub items: Vec<String>,
    pub kind: Kind,
    pub origin: Origin,
    /// The passage it stands in, for quoting.
    pub fragment: String,
    around: Around,
    strong: bool,
}

/// What the question says besides its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Around {
    /// The parts are the framing's; the question stands as it is.
    Question,
    /// What stands before the row and after it.
    Row(String, String),
    /// What stands around a list of lines; may be empty.
    List(String),
}

impl Enumeration {
    /// The question asked of one part: with that part alone in place of a row, or what stands
    /// around a list.
    pub(super) fn question_about(&self, item: &str, question: &str) -> String {
        match &self.around {
            Around::Question => question.trim().to_owned(),
            Around::Row(before, after) => {
                let sentence = format!("{before}{item}{after}");
                sentence.split_whitespace().collect::<Vec<_>>().join(" ")
            }
            Around::List(intro) => intro.clone(),
        }
    }
}

/// The enumeration that work should be split along, if there is one.
///
/// A marked one ("across ... dimensions", "compare", a list) goes before a mere row of words, and
/// what was asked goes before its framing.
pub(super) fn find(question: &str, framing: &str) -> Option<Enumeration> {
    let in_question = in_text(question, Origin::Question);
    let in_framing = in_text(framing, Origin::Framing);
    match (in_question, in_framing) {
        (Some(asked), Some(framed)) if framed.strong && !asked.strong => Some(framed),
        (Some(asked), _) => Some(asked),
        (None, framed) => framed,
    }
}

fn in_text(text: &str, origin: Origin) -> Option<Enumeration> {
    if let Some(list) = lines(text, origin) {
        return Some(list);
    }
    let mut found: Vec<Enumeration> = sentences(text, origin);
    // Marked ones first, then the longest, then the first.
    found.sort_by_key(|e| (!e.strong, std::cmp::Reverse(e.items.len())));
    found.into_iter().next()
}

// Lists of lines.

fn lines(text: &str, origin: Origin) -> Option<Enumeration> {
    let mut items = Vec::new();
    let mut around = Vec::new();
    for line in text.lines() {
        match list_item(line) {
            Some(item) if items.len() < MOST => items.push(item),
            _ if line.trim().is_empty() => {}
            _ => around.push(line.trim()),
        }
    }
    if items.len() < 2 {
        return None;
    }
    let intro = around.join(" ");
    let intro = intro.trim().trim_end_matches(':').trim().to_owned();
    Some(Enumeration {
        fragment: shortened(&items.join("; ")),
        items,
        kind: Kind::Parts,
        origin,
        around: match origin {
            Origin::Question => Around::List(intro),
            Origin::Framing => Around::Question,
        },
        strong: true,
    })
}

/// `- item`, `* item`, `• item`, `1. item`, `2) item`, `(c) item`.
fn list_item(line: &str) -> Option<String> {
    let line = line.trim();
    let rest = ["- ", "* ", "• ", "+ "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark))
        .or_else(|| {
            let open = line.strip_prefix('(').unwrap_or(line);
            let end = open.find(['.', ')'])?;
            let mark = &open[..end];
            let is_mark = !mark.is_empty()
                && (mark.chars().all(|c| c.is_ascii_digit()) && mark.len() <= 2
                    || mark.len() == 1 && mark.chars().all(|c| c.is_ascii_lowercase()));
            let rest = &open[end + 1..];
            (is_mark && rest.starts_with(' ')).then_some(rest)
        })?;
    let item = rest.trim().trim_end_matches([';', ',', '.']).trim();
    (!item.is_empty()).then(|| item.to_owned())
}

// Rows within a sentence.

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(Range<usize>),
    Comma,
    /// `and`, `or`, `&`, `as well as`.
    And,
    /// `vs`, `versus`.
    Versus,
    Colon,
    Stop,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut start: Option<usize> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next_is_word = chars.peek().is_some_and(|(_, n)| n.is_alphanumeric());
        let inside = start.is_some() && next_is_word && matches!(c, '.' | '\'' | '’' | '-' | '/');
        if c.is_alphanumeric() || inside || start.is_some() && matches!(c, '+' | '#') {
            start.get_or_insert(at);
            continue;
        }
        if let Some(from) = start.take() {
            word(text, from..at, &mut out);
        }
        match c {
            ',' => out.push(Token::Comma),
            '&' => out.push(Token::And),
            ':' => out.push(Token::Colon),
            '.' if out.last() == Some(&Token::Versus) => {}
            '.' | ';' | '?' | '!' | '\n' | '(' | ')' | '—' | '–' => out.push(Token::Stop),
            _ => {}
        }
    }
    if let Some(from) = start {
        word(text, from..text.len(), &mut out);
    }
    out
}

fn word(text: &str, range: Range<usize>, out: &mut Vec<Token>) {
    match text[range.clone()].to_lowercase().as_str() {
        "and" | "or" => out.push(Token::And),
        "vs" | "versus" => out.push(Token::Versus),
        // "as well as" has already left "as", "well" behind.
        "as" if ends_with_as_well(text, out) => {
            out.truncate(out.len() - 2);
            out.push(Token::And);
        }
        _ => out.push(Token::Word(range)),
    }
}

fn ends_with_as_well(text: &str, out: &[Token]) -> bool {
    let [.., Token::Word(a), Token::Word(b)] = out else {
        return false;
    };
    text[a.clone()].eq_ignore_ascii_case("as") && text[b.clone()].eq_ignore_ascii_case("well")
}

fn sentences(text: &str, origin: Origin) -> Vec<Enumeration> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let row = match token {
            Token::And | Token::Versus => coordinated(text, &tokens, at),
            Token::Colon => after_colon(text, &tokens, at),
            Token::Word(_) | Token::Comma | Token::Stop => None,
        };
        found.extend(row.and_then(|row| enumeration(text, row, origin)));
    }
    found
}

/// Where a part stands in the text.
type Part = Range<usize>;

/// A row of parts in the text.
struct Row {
    parts: Vec<Part>,
    strong: bool,
    names: bool,
}

/// The row around the coordinator at `at`.
fn coordinated(text: &str, tokens: &[Token], at: usize) -> Option<Row> {
    let versus = tokens[at] == Token::Versus;
    let (mut parts, lead) = to_the_left(text, tokens, at)?;
    let (right, category) = to_the_right(text, tokens, at)?;
    parts.extend(right);
    let lead = lead.unwrap_or_default();
    let cue = text[lead.clone()].to_lowercase();
    // "compare the cost, the speed": the article only stands between.
    let marker = if is_article(&cue) {
        last_word(&text[..lead.start])
    } else {
        cue.clone()
    };
    let compares = matches!(
        marker.as_str(),
        "compare" | "comparing" | "comparison" | "between" | "difference" | "differences"
    );
    let marked = matches!(
        marker.as_str(),
        "across"
            | "covering"
            | "cover"
            | "along"
            | "terms"
            | "including"
            | "include"
            | "namely"
            | "regarding"
            | "considering"
            | "consider"
            | "dimensions"
            | "aspects"
            | "criteria"
    );
    let after_colon = marker == ":";
    // "with serde and rename fields" names no fields; "the legal and ethical fields" does.
    let led_in = is_article(&cue) || marked || compares || is_instruction(&cue);
    let category = match category {
        Some(Category::Sides) => true,
        Some(Category::Things) => led_in || parts.len() > 2,
        None => false,
    };
    let strong = versus || category || compares || marked || after_colon;
    let names = parts
        .iter()
        .all(|range| looks_like_a_name(&text[range.clone()]));
    let enough = match parts.len() {
        0 | 1 => false,
        2 => {
            let nouns_of = matches!(cue.as_str(), "the" | "its" | "their" | "of")
                && followed_by(text, tokens, &parts[1], "of")
                && parts
                    .iter()
                    .all(|range| text[range.clone()].split_whitespace().count() <= 2);
            versus || category || compares || nouns_of || names && text_is_or(text, &parts)
        }
        _ => true,
    };
    enough.then_some(Row {
        parts,
        strong,
        names: names || versus,
    })
}

fn last_word(text: &str) -> String {
    text.split_whitespace()
        .last()
        .unwrap_or_default()
        .to_lowercase()
}

fn text_is_or(text: &str, parts: &[Part]) -> bool {
    text[parts[0].end..parts[1].start]
        .trim()
        .eq_ignore_ascii_case("or")
}

fn followed_by(text: &str, tokens: &[Token], part: &Part, word: &str) -> bool {
    tokens.iter().any(|token| match token {
        Token::Word(range) => {
            range.start >= part.end
                && text[part.end..range.start].trim().is_empty()
                && text[range.clone()].eq_ignore_ascii_case(word)
        }
        Token::Comma | Token::And | Token::Versus | Token::Colon | Token::Stop => false,
    })
}

/// Parts left of a coordinator, in order, and the word that leads them in.
fn to_the_left(text: &str, tokens: &[Token], at: usize) -> Option<(Vec<Part>, Option<Part>)> {
    let mut parts: Vec<Part> = Vec::new();
    let mut end = at;
    // The comma of "cost, speed, and safety".
    if end > 0 && tokens[end - 1] == Token::Comma {
        end -= 1;
    }
    let lead = loop {
        let start = tokens[..end]
            .iter()
            .rposition(|t| !matches!(t, Token::Word(_)))
            .map_or(0, |stop| stop + 1);
        let mut segment = word_ranges(&tokens[start..end]);
        // "the cost, the speed": an article opens a part as well as a row.
        let follows_a_part = start
            .checked_sub(1)
            .is_some_and(|at| tokens[at] == Token::Comma);
        if follows_a_part && segment.len() > 1 && is_article(&text[segment[0].clone()]) {
            segment.remove(0);
        }
        let boundary = segment
            .iter()
            .rposition(|range| is_boundary(&text[range.clone()]));
        let own = &segment[boundary.map_or(0, |at| at + 1)..];
        if own.is_empty() || own.len() > PART_WORDS {
            if parts.is_empty() {
                return None;
            }
            break None;
        }
        parts.push(own[0].start..own[own.len() - 1].end);
        if let Some(at) = boundary {
            break Some(segment[at].clone());
        }
        match start.checked_sub(1).map(|before| &tokens[before]) {
            Some(Token::Comma | Token::And | Token::Versus) if parts.len() < MOST => {
                end = start - 1;
            }
            Some(Token::Colon) => {
                // Shown to the caller as the colon itself.
                let colon = text[..own[0].start].rfind(':')?;
                break Some(colon..colon + 1);
            }
            _ => break None,
        }
    };
    parts.reverse();
    Some((parts, lead))
}

/// Parts right of a coordinator, and the noun such as "dimensions" that closes the row.
fn to_the_right(text: &str, tokens: &[Token], at: usize) -> Option<(Vec<Part>, Option<Category>)> {
    let mut parts = Vec::new();
    let mut from = at + 1;
    loop {
        if matches!(tokens.get(from), Some(Token::Word(range)) if is_article(&text[range.clone()]))
        {
            from += 1;
        }
        let end = tokens[from..]
            .iter()
            .position(|token| match token {
                Token::Word(range) => is_boundary(&text[range.clone()]),
                Token::Comma | Token::And | Token::Versus | Token::Colon | Token::Stop => true,
            })
            .map_or(tokens.len(), |offset| from + offset);
        let mut own = word_ranges(&tokens[from..end]);
        let noun = own
            .iter()
            .enumerate()
            .skip(1)
            .find_map(|(at, range)| Some((at, category_of(&text[range.clone()])?)));
        let category = noun.map(|(_, category)| category);
        if let Some((position, _)) = noun {
            own.truncate(position);
        }
        if own.is_empty() || own.len() > PART_WORDS {
            return (!parts.is_empty()).then_some((parts, None));
        }
        parts.push(own[0].start..own[own.len() - 1].end);
        match tokens.get(end) {
            Some(Token::And | Token::Versus) if category.is_none() && parts.len() < MOST => {
                from = end + 1;
            }
            _ => return Some((parts, category)),
        }
    }
}

/// `...: cost, speed, safety`, without a coordinator.
fn after_colon(text: &str, tokens: &[Token], at: usize) -> Option<Row> {
    let end = tokens[at + 1..]
        .iter()
        .position(|t| matches!(t, Token::Stop | Token::Colon))
        .map_or(tokens.len(), |offset| at + 1 + offset);
    let tail = &tokens[at + 1..end];
    if tail.iter().any(|t| matches!(t, Token::And | Token::Versus)) {
        return None;
    }
    let parts: Option<Vec<Part>> = tail
        .split(|t| *t == Token::Comma)
        .map(|segment| {
            let words = word_ranges(segment);
            let fits = !words.is_empty() && words.len() <= PART_WORDS;
            fits.then(|| words[0].start..words[words.len() - 1].end)
        })
        .collect();
    let parts = parts.filter(|parts| parts.len() >= 3)?;
    let names = parts
        .iter()
        .all(|range| looks_like_a_name(&text[range.clone()]));
    Some(Row {
        parts,
        strong: true,
        names,
    })
}

fn enumeration(text: &str, row: Row, origin: Origin) -> Option<Enumeration> {
    let (first, last) = (row.parts.first()?.start, row.parts.last()?.end);
    let mut items: Vec<String> = Vec::new();
    for range in row.parts {
        let item = text[range].trim().to_owned();
        if items.iter().all(|known| stem(known) != stem(&item)) {
            items.push(item);
        }
    }
    if items.len() < 2 || items.len() > MOST {
        return None;
    }
    let around = match origin {
        Origin::Question => Around::Row(text[..first].to_owned(), text[last..].to_owned()),
        Origin::Framing => Around::Question,
    };
    Some(Enumeration {
        items,
        kind: if row.names {
            Kind::Parts
        } else {
            Kind::Dimensions
        },
        origin,
        fragment: shortened(sentence_around(text, first, last)),
        around,
        strong: row.strong,
    })
}

fn sentence_around(text: &str, first: usize, last: usize) -> &str {
    let ends = ['.', ';', '?', '!', '\n'];
    let start = text[..first].rfind(ends).map_or(0, |at| at + 1);
    let end = text[last..].find(ends).map_or(text.len(), |at| last + at);
    text[start..end].trim()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

fn word_ranges(tokens: &[Token]) -> Vec<Range<usize>> {
    tokens
        .iter()
        .filter_map(|token| match token {
            Token::Word(range) => Some(range.clone()),
            Token::Comma | Token::And | Token::Versus | Token::Colon | Token::Stop => None,
        })
        .collect()
}

/// A word that a part does not reach across.
fn is_boundary(word: &str) -> bool {
    let lead_ins = [
        "across",
        "along",
        "namely",
        "considering",
        "concerning",
        "terms",
        "versus",
    ];
    is_stop_word(word) || is_instruction(word) || lead_ins.contains(&word.to_lowercase().as_str())
}

fn is_article(word: &str) -> bool {
    ["the", "a", "an", "its", "their"].contains(&word.to_lowercase().as_str())
}

/// What kind of noun closes a row and names what it is a row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    /// It can only mean sides of a matter.
    Sides,
    /// It may be a thing as well: fields, points, terms.
    Things,
}

fn category_of(word: &str) -> Option<Category> {
    const SIDES: &[&str] = &[
        "angles",
        "aspects",
        "axes",
        "considerations",
        "criteria",
        "dimensions",
        "facets",
        "implications",
        "lenses",
        "perspectives",
        "respects",
        "viewpoints",
    ];
    const THINGS: &[&str] = &[
        "areas",
        "categories",
        "domains",
        "factors",
        "fields",
        "issues",
        "matters",
        "points",
        "questions",
        "sides",
        "terms",
        "themes",
        "topics",
        "views",
    ];
    let lower = word.to_lowercase();
    if SIDES.contains(&lower.as_str()) {
        Some(Category::Sides)
    } else if THINGS.contains(&lower.as_str()) {
        Some(Category::Things)
    } else {
        None
    }
}

fn looks_like_a_name(text: &str) -> bool {
    text.chars().next().is_some_and(char::is_uppercase) || text.chars().any(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn items(question: &str, framing: &str) -> Vec<String> {
        find(question, framing).map(|e| e.items).unwrap_or_default()
    }

    #[test]
    fn rows_marked_lists_and_pairs_are_found() {
        let cases: &[(&str, &[&str])] = &[
            (
                "Analyse across thermal, acoustic, structural and economic dimensions using sound methods.",
                &["thermal", "acoustic", "structural", "economic"],
            ),
            (
                "Compare cost, speed and safety of the two ferries",
                &["cost", "speed", "safety"],
            ),
            (
                "Compare the cost, the speed, and the safety of ferries.",
                &["cost", "speed", "safety"],
            ),
            ("Postgres vs MySQL for a small shop", &["Postgres", "MySQL"]),
            (
                "Compare Postgres vs. MySQL vs SQLite",
                &["Postgres", "MySQL", "SQLite"],
            ),
            (
                "What are the differences between trams and buses?",
                &["trams", "buses"],
            ),
            (
                "What are the causes and effects of inflation?",
                &["causes", "effects"],
            ),
            (
                "Look at the legal and ethical aspects of drones",
                &["legal", "ethical"],
            ),
            (
                "Look at the legal and ethical questions of drones",
                &["legal", "ethical"],
            ),
            ("Should we use Kafka or Pulsar?", &["Kafka", "Pulsar"]),
            (
                "Rate the harbour: depth, access, tides",
                &["depth", "access", "tides"],
            ),
            (
                "Judge it in terms of price, supply chain risk and support as well as training",
                &["price", "supply chain risk", "support", "training"],
            ),
            (
                "Assess the bridge:\n- load\n- corrosion;\n- traffic.",
                &["load", "corrosion", "traffic"],
            ),
            (
                "Answer these:\n1. Who built it?\n2) When?\n",
                &["Who built it?", "When?"],
            ),
            (
                "Assess operations in France, Germany and Spain",
                &["France", "Germany", "Spain"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(&items(text, ""), expected, "{text}");
        }
    }

    #[test]
    fn ordinary_sentences_enumerate_nothing() {
        for text in [
            "",
            "What is the capital of France?",
            "Assess the risk profile of Company X as a potential partner",
            "Tell me about research and development at the plant",
            "He came and went.",
            "Condense the minutes, please",
            "How do I derive a serializer with serde and rename fields?",
            "Does the regex crate support look-around and backreferences?",
            "Why did the bridge close after it had been opened, repaired at some considerable expense and painted?",
        ] {
            assert_eq!(items(text, ""), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_is_asked_goes_before_its_framing_unless_it_is_a_mere_row() {
        let framing = "Cover financial, legal and technical aspects.";
        assert_eq!(
            items("Assess the port", framing),
            ["financial", "legal", "technical"]
        );
        assert_eq!(
            items("Compare depth, access and tides", framing),
            ["depth", "access", "tides"]
        );
        let asked = "Assess the ports Kiel, Emden and Wismar";
        assert_eq!(items(asked, framing), ["financial", "legal", "technical"]);
        assert_eq!(items(asked, ""), ["ports Kiel", "Emden", "Wismar"]);
    }

    #[test]
    fn the_question_about_a_part_names_that_part_alone() {
        let question = "Compare cost, speed and safety of the two ferries";
        let found = find(question, "").unwrap();
        assert_eq!(found.kind, Kind::Dimensions);
        assert_eq!(
            found.question_about("speed", question),
            "Compare speed of the two ferries"
        );

        let question = "Assess the ferry";
        let found = find(question, "Cover cost and safety aspects").unwrap();
        assert_eq!(
            (found.kind, found.origin),
            (Kind::Dimensions, Origin::Framing)
        );
        assert_eq!(found.question_about("cost", question), "Assess the ferry");

        let question = "About the ferry:\n- who owns it\n- what it cost";
        let found = find(question, "").unwrap();
        assert_eq!(found.kind, Kind::Parts);
        assert_eq!(
            found.question_about("who owns it", question),
            "About the ferry"
        );
    }
}
