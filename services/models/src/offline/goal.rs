//! What a goal asks for, in terms that can be counted: its head ("Financial dimension"), the words
//! of its question, and the names it is about.

use super::asking::{asked, asks_what, focus};
use super::terms::{Term, is_instruction, is_stop_word, subject_terms, words};

/// Most words before a colon that still count as a head.
const HEAD_WORDS: usize = 12;

/// A goal taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Goal {
    /// What stands before the colon, without "dimension"; empty where there is none.
    pub head: String,
    /// The rest: the question.
    pub question: String,
    pub terms: Vec<GoalTerm>,
    pub subjects: Vec<Subject>,
    /// What the question ends on: "the licence of clap" is about clap, whatever else it names.
    pub focus: Vec<Term>,
    /// What it asks for of that: "which licence", "what is the price of".
    pub asked: Option<Term>,
    /// It asks what something is, and little else.
    pub asks_what: bool,
}

#[derive(Clone, Debug)]
pub(super) struct GoalTerm {
    pub term: Term,
    pub role: Role,
}

/// What a term is in its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Head,
    Body,
    /// Part of a name: nearly every passage about it has it, so it tells little.
    Name,
}

impl Role {
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::Head => 3.0,
            Self::Body => 1.0,
            Self::Name => 0.3,
        }
    }
}

impl Goal {
    pub(super) fn parse(text: &str) -> Self {
        let (head, question) = split_head(text.trim());
        let subjects = subjects(question);
        let head_terms = subject_terms(head);
        let mut terms: Vec<GoalTerm> = head_terms
            .iter()
            .map(|t| GoalTerm {
                term: t.clone(),
                role: Role::Head,
            })
            .collect();
        for term in subject_terms(question) {
            if terms.iter().any(|known| known.term.stem == term.stem) {
                continue;
            }
            let named = subjects.iter().any(|s| s.has_word(&term.word));
            if term
                .parts
                .iter()
                .any(|part| terms.iter().any(|known| known.term.stem == *part))
            {
                continue;
            }
            let role = if named { Role::Name } else { Role::Body };
            terms.push(GoalTerm { term, role });
        }
        let asks_what = asks_what(question, terms.len());
        if asks_what && terms.len() > 1 {
            // "What does it mean?" is not about means.
            terms.retain(|t| !matches!(t.term.word.as_str(), "mean" | "stand"));
        }
        Self {
            head: head.to_owned(),
            question: question.to_owned(),
            focus: focus(question),
            asked: asked(question),
            asks_what,
            terms,
            subjects,
        }
    }

    /// How the goal is called in an answer.
    pub(super) fn title(&self) -> &str {
        if self.head.is_empty() {
            &self.question
        } else {
            &self.head
        }
    }

    pub(super) fn has_head(&self) -> bool {
        self.terms.iter().any(|t| t.role == Role::Head)
    }

    /// Whether a text names what the goal is about. A goal without names is about anything.
    pub(super) fn is_named_in(&self, text: &Plain) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.is_in(text))
    }

    /// The names, for people.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self
            .subjects
            .iter()
            .map(|s| format!("\"{}\"", s.shown))
            .collect();
        names.join(" or ")
    }

    /// The words to search for, the narrower search first: with a head, head and names say most, and
    /// the words of the whole question would bring in what belongs to other parts.
    pub(super) fn queries(&self) -> Vec<String> {
        let of = |role| {
            self.terms
                .iter()
                .filter(move |t| t.role == role)
                .map(|t| t.term.word.as_str())
        };
        let names: Vec<&str> = self
            .subjects
            .iter()
            .flat_map(|s| s.shown.split_whitespace())
            .collect();
        let narrow = joined(of(Role::Head).chain(names.iter().copied()));
        let broad = joined(
            of(Role::Head)
                .chain(names.iter().copied())
                .chain(of(Role::Body)),
        );
        let mut queries = Vec::new();
        if self.has_head() && !names.is_empty() {
            queries.push(narrow);
        }
        if broad.is_empty() {
            queries.push(self.question.clone());
        } else if !queries.contains(&broad) {
            queries.push(broad);
        }
        queries
    }
}

/// Words in a row, each once.
fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        if seen.iter().all(|known| !known.eq_ignore_ascii_case(word)) {
            seen.push(word);
        }
    }
    seen.join(" ")
}

/// `Financial dimension: <question>` to its parts; a text without a head is all question.
fn split_head(text: &str) -> (&str, &str) {
    let Some((head, question)) = text.split_once(": ") else {
        return ("", text);
    };
    let count = words(head).count();
    let is_head = (1..=HEAD_WORDS).contains(&count)
        && !head.contains(['.', '?', '\n'])
        && !question.trim().is_empty()
        && !subject_terms(head).is_empty();
    if !is_head {
        return ("", text);
    }
    let head = head.trim();
    let head = [" dimension", " dimensions"]
        .iter()
        .find_map(|end| head.strip_suffix(end))
        .unwrap_or(head);
    (head, question.trim())
}

/// A name that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub shown: String,
    words: Vec<String>,
}

/// A text as words in lower case, for finding names in it.
pub(super) struct Plain(String);

impl Plain {
    pub(super) fn of(texts: &[&str]) -> Self {
        let mut plain = String::from(" ");
        for text in texts {
            for word in text
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
            {
                plain.push_str(&word.to_lowercase());
                plain.push(' ');
            }
        }
        Self(plain)
    }

    fn has(&self, phrase: &str) -> bool {
        self.0.contains(&format!(" {phrase} "))
    }
}

impl Subject {
    /// Whether a word is part of the name.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(&word.to_lowercase())
    }

    /// The whole name, or a word of it that is rare enough to stand for it.
    fn is_in(&self, text: &Plain) -> bool {
        let phrase = Plain::of(&[&self.shown]).0;
        text.has(phrase.trim())
            || self.words.len() > 1 && self.words.iter().any(|w| is_distinctive(w) && text.has(w))
    }
}

fn is_distinctive(word: &str) -> bool {
    const GENERIC: &[&str] = &[
        "agency",
        "association",
        "bank",
        "board",
        "bridge",
        "business",
        "city",
        "club",
        "college",
        "commission",
        "company",
        "corporation",
        "council",
        "department",
        "east",
        "european",
        "federal",
        "foundation",
        "general",
        "global",
        "group",
        "holding",
        "holdings",
        "hospital",
        "house",
        "industries",
        "institute",
        "international",
        "island",
        "lake",
        "limited",
        "ministry",
        "mount",
        "museum",
        "national",
        "north",
        "office",
        "party",
        "plan",
        "plant",
        "port",
        "product",
        "project",
        "river",
        "royal",
        "saint",
        "school",
        "service",
        "services",
        "society",
        "south",
        "state",
        "station",
        "street",
        "supplier",
        "system",
        "systems",
        "technologies",
        "technology",
        "trust",
        "union",
        "united",
        "university",
        "vendor",
        "west",
        "works",
        "world",
    ];
    word.chars().count() >= 4 && !GENERIC.contains(&word)
}

/// Runs of capitalised words, and words with digits or inner capitals.
pub(super) fn subjects(question: &str) -> Vec<Subject> {
    if is_title_case(question) {
        return Vec::new();
    }
    let mut found: Vec<Subject> = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    let mut starts_sentence = true;
    let mut run_starts_sentence = false;
    let close = |run: &mut Vec<&str>, at_start: bool, found: &mut Vec<Subject>| {
        while run.last().is_some_and(|word| is_joint(word)) {
            run.pop();
        }
        // A lone capital at the start of a sentence is only grammar.
        let only_grammar = at_start && run.len() == 1 && !is_unusual(run[0]);
        if !run.is_empty() && !only_grammar {
            let shown = run.join(" ");
            let words = run.iter().map(|w| w.to_lowercase()).collect();
            if found
                .iter()
                .all(|known| !known.shown.eq_ignore_ascii_case(&shown))
            {
                found.push(Subject { shown, words });
            }
        }
        run.clear();
    };
    for piece in question.split_whitespace() {
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
        let word = word
            .strip_suffix("'s")
            .or(word.strip_suffix("’s"))
            .unwrap_or(word);
        let capital = word.chars().next().is_some_and(char::is_uppercase);
        let is_name = (capital || is_unusual(word))
            && !is_stop_word(word)
            && !(starts_sentence && is_order(word));
        if is_name {
            if run.is_empty() {
                run_starts_sentence = starts_sentence;
            }
            run.push(word);
        } else if !run.is_empty() && is_joint(word) {
            run.push(word);
        } else {
            close(&mut run, run_starts_sentence, &mut found);
        }
        if piece.ends_with([',', ';', ':', '.', '?', '!', ')'])
            || piece.contains("'s")
            || piece.contains("’s")
        {
            close(&mut run, run_starts_sentence, &mut found);
        }
        starts_sentence = piece.ends_with(['.', '?', '!', ':']);
    }
    close(&mut run, run_starts_sentence, &mut found);
    found
}

/// Whether even the small words have capitals, so that capitals tell nothing.
fn is_title_case(text: &str) -> bool {
    let is_small = |word: &str| ["of", "the", "and", "in", "for", "to", "a"].contains(&word);
    words(text).skip(1).any(|word| {
        word.chars().next().is_some_and(char::is_uppercase)
            && word.chars().count() > 1
            && is_small(&word.to_lowercase())
    })
}

/// A verb that opens an order, and has its capital from that.
fn is_order(word: &str) -> bool {
    const ORDERS: &[&str] = &[
        "advise",
        "calculate",
        "choose",
        "collect",
        "count",
        "decide",
        "draw",
        "gather",
        "judge",
        "map",
        "measure",
        "pick",
        "plan",
        "prepare",
        "quote",
        "rank",
        "rate",
        "recommend",
        "study",
        "suggest",
        "test",
        "trace",
        "track",
        "verify",
    ];
    is_instruction(word) || ORDERS.contains(&word.to_lowercase().as_str())
}

/// A word that may stand inside a name: "Bank of England".
fn is_joint(word: &str) -> bool {
    matches!(word, "of" | "de" | "van" | "von" | "&")
}

fn is_unusual(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_digit()) && word.chars().any(char::is_alphabetic)
        || word.chars().skip(1).any(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(question: &str) -> Vec<String> {
        subjects(question).into_iter().map(|s| s.shown).collect()
    }

    #[test]
    fn names_are_told_from_grammar() {
        for (question, expected) in [
            ("Assess the ferry line", vec![]),
            ("Ferries are late. Why?", vec![]),
            (
                "Is Acme Industries a sound supplier?",
                vec!["Acme Industries"],
            ),
            (
                "Judge Company X's books for the Bank of England.",
                vec!["Company X", "Bank of England"],
            ),
            (
                "Compare Postgres, MySQL and SQLite",
                vec!["Postgres", "MySQL", "SQLite"],
            ),
            ("what does iOS18 need", vec!["iOS18"]),
            ("Assess The Risk Of The Harbour Wall", vec![]),
        ] {
            assert_eq!(names(question), expected, "{question}");
        }
    }

    #[test]
    fn a_text_names_a_subject_by_its_name_or_a_telling_word_of_it() {
        let goal = Goal::parse("Is Acme Industries a sound supplier?");
        let company = Goal::parse("Assess the risk profile of Company X");
        for (goal, text, expected) in [
            (&goal, "Acme's mill burned", true),
            (&goal, "Industries of all kinds", false),
            (&company, "company x, in short", true),
            (&company, "Company Y lost money; X-rays are sold", false),
            (&company, "file:///dossier/company-x/legal.md", true),
        ] {
            assert_eq!(goal.is_named_in(&Plain::of(&[text])), expected, "{text}");
        }
    }

    #[test]
    fn the_head_weighs_most_and_leads_the_query() {
        let goal =
            Goal::parse("Financial dimension: Assess the risk profile of Company X as a partner");
        assert_eq!(goal.head, "Financial");
        let roles: Vec<(&str, Role)> = goal
            .terms
            .iter()
            .map(|t| (t.term.word.as_str(), t.role))
            .collect();
        assert_eq!(
            roles,
            [
                ("Financial", Role::Head),
                ("risk", Role::Body),
                ("profile", Role::Body),
                ("Company", Role::Name),
                ("X", Role::Name),
                ("partner", Role::Body),
            ]
        );
        assert_eq!(
            goal.queries(),
            [
                "Financial Company X",
                "Financial Company X risk profile partner"
            ]
        );
        let plain = Goal::parse("Why did it close? See below: the flood. Or not");
        assert_eq!(plain.head, "");
    }
}
