//! Chooses a task type, and a pattern, from what is on offer.
//!
//! Nothing here knows an option by name, except `general`, the spec's name for "none of the others".
//! A pattern is chosen by what its own description promises and by what can be counted in the task.

use super::dimensions;
use super::inputs::{Choosable, options, text};
use super::rank::{self, Ranked, quoted};
use super::terms::{stem, terms, words};
use serde_json::{Value, json};

const FALLBACK: &str = "general";
/// A question of at most this many words is short.
const SHORT: usize = 12;
/// A question of at least this many words is long.
const LONG: usize = 40;

/// The task type whose description shares most with the question.
pub(super) fn task_type(inputs: &Value) -> Value {
    let options = options(inputs, "task_types");
    let ranked = rank::score(text(inputs, "question"), &options);
    if let Some(best) = rank::best(&ranked).filter(|best| best.is_telling) {
        let signal = format!(
            "shares {} with the option's own words",
            quoted(&best.matched, 5)
        );
        return choice(&options, best, &signal, &compared(&ranked, &options));
    }
    let at = options
        .iter()
        .position(|o| o.name == FALLBACK)
        .unwrap_or_default();
    let none = Ranked {
        at,
        score: 0.0,
        matched: Vec::new(),
        is_telling: false,
    };
    let signal = "the question shares no telling word with any option";
    choice(
        &options,
        &none,
        signal,
        "No option matched, so the most general one is taken.",
    )
}

/// The pattern that suits what can be counted in the task.
pub(super) fn pattern(inputs: &Value) -> Value {
    let options = options(inputs, "patterns");
    let (question, framing) = (text(inputs, "question"), text(inputs, "framing"));
    let mut ranked = rank::score(&format!("{question}\n{framing}"), &options);
    let signals = signals(question, framing);
    let mut reasons: Vec<Vec<String>> = vec![Vec::new(); options.len()];
    for (ranked, reasons) in ranked.iter_mut().zip(&mut reasons) {
        if !ranked.matched.is_empty() {
            reasons.push(format!(
                "it shares {} with the task",
                quoted(&ranked.matched, 5)
            ));
        }
        for signal in &signals {
            let promised = signal.promised_by(&options[ranked.at]);
            if !promised.is_empty() {
                // A second promise adds half of what the first added, and so on.
                ranked.score += signal.weight * (1.0 - 0.5_f64.powi(promised.len() as i32));
                reasons.push(format!(
                    "{}, and it offers {}",
                    signal.seen,
                    quoted(&promised, 3)
                ));
            }
        }
    }
    let none = Ranked {
        at: 0,
        score: 0.0,
        matched: Vec::new(),
        is_telling: false,
    };
    let best = rank::best(&ranked).unwrap_or(&none);
    let reasons = reasons
        .get(best.at)
        .map(|r| r.join("; "))
        .unwrap_or_default();
    let signal = match (reasons.is_empty(), signals.is_empty()) {
        (false, _) => reasons,
        (true, false) => signals
            .iter()
            .map(|s| s.seen.clone())
            .collect::<Vec<_>>()
            .join("; "),
        (true, true) => "nothing in the task speaks for any option".to_owned(),
    };
    choice(&options, best, &signal, &compared(&ranked, &options))
}

fn choice(options: &[Choosable], best: &Ranked, signal: &str, compared: &str) -> Value {
    let name = options.get(best.at).map_or(FALLBACK, |o| o.name.as_str());
    json!({
        "choice": name,
        "signal": signal,
        "rationale": format!("{compared} Chosen by counting, without a language model."),
    })
}

fn compared(ranked: &[Ranked], options: &[Choosable]) -> String {
    let mut sorted: Vec<&Ranked> = ranked.iter().collect();
    sorted.sort_by(|a, b| b.score.total_cmp(&a.score));
    let scores: Vec<String> = sorted
        .iter()
        .filter_map(|r| Some(format!("`{}` {:.1}", options.get(r.at)?.name, r.score)))
        .collect();
    format!(
        "Scores by shared words and countable signals: {}.",
        scores.join(", ")
    )
}

/// Something that can be counted in a task, and what an option that suits it promises.
struct Signal {
    seen: String,
    weight: f64,
    promises: &'static [&'static str],
}

/// Words of descriptions that promise work on several parts at once.
const BREADTH: &[&str] = &[
    "parallel",
    "decompose",
    "decomposition",
    "independent",
    "dimensions",
    "subagents",
    "multiple",
    "several",
    "fan",
    "delegates",
    "concurrent",
    "aspects",
    "perspectives",
    "orchestrates",
    "specialists",
    "synthesis",
    "divide",
];
/// Words that promise steps in a set order.
const ORDER: &[&str] = &[
    "plan",
    "steps",
    "ordered",
    "sequence",
    "dependencies",
    "stages",
    "predictable",
    "procedure",
    "phases",
];
/// Words that promise a short way.
const DIRECT: &[&str] = &[
    "simple",
    "quick",
    "fast",
    "direct",
    "single",
    "adaptive",
    "open",
    "short",
    "lookup",
    "straightforward",
    "interleaved",
    "general",
];

impl Signal {
    /// Words of the option that promise to suit this signal, each once.
    fn promised_by(&self, option: &Choosable) -> Vec<String> {
        let wanted: Vec<String> = self.promises.iter().map(|word| stem(word)).collect();
        let mut found: Vec<(String, String)> = Vec::new();
        for field in [&option.when_to_use, &option.description, &option.name] {
            for term in terms(field) {
                let known = found.iter().any(|(stem, _)| *stem == term.stem);
                if !known && wanted.contains(&term.stem) {
                    found.push((term.stem, term.word.to_lowercase()));
                }
            }
        }
        found.into_iter().map(|(_, word)| word).collect()
    }
}

fn signals(question: &str, framing: &str) -> Vec<Signal> {
    let mut signals = Vec::new();
    let parts = dimensions::find(question, framing);
    let count = parts.as_ref().map_or(0, |p| p.items.len());
    if let Some(parts) = parts {
        signals.push(Signal {
            seen: format!(
                "the {} names {count} parts ({})",
                parts.origin.as_str(),
                parts.items.join(", ")
            ),
            weight: count.min(6) as f64 * 1.5,
            promises: BREADTH,
        });
    }
    let ordering = ordering_words(question);
    if ordering.len() > 1 {
        signals.push(Signal {
            seen: format!("the question sets an order ({})", quoted(&ordering, 4)),
            weight: 2.0 * ordering.len().min(4) as f64,
            promises: ORDER,
        });
    }
    let length = words(question).count();
    if length >= LONG {
        signals.push(Signal {
            seen: format!("the question is long ({length} words)"),
            weight: 1.5,
            promises: ORDER,
        });
    }
    let urgent = urgency_words(question);
    if !urgent.is_empty() {
        signals.push(Signal {
            seen: format!("the question is urgent ({})", quoted(&urgent, 3)),
            weight: 3.0,
            promises: DIRECT,
        });
    }
    if count < 2 && length <= SHORT {
        signals.push(Signal {
            seen: format!("the question is short ({length} words) and names no parts"),
            weight: 2.0,
            promises: DIRECT,
        });
    }
    signals
}

fn ordering_words(question: &str) -> Vec<String> {
    listed(
        question,
        &[
            "first",
            "then",
            "afterwards",
            "next",
            "finally",
            "lastly",
            "step",
            "steps",
            "stages",
        ],
    )
}

fn urgency_words(question: &str) -> Vec<String> {
    listed(
        question,
        &[
            "urgent",
            "urgently",
            "asap",
            "quickly",
            "quick",
            "immediately",
            "immediate",
            "briefly",
            "hurry",
        ],
    )
}

fn listed(question: &str, wanted: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in words(question).map(str::to_lowercase) {
        if wanted.contains(&word.as_str()) && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}
