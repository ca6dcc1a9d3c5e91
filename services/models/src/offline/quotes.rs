//! Picks what to quote: the sentences that share most with a goal, from passages that are about it.
//!
//! Invariant: every quotation stands word for word in an observation and carries its source.

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
const MOST_QUOTES: usize = 6;
const MOST_FROM_ONE_SOURCE: usize = 3;

/// A quotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quote {
    pub text: String,
    pub origin: Origin,
    /// The heading it stands under; empty where there is none.
    pub heading: String,
}

impl Quote {
    /// As Markdown: a block quotation that ends with its source.
    pub(super) fn block(&self) -> String {
        let told = self.heading.is_empty() || self.origin.title.contains(&self.heading);
        let under = if told {
            String::new()
        } else {
            format!(", under \"{}\"", self.heading)
        };
        format!(
            "> {}\n>\n> Source: {}{under}",
            self.text,
            self.origin.shown()
        )
    }
}

/// What was found for a goal.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The best first.
    pub quotes: Vec<Quote>,
    /// The quotations touch the goal's head, or it has none.
    pub on_topic: bool,
    /// Passages left out because they do not name what the goal is about.
    pub about_others: usize,
    /// Passages that share nothing with the goal.
    pub unrelated: usize,
    pub read: usize,
    /// Goal terms the quotations have, and all there are.
    pub terms_met: usize,
    pub terms: usize,
    pub confidence: f64,
    /// The best passage that is visibly an excerpt of something longer.
    pub excerpt: Option<Passage>,
}

impl Found {
    pub(super) fn sources(&self) -> usize {
        let mut keys: Vec<&str> = self.quotes.iter().map(|q| q.origin.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }

    /// The line that states coverage; [`CONFIDENCE_NOTE`] says what it means.
    pub(super) fn confidence_line(&self) -> String {
        format!(
            "Confidence: {:.2} ({} from {}, {} of {} terms of the goal found)",
            self.confidence,
            counted(self.quotes.len(), "passage"),
            counted(self.sources(), "source"),
            self.terms_met,
            self.terms,
        )
    }
}

/// What a confidence is, for people.
pub(super) const CONFIDENCE_NOTE: &str = "Confidence here is coverage, not judgement: how much of the \
     goal's words the quotations contain, its own dimension counting most, and from how many sources.";

pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// A sentence with what is needed to weigh it.
struct Candidate<'a> {
    passage: usize,
    /// Its place in the passage.
    position: usize,
    origin: &'a Origin,
    is_fact: bool,
    sentence: Sentence,
    own: Vec<String>,
    context: Vec<String>,
    score: f64,
    on_topic: bool,
}

/// Finds what to quote from these passages for this goal.
pub(super) fn find(goal: &Goal, passages: &[Passage]) -> Found {
    let passages = without_repeats(passages);
    let (about, about_others) = about_the_subject(goal, &passages);
    let cut: Vec<Vec<Sentence>> = about.iter().map(sentences_of).collect();
    let mut candidates: Vec<Candidate<'_>> = about
        .iter()
        .zip(&cut)
        .enumerate()
        .flat_map(|(at, (passage, sentences))| candidates(at, passage, sentences))
        .collect();
    weigh(goal, &mut candidates);
    let on_topic = candidates.iter().any(|c| c.on_topic && c.score > 0.0);
    candidates.retain(|c| c.score > 0.0 && (c.on_topic || !on_topic));
    let mut touched: Vec<usize> = candidates.iter().map(|c| c.passage).collect();
    touched.sort_unstable();
    touched.dedup();
    let unrelated = about.len() - touched.len();
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let excerpt = candidates
        .iter()
        .map(|c| &about[c.passage])
        .find(|p| p.is_cut)
        .cloned();
    let chosen = choose(candidates);
    let (terms_met, coverage) = covered(goal, &chosen);
    let quotes = joined(&chosen, &cut);
    let mut found = Found {
        quotes,
        on_topic: on_topic || !goal.has_head(),
        about_others,
        unrelated,
        read: passages.len(),
        terms_met,
        terms: goal.terms.len(),
        confidence: 0.0,
        excerpt,
    };
    // One source may be wrong alone: each further one halves what is missing.
    found.confidence = coverage * (1.0 - 0.5_f64.powi(found.sources() as i32));
    found
}

fn without_repeats(passages: &[Passage]) -> Vec<Passage> {
    let mut kept: Vec<Passage> = Vec::new();
    for passage in passages {
        if !kept.contains(passage) {
            kept.push(passage.clone());
        }
    }
    kept
}

/// Passages that name what the goal is about; all of them if none does.
fn about_the_subject(goal: &Goal, passages: &[Passage]) -> (Vec<Passage>, usize) {
    let names = |p: &Passage| {
        goal.is_named_in(&Plain::of(&[
            &p.origin.title,
            &p.origin.uri,
            &p.heading,
            &p.text,
        ]))
    };
    let about: Vec<Passage> = passages.iter().filter(|p| names(p)).cloned().collect();
    if about.is_empty() {
        return (passages.to_vec(), 0);
    }
    let others = passages.len() - about.len();
    (about, others)
}

/// The sentences of a passage, each under the passage's own headings as well.
fn sentences_of(passage: &Passage) -> Vec<Sentence> {
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

fn candidates<'a>(
    at: usize,
    passage: &'a Passage,
    sentences: &'a [Sentence],
) -> impl Iterator<Item = Candidate<'a>> {
    sentences
        .iter()
        .enumerate()
        .map(move |(position, sentence)| Candidate {
            passage: at,
            position,
            origin: &passage.origin,
            is_fact: passage.form == Form::Fact,
            own: stems(&sentence.text),
            context: stems(&format!("{}\n{}", passage.origin.title, sentence.heading)),
            sentence: sentence.clone(),
            score: 0.0,
            on_topic: false,
        })
}

/// Whether a sentence begins by pointing at the one before.
fn leans(sentence: &str) -> bool {
    let first = sentence.split_whitespace().next().unwrap_or_default();
    let first = first.trim_end_matches(',');
    [
        "It",
        "Its",
        "This",
        "These",
        "They",
        "Their",
        "He",
        "She",
        "Both",
        "That",
        "Those",
        "Such",
        "However",
        "Therefore",
        "Moreover",
        "Instead",
    ]
    .contains(&first)
}

fn weigh(goal: &Goal, candidates: &mut [Candidate<'_>]) {
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
    for candidate in candidates {
        let mut telling = false;
        let mut head = false;
        for (stem, role, weight) in &weights {
            let own = candidate.own.iter().any(|s| s == stem);
            if !own && !candidate.context.iter().any(|s| s == stem) {
                continue;
            }
            candidate.score += if own { *weight } else { weight * IN_CONTEXT };
            telling |= *role != Role::Name || only_names;
            head |= *role == Role::Head;
        }
        candidate.on_topic = head || !goal.has_head();
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
        if candidate.is_fact {
            candidate.score *= FACT;
        }
        // A fragment of two words is seldom worth a quotation.
        if candidate.sentence.text.split_whitespace().count() < 3 {
            candidate.score *= 0.5;
        }
    }
}

impl Candidate<'_> {
    fn has(&self, stem: &str) -> bool {
        self.own.iter().any(|s| s == stem) || self.context.iter().any(|s| s == stem)
    }
}

/// The best ones, none twice, not too many from one source. Sorted by score.
fn choose(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let least = candidates
        .first()
        .map_or(0.0, |best| best.score * WORTH_QUOTING);
    let mut chosen: Vec<Candidate<'_>> = Vec::new();
    for candidate in candidates {
        if chosen.len() == MOST_QUOTES || candidate.score < least {
            break;
        }
        let of_source = chosen
            .iter()
            .filter(|c| c.origin.key() == candidate.origin.key())
            .count();
        let repeats = chosen.iter().any(|c| says_the_same(&c.own, &candidate.own));
        if of_source < MOST_FROM_ONE_SOURCE && !repeats {
            chosen.push(candidate);
        }
    }
    chosen
}

/// Whether two sentences share nearly all their words.
pub(super) fn says_the_same(one: &[String], other: &[String]) -> bool {
    let shared = one.iter().filter(|stem| other.contains(stem)).count();
    let all = one.len() + other.len() - shared;
    all > 0 && shared as f64 / all as f64 >= SAME
}

/// How many goal terms the chosen sentences have, and their share by weight.
fn covered(goal: &Goal, chosen: &[Candidate<'_>]) -> (usize, f64) {
    let mut count = 0;
    let (mut have, mut all) = (0.0, 0.0);
    for term in &goal.terms {
        // Beside a head, the words of the whole question are common to all its parts.
        let weight = match term.role {
            Role::Body if goal.has_head() => Role::Body.weight() / 2.0,
            role => role.weight(),
        };
        all += weight;
        if chosen.iter().any(|c| c.has(&term.term.stem)) {
            count += 1;
            have += weight;
        }
    }
    (count, if all > 0.0 { have / all } else { 0.0 })
}

/// Quotations from the chosen sentences: neighbours become one, and a sentence that leans on another
/// ("It was ...") stands together with it.
fn joined(chosen: &[Candidate<'_>], cut: &[Vec<Sentence>]) -> Vec<Quote> {
    let mut wanted: Vec<(usize, usize)> = Vec::new();
    for candidate in chosen {
        let (passage, position) = (candidate.passage, candidate.position);
        let sentences = &cut[passage];
        wanted.push((passage, position));
        if position > 0 && leans(&candidate.sentence.text) {
            wanted.push((passage, position - 1));
        }
        if sentences
            .get(position + 1)
            .is_some_and(|next| leans(&next.text))
        {
            wanted.push((passage, position + 1));
        }
    }
    let mut quotes: Vec<Quote> = Vec::new();
    let mut used: Vec<(usize, usize)> = Vec::new();
    for candidate in chosen {
        let passage = candidate.passage;
        if used.contains(&(passage, candidate.position)) {
            continue;
        }
        let sentences = &cut[passage];
        let joins = |one: usize, other: usize| {
            wanted.contains(&(passage, one))
                && sentences[one].paragraph == sentences[other].paragraph
        };
        let (mut first, mut last) = (candidate.position, candidate.position);
        while first > 0 && joins(first - 1, first) {
            first -= 1;
        }
        while last + 1 < sentences.len() && joins(last + 1, last) {
            last += 1;
        }
        used.extend((first..=last).map(|at| (passage, at)));
        let texts: Vec<&str> = sentences[first..=last]
            .iter()
            .map(|s| s.text.as_str())
            .collect();
        quotes.push(Quote {
            text: texts.join(" "),
            origin: candidate.origin.clone(),
            heading: candidate.sentence.heading.clone(),
        });
    }
    quotes
}
