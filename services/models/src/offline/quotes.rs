//! What is quoted for a goal, and how much of the goal that covers.
//!
//! Invariant: every quotation stands word for word in an observation and carries its source. Rows of
//! tables and statements of a graph are marked as what they are, and code keeps its lines.

use super::candidates::{Candidate, choose, further, gather, sentences_of, weigh};
use super::facts::relation_stems;
use super::goal::{Goal, Plain, Role};
use super::observation::{Form, Origin, Passage};
use super::sentences::{Kind, Sentence};
use super::terms::{Term, stems};

/// A quotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quote {
    pub text: String,
    pub shape: Shape,
    pub origin: Origin,
    /// The heading it stands under; empty where there is none.
    pub heading: String,
    /// What a statement is about; empty where it is not told apart from its origin.
    pub about: String,
}

/// How a quotation is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Prose,
    Row,
    Code,
    /// One statement of a graph, or several of the same relation, a line each.
    Facts,
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
        let about = if self.about.is_empty() {
            String::new()
        } else {
            format!(", about `{}`", self.about)
        };
        format!(
            "{}\n>\n> Source: {}{under}{about}",
            self.quoted(),
            self.origin.shown()
        )
    }

    /// The lines of the block.
    fn quoted(&self) -> String {
        let lines: Vec<String> = match self.shape {
            Shape::Prose => vec![format!("> {}", escaped(&self.text))],
            Shape::Row => vec![format!(
                "> Row of \"{}\": {}",
                self.table(),
                escaped(&self.text)
            )],
            Shape::Code => self.text.lines().map(|line| format!("> {line}")).collect(),
            Shape::Facts if self.text.contains('\n') => self
                .text
                .lines()
                .map(|line| format!("> - {}", escaped(line)))
                .collect(),
            Shape::Facts => vec![format!("> {}", escaped(&self.text))],
        };
        lines.join("\n")
    }

    /// What the table of a row is called: the heading right above it, or the document.
    fn table(&self) -> &str {
        let innermost = self.heading.rsplit(" > ").next().unwrap_or_default();
        // Rows of a file that is one table are numbered.
        match innermost {
            "" => &self.origin.title,
            number if number.starts_with("row ") => &self.origin.title,
            heading => heading,
        }
    }
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

/// What was found for a goal.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The best first.
    pub quotes: Vec<Quote>,
    /// The quotations touch the goal's head, or it has none.
    pub on_topic: bool,
    /// Enough was found to stop searching.
    pub is_enough: bool,
    /// What the goal names and nothing that was read mentions.
    pub unmentioned: Vec<String>,
    /// Passages left out because they do not name what the goal is about.
    pub about_others: usize,
    /// Passages that share nothing with the goal.
    pub unrelated: usize,
    pub read: usize,
    /// Goal terms the quotations have, and all there are.
    pub terms_met: usize,
    pub terms: usize,
    /// The words of the goal that no quotation has.
    pub lacking: Vec<String>,
    pub confidence: f64,
    /// The passage of the best quotation.
    pub best: Option<Passage>,
    /// Where it was asked what something is, and nothing says so: the document called after it.
    pub namesake: Option<Passage>,
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
        let lacking: Vec<String> = self
            .lacking
            .iter()
            .take(MOST_LACKING)
            .map(|word| format!("\"{word}\""))
            .collect();
        let but = match lacking.as_slice() {
            _ if self.quotes.is_empty() => String::new(),
            [] => String::new(),
            words => format!(", not {}", words.join(", ")),
        };
        format!(
            "Confidence: {:.2} ({} from {}, {} of {} words of the goal found{but})",
            self.confidence,
            counted(self.quotes.len(), "quotation"),
            counted(self.sources(), "source"),
            self.terms_met,
            self.terms,
        )
    }
}

/// Most words named that no quotation has.
const MOST_LACKING: usize = 4;
/// What a confidence is, for people.
pub(super) const CONFIDENCE_NOTE: &str = "Confidence here is coverage, not judgement: how much of the \
     goal's words the quotations contain, together and the best one alone, its own dimension counting \
     most, and from how many sources. It is low where nothing mentions what was asked about.";

pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// Quotations from documents about the matter that make another search needless.
const ENOUGH: usize = 3;
/// What remains of a confidence where nothing mentions the thing that was asked about.
const UNMENTIONED: f64 = 0.25;
/// What remains where it was asked what a thing is, and nothing says so.
const UNDEFINED: f64 = 0.5;
/// Most quotations that only share other words of the goal.
const MOST_CLOSEST: usize = 3;
/// Under a heading, a quotation goes on with what follows up to this length, in characters: a
/// section says one thing, and its second sentence often says how much.
const GOES_ON: usize = 320;

/// Finds what to quote from these passages for this goal.
pub(super) fn find(goal: &Goal, passages: &[Passage]) -> Found {
    let passages = without_repeats(passages);
    let (about, about_others) = about_the_subject(goal, &passages);
    let unmentioned = unmentioned(goal, &passages);
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
    // What is about something else than the question ends on answers another question.
    let is_about = |c: &Candidate<'_>| goal.focus.iter().any(|term| c.has(term));
    if direct.iter().any(is_about) {
        direct.retain(is_about);
    }
    let excerpt = direct
        .iter()
        .map(|c| &about[c.passage])
        .find(|p| p.is_cut)
        .cloned();
    let mut touched: Vec<usize> = direct.iter().map(|c| c.passage).collect();
    let mut chosen = choose(&direct);
    // Who asks what a thing is has no use for all else that is said of it.
    if chosen.iter().any(|c| c.defines) {
        chosen.retain(|c| c.defines);
    }
    let is_beside = !unmentioned.is_empty() || !on_topic && goal.has_head();
    if is_beside {
        chosen.truncate(MOST_CLOSEST);
    }
    let count = chosen.len();
    let is_enough = is_enough(&chosen) && !is_beside;
    let namesake = namesake(goal, &about);
    if on_topic && goal.has_head() {
        chosen.extend(further(&candidates, &chosen));
    }
    touched.extend(chosen[count..].iter().map(|c| c.passage));
    touched.sort_unstable();
    touched.dedup();
    let (lacking, mut coverage) = covered(goal, &chosen);
    if is_beside {
        coverage *= UNMENTIONED;
    }
    let is_undefined = goal.asks_what && chosen.iter().all(|c| !c.defines);
    if is_undefined {
        coverage *= UNDEFINED;
    }
    // Without a head each word is what was asked: what is lacking weighs more than it counts.
    if !goal.has_head() {
        coverage *= coverage;
    }
    let quotes = joined(&chosen, &cut);
    let mut found = Found {
        best: chosen.first().map(|c| about[c.passage].clone()),
        namesake: namesake.filter(|_| is_undefined).cloned(),
        quotes,
        on_topic: on_topic || !goal.has_head(),
        is_enough,
        unmentioned,
        about_others,
        unrelated: about.len() - touched.len(),
        read: passages.len(),
        terms_met: goal.terms.len() - lacking.len(),
        terms: goal.terms.len(),
        lacking,
        confidence: 0.0,
        excerpt,
    };
    // One source may be wrong alone: each further one halves what is missing.
    found.confidence = coverage * (1.0 - 0.5_f64.powi(found.sources() as i32));
    found
}

/// A passage of the document whose name is what was asked about, with the fewest words beside it.
fn namesake<'p>(goal: &Goal, passages: &'p [Passage]) -> Option<&'p Passage> {
    let called = |p: &&Passage| {
        let title = stems(&p.origin.title);
        p.form == Form::Text
            && !p.origin.uri.is_empty()
            && !goal.terms.is_empty()
            && goal.terms.iter().all(|t| t.term.is_in(&title))
    };
    let named = passages.iter().filter(called);
    named.min_by_key(|p| stems(&p.origin.title).len())
}

/// Whether documents about the matter gave several quotations, and not one document all of them.
fn is_enough(chosen: &[Candidate<'_>]) -> bool {
    // A graph has few words on a matter; what is written about it is asked for as well.
    let (facts, texts): (Vec<&Candidate<'_>>, Vec<&Candidate<'_>>) = chosen
        .iter()
        .filter(|c| c.about_head)
        .partition(|c| c.form == Form::Fact);
    let about: Vec<&Candidate<'_>> = texts.into_iter().chain(facts.into_iter().take(1)).collect();
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

/// What the goal is about, by its names or by what its question ends on, if no passage mentions any
/// of it.
fn unmentioned(goal: &Goal, passages: &[Passage]) -> Vec<String> {
    if passages.is_empty() {
        return Vec::new();
    }
    let (named, _) = about_the_subject(goal, passages);
    if named.is_empty() {
        return goal.subjects.iter().map(|s| s.shown.clone()).collect();
    }
    let words: Vec<Vec<String>> = named
        .iter()
        .map(|p| {
            let texts = [
                p.origin.title.as_str(),
                p.origin.path(),
                &p.heading,
                &p.text,
            ];
            let mut all = texts.map(stems).concat();
            if p.form == Form::Fact {
                all.extend(relation_stems(&p.text));
            }
            all
        })
        .collect();
    let mentions = |term: &Term| words.iter().any(|own| term.is_in(own));
    let lacking = !goal.focus.is_empty() && !goal.focus.iter().any(mentions);
    if lacking {
        return goal.focus.iter().map(|term| term.word.clone()).collect();
    }
    // What is asked for may stand where something else is spoken of.
    let asked_for = goal.asked.iter().filter(|asked| {
        !words.iter().any(|own| {
            let is_about = goal.focus.is_empty() || goal.focus.iter().any(|t| t.is_in(own));
            is_about && asked.is_in(own)
        })
    });
    asked_for.map(|asked| asked.word.clone()).collect()
}

/// Passages that name what the goal is about, and how many do not.
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
    let others = passages.len() - about.len();
    (about, others)
}

/// The goal terms that none of the chosen pieces has, and the share of the others by weight: the mean of what they have
/// together and what the best of them has alone, since words from here and there answer little.
fn covered(goal: &Goal, chosen: &[Candidate<'_>]) -> (Vec<String>, f64) {
    let mut lacking = Vec::new();
    let (mut have, mut all) = (0.0, 0.0);
    let mut alone = vec![0.0_f64; chosen.len()];
    for term in &goal.terms {
        // Beside a head, the words of the whole question are common to all its parts.
        let weight = match term.role {
            Role::Body if goal.has_head() => Role::Body.weight() / 2.0,
            role => role.weight(),
        };
        all += weight;
        let mut is_met = false;
        for (own, _) in alone
            .iter_mut()
            .zip(chosen)
            .filter(|(_, c)| c.has(&term.term))
        {
            *own += weight;
            is_met = true;
        }
        if is_met {
            have += weight;
        } else {
            lacking.push(term.term.word.clone());
        }
    }
    let best = alone.into_iter().fold(0.0, f64::max);
    let share = if all > 0.0 {
        f64::midpoint(have, best) / all
    } else {
        0.0
    };
    (lacking, share)
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
        if candidate.sentence.kind != Kind::Prose || candidate.form == Form::Fact {
            continue;
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
        if candidate.form == Form::Fact {
            let alike: Vec<&Candidate<'_>> =
                chosen.iter().filter(|c| c.is_like(candidate)).collect();
            let alike = if alike.is_empty() {
                vec![candidate]
            } else {
                alike
            };
            used.extend(alike.iter().map(|c| (c.passage, c.position)));
            quotes.push(statements(&alike));
            continue;
        }
        let sentences = &cut[passage];
        let joins = |one: usize, other: usize| {
            wanted.contains(&(passage, one))
                && sentences[one].paragraph == sentences[other].paragraph
                && sentences[one].kind == sentences[other].kind
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
            shape: match candidate.sentence.kind {
                Kind::Prose => Shape::Prose,
                Kind::Row => Shape::Row,
                Kind::Code => Shape::Code,
            },
            origin: candidate.origin.clone(),
            heading: candidate.sentence.heading.clone(),
            about: String::new(),
        });
    }
    quotes
}

/// Statements of one relation as one quotation. What they are about stands with the source if that is
/// one thing, else with each.
fn statements(alike: &[&Candidate<'_>]) -> Quote {
    let first = alike[0];
    let same = alike.iter().all(|c| c.about == first.about);
    let lines: Vec<String> = alike
        .iter()
        .map(|c| match c.about {
            "" => c.sentence.text.clone(),
            _ if same => c.sentence.text.clone(),
            about => format!("{} [{about}]", c.sentence.text),
        })
        .collect();
    Quote {
        text: lines.join("\n"),
        shape: Shape::Facts,
        origin: first.origin.clone(),
        heading: String::new(),
        about: if same {
            first.about.to_owned()
        } else {
            String::new()
        },
    }
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
}
