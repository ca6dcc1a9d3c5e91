//! The ReACT text format, read piece by piece: one parser for streams and for whole replies.
//!
//! ```text
//! Thought: why
//! Action: tool name
//! Args: {"name": "value"}
//! ```
//! or `Final Answer:` and the rest of the reply. Markers count at the start of a line only, in any
//! case, with or without Markdown emphasis. The first action wins over whatever the model imagined
//! after it; a final answer keeps its line breaks to the end.

use crate::json;
use agentfleet_schema::tolerant::text_of;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a streamed piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Thought,
    Answer,
}

/// What a whole reply says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Action {
        name: String,
        arguments: BTreeMap<String, String>,
    },
    Final(String),
    /// Neither an action nor an answer; `loose` is the text outside any marker.
    Malformed {
        reason: String,
        loose: String,
    },
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub thought: String,
    pub said: Said,
    /// Whether an action is there to its end, even where the reply was cut behind what was read.
    pub is_whole: bool,
    /// Names of the tools of further actions: one is made at a time.
    pub others: Vec<String>,
}

/// Parses a whole reply.
pub fn parse(text: &str) -> Parsed {
    let mut splitter = Splitter::default();
    splitter.push(text);
    splitter.finish()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Loose,
    Thought,
    Action,
    Args,
    /// A further action.
    Other,
    Answer,
    /// After a complete action, or an observation the model imagined.
    Ignored,
}

const MARKERS: [(&str, Section); 8] = [
    ("thought:", Section::Thought),
    ("action:", Section::Action),
    ("args:", Section::Args),
    ("arguments:", Section::Args),
    ("action input:", Section::Args),
    ("final answer:", Section::Answer),
    ("answer:", Section::Answer),
    ("observation:", Section::Ignored),
];

/// Splits a reply into thought and answer while it arrives.
///
/// The pieces of one part, joined, are exactly the text [`Splitter::finish`] gives for it.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    section: Section,
    /// The beginning of the current line while it may still turn out to be a marker.
    undecided: String,
    in_line: bool,
    fenced: bool,
    thought: Gathered,
    answer: Gathered,
    action: String,
    args: String,
    loose: String,
    has_action: bool,
    has_answer: bool,
    /// What stands behind the markers of further actions.
    others: Vec<String>,
    /// The model imagined what came of its action, and what follows from that.
    imagined: bool,
}

/// A part's text so far, without surrounding white space.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    text: String,
    /// White space that counts only if something follows.
    held: String,
}

impl Gathered {
    /// Takes the next piece and returns what of it, and of what was held, belongs to the text.
    pub fn push(&mut self, piece: &str) -> String {
        let from = self.text.len();
        for c in piece.chars() {
            if c.is_whitespace() {
                if !self.text.is_empty() {
                    self.held.push(c);
                }
            } else {
                self.text.push_str(&self.held);
                self.held.clear();
                self.text.push(c);
            }
        }
        self.text[from..].to_owned()
    }
}

impl Splitter {
    /// Takes the next piece of the reply and returns what can be shown of it.
    pub fn push(&mut self, piece: &str) -> Vec<(Part, String)> {
        let mut out = Vec::new();
        for line in piece.split_inclusive('\n') {
            self.line_piece(line, &mut out);
        }
        out
    }

    fn line_piece(&mut self, piece: &str, out: &mut Vec<(Part, String)>) {
        let ends = piece.ends_with('\n');
        if self.in_line {
            self.take(piece, out);
        } else {
            self.undecided.push_str(piece);
            self.decide(ends, out);
        }
        if ends {
            self.in_line = false;
            self.undecided.clear();
        }
    }

    /// Decides what the line so far is; `complete` where no more of it will come.
    fn decide(&mut self, complete: bool, out: &mut Vec<(Part, String)>) {
        match classify(&self.undecided, self.section, self.fenced) {
            Line::Undecided | Line::Fence if !complete => {}
            // Emphasis may yet be closed behind the colon.
            Line::Marker(_, rest) if !complete && rest.trim_matches(['*', '_', ' ']).is_empty() => {
            }
            Line::Undecided | Line::Text => {
                let text = std::mem::take(&mut self.undecided);
                self.in_line = true;
                self.take(&text, out);
            }
            Line::Fence => {
                self.fenced = true;
                self.undecided.clear();
            }
            Line::Marker(section, rest) => {
                let rest = rest.trim_start_matches(['*', '_', ' ']).to_owned();
                self.undecided.clear();
                self.enter(section);
                self.in_line = true;
                self.take(&rest, out);
            }
        }
    }

    fn enter(&mut self, section: Section) {
        // The first action wins: what follows its arguments is imagination.
        let is_of_first = section == Section::Args && self.others.is_empty();
        if self.has_action && !is_of_first {
            self.imagined |= section == Section::Ignored;
            self.section = match section {
                Section::Action if !self.imagined => {
                    self.others.push(String::new());
                    Section::Other
                }
                _ => Section::Ignored,
            };
            return;
        }
        match section {
            Section::Action => self.has_action = true,
            Section::Answer => self.has_answer = true,
            Section::Args if !self.args.is_empty() => {
                self.section = Section::Ignored;
                return;
            }
            Section::Loose
            | Section::Thought
            | Section::Args
            | Section::Other
            | Section::Ignored => {}
        }
        if section == Section::Thought && !self.thought.text.is_empty() {
            self.thought.held.push('\n');
        }
        self.section = section;
    }

    fn take(&mut self, piece: &str, out: &mut Vec<(Part, String)>) {
        match self.section {
            Section::Loose => self.loose.push_str(piece),
            Section::Thought => {
                let text = self.thought.push(piece);
                if !text.is_empty() {
                    out.push((Part::Thought, text));
                }
            }
            Section::Answer => {
                let text = self.answer.push(piece);
                if !text.is_empty() {
                    out.push((Part::Answer, text));
                }
            }
            Section::Action => self.action.push_str(piece),
            Section::Args => self.args.push_str(piece),
            Section::Other => {
                if let Some(other) = self.others.last_mut() {
                    other.push_str(piece);
                }
            }
            Section::Ignored => {}
        }
    }

    /// Whether no marker has come so far.
    pub fn is_unmarked(&self) -> bool {
        self.section == Section::Loose && !self.has_action && !self.has_answer
    }

    /// Ends the reply: what was held back of its last line and belongs to a part after all.
    pub fn flush(&mut self) -> Vec<(Part, String)> {
        let mut out = Vec::new();
        if !self.undecided.is_empty() {
            self.decide(true, &mut out);
        }
        out
    }

    /// The whole reply.
    pub fn finish(mut self) -> Parsed {
        self.flush();
        let thought = self.thought.text.clone();
        // Something follows it, or its arguments are one whole object.
        let is_whole = self.has_action
            && (matches!(self.section, Section::Ignored | Section::Other)
                || [&self.args, &self.action]
                    .into_iter()
                    .any(|text| json::is_whole(text)));
        let others = self.others.iter().map(|text| split_name(text).0.to_owned());
        let others = others.filter(|name| !name.is_empty()).collect();
        let said = self.said();
        Parsed {
            thought,
            said,
            is_whole,
            others,
        }
    }

    fn said(self) -> Said {
        if self.has_action {
            return action(&self.action, &self.args);
        }
        if self.has_answer {
            if self.answer.text.is_empty() {
                return malformed("the final answer is empty", self.loose);
            }
            return Said::Final(self.answer.text);
        }
        malformed(
            "there is neither an `Action:` nor a `Final Answer:` line",
            self.loose,
        )
    }
}

fn malformed(reason: &str, loose: String) -> Said {
    Said::Malformed {
        reason: reason.to_owned(),
        loose: loose.trim().to_owned(),
    }
}

/// The name of a tool, and its arguments where a model put them behind the name.
fn split_name(text: &str) -> (&str, &str) {
    let (name, inline) = match text.find(['{', '(']) {
        Some(at) => (&text[..at], text[at..].trim_matches(['(', ')', ' ', '\n'])),
        None => (text, ""),
    };
    let first_line = name.trim().lines().next().unwrap_or_default();
    let marks = ['"', '`', '\'', '*', '[', ']', ' '];
    (first_line.trim().trim_matches(marks), inline)
}

fn action(name: &str, args: &str) -> Said {
    let (name, inline) = split_name(name);
    if name.is_empty() {
        return malformed("the `Action:` line names no tool", String::new());
    }
    let args = if args.trim().is_empty() { inline } else { args };
    match arguments(args) {
        Ok(arguments) => Said::Action {
            name: name.to_owned(),
            arguments,
        },
        Err(reason) => malformed(&reason, String::new()),
    }
}

fn arguments(text: &str) -> Result<BTreeMap<String, String>, String> {
    let text = text.trim();
    if text.is_empty() || text == "{}" || text.eq_ignore_ascii_case("none") {
        return Ok(BTreeMap::new());
    }
    match json::extract(text) {
        Some(Value::Object(map)) => Ok(map
            .into_iter()
            .map(|(name, value)| (name, text_of(value)))
            .collect()),
        _ => Err("the `Args:` are not one JSON object, such as {\"name\": \"value\"}".to_owned()),
    }
}

enum Line {
    Undecided,
    Text,
    Fence,
    Marker(Section, String),
}

/// Tells whether the beginning of a line is, or may become, a marker.
fn classify(line: &str, section: Section, fenced: bool) -> Line {
    let start = line.trim_start_matches([' ', '\t', '*', '#', '_', '>']);
    // A reply may stand in a code fence as a whole; fences within an answer are the answer's.
    let fence_counts = section == Section::Loose || fenced;
    if fence_counts && start.starts_with("```") {
        return Line::Fence;
    }
    if section == Section::Answer {
        let may_be_fence = fenced && "```".starts_with(start.trim_end());
        return if may_be_fence {
            Line::Undecided
        } else {
            Line::Text
        };
    }
    if start.trim().is_empty() || (fence_counts && "```".starts_with(start)) {
        return Line::Undecided;
    }
    let lower: String = start
        .chars()
        .take(16)
        .collect::<String>()
        .to_ascii_lowercase();
    for (marker, to) in MARKERS {
        if lower.starts_with(marker) {
            return Line::Marker(to, start[marker.len()..].to_owned());
        }
        // `Final Answer**:` and the like: emphasis closed before the colon.
        let bare = marker.trim_end_matches(':');
        if let Some(tail) = lower.strip_prefix(bare) {
            let closing = tail.trim_start_matches(['*', '_', ' ']);
            if tail.len() - closing.len() < 4
                && closing.starts_with(':')
                && let Some(colon) = start.find(':')
            {
                return Line::Marker(to, start[colon + 1..].to_owned());
            }
            if closing.is_empty() && tail.len() < 4 {
                return Line::Undecided;
            }
        }
        if marker.starts_with(lower.trim_end_matches('\n')) {
            return Line::Undecided;
        }
    }
    Line::Text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn args(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn reads_what_models_write() {
        let action = |name: &str, pairs: &[(&str, &str)]| Said::Action {
            name: name.to_owned(),
            arguments: args(pairs),
        };
        let cases: Vec<(&str, &str, Said)> = vec![
            (
                "Thought: look it up\nAction: search\nArgs: {\"query\": \"x\"}",
                "look it up",
                action("search", &[("query", "x")]),
            ),
            (
                "```\nThought: a\nb\nAction: \"Knowledge query\"\nArgs: {\n \"question\": \"q}\",\n \"n\": 3\n}\n```",
                "a\nb",
                action("Knowledge query", &[("question", "q}"), ("n", "3")]),
            ),
            ("Action: list", "", action("list", &[])),
            (
                "**Thought:** x\n**Action**: `search`\n**Args:** {\"query\": \"y\"}",
                "x",
                action("search", &[("query", "y")]),
            ),
            (
                "Thought: t\nAction: search {\"query\": \"z\"}",
                "t",
                action("search", &[("query", "z")]),
            ),
            (
                "Thought: t\nAction: a\nArgs: {}\nObservation: imagined\nFinal Answer: wrong",
                "t",
                action("a", &[]),
            ),
            (
                "Thought: done\nFinal Answer: line one\n\nline two\nAction: is a word here",
                "done",
                Said::Final("line one\n\nline two\nAction: is a word here".into()),
            ),
            (
                "final answer:\n- a\n- b\n",
                "",
                Said::Final("- a\n- b".into()),
            ),
            (
                "Final Answer: see\n```rust\nfn x() {}\n```\nend",
                "",
                Said::Final("see\n```rust\nfn x() {}\n```\nend".into()),
            ),
            (
                "```text\nFinal Answer: hi\n```",
                "",
                Said::Final("hi".into()),
            ),
        ];
        for (text, thought, said) in cases {
            let parsed = parse(text);
            assert_eq!(parsed.thought, thought, "{text}");
            assert_eq!(parsed.said, said, "{text}");
        }
    }

    #[test]
    fn further_actions_are_named_and_imagined_ones_are_not() {
        let first = "Thought: a\nAction: one\nArgs: {\"x\": \"1\"}\n";
        for (rest, others) in [
            ("Action: two\nArgs: {\"x\": \"2\"}", vec!["two"]),
            (
                "Thought: b\nAction: `two`\nAction: three(x)",
                vec!["two", "three"],
            ),
            ("Observation: 7\nAction: two\nFinal Answer: 7", vec![]),
        ] {
            let parsed = parse(&format!("{first}{rest}"));
            assert_eq!(parsed.others, others, "{rest}");
            let Said::Action { name, arguments } = parsed.said else {
                panic!("{rest}");
            };
            assert_eq!((name.as_str(), arguments), ("one", args(&[("x", "1")])));
        }
        // Arguments belong to the action above them.
        let bare = parse("Action: one\nAction: two\nArgs: {\"x\": \"2\"}");
        let Said::Action { arguments, .. } = bare.said else {
            panic!("no action");
        };
        assert_eq!((arguments.len(), bare.others), (0, vec!["two".to_owned()]));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (text, reason) in [
            ("", "neither"),
            ("I think the answer is 4.", "neither"),
            ("Thought: only thinking", "neither"),
            ("Action: search\nArgs: query=x", "not one JSON object"),
            ("Action:\nArgs: {}", "names no tool"),
            ("Final Answer:   ", "empty"),
        ] {
            let Said::Malformed { reason: said, .. } = parse(text).said else {
                panic!("{text} was read as usable");
            };
            assert!(said.contains(reason), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn streaming_in_any_pieces_gives_the_same_as_the_whole(
            lines in proptest::collection::vec(
                prop_oneof![
                    Just("Thought: some thought".to_owned()),
                    Just("Action: search".to_owned()),
                    Just("Args: {\"query\": \"x\"}".to_owned()),
                    Just("Final Answer: it".to_owned()),
                    Just("**Final Answer:** is".to_owned()),
                    Just("```".to_owned()),
                    Just(String::new()),
                    "[ a-zA-Z:*`{}]{0,12}",
                ], 0..8),
            cuts in proptest::collection::vec(1usize..7, 1..40),
        ) {
            let text = lines.join("\n");
            let whole = parse(&text);
            let mut splitter = Splitter::default();
            let (mut thought, mut answer) = (String::new(), String::new());
            let mut gather = |pieces: Vec<(Part, String)>| {
                for (part, piece) in pieces {
                    match part {
                        Part::Thought => thought.push_str(&piece),
                        Part::Answer => answer.push_str(&piece),
                    }
                }
            };
            let chars: Vec<char> = text.chars().collect();
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                if at >= chars.len() { break; }
                let end = (at + cut).min(chars.len());
                gather(splitter.push(&chars[at..end].iter().collect::<String>()));
                at = end;
            }
            gather(splitter.flush());
            let streamed = splitter.finish();
            prop_assert_eq!(&streamed, &whole);
            prop_assert_eq!(&thought, &whole.thought);
            if let Said::Final(text) = &whole.said {
                prop_assert_eq!(&answer, text);
            }
        }
    }
}
