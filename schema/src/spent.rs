//! What a run has used up: tokens, money, calls. One account, under the names it has in each message
//! and record.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An amount of money in millionths of the currency that the model profiles' prices are in. Written
/// as a decimal number, so that sums are exact and two amounts are equal or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

const MILLION: f64 = 1_000_000.0;

impl Money {
    pub const fn millionths(amount: u64) -> Self {
        Self(amount)
    }

    /// The nearest amount; less than nothing, or no number, is nothing.
    pub fn of(amount: f64) -> Self {
        // Casts saturate, and what is no number becomes 0.
        Self((amount * MILLION).round() as u64)
    }

    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    pub fn as_f64(self) -> f64 {
        self.0 as f64 / MILLION
    }

    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let digits = format!("{rest:06}");
        let digits = digits.trim_end_matches('0');
        // Two digits, as money is written, and more only where there are more.
        write!(f, "{whole}.{digits:0<2}")
    }
}

impl std::str::FromStr for Money {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().parse::<f64>() {
            Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(Self::of(amount)),
            _ => Err(format!("`{text}` is no amount of money, such as `0.50`")),
        }
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_f64().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let amount = f64::deserialize(from)?;
        if amount.is_finite() && amount >= 0.0 {
            Ok(Self::of(amount))
        } else {
            let message = format!("`{amount}` is no amount of money: it must be 0 or more");
            Err(serde::de::Error::custom(message))
        }
    }
}

impl JsonSchema for Money {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "number", "minimum": 0})
    }
}

/// What was used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Input and output tokens together.
    #[serde(default)]
    pub tokens: u64,
    #[serde(default, skip_serializing_if = "Money::is_zero")]
    pub cost: Money,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_calls: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
    /// Model calls of which nobody knows what they cost: no profile has a price for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_calls: u64,
}

impl Spent {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// So many times this.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            tokens: self.tokens.saturating_mul(count),
            cost: Money(self.cost.0.saturating_mul(count)),
            model_calls: self.model_calls.saturating_mul(count),
            tool_calls: self.tool_calls.saturating_mul(count),
            unpriced_calls: self.unpriced_calls.saturating_mul(count),
        }
    }
}

impl std::ops::Add for Spent {
    type Output = Self;

    /// Saturates: what nobody can have spent is as good as any other number that large.
    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: Money(self.cost.0.saturating_add(other.cost.0)),
            model_calls: self.model_calls.saturating_add(other.model_calls),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            unpriced_calls: self.unpriced_calls.saturating_add(other.unpriced_calls),
        }
    }
}

impl std::iter::Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

/// What is known of a cost, in the currency of the model profiles' prices. Written as `cost`, which is
/// `null` where not all of it is known, and then as `cost_at_least` where some of it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_at_least: Option<f64>,
}

impl Default for Cost {
    /// Nothing, and known to be so.
    fn default() -> Self {
        Self::of(0.0, true)
    }
}

impl Cost {
    /// An amount, and whether it is all there is.
    pub fn of(amount: f64, is_whole: bool) -> Self {
        Self {
            cost: is_whole.then_some(amount),
            cost_at_least: (!is_whole && amount > 0.0).then_some(amount),
        }
    }

    /// As much of it as is known.
    pub fn known(self) -> f64 {
        self.cost.or(self.cost_at_least).unwrap_or_default()
    }

    pub fn is_whole(self) -> bool {
        self.cost.is_some()
    }

    /// Whether nothing was paid, as far as all of it is known.
    pub fn is_nothing(self) -> bool {
        self.cost == Some(0.0)
    }

    /// With another known part, as the same kind of knowledge.
    #[must_use]
    pub fn map(self, change: impl FnOnce(f64) -> f64) -> Self {
        Self::of(change(self.known()), self.is_whole())
    }

    /// For people; an amount is written by `show`.
    pub fn told(self, show: impl FnOnce(f64) -> String) -> String {
        match (self.cost, self.cost_at_least) {
            (Some(amount), _) => show(amount),
            (None, Some(amount)) => format!("at least {}", show(amount)),
            (None, None) => "unknown".to_owned(),
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let is_whole = self.is_whole() && other.is_whole();
        Self::of(self.known() + other.known(), is_whole)
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// An account under other names, for `#[serde(flatten, with = "...")]`: tokens had theirs before
/// money and calls were counted.
macro_rules! named {
    ($(#[doc = $doc:literal])+ $module:ident: $tokens:literal, $cost:literal, $model:literal, $tool:literal, $unpriced:literal, $skip:literal) => {
        $(#[doc = $doc])+
        pub mod $module {
            use super::{Money, Spent, is_zero};
            use crate::tolerant::null_default;
            use schemars::JsonSchema;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            /// As it is written.
            #[derive(Debug, Serialize, Deserialize, JsonSchema)]
            pub struct Named {
                #[serde(rename = $tokens, default, deserialize_with = "null_default", skip_serializing_if = $skip)]
                tokens: u64,
                #[serde(rename = $cost, default, deserialize_with = "null_default", skip_serializing_if = "Money::is_zero")]
                cost: Money,
                #[serde(rename = $model, default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
                model_calls: u64,
                #[serde(rename = $tool, default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
                tool_calls: u64,
                #[serde(rename = $unpriced, default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
                unpriced_calls: u64,
            }

            pub fn serialize<S: Serializer>(spent: &Spent, to: S) -> Result<S::Ok, S::Error> {
                Named {
                    tokens: spent.tokens,
                    cost: spent.cost,
                    model_calls: spent.model_calls,
                    tool_calls: spent.tool_calls,
                    unpriced_calls: spent.unpriced_calls,
                }
                .serialize(to)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Spent, D::Error> {
                let named = Named::deserialize(from)?;
                Ok(Spent {
                    tokens: named.tokens,
                    cost: named.cost,
                    model_calls: named.model_calls,
                    tool_calls: named.tool_calls,
                    unpriced_calls: named.unpriced_calls,
                })
            }
        }
    };
}

fn never<T>(_: &T) -> bool {
    false
}

named! {
    /// In what one step hands to the next.
    so_far: "tokens_spent", "cost_spent", "model_calls_spent", "tool_calls_spent", "unpriced_calls_spent", "is_zero"
}
named! {
    /// In the record of a step.
    total: "tokens_total", "cost_total", "model_calls_total", "tool_calls_total", "unpriced_calls_total", "super::never"
}
named! {
    /// In a verdict, for those that are missing.
    missing: "missing_tokens", "missing_cost", "missing_model_calls", "missing_tool_calls", "missing_unpriced_calls", "super::never"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn money_is_read_and_written_as_a_decimal() {
        for (text, millionths, shown) in [
            ("0", 0, "0.00"),
            ("0.5", 500_000, "0.50"),
            ("12", 12_000_000, "12.00"),
            ("0.000015", 15, "0.000015"),
            ("3.1400004", 3_140_000, "3.14"),
        ] {
            let money: Money = text.parse().unwrap();
            assert_eq!(
                (money.as_millionths(), &*money.to_string()),
                (millionths, shown)
            );
            let json = serde_json::to_string(&money).unwrap();
            assert_eq!(serde_json::from_str::<Money>(&json).unwrap(), money);
        }
        for text in ["-1", "much", "inf", "NaN", ""] {
            assert!(text.parse::<Money>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Money>("-0.1").is_err());
    }

    #[test]
    fn what_is_not_known_of_a_cost_is_no_amount() {
        let show = |cost: Cost| (cost.told(|n| format!("{n:.2}")), serde_json::json!(cost));
        let [known, some, unknown] =
            [(1.5, true), (0.5, false), (0.0, false)].map(|(n, w)| Cost::of(n, w));
        for (cost, told, json) in [
            (Cost::default(), "0.00", serde_json::json!({"cost": 0.0})),
            (known, "1.50", serde_json::json!({"cost": 1.5})),
            (
                some,
                "at least 0.50",
                serde_json::json!({"cost": null, "cost_at_least": 0.5}),
            ),
            (unknown, "unknown", serde_json::json!({"cost": null})),
            (
                known + unknown,
                "at least 1.50",
                serde_json::json!({"cost": null, "cost_at_least": 1.5}),
            ),
            (
                unknown + Cost::default(),
                "unknown",
                serde_json::json!({"cost": null}),
            ),
            (
                [known, some].into_iter().sum(),
                "at least 2.00",
                serde_json::json!({"cost": null, "cost_at_least": 2.0}),
            ),
        ] {
            assert_eq!(show(cost), (told.to_owned(), json));
        }
    }

    #[test]
    fn an_account_keeps_what_it_is_called_and_says_nothing_of_nothing() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct Record {
            before: u8,
            #[serde(flatten, with = "total")]
            total: Spent,
        }
        let old = r#"{"before":1,"tokens_total":7}"#;
        let mut record: Record = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), old);
        record.total.cost = Money::of(0.25);
        record.total.tool_calls = 2;
        let json = serde_json::to_string(&record).unwrap();
        assert!(json.ends_with(r#""tokens_total":7,"cost_total":0.25,"tool_calls_total":2}"#));
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }
}
