//! Weighs the sentences of passages against a goal, and chooses among them.
//!
//! A sentence counts by the goal's words in it, and less by those in the title and headings above
//! it. Where the goal has a head, only sentences that touch the head are on topic. A document whose
//! title, opening or headings touch it is about it: its sentences count more, and the opening
//! sentences of its other sections may be chosen too. Elsewhere the word may stand in passing.

use super::goal::{Goal, Plain, Role, stems};
use super::observation::{Form, Origin, Passage};
use super::sentences::{Sentence, split};

/// How much a word in the title or heading counts, against one in the sentence.
const IN_CONTEXT: f64 = 0.5;
/// Sentences this far below the best are left out.
const WORTH_QUOTING: f64 = 0.4;
/// Share of common stems from which two sentences say the same.
const SAME: f64 = 0.8;
/// A bare statement of a graph tells less than a sentence with the same words.
const FACT: f64 = 0.7;
/// A sentence with figures, against one without.
const FIGURES: f64 = 1.15;
const MOST_QUOTES: usize = 6;
const MOST_FROM_ONE_SOURCE: usize = 3;
/// How much a sentence counts that stands in a document about the head.
const ABOUT_HEAD: f64 = 1.5;
/// From so many quotations of documents about the head, sentences that mention it in passing are
/// left out.
const ENOUGH_ABOUT_HEAD: usize = 3;
/// Most sentences chosen because their document is on the topic.
const MOST_FURTHER: usize = 3;

/// A sentence with what is needed to weigh it.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub passage: usize,
    /// Its place in the passage.
    pub position: usize,
    pub origin: &'a Origin,
    pub form: Form,
    pub sentence: &'a Sentence,
    own: Vec<String>,
    context: Vec<String>,
    pub score: f64,
    pub on_topic: bool,
    /// The first sentence under its heading.
    opens_section: bool,
    /// Its touching the head says what the whole document is about: it stands in the opening, in
    /// the title or in a heading.
    tells_topic: bool,
    /// Its document is about the head; always, where the goal has none.
    pub about_head: bool,
    /// A word of the question, other than a name, stands in its passage.
    touches_question: bool,
}

/// Every sentence of these passages, not weighed yet.
pub(super) fn gather<'a>(passages: &'a [Passage], cut: &'a [Vec<Sentence>]) -> Vec<Candidate<'a>> {
    let mut out = Vec::new();
    for (at, (passage, sentences)) in passages.iter().zip(cut).enumerate() {
        let mut above = None;
        for (position, sentence) in sentences.iter().enumerate() {
            let heading = sentence.heading.as_str();
            out.push(Candidate {
                passage: at,
                position,
                origin: &passage.origin,
                form: passage.form,
                own: stems(&sentence.text),
                context: stems(&format!("{}\n{heading}", passage.origin.title)),
                sentence,
                score: 0.0,
                on_topic: false,
                opens_section: !heading.is_empty() && above != Some(heading),
                tells_topic: false,
                about_head: false,
                touches_question: false,
            });
            above = Some(heading);
        }
    }
    out
}

/// The sentences of a passage, each under the passage's own headings as well.
pub(super) fn sentences_of(passage: &Passage) -> Vec<Sentence> {
    let mut sentences = match passage.form {
        Form::Text => split(&passage.text),
        Form::Fact => {
            vec![Sentence {
                text: passage.text.clone(),
                heading: String::new(),
                paragraph: 0,
            }]
        }
    };
    for sentence in &mut sentences {
        sentence.heading = match (passage.heading.as_str(), sentence.heading.as_str()) {
            ("", _) => continue,
            (above, "") => above.to_owned(),
            (above, own) => format!("{above} > {own}"),
        };
    }
    sentences
}

/// Weighs every candidate against the goal.
pub(super) fn weigh(goal: &Goal, candidates: &mut [Candidate<'_>]) {
    let total = candidates.len() as f64;
    let weights: Vec<(&str, Role, f64)> = goal
        .terms
        .iter()
        .map(|t| {
            let having = |c: &&Candidate<'_>| c.has(&t.term.stem);
            let count = candidates.iter().filter(having).count().max(1) as f64;
            let rarity = (1.0 + total / count).ln() / (1.0 + total).ln().max(f64::MIN_POSITIVE);
            (t.term.stem.as_str(), t.role, t.role.weight() * rarity)
        })
        .collect();
    let only_names = goal.terms.iter().all(|t| t.role == Role::Name);
    for candidate in candidates.iter_mut() {
        let mut telling = false;
        let mut head = false;
        let mut head_above = false;
        for (stem, role, weight) in &weights {
            let own = candidate.own.iter().any(|s| s == stem);
            if !own && !candidate.context.iter().any(|s| s == stem) {
                continue;
            }
            candidate.score += if own { *weight } else { weight * IN_CONTEXT };
            telling |= *role != Role::Name || only_names;
            head |= *role == Role::Head;
            head_above |= *role == Role::Head && candidate.context.iter().any(|s| s == stem);
        }
        candidate.on_topic = head || !goal.has_head();
        candidate.tells_topic = head_above || head && candidate.sentence.heading.is_empty();
        // A name alone says that the sentence is about the right thing, not that it answers.
        if !telling {
            candidate.score = 0.0;
        }
        if !goal.is_named_in(&Plain::of(&[
            &candidate.sentence.text,
            &candidate.sentence.heading,
            &candidate.origin.title,
            &candidate.origin.uri,
        ])) {
            candidate.score *= 0.7;
        }
        if candidate.form == Form::Fact {
            candidate.score *= FACT;
        }
        // Figures can be checked; a sentence that has some says more.
        if candidate.sentence.text.chars().any(|c| c.is_ascii_digit()) {
            candidate.score *= FIGURES;
        }
        // A fragment of two words is seldom worth a quotation.
        if candidate.sentence.text.split_whitespace().count() < 3 {
            candidate.score *= 0.5;
        }
    }
    mark_documents(goal, candidates);
    for candidate in candidates.iter_mut() {
        if goal.has_head() && candidate.about_head {
            candidate.score *= ABOUT_HEAD;
        }
    }
}

/// Marks what stands in documents about the head, and in passages that touch the question.
fn mark_documents(goal: &Goal, candidates: &mut [Candidate<'_>]) {
    let about: Vec<String> = candidates
        .iter()
        .filter(|c| c.tells_topic)
        .map(|c| c.origin.key().to_owned())
        .collect();
    let body: Vec<&str> = goal
        .terms
        .iter()
        .filter(|t| t.role == Role::Body)
        .map(|t| t.term.stem.as_str())
        .collect();
    let touching: Vec<usize> = candidates
        .iter()
        .filter(|c| body.iter().any(|stem| c.has(stem)))
        .map(|c| c.passage)
        .collect();
    for candidate in candidates {
        let key = candidate.origin.key();
        candidate.about_head = !goal.has_head() || about.iter().any(|known| known == key);
        candidate.touches_question = touching.contains(&candidate.passage);
    }
}

impl Candidate<'_> {
    /// Whether it has a word, in itself or above it.
    pub(super) fn has(&self, stem: &str) -> bool {
        self.own.iter().any(|s| s == stem) || self.context.iter().any(|s| s == stem)
    }

    fn repeats(&self, others: &[Self]) -> bool {
        others
            .iter()
            .any(|other| says_the_same(&other.own, &self.own))
    }
}

/// The best ones, none twice, not too many from one source. Takes and gives them sorted by score.
pub(super) fn choose<'a>(candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let least = candidates
        .first()
        .map_or(0.0, |best| best.score * WORTH_QUOTING);
    let mut chosen: Vec<Candidate<'a>> = Vec::new();
    for candidate in candidates {
        if chosen.len() == MOST_QUOTES || candidate.score < least {
            break;
        }
        let of_source = chosen
            .iter()
            .filter(|c| c.origin.key() == candidate.origin.key())
            .count();
        if of_source < MOST_FROM_ONE_SOURCE && !candidate.repeats(&chosen) {
            chosen.push(candidate.clone());
        }
    }
    if chosen.iter().filter(|c| c.about_head).count() >= ENOUGH_ABOUT_HEAD {
        chosen.retain(|c| c.about_head || c.touches_question);
    }
    chosen
}

/// Opening sentences of sections that nothing was chosen from, in documents about the head.
pub(super) fn further<'a>(all: &[Candidate<'a>], chosen: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let mut openings: Vec<&Candidate<'a>> = all
        .iter()
        .filter(|c| c.opens_section && c.form == Form::Text && c.about_head)
        .collect();
    openings.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut both = chosen.to_vec();
    for candidate in openings {
        let room = both.len() < MOST_QUOTES && both.len() < chosen.len() + MOST_FURTHER;
        let section_is_told = both.iter().any(|c| {
            c.origin.key() == candidate.origin.key()
                && c.sentence.heading == candidate.sentence.heading
        });
        if room && !section_is_told && !candidate.repeats(&both) {
            both.push(candidate.clone());
        }
    }
    both.split_off(chosen.len())
}

/// Whether two sentences share nearly all their words.
pub(super) fn says_the_same(one: &[String], other: &[String]) -> bool {
    let shared = one.iter().filter(|stem| other.contains(stem)).count();
    let all = one.len() + other.len() - shared;
    all > 0 && shared as f64 / all as f64 >= SAME
}
