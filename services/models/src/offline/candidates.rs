//! Weighs the sentences of passages against a goal, and chooses among them.
//!
//! A sentence counts by the goal's words in it, and less by those in the title and headings above
//! it. Where the goal has a head, only sentences that touch the head are on topic. A document whose
//! title, opening or headings touch it is about it: its sentences count more, and the opening
//! sentences of its other sections may be chosen too. Elsewhere the word may stand in passing.

use super::facts::{fact_weight, relation_of};
use super::goal::{Goal, Plain, Role};
use super::observation::{Form, Origin, Passage};
use super::sentences::{Kind, Sentence, split};
use super::terms::{Term, stems};

/// How much a word in the title or heading counts, against one in the sentence.
const IN_CONTEXT: f64 = 0.5;
/// Sentences this far below the best are left out.
const WORTH_QUOTING: f64 = 0.4;
/// Share of common stems from which two sentences say the same.
const SAME: f64 = 0.8;
/// Code shows how, and says little.
const CODE: f64 = 0.8;
/// What says what a thing is, where that was asked.
const DEFINES: f64 = 2.0;
/// What has less than this share of the goal's words, by weight, is about something else.
const LEAST_SHARE: f64 = 0.3;
/// Statements of one relation are told together, up to so many.
const MOST_ALIKE: usize = 12;
/// How near the best of them another one must be.
const ALIKE: f64 = 0.75;
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
    /// What a statement is about.
    pub about: &'a str,
    own: Vec<String>,
    context: Vec<String>,
    /// Its parts: the headings, and what the document is called.
    above: Vec<String>,
    title: Vec<String>,
    pub score: f64,
    pub on_topic: bool,
    /// It says what the thing is that was asked for.
    pub defines: bool,
    /// The first sentence under its heading.
    opens_section: bool,
    /// Its touching the head says what the whole document is about: it stands in the opening, or in
    /// the title. A heading speaks for its own section only.
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
            let mut own = stems(&sentence.text);
            if passage.form == Form::Fact {
                own.extend(super::facts::relation_stems(&sentence.text));
            }
            let title = &passage.origin.title;
            out.push(Candidate {
                passage: at,
                position,
                origin: &passage.origin,
                form: passage.form,
                about: &passage.about,
                own,
                context: stems(&format!("{title}\n{heading}\n{}", passage.origin.path())),
                above: stems(heading),
                title: stems(&format!("{title}\n{}", passage.origin.path())),
                sentence,
                score: 0.0,
                on_topic: false,
                defines: false,
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
                kind: Kind::Prose,
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
    let weights: Vec<(&Term, Role, f64)> = goal
        .terms
        .iter()
        .map(|t| {
            let having = |c: &&Candidate<'_>| c.has(&t.term);
            let count = candidates.iter().filter(having).count().max(1) as f64;
            let rarity = (1.0 + total / count).ln() / (1.0 + total).ln().max(f64::MIN_POSITIVE);
            (&t.term, t.role, t.role.weight() * rarity)
        })
        .collect();
    let only_names = goal.terms.iter().all(|t| t.role == Role::Name);
    let beside_head = goal.terms.iter().filter(|t| t.role != Role::Head);
    let all: f64 = beside_head.map(|t| t.role.weight()).sum();
    for candidate in candidates.iter_mut() {
        let mut telling = false;
        // A name in the sentence, below a title that has a word of the question.
        let (mut names_it, mut told_above) = (false, false);
        let mut head = false;
        let mut head_in_title = false;
        let mut share = 0.0;
        for (term, role, weight) in &weights {
            let own = term.is_in(&candidate.own);
            let above = term.is_in(&candidate.context);
            if !own && !above {
                continue;
            }
            candidate.score += if own { *weight } else { weight * IN_CONTEXT };
            share += if *role == Role::Head {
                1.0
            } else {
                role.weight() / all
            };
            // A word of the title tells of each sentence below it as little as a name does.
            let near = own || term.is_in(&candidate.above);
            telling |= near && *role != Role::Name || *role == Role::Head || only_names;
            names_it |= own;
            told_above |= above && *role != Role::Name;
            head |= *role == Role::Head;
            head_in_title |= *role == Role::Head && term.is_in(&candidate.title);
        }
        candidate.on_topic = head || !goal.has_head();
        candidate.tells_topic = head_in_title || head && candidate.sentence.heading.is_empty();
        // A name alone says that the sentence is about the right thing, not that it answers.
        telling |= names_it && told_above;
        if !telling || !head && share < LEAST_SHARE {
            candidate.score = 0.0;
        }
        candidate.defines = goal.asks_what && candidate.score > 0.0 && defines(candidate, goal);
        if candidate.defines {
            candidate.score *= DEFINES;
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
            candidate.score *= fact_weight(goal, &candidate.sentence.text, candidate.defines);
        }
        if candidate.sentence.kind == Kind::Code {
            candidate.score *= CODE;
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
    let body: Vec<&Term> = goal
        .terms
        .iter()
        .filter(|t| t.role == Role::Body)
        .map(|t| &t.term)
        .collect();
    let touching: Vec<usize> = candidates
        .iter()
        .filter(|c| body.iter().any(|term| c.has(term)))
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
    pub(super) fn has(&self, term: &Term) -> bool {
        term.is_in(&self.own) || term.is_in(&self.context)
    }

    /// The relation of a statement.
    pub(super) fn relation(&self) -> Option<&str> {
        let is_fact = self.form == Form::Fact;
        is_fact.then(|| relation_of(&self.sentence.text)).flatten()
    }

    fn repeats(&self, others: &[Self]) -> bool {
        others.iter().any(|other| {
            if self.form == Form::Fact {
                // Statements differ in a name where sentences differ in more.
                other.sentence.text == self.sentence.text
            } else {
                says_the_same(&other.own, &self.own)
            }
        })
    }

    /// Whether both are statements of one document and one relation.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let relation = self.relation();
        relation.is_some()
            && relation == other.relation()
            && self.origin.key() == other.origin.key()
    }
}

/// Whether it says what something is: a statement that describes it, or a sentence that begins with
/// the thing and goes on with "is a".
fn defines(candidate: &Candidate<'_>, goal: &Goal) -> bool {
    const DESCRIBING: &[&str] = &[
        "definition",
        "description",
        "comment",
        "abstract",
        "scope note",
    ];
    /// How far from its beginning a sentence names what it defines, in words.
    const BEGINNING: usize = 6;
    let text = &candidate.sentence.text;
    if candidate.form == Form::Fact {
        let subject = stems(text.split(" | ").next().unwrap_or_default());
        let relation = relation_of(text).unwrap_or_default().to_lowercase();
        let own = goal.terms.iter().filter(|t| t.term.is_in(&subject)).count();
        return own == goal.terms.len()
            && subject.len() <= own
            && DESCRIBING.iter().any(|known| relation.ends_with(known));
    }
    // The document named after it begins with it.
    let is_all = |stems: &[String]| goal.terms.iter().all(|t| t.term.is_in(stems));
    let opens = candidate.sentence.heading.is_empty()
        && candidate.sentence.kind == Kind::Prose
        && candidate.position == 0;
    if opens && is_all(&candidate.title) && is_all(&candidate.own) {
        return true;
    }
    let words: Vec<&str> = text.split_whitespace().take(BEGINNING + 2).collect();
    let verb = words
        .iter()
        .position(|word| ["is", "are", "means", "denotes"].contains(word));
    let Some(at) = verb.filter(|at| *at > 0 && *at <= BEGINNING) else {
        return false;
    };
    let before = stems(&words[..at].join(" "));
    let goes_on = words
        .get(at + 1)
        .is_some_and(|next| ["a", "an", "the", "any", "one"].contains(next));
    let is_plain = matches!(words[at], "means" | "denotes" | "are");
    (goes_on || is_plain) && goal.terms.iter().all(|t| t.term.is_in(&before))
}

/// The best ones, none twice, not too many from one source. Takes and gives them sorted by score.
pub(super) fn choose<'a>(candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let least = candidates
        .first()
        .map_or(0.0, |best| best.score * WORTH_QUOTING);
    let mut chosen: Vec<Candidate<'a>> = Vec::new();
    for candidate in candidates {
        if quotations(&chosen).count() == MOST_QUOTES || candidate.score < least {
            break;
        }
        let of_source = quotations(&chosen)
            .filter(|c| c.origin.key() == candidate.origin.key())
            .count();
        let is_fact = candidate.form == Form::Fact;
        let alike = chosen.iter().filter(|c| c.is_like(candidate)).count();
        if alike == 0 && of_source < MOST_FROM_ONE_SOURCE && !candidate.repeats(&chosen) {
            chosen.push(candidate.clone());
            if is_fact {
                chosen.extend(alike_to(candidate, candidates));
            }
        }
    }
    if chosen.iter().filter(|c| c.about_head).count() >= ENOUGH_ABOUT_HEAD {
        chosen.retain(|c| c.about_head || c.touches_question);
    }
    chosen
}

/// The further statements of the same document and relation that answer about as well.
fn alike_to<'a>(first: &Candidate<'a>, candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let mut found: Vec<Candidate<'a>> = Vec::new();
    for other in candidates {
        let is_other = other.sentence.text != first.sentence.text && !other.repeats(&found);
        if found.len() + 1 < MOST_ALIKE
            && is_other
            && other.is_like(first)
            && other.score >= first.score * ALIKE
        {
            found.push(other.clone());
        }
    }
    found
}

/// Chosen pieces by quotation: statements that are told together count once.
fn quotations<'c, 'a>(chosen: &'c [Candidate<'a>]) -> impl Iterator<Item = &'c Candidate<'a>> {
    chosen.iter().enumerate().filter_map(|(at, candidate)| {
        let told = chosen[..at].iter().any(|before| before.is_like(candidate));
        (!told).then_some(candidate)
    })
}

/// Opening sentences of sections that nothing was chosen from, in documents about the head.
pub(super) fn further<'a>(all: &[Candidate<'a>], chosen: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let mut openings: Vec<&Candidate<'a>> = all
        .iter()
        .filter(|c| c.opens_section && c.form == Form::Text && c.about_head)
        .filter(|c| c.sentence.kind == Kind::Prose)
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
