//! Adding up what steps spent: pure, so that a table can show that no way of grouping loses or
//! doubles anything.

use crate::cli::CostBy;
use agentfleet_console::text;
use agentfleet_schema::{Cost, Money};
use serde::Serialize;
use std::collections::BTreeMap;

/// Parts of the currency's unit that sums are counted in: prices are told with nine digits.
const PARTS: u64 = 1_000_000_000;

/// What one committed step spent, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepSpend {
    pub session: String,
    pub step: u32,
    /// The session the tree began with.
    pub root: String,
    pub conversation: String,
    /// The session's own, or the root's where it has none.
    pub task_type: String,
    /// The pattern the session began with.
    pub pattern: String,
    /// What the session was asked.
    pub question: String,
    /// When the session began, and its place among its siblings.
    pub began: (String, u64),
    /// The models that replied.
    pub models: Vec<String>,
    pub spent: Spent,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub steps: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub model_calls: u64,
    pub tool_calls: u64,
    pub model_ms: u64,
    pub tool_ms: u64,
    /// In billionths of the currency's unit, of the steps whose cost is known.
    pub cost: u64,
    /// Steps with calls that have no price.
    pub unpriced: u64,
    /// Attempts before the one that was committed.
    pub wasted: u64,
    /// What they spent, as far as somebody pays for it.
    pub wasted_tokens: u64,
    /// In billionths of the currency's unit.
    pub wasted_cost: u64,
}

impl Spent {
    /// What is known of the cost, to the nearest millionth.
    fn known_cost(self) -> Cost {
        Cost::of(number(self.cost), self.unpriced == 0)
    }

    /// The cost for people, without a loss.
    pub(crate) fn told_cost(self) -> String {
        self.known_cost().told(|_| money(self.cost))
    }

    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.tokens_in += other.tokens_in;
        self.tokens_out += other.tokens_out;
        self.model_calls += other.model_calls;
        self.tool_calls += other.tool_calls;
        self.model_ms += other.model_ms;
        self.tool_ms += other.tool_ms;
        self.cost = self.cost.saturating_add(other.cost);
        self.unpriced += other.unpriced;
        self.wasted += other.wasted;
        self.wasted_tokens += other.wasted_tokens;
        self.wasted_cost = self.wasted_cost.saturating_add(other.wasted_cost);
    }
}

/// One row of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// What it is of; several words where one would not say it.
    pub key: Vec<String>,
    /// What its session was asked, where it is of one.
    pub question: String,
    pub spent: Spent,
}

/// The account by a criterion, and its total. The dearest come first; sessions of one `tree` and steps
/// come as they were worked, a root before its subagents.
pub(crate) fn account(steps: &[StepSpend], by: CostBy, tree: bool) -> (Vec<Group>, Spent) {
    type Place<'a> = (&'a (String, u64), &'a str, u32);
    let mut groups: BTreeMap<Vec<String>, (Place<'_>, Group)> = BTreeMap::new();
    let mut total = Spent::default();
    for step in steps {
        let key = key(step, by);
        let (_, group) = groups.entry(key.clone()).or_insert_with(|| {
            let question = match by {
                CostBy::Agent => step.question.clone(),
                _ => String::new(),
            };
            let spent = Spent::default();
            let group = Group {
                key,
                question,
                spent,
            };
            ((&step.began, &step.session, step.step), group)
        });
        group.spent.add(step.spent);
        total.add(step.spent);
    }
    let mut groups: Vec<(Place<'_>, Group)> = groups.into_values().collect();
    match by {
        CostBy::Agent | CostBy::Step if tree => groups.sort_by_key(|(place, _)| *place),
        CostBy::Step => groups.sort_by_key(|((_, session, step), _)| (*session, *step)),
        _ => groups.sort_by_key(|(_, group)| {
            let spent = group.spent;
            std::cmp::Reverse((spent.cost, spent.tokens_in + spent.tokens_out))
        }),
    }
    (groups.into_iter().map(|(_, group)| group).collect(), total)
}

/// The headers of what [`account`] groups by.
pub(crate) fn headers(by: CostBy) -> &'static [&'static str] {
    match by {
        CostBy::Step => &["SESSION", "STEP"],
        CostBy::Agent => &["SESSION"],
        CostBy::Tree => &["TREE"],
        CostBy::Conversation => &["CONVERSATION"],
        CostBy::TaskType => &["TASK TYPE"],
        CostBy::Pattern => &["PATTERN"],
        CostBy::Model => &["MODEL"],
    }
}

fn key(step: &StepSpend, by: CostBy) -> Vec<String> {
    let or_none = |text: &str| {
        if text.is_empty() {
            "(none)".to_owned()
        } else {
            text.to_owned()
        }
    };
    match by {
        CostBy::Step => vec![step.session.clone(), step.step.to_string()],
        CostBy::Agent => vec![step.session.clone()],
        CostBy::Tree => vec![step.root.clone()],
        CostBy::Conversation => vec![or_none(&step.conversation)],
        CostBy::TaskType => vec![or_none(&step.task_type)],
        CostBy::Pattern => vec![or_none(&step.pattern)],
        // A step of several models is theirs together: what each of them took is not told apart.
        CostBy::Model => vec![or_none(&step.models.join(" + "))],
    }
}

/// An amount as the graph tells it, in billionths.
pub(crate) fn amount(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    number(whole)
        .saturating_mul(PARTS)
        .saturating_add(number(&part))
}

/// An amount for people, without zeros that say nothing.
pub(crate) fn money(amount: u64) -> String {
    text::amount_of(&format!("{}.{:09}", amount / PARTS, amount % PARTS))
}

/// An amount for programs: a number, to the nearest millionth.
pub(crate) fn number(amount: u64) -> f64 {
    Money::millionths(amount.saturating_add(500) / 1_000).as_f64()
}

/// A row as JSON: the words of the key first.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    key: BTreeMap<String, String>,
    steps: u64,
    tokens_in: u64,
    tokens_out: u64,
    model_calls: u64,
    tool_calls: u64,
    model_seconds: f64,
    tool_seconds: f64,
    #[serde(flatten)]
    cost: Cost,
    wasted: Wasted,
}

/// What went before the attempts that were committed.
#[derive(Debug, Serialize)]
struct Wasted {
    attempts: u64,
    tokens: u64,
    /// `None` where there is no price for the tokens.
    cost: Option<f64>,
}

impl Row {
    pub(crate) fn of(spent: Spent, key: BTreeMap<String, String>) -> Self {
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        Self {
            key,
            steps: spent.steps,
            tokens_in: spent.tokens_in,
            tokens_out: spent.tokens_out,
            model_calls: spent.model_calls,
            tool_calls: spent.tool_calls,
            model_seconds: seconds(spent.model_ms),
            tool_seconds: seconds(spent.tool_ms),
            cost: spent.known_cost(),
            wasted: Wasted {
                attempts: spent.wasted,
                tokens: spent.wasted_tokens,
                cost: (spent.wasted_cost > 0 || spent.wasted_tokens == 0)
                    .then(|| number(spent.wasted_cost)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u32) -> StepSpend {
        let word = |kind: &str, of: u32| {
            let n = n % of;
            if n == 0 {
                String::new()
            } else {
                format!("{kind}{n}")
            }
        };
        StepSpend {
            session: format!("s{}", n % 5),
            step: n / 5,
            root: format!("r{}", n % 2),
            conversation: word("c", 3),
            task_type: word("t", 4),
            pattern: word("p", 3),
            question: format!("question {}", n % 5),
            began: (format!("2026-11-2{}", 4 - n % 5), 0),
            models: match n % 4 {
                0 => vec![],
                1 => vec!["a".into()],
                2 => vec!["b".into()],
                _ => vec!["a".into(), "b".into()],
            },
            spent: Spent {
                steps: 1,
                tokens_in: u64::from(n) * 7,
                tokens_out: u64::from(n) * 3,
                model_calls: u64::from(n % 3),
                tool_calls: u64::from(n % 2),
                model_ms: u64::from(n) * 11,
                tool_ms: u64::from(n) * 13,
                cost: u64::from(n) * 100_000_001,
                unpriced: u64::from(n % 3),
                wasted: u64::from(n % 4),
                wasted_tokens: u64::from(n % 4) * 5,
                wasted_cost: u64::from(n % 4) * 17,
            },
        }
    }

    #[test]
    fn however_it_is_grouped_the_sum_is_the_same() {
        let steps: Vec<StepSpend> = (0..100).map(step).collect();
        for (by, groups) in [
            (CostBy::Step, 100),
            (CostBy::Agent, 5),
            (CostBy::Tree, 2),
            (CostBy::Conversation, 3),
            (CostBy::TaskType, 4),
            (CostBy::Pattern, 3),
            (CostBy::Model, 4),
        ] {
            let (found, total) = account(&steps, by, false);
            assert_eq!(found.len(), groups, "{by:?}");
            let mut sum = Spent::default();
            for group in &found {
                assert_eq!(group.key.len(), headers(by).len());
                sum.add(group.spent);
            }
            assert_eq!(sum, total, "{by:?}");
            assert_eq!(total.steps, 100);
            assert_eq!(total.cost, 4_950 * 100_000_001);
        }
    }

    #[test]
    fn the_sessions_of_a_run_come_as_they_began_with_what_they_were_asked() {
        let steps: Vec<StepSpend> = (0..100).map(step).collect();
        let (groups, _) = account(&steps, CostBy::Agent, true);
        let asked: Vec<&str> = groups.iter().map(|group| &*group.question).collect();
        let expected = [4, 3, 2, 1, 0].map(|n| format!("question {n}"));
        assert_eq!(asked, expected);
        let (groups, _) = account(&steps, CostBy::Step, true);
        let keys: Vec<String> = groups.iter().map(|group| group.key.join(" ")).collect();
        assert_eq!(keys[..3], ["s4 0", "s4 1", "s4 2"]);
    }

    #[test]
    fn what_has_no_price_is_told_as_not_known() {
        for (cost, unpriced, told, json) in [
            (0, 0, "0.00", r#""cost":0.0"#),
            (25_000_000, 0, "0.025", r#""cost":0.025"#),
            (
                25_000_000,
                1,
                "at least 0.025",
                r#""cost":null,"cost_at_least":0.025"#,
            ),
            (0, 2, "unknown", r#""cost":null"#),
        ] {
            let spent = Spent {
                cost,
                unpriced,
                ..Spent::default()
            };
            assert_eq!(spent.told_cost(), told);
            let row = serde_json::to_string(&Row::of(spent, BTreeMap::new())).unwrap_or_default();
            assert!(row.contains(json), "{row}");
        }
    }

    #[test]
    fn amounts_are_read_and_written_without_a_loss() {
        for (text, parts, shown) in [
            ("0", 0, "0.00"),
            ("0.000000001", 1, "0.000000001"),
            ("12.5", 12_500_000_000, "12.50"),
            ("3.000000000", 3_000_000_000, "3.00"),
            ("0.1234567891", 123_456_789, "0.123456789"),
        ] {
            assert_eq!(amount(text), parts, "{text}");
            assert_eq!(money(parts), shown, "{text}");
        }
    }

    #[test]
    fn programs_are_told_amounts_to_the_nearest_millionth() {
        for (parts, told) in [
            (0, "0.0"),
            (18_000_000, "0.018"),
            (123_456_789, "0.123457"),
            (499, "0.0"),
        ] {
            let told_as = serde_json::json!(number(parts)).to_string();
            assert_eq!(told_as, told);
        }
    }
}
