//! What is quoted for a goal, and how much of the goal that covers.
//!
//! Invariant: every quotation stands word for word in an observation and carries its source.

use super::candidates::{Candidate, choose, further, gather, sentences_of, weigh};
use super::goal::{Goal, Plain, Role};
use super::observation::{Form, Origin, Passage};
use super::sentences::Sentence;

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
    /// Enough was found to stop searching.
    pub is_enough: bool,
    /// Passages left out because they do not name what the goal is about.
    pub about_others: usize,
    /// Passages that share nothing with the goal.
    pub unrelated: usize,
    pub read: usize,
    /// Goal terms the quotations have, and all there are.
    pub terms_met: usize,
    pub terms: usize,
    pub confidence: f64,
    /// The passage of the best quotation.
    pub best: Option<Passage>,
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

/// Quotations from documents about the matter that make another search needless.
const ENOUGH: usize = 3;
/// Under a heading, a quotation goes on with what follows up to this length, in characters: a
/// section says one thing, and its second sentence often says how much.
const GOES_ON: usize = 320;

/// Finds what to quote from these passages for this goal.
pub(super) fn find(goal: &Goal, passages: &[Passage]) -> Found {
    let passages = without_repeats(passages);
    let (about, about_others) = about_the_subject(goal, &passages);
    let cut: Vec<Vec<Sentence>> = about.iter().map(sentences_of).collect();
    let mut candidates = gather(&about, &cut);
    weigh(goal, &mut candidates);
    let on_topic = candidates.iter().any(|c| c.on_topic && c.score > 0.0);
    let mut direct: Vec<Candidate<'_>> = candidates
        .iter()
        .filter(|c| c.score > 0.0 && (c.on_topic || !on_topic))
        .cloned()
        .collect();
    direct.sort_by(|a, b| b.score.total_cmp(&a.score));
    let excerpt = direct
        .iter()
        .map(|c| &about[c.passage])
        .find(|p| p.is_cut)
        .cloned();
    let mut touched: Vec<usize> = direct.iter().map(|c| c.passage).collect();
    let mut chosen = choose(&direct);
    let count = chosen.len();
    let is_enough = is_enough(&chosen) && (on_topic || !goal.has_head());
    if on_topic && goal.has_head() {
        chosen.extend(further(&candidates, &chosen));
    }
    touched.extend(chosen[count..].iter().map(|c| c.passage));
    touched.sort_unstable();
    touched.dedup();
    let (terms_met, coverage) = covered(goal, &chosen);
    let quotes = joined(&chosen, &cut);
    let mut found = Found {
        best: chosen.first().map(|c| about[c.passage].clone()),
        quotes,
        on_topic: on_topic || !goal.has_head(),
        is_enough,
        about_others,
        unrelated: about.len() - touched.len(),
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

/// Whether documents about the matter gave several quotations, and not one document all of them.
fn is_enough(chosen: &[Candidate<'_>]) -> bool {
    let about: Vec<&Candidate<'_>> = chosen.iter().filter(|c| c.about_head).collect();
    let several = about
        .iter()
        .any(|c| c.origin.key() != about[0].origin.key());
    about.len() >= ENOUGH && several
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
        let mut length = candidate.sentence.text.chars().count();
        let in_section = !candidate.sentence.heading.is_empty() && candidate.form == Form::Text;
        for (next, following) in sentences.iter().enumerate().skip(position + 1) {
            length += following.text.chars().count();
            if !leans(&following.text) && (!in_section || length > GOES_ON) {
                break;
            }
            wanted.push((passage, next));
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
