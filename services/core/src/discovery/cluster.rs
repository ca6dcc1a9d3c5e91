//! Texts that are about the same thing: TF-IDF vectors, grouped by average linkage until no two
//! groups are alike enough.
//!
//! Salton and Buckley's weights (1988), with smoothed document frequencies; agglomerative clustering by
//! group averages (Sokal and Michener, 1958). Deterministic: no chance in it, and ties go to what
//! comes first. Short questions share few words, so words that only one text has count for nothing.

use agentfleet_schema::words::is_stop_word;
use std::collections::{BTreeMap, BTreeSet};

/// Groups are joined while their texts are this much alike on average, as cosines.
pub const ALIKE: f64 = 0.2;

/// Words that say nothing of what a question is about, beside those that say nothing in any text.
const OF_QUESTIONS: &str = "according among ask best done else every explain find get give given go good help know \
    last less let like list made make many may much must need new now off one say see shall \
    show still us use used using want way whether without";
/// Of those that say nothing in any text, the ones that count here.
const COUNTED: &[&str] = &[
    "doing", "during", "few", "further", "having", "hers", "nor", "through", "until",
];

/// Groups of texts, and what they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Places of the texts, in order.
    pub members: Vec<usize>,
    /// The words that tell it apart, most telling first, as they are most often written.
    pub terms: Vec<String>,
}

/// Groups texts. `tick` is told how many of them are dealt with, of how many.
pub fn clusters(texts: &[String], alike: f64, tick: &mut dyn FnMut(usize, usize)) -> Vec<Cluster> {
    let words = Words::of(texts);
    let vectors: Vec<BTreeMap<usize, f64>> = (0..texts.len()).map(|at| words.vector(at)).collect();
    let groups = linked(&vectors, alike, tick);
    let mut clusters: Vec<Cluster> = groups
        .into_iter()
        .map(|members| Cluster {
            terms: words.terms(&members, &vectors),
            members,
        })
        .collect();
    clusters.sort_by_key(|cluster| {
        (
            std::cmp::Reverse(cluster.members.len()),
            cluster.members.first().copied(),
        )
    });
    clusters
}

/// The stems of a text's telling words.
pub fn stems(text: &str) -> BTreeSet<String> {
    words(text).map(|word| stem(&word)).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts
        .map(str::to_lowercase)
        .filter(|word| word.chars().count() > 1 && tells(word))
        // Numbers are of one question, not of what several are about.
        .filter(|word| !word.chars().all(|c| c.is_ascii_digit()))
}

/// Whether a word says something of what a question is about.
fn tells(word: &str) -> bool {
    let says_nothing = is_stop_word(word) || OF_QUESTIONS.split(' ').any(|one| one == word);
    !says_nothing || COUNTED.contains(&word)
}

/// A word without the ending that number and tense give it, in English; others stay as they are.
fn stem(word: &str) -> String {
    let long = |stem: &str| stem.len() > 3 && stem.is_ascii();
    let endings = [
        ("ies", "y"),
        ("sses", "ss"),
        ("ing", ""),
        ("ed", ""),
        ("s", ""),
    ];
    let is_plain = ["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    let mut endings = endings.iter().filter(|_| !is_plain);
    let stripped = endings.find_map(|(ending, instead)| {
        let stem = word.strip_suffix(ending).filter(|stem| long(stem))?;
        Some(format!("{stem}{instead}"))
    });
    let stripped = stripped.unwrap_or_else(|| word.to_owned());
    match stripped.strip_suffix('e').filter(|stem| long(stem)) {
        Some(stem) => stem.to_owned(),
        None => stripped,
    }
}

/// The words of all texts.
struct Words {
    /// How often each stem stands in each text.
    counts: Vec<BTreeMap<usize, u32>>,
    /// In how many texts each stem is.
    texts: Vec<u32>,
    /// How each stem is written, and how often.
    written: Vec<BTreeMap<String, u32>>,
}

impl Words {
    fn of(all: &[String]) -> Self {
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        let mut found = Self {
            counts: Vec::with_capacity(all.len()),
            texts: Vec::new(),
            written: Vec::new(),
        };
        for text in all {
            let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
            for word in words(text) {
                let next = ids.len();
                let id = *ids.entry(stem(&word)).or_insert(next);
                if id == next {
                    found.texts.push(0);
                    found.written.push(BTreeMap::new());
                }
                *counts.entry(id).or_default() += 1;
                *found.written[id].entry(word).or_default() += 1;
            }
            for id in counts.keys() {
                found.texts[*id] += 1;
            }
            found.counts.push(counts);
        }
        found
    }

    /// Weights of a text's stems, of length 1; empty where it shares none with another text.
    fn vector(&self, at: usize) -> BTreeMap<usize, f64> {
        let all = self.counts.len() as f64;
        let mut vector: BTreeMap<usize, f64> = self.counts[at]
            .iter()
            .filter(|(id, _)| self.texts[**id] > 1)
            .map(|(id, count)| {
                let rare = ((all + 1.0) / (f64::from(self.texts[*id]) + 1.0)).ln() + 1.0;
                (*id, (1.0 + f64::from(*count).ln()) * rare)
            })
            .collect();
        let length = vector
            .values()
            .map(|weight| weight * weight)
            .sum::<f64>()
            .sqrt();
        for weight in vector.values_mut() {
            *weight /= length;
        }
        vector
    }

    /// The words that weigh most in a group, and stand in a good part of its texts.
    fn terms(&self, members: &[usize], vectors: &[BTreeMap<usize, f64>]) -> Vec<String> {
        let mut weights: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
        for (id, weight) in members.iter().flat_map(|at| &vectors[*at]) {
            let known = weights.entry(*id).or_default();
            *known = (known.0 + weight, known.1 + 1);
        }
        let common = (members.len() as u32).div_ceil(4).max(2);
        let mut best: Vec<(f64, &str)> = weights
            .into_iter()
            .filter(|(_, (_, texts))| *texts >= common)
            .map(|(id, (weight, _))| (weight, self.spelt(id)))
            .collect();
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        best.into_iter().map(|(_, word)| word.to_owned()).collect()
    }

    fn spelt(&self, id: usize) -> &str {
        let written = self.written[id].iter();
        let most = written.max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)));
        most.map_or("", |(word, _)| word.as_str())
    }
}

fn cosine(a: &BTreeMap<usize, f64>, b: &BTreeMap<usize, f64>) -> f64 {
    let (small, large) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let shared = small
        .iter()
        .filter_map(|(id, weight)| Some(weight * large.get(id)?));
    shared.sum()
}

/// Joins the two groups that are most alike, again and again.
fn linked(
    vectors: &[BTreeMap<usize, f64>],
    alike: f64,
    tick: &mut dyn FnMut(usize, usize),
) -> Vec<Vec<usize>> {
    let all = vectors.len();
    let mut groups: Vec<Vec<usize>> = (0..all).map(|at| vec![at]).collect();
    let mut like: Vec<Vec<f64>> = vectors
        .iter()
        .map(|a| vectors.iter().map(|b| cosine(a, b)).collect())
        .collect();
    let mut alive: Vec<usize> = (0..all).collect();
    // The group each is most like, so that a round looks at each group once.
    let nearest = |like: &[Vec<f64>], alive: &[usize], at: usize| {
        let others = alive.iter().filter(|other| **other != at);
        others.fold(None, |best: Option<(usize, f64)>, other| match best {
            Some(best) if best.1 >= like[at][*other] => Some(best),
            _ => Some((*other, like[at][*other])),
        })
    };
    let mut near: Vec<Option<(usize, f64)>> =
        (0..all).map(|at| nearest(&like, &alive, at)).collect();
    loop {
        tick(all - alive.len(), all);
        let best = alive
            .iter()
            .fold(None, |best: Option<(usize, usize, f64)>, at| {
                match (best, near[*at]) {
                    (Some(best), Some((_, value))) if best.2 >= value => Some(best),
                    (_, Some((other, value))) => Some((*at, other, value)),
                    (best, None) => best,
                }
            });
        let Some((a, b, value)) = best else { break };
        if value < alike {
            break;
        }
        let (into, from) = (a.min(b), a.max(b));
        let (large, small) = (groups[into].len() as f64, groups[from].len() as f64);
        alive.retain(|at| *at != from);
        for other in alive.iter().copied().filter(|other| *other != into) {
            let both = (like[into][other] * large + like[from][other] * small) / (large + small);
            like[into][other] = both;
            like[other][into] = both;
        }
        let moved = std::mem::take(&mut groups[from]);
        groups[into].extend(moved);
        groups[into].sort_unstable();
        for at in alive.clone() {
            let stale = near[at].is_none_or(|(other, _)| other == into || other == from);
            if at == into || stale {
                near[at] = nearest(&like, &alive, at);
            } else if let Some((_, value)) = near[at]
                && like[at][into] > value
            {
                near[at] = Some((into, like[at][into]));
            }
        }
    }
    tick(all, all);
    alive
        .into_iter()
        .map(|at| std::mem::take(&mut groups[at]))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn grouped(all: &[&str]) -> Vec<Cluster> {
        clusters(&texts(all), ALIKE, &mut |_, _| {})
    }

    const QUESTIONS: &[&str] = &[
        "How do I replace the seal of the circulation pump?",
        "Translate the contract into German",
        "The pump leaks at the seal: what now?",
        "What does the weather do?",
        "Please translate these terms of the contract",
        "Which seals fit pumps of the Orkan line?",
        "Is the translated contract binding?",
        "Seal of pump 7 again",
    ];

    #[test]
    fn questions_about_the_same_thing_come_together_and_are_named_by_it() {
        let found = grouped(QUESTIONS);
        let members: Vec<_> = found
            .iter()
            .map(|cluster| cluster.members.clone())
            .collect();
        assert_eq!(members, [vec![0, 2, 5, 7], vec![1, 4, 6], vec![3]]);
        assert_eq!(found[0].terms[..2], ["pump", "seal"]);
        assert_eq!(found[1].terms[..2], ["contract", "translate"]);
        assert_eq!(found[2].terms, Vec::<String>::new());
    }

    #[test]
    fn the_order_of_the_questions_does_not_decide_who_belongs_together() {
        let mut turned = QUESTIONS.to_vec();
        turned.reverse();
        let as_texts = |found: Vec<Cluster>, of: &[&str]| {
            let sets = found.into_iter().map(|cluster| {
                let texts = cluster.members.iter().map(|at| of[*at].to_owned());
                texts.collect::<BTreeSet<String>>()
            });
            sets.collect::<BTreeSet<_>>()
        };
        let (one, other) = (grouped(QUESTIONS), grouped(&turned));
        assert_eq!(as_texts(one, QUESTIONS), as_texts(other, &turned));
    }

    #[test]
    fn nothing_in_common_stays_apart_and_equal_texts_are_one() {
        assert_eq!(grouped(&[]), []);
        assert_eq!(grouped(&["What?", "Who?", "the"]).len(), 3);
        assert_eq!(grouped(&["pump", "valve", "pipe"]).len(), 3);
        let same = grouped(&["Ölpumpe prüfen", "Ölpumpe prüfen", "Ölpumpe prüfen 3"]);
        assert_eq!(same.len(), 1);
        assert_eq!(same[0].terms, ["prüfen", "ölpumpe"]);
    }

    #[test]
    fn endings_are_forgiven() {
        for (word, expected) in [
            ("pumps", "pump"),
            ("companies", "company"),
            ("leaking", "leak"),
            ("translated", "translat"),
            ("glass", "glass"),
            ("status", "status"),
            ("bed", "bed"),
            ("ring", "ring"),
        ] {
            assert_eq!(stem(word), expected);
        }
    }

    #[test]
    fn many_questions_are_dealt_with() {
        let all: Vec<String> = (0..600)
            .map(|n| format!("question {} about topic{} and matter{}", n, n % 7, n % 7))
            .collect();
        let mut last = (0, 0);
        let found = clusters(&all, 0.5, &mut |done, all| last = (done, all));
        assert_eq!(found.len(), 7);
        assert_eq!(last, (600, 600));
    }
}
