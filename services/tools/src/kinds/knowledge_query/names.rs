//! Statements in words: which come first, and what things are called.

use super::{
    DESCRIBING, Line, MAX_VALUE, NAMELESS, NAMELESS_PARTS, RDF_FIRST, RELATION_CHARS, Rank,
    Statement, Weight,
};
use agentfleet_library::{is_blank, label_quality, local_name, shortened};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL};
use agentfleet_schema::words::covered;
use agentfleet_schema::{Term, TermType};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What IRIs are called.
pub(super) struct Names {
    pub(super) labels: HashMap<String, String>,
    pub(super) nameless: HashMap<String, Vec<Statement>>,
}

impl Names {
    /// Statements as lines with their subject: those that say most in the relation asked for, then one
    /// of each entity, then the best of each before the rest of any.
    pub(super) fn lines(&self, found: Vec<Vec<(Weight, Statement)>>, limit: usize) -> Vec<Line> {
        let share = (limit / 3).max(6);
        let least = found
            .iter()
            .flatten()
            .map(|(weight, _)| weight.rank.lacking)
            .min();
        let mut seen = HashSet::new();
        let mut lines = Vec::new();
        for statements in found {
            let mut taken = 0;
            for (weight, statement) in statements {
                let text = self.line(&statement);
                // Different terms may have the same name: `rdfs:Class` and `owl:Class`.
                let is_new = seen.insert((statement.subject.clone(), text.clone()));
                if self.is_redundant(&statement) || !is_new {
                    continue;
                }
                taken += 1;
                let line = Line {
                    statement,
                    text,
                    source: None,
                };
                // What answers best is shown whole: all subclasses, and not the first ten. That a thing
                // is called as the question says makes none of its statements an answer.
                let is_best = Some(weight.rank.lacking) == least;
                let place = if is_best && weight.is_asked_for {
                    0
                } else if taken == 1 {
                    1
                } else if taken <= share || (is_best && weight.adds) {
                    2
                } else {
                    3
                };
                lines.push((place, line));
            }
        }
        lines.sort_by_key(|(place, _)| *place);
        lines.truncate(limit);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    pub(super) fn line(&self, statement: &Statement) -> String {
        let Statement {
            subject,
            predicate,
            object,
        } = statement;
        let address = if is_blank(subject) {
            String::new()
        } else {
            format!(" [{subject}]")
        };
        format!(
            "- {} | {} | {}{address}",
            self.subject(subject, predicate),
            self.of(predicate),
            self.object(object)
        )
    }

    pub(super) fn weight(&self, words: &[String], statement: &Statement) -> Weight {
        let line = self.line(statement);
        let own = local_name(&statement.predicate);
        let relation: String = own.split_whitespace().collect();
        let relation = relation.to_lowercase();
        let asks_for = |word: &String| {
            let same = word
                .chars()
                .zip(relation.chars())
                .take_while(|(a, b)| a == b)
                .count();
            let long = word.chars().count();
            // All but an ending of the word.
            same >= RELATION_CHARS && same + 2 >= long || *word == relation
        };
        let held = covered(words, &line);
        let lacking = words.len() - held;
        let named = covered(
            words,
            &self.subject(&statement.subject, &statement.predicate),
        );
        let is_asked_for = words.iter().any(asks_for);
        let value = self.object(&statement.object);
        let is_describing = DESCRIBING.iter().any(|end| relation.ends_with(end));
        let rank = Rank {
            lacking: (lacking + 1).saturating_sub(usize::from(is_asked_for)),
            is_empty: value.contains("without a name") || value == "something",
            is_type: statement.predicate == RDF_TYPE,
            is_bare: !(is_describing && statement.object.kind == TermType::Literal),
        };
        Weight {
            rank,
            is_asked_for,
            adds: is_asked_for || held > named,
        }
    }

    /// Whether a statement only repeats the name its line begins with.
    pub(super) fn is_redundant(&self, statement: &Statement) -> bool {
        let names = statement.predicate == RDFS_LABEL
            || label_quality(&statement.predicate, &statement.object.language).is_some();
        names && self.labels.get(&statement.subject) == Some(&statement.object.value)
    }

    pub(super) fn subject(&self, iri: &str, but: &str) -> String {
        if is_blank(iri) {
            self.written_out(iri, Some(but))
        } else {
            self.of(iri)
        }
    }

    pub(super) fn object(&self, term: &Term) -> String {
        match term.kind {
            TermType::Iri if is_blank(&term.iri) => self.written_out(&term.iri, None),
            TermType::Iri => self.of(&term.iri),
            TermType::Literal => shortened(&term.value, MAX_VALUE),
            TermType::Blank => "something without a name".to_owned(),
            TermType::Triple => match term.triple.as_deref() {
                Some(inner) => format!(
                    "that {} {} {}",
                    self.object(&inner.s),
                    self.of(&inner.p.iri),
                    self.object(&inner.o)
                ),
                None => "a statement".to_owned(),
            },
        }
    }

    /// An object inside a nameless node: one level is written out, deeper ones are named only.
    pub(super) fn value(&self, term: &Term) -> String {
        match term.kind {
            TermType::Literal => shortened(&term.value, MAX_VALUE),
            TermType::Iri | TermType::Blank | TermType::Triple => self.of(&term.iri),
        }
    }

    pub(super) fn of(&self, iri: &str) -> String {
        match self.labels.get(iri).map(String::as_str) {
            Some(label) if !label.is_empty() => label.to_owned(),
            _ if is_blank(iri) => "something without a name".to_owned(),
            _ => match local_name(iri) {
                name if name.is_empty() => iri.to_owned(),
                name => name,
            },
        }
    }

    /// A node without a name by its statements, without those of predicate `but`.
    pub(super) fn written_out(&self, iri: &str, but: Option<&str>) -> String {
        let Some(statements) = self.nameless.get(iri) else {
            return self.of(iri);
        };
        if let Some(first) = statements.iter().find(|s| s.predicate == RDF_FIRST) {
            return format!("a list that begins with {}", self.value(&first.object));
        }
        let kind = statements.iter().find(|s| s.predicate == RDF_TYPE);
        let kind = kind.map_or_else(|| "something".to_owned(), |s| self.of(&s.object.iri));
        let parts: Vec<String> = statements
            .iter()
            .filter(|s| s.predicate != RDF_TYPE && Some(s.predicate.as_str()) != but)
            .take(NAMELESS_PARTS)
            .map(|s| format!("{}: {}", self.of(&s.predicate), self.value(&s.object)))
            .collect();
        if parts.is_empty() {
            kind
        } else {
            format!("{kind} ({})", parts.join("; "))
        }
    }
}

/// Leaves out what is said again in another language.
pub(super) fn without_translations(mut statements: Vec<Statement>) -> Vec<Statement> {
    let is_foreign = |term: &Term| {
        !term.language.is_empty() && !term.language.to_ascii_lowercase().starts_with("en")
    };
    let readable: HashSet<String> = statements
        .iter()
        .filter(|s| s.object.kind == TermType::Literal && !is_foreign(&s.object))
        .map(|s| s.predicate.clone())
        .collect();
    statements.retain(|s| !is_foreign(&s.object) || !readable.contains(&s.predicate));
    statements
}

pub(super) fn nameless_nodes<'s>(
    statements: impl Iterator<Item = &'s Statement>,
) -> BTreeSet<String> {
    statements
        .flat_map(|s| [s.subject.as_str(), s.object.iri.as_str()])
        .filter(|iri| is_blank(iri))
        .map(str::to_owned)
        .take(NAMELESS)
        .collect()
}

pub(super) fn named_iris<'s>(statements: impl Iterator<Item = &'s Statement>) -> Vec<String> {
    let all: BTreeSet<&str> = statements
        .flat_map(|s| {
            [
                s.subject.as_str(),
                s.predicate.as_str(),
                s.object.iri.as_str(),
            ]
        })
        .filter(|iri| !iri.is_empty())
        .collect();
    all.into_iter().map(str::to_owned).collect()
}
