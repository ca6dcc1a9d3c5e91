//! Adding up what steps spent: pure, so that a table can show that no way of grouping loses or
//! doubles anything.

use crate::cli::CostBy;
use agentfleet_schema::Money;
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
    /// In billionths of the currency's unit.
    pub cost: u64,
    /// Attempts before the one that was committed.
    pub wasted: u64,
    /// What they spent, as far as somebody pays for it.
    pub wasted_tokens: u64,
    /// In billionths of the currency's unit.
    pub wasted_cost: u64,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.tokens_in += other.tokens_in;
        self.tokens_out += other.tokens_out;
        self.model_calls += other.model_calls;
        self.tool_calls += other.tool_calls;
        self.model_ms += other.model_ms;
        self.tool_ms += other.tool_ms;
        self.cost += other.cost;
        self.wasted += other.wasted;
        self.wasted_tokens += other.wasted_tokens;
        self.wasted_cost += other.wasted_cost;
    }
}

/// One row of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// What it is of; several words where one would not say it.
    pub key: Vec<String>,
    pub spent: Spent,
}

/// The account by a criterion, the dearest first, and its total.
pub(crate) fn account(steps: &[StepSpend], by: CostBy) -> (Vec<Group>, Spent) {
    let mut groups: BTreeMap<Vec<String>, (u32, Spent)> = BTreeMap::new();
    let mut total = Spent::default();
    for step in steps {
        let group = groups.entry(key(step, by)).or_default();
        group.0 = step.step;
        group.1.add(step.spent);
        total.add(step.spent);
    }
    let mut groups: Vec<(u32, Group)> = groups
        .into_iter()
        .map(|(key, (step, spent))| (step, Group { key, spent }))
        .collect();
    if by == CostBy::Step {
        // As they were done.
        groups.sort_by(|(a_step, a), (b_step, b)| (&a.key[0], a_step).cmp(&(&b.key[0], b_step)));
    } else {
        groups.sort_by_key(|(_, group)| {
            let spent = group.spent;
            std::cmp::Reverse((spent.cost, spent.tokens_in + spent.tokens_out))
        });
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
    number(whole) * PARTS + number(&part)
}

/// An amount for people, without zeros that say nothing.
pub(crate) fn money(amount: u64) -> String {
    let part = format!("{:09}", amount % PARTS);
    let kept = part.trim_end_matches('0').len().max(2);
    format!("{}.{}", amount / PARTS, &part[..kept])
}

/// An amount for programs: a number, to the nearest millionth.
pub(crate) fn number(amount: u64) -> f64 {
    Money::millionths((amount + 500) / 1_000).as_f64()
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
    cost: f64,
    wasted: Wasted,
}

/// What went before the attempts that were committed.
#[derive(Debug, Serialize)]
struct Wasted {
    attempts: u64,
    tokens: u64,
    cost: f64,
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
            cost: number(spent.cost),
            wasted: Wasted {
                attempts: spent.wasted,
                tokens: spent.wasted_tokens,
                cost: number(spent.wasted_cost),
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
            let (found, total) = account(&steps, by);
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
