//! Packs blocks of text into passages that are worth quoting on their own.
//!
//! Owns the size rules; the formats say what a block is and which headings stand above it. A
//! passage holds about 80 to 200 words of one section. Longer blocks are split at sentences.
//! Neighbouring sections of a few words each share a passage, named by the headings they have in
//! common, each below its own heading line (`## Heading`). The text of a passage has no blank lines,
//! so that passages can be told apart by them.
//!
//! Three kinds of lines mean something to whoever quotes: `## ` is a heading, [`ROW`] a row of a
//! table, and what stands between two fences is code, to be quoted as it is.

/// Most words of a passage.
const MAX_WORDS: usize = 200;
/// Most characters of a passage: bounds text without spaces.
const MAX_CHARS: usize = 2_400;
/// A section with fewer words may share its passage with its neighbours.
const SMALL_WORDS: usize = 40;
/// Most characters of a sentence that is kept with what it announces.
const MAX_ANNOUNCEMENT: usize = 300;
/// Most words of a passage made of small sections.
const MERGED_WORDS: usize = 120;

/// How a line begins that renders a row of a table.
pub(crate) const ROW: &str = "row: ";
/// How a heading line inside a passage begins.
pub(crate) const HEADING: &str = "## ";
/// What begins and ends a block of code; longer where the code holds such a mark itself.
const FENCE: &str = "```";

/// A piece of a document: what is indexed, ranked and quoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Passage {
    /// Headings from the top, joined by ` > `; empty above the first heading.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) heading: String,
    pub(crate) text: String,
    /// The subject this passage describes, if it comes from RDF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entity: Option<String>,
}

/// The passages of one section, or of several small ones.
#[derive(Debug, Default)]
struct Draft {
    /// Text by the headings above it.
    parts: Vec<(Vec<String>, String)>,
    words: usize,
    chars: usize,
}

/// Packs the blocks of one document, in their order.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    /// Left out of heading paths: it is shown with every passage anyway.
    title: String,
    headings: Vec<String>,
    current: Draft,
    /// Whether the present section has filled a passage already.
    continued: bool,
    /// Small sections waiting for a neighbour.
    small: Draft,
}

impl Packer {
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a block below `headings`; finished passages go to `out`.
    pub(crate) fn push(&mut self, headings: &[String], text: &str, out: &mut Vec<Passage>) {
        let headings = match headings.split_first() {
            Some((first, rest)) if *first == self.title => rest,
            _ => headings,
        };
        if headings != self.headings.as_slice() {
            self.end_section(out);
            self.headings = headings.to_vec();
        }
        let text = without_blank_lines(text);
        if text.is_empty() {
            return;
        }
        if fits(words(&text), text.chars().count()) {
            self.add(text, out);
        } else if let Some((open, body, close)) = fenced(&text) {
            for piece in pieces_of_code(body) {
                self.add(format!("{open}\n{piece}\n{close}"), out);
            }
        } else if let Some(row) = text.strip_prefix(ROW) {
            for piece in split(row) {
                self.add(format!("{ROW}{piece}"), out);
            }
        } else {
            for piece in split(&text) {
                self.add(piece, out);
            }
        }
    }

    pub(crate) fn finish(mut self, out: &mut Vec<Passage>) {
        self.end_section(out);
        emit(&std::mem::take(&mut self.small), out);
    }

    fn add(&mut self, text: String, out: &mut Vec<Passage>) {
        let (words, chars) = (words(&text), text.chars().count());
        if !fits(self.current.words + words, self.current.chars + chars) {
            let announcement = self.current.take_announcement();
            emit(&std::mem::take(&mut self.small), out);
            emit(&std::mem::take(&mut self.current), out);
            self.continued = true;
            if let Some(line) = announcement {
                let (words, chars) = (self::words(&line), line.chars().count());
                self.current.push(self.headings.clone(), line, words, chars);
            }
        }
        self.current.push(self.headings.clone(), text, words, chars);
    }

    fn end_section(&mut self, out: &mut Vec<Passage>) {
        let section = std::mem::take(&mut self.current);
        let continued = std::mem::take(&mut self.continued);
        if section.parts.is_empty() {
            return;
        }
        if continued || section.words >= SMALL_WORDS {
            emit(&std::mem::take(&mut self.small), out);
            emit(&section, out);
            return;
        }
        if self.small.words + section.words > MERGED_WORDS {
            emit(&std::mem::take(&mut self.small), out);
        }
        self.small.append(section);
    }
}

impl Draft {
    fn push(&mut self, headings: Vec<String>, text: String, words: usize, chars: usize) {
        self.parts.push((headings, text));
        self.words += words;
        self.chars += chars + 1;
    }

    /// The sentence at the end that announces what comes next, such as `Run this:`. It goes to the next
    /// passage, so that the two are quoted together.
    fn take_announcement(&mut self) -> Option<String> {
        let (_, text) = self
            .parts
            .last_mut()
            .filter(|(_, text)| text.ends_with(':'))?;
        let last = sentences(text).last()?.trim_end().to_owned();
        if last.chars().count() > MAX_ANNOUNCEMENT {
            return None;
        }
        text.truncate(text.len() - last.len());
        text.truncate(text.trim_end().len());
        if text.is_empty() {
            self.parts.pop();
        }
        Some(last)
    }

    fn append(&mut self, other: Self) {
        self.parts.extend(other.parts);
        self.words += other.words;
        self.chars += other.chars;
    }
}

fn fits(words: usize, chars: usize) -> bool {
    words <= MAX_WORDS && chars <= MAX_CHARS
}

fn emit(draft: &Draft, out: &mut Vec<Passage>) {
    let Some((first, _)) = draft.parts.first() else {
        return;
    };
    let mut shared = first.len();
    for (headings, _) in &draft.parts {
        let same = first
            .iter()
            .zip(headings)
            .take_while(|(a, b)| a == b)
            .count();
        shared = shared.min(same);
    }
    let heading = first[..shared].join(" > ");
    let mut text = String::with_capacity(draft.chars);
    let mut above: &[String] = &[];
    for (headings, part) in &draft.parts {
        if !text.is_empty() {
            text.push('\n');
        }
        let own = &headings[shared..];
        if !own.is_empty() && own != above {
            text.push_str(HEADING);
            text.push_str(&own.join(" > "));
            text.push('\n');
        }
        above = own;
        text.push_str(part);
    }
    out.push(Passage {
        heading,
        text,
        entity: None,
    });
}

pub(crate) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

fn without_blank_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.trim().is_empty())
    {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(line);
    }
    out
}

/// A block of code between fences; `None` if there is none.
pub(crate) fn code(text: &str, language: &str) -> Option<String> {
    let body = text.trim_matches('\n').trim_end();
    if body.trim().is_empty() {
        return None;
    }
    let mut fence = FENCE.to_owned();
    while body.contains(&fence) {
        fence.push('`');
    }
    // Attributes of the language, as in `rust,ignore`, are for machines.
    let language = language
        .split(|c: char| c.is_whitespace() || c == ',' || c == '`')
        .next()
        .unwrap_or_default();
    Some(format!("{fence}{language}\n{body}\n{fence}"))
}

/// The opening line of a fenced block, what it holds, and its closing line.
fn fenced(text: &str) -> Option<(&str, &str, &str)> {
    let (open, rest) = text
        .strip_prefix(FENCE)
        .and_then(|_| text.split_once('\n'))?;
    let (body, close) = rest.rsplit_once('\n')?;
    close.starts_with(FENCE).then_some((open, body, close))
}

/// Splits long code between its lines; a line that is too long alone is cut.
fn pieces_of_code(body: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut piece_words, mut piece_chars) = (0, 0);
    for line in body.lines().flat_map(bounded) {
        let (line_words, line_chars) = (words(line), line.chars().count() + 1);
        if !piece.is_empty() && !fits(piece_words + line_words, piece_chars + line_chars) {
            pieces.push(std::mem::take(&mut piece));
            (piece_words, piece_chars) = (0, 0);
        }
        if !piece.is_empty() {
            piece.push('\n');
        }
        piece.push_str(line);
        piece_words += line_words;
        piece_chars += line_chars;
    }
    pieces.push(piece);
    pieces
}

/// Splits a long block at sentences, then at words, then anywhere.
fn split(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut piece_words, mut piece_chars) = (0, 0);
    for atom in sentences(text).flat_map(bounded) {
        let (atom_words, atom_chars) = (words(atom), atom.chars().count());
        if piece_words > 0 && !fits(piece_words + atom_words, piece_chars + atom_chars) {
            pieces.push(std::mem::take(&mut piece).trim().to_owned());
            (piece_words, piece_chars) = (0, 0);
        }
        piece.push_str(atom);
        piece_words += atom_words;
        piece_chars += atom_chars;
    }
    pieces.push(piece.trim().to_owned());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The sentences of a text, each with the space after it.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut before = '\0';
        let mut end = rest.len();
        for (at, c) in rest.char_indices() {
            let stop = matches!(before, '.' | '!' | '?' | ';') && c == ' ';
            if stop || c == '\n' || matches!(c, '。' | '！' | '？') {
                end = at + c.len_utf8();
                break;
            }
            before = c;
        }
        let (sentence, tail) = rest.split_at(end);
        rest = tail;
        Some(sentence)
    })
}

/// Cuts a sentence that alone is too long for a passage.
fn bounded(sentence: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = sentence;
    // Looks no further than it cuts: a line of megabytes without a space is cut a thousand times.
    let is_long = |rest: &str| rest.chars().nth(MAX_CHARS).is_some() || words(rest) > MAX_WORDS;
    while is_long(rest) {
        let (mut seen, mut in_word) = (0, false);
        let mut cut = rest.len();
        for (count, (at, c)) in rest.char_indices().enumerate() {
            if !c.is_whitespace() && !in_word {
                seen += 1;
            }
            in_word = !c.is_whitespace();
            if seen > MAX_WORDS || count >= MAX_CHARS {
                cut = at;
                break;
            }
        }
        // Rather between words than inside one, where a space is near.
        let tidy = rest[..cut]
            .rfind(char::is_whitespace)
            .filter(|at| at * 2 > cut);
        let cut = tidy.map_or(cut, |at| at + 1);
        if cut == 0 || cut >= rest.len() {
            break;
        }
        let (part, tail) = rest.split_at(cut);
        parts.push(part);
        rest = tail;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn text_of(words: usize, word: &str) -> String {
        vec![word; words].join(" ")
    }

    fn pack(title: &str, blocks: &[(&[&str], String)]) -> Vec<Passage> {
        let mut packer = Packer::new(title);
        let mut out = Vec::new();
        for (headings, text) in blocks {
            let headings: Vec<String> = headings.iter().map(|h| (*h).to_owned()).collect();
            packer.push(&headings, text, &mut out);
        }
        packer.finish(&mut out);
        out
    }

    #[test]
    fn paragraphs_of_one_section_share_a_passage_up_to_its_limit() {
        let passages = pack(
            "T",
            &[
                (&["T", "Finances", "Liquidity"], text_of(90, "a")),
                (&["T", "Finances", "Liquidity"], text_of(90, "b")),
                (&["T", "Finances", "Liquidity"], text_of(90, "c")),
            ],
        );
        let shape: Vec<_> = passages
            .iter()
            .map(|p| (p.heading.as_str(), words(&p.text)))
            .collect();
        assert_eq!(
            shape,
            [("Finances > Liquidity", 180), ("Finances > Liquidity", 90)]
        );
    }

    #[test]
    fn a_section_of_some_size_keeps_its_own_passage() {
        let passages = pack(
            "",
            &[(&["A"], text_of(60, "a")), (&["B"], text_of(60, "b"))],
        );
        let headings: Vec<_> = passages.iter().map(|p| p.heading.as_str()).collect();
        assert_eq!(headings, ["A", "B"]);
    }

    #[test]
    fn small_neighbours_share_a_passage_that_names_each_of_them() {
        let passages = pack(
            "",
            &[
                (&["Terms", "Cash"], "Money at hand.".into()),
                (&["Terms", "Debt"], "Money owed.".into()),
            ],
        );
        assert_eq!(passages.len(), 1);
        assert_eq!(passages[0].heading, "Terms");
        assert_eq!(
            passages[0].text,
            "## Cash\nMoney at hand.\n## Debt\nMoney owed."
        );
    }

    #[test]
    fn a_small_section_does_not_swallow_the_large_one_after_it() {
        let passages = pack(
            "",
            &[
                (&["A"], "A few words.".into()),
                (&["A", "B"], text_of(100, "b")),
            ],
        );
        let headings: Vec<_> = passages.iter().map(|p| p.heading.as_str()).collect();
        assert_eq!(headings, ["A", "A > B"]);
    }

    #[test]
    fn long_blocks_are_split_at_sentences() {
        let sentence = format!("{}. ", text_of(60, "word"));
        let passages = pack("", &[(&["A"], sentence.repeat(5))]);
        assert_eq!(passages.len(), 2);
        assert!(passages.iter().all(|p| p.text.ends_with('.')));
    }

    #[test]
    fn what_announces_a_block_stands_in_one_passage_with_it() {
        let block = code(&text_of(80, "frob"), "sh").unwrap();
        let before = format!("{}. Then run this:", text_of(150, "a"));
        let passages = pack("", &[(&["A"], before), (&["A"], block)]);
        assert_eq!(passages.len(), 2);
        assert!(passages[0].text.ends_with("a."), "{}", passages[0].text);
        assert!(
            passages[1].text.starts_with("Then run this:\n```sh\nfrob"),
            "{}",
            passages[1].text
        );
        // Alone it goes along as a whole.
        let block = code(&text_of(199, "frob"), "").unwrap();
        let passages = pack("", &[(&["A"], "Run:".to_owned()), (&["A"], block)]);
        assert_eq!(passages.len(), 1);
    }

    #[test]
    fn long_code_is_split_between_its_lines_and_stays_code() {
        let block = code(&"let number = one + two;\n".repeat(90), "rust,ignore").unwrap();
        let passages = pack("", &[(&["A"], block)]);
        assert!(passages.len() > 1);
        for passage in &passages {
            assert!(
                passage.text.starts_with("```rust\nlet number"),
                "{}",
                passage.text
            );
            assert!(passage.text.ends_with("two;\n```"), "{}", passage.text);
        }
        assert_eq!(code("a\n```\nb", "").unwrap(), "````\na\n```\nb\n````");
        assert_eq!(code(" \n", "sh"), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_passage_exceeds_the_limits(
            blocks in proptest::collection::vec(("[ab]{0,2}", "(?s).{0,400}|[a-z]{2400,6000}|([a-z]{1,6} ){0,900}"), 0..12)
        ) {
            let mut packer = Packer::new("a");
            let mut out = Vec::new();
            for (heading, text) in &blocks {
                packer.push(std::slice::from_ref(heading), text, &mut out);
            }
            packer.finish(&mut out);
            // Headings are written into shared passages, so only what is not a heading counts.
            let kept = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let given: usize = blocks.iter().map(|(_, text)| kept(text)).sum();
            let found: usize = out.iter().map(|p| kept(&p.text)).sum();
            prop_assert!(found >= given, "{found} < {given}");
            for passage in &out {
                prop_assert!(passage.text.chars().count() <= MAX_CHARS + 400);
                prop_assert!(!passage.text.contains("\n\n"));
                prop_assert!(!passage.text.trim().is_empty());
            }
        }
    }
}
