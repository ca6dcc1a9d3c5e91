//! The types of settings: how each is read from text, and shown.

use agentfleet_schema::{HIDDEN, LONGEST_MS, Money, redacted};
use std::path::PathBuf;
use std::time::Duration;

/// A type a setting can have: read from text, so that all three sources read alike.
pub trait Value: Sized {
    /// What would be right, for error messages.
    const EXPECTED: &'static str;
    fn read(text: &str) -> Option<Self>;
    /// As [`Value::read`] takes it.
    fn show(&self) -> String;
}

impl Value for String {
    const EXPECTED: &'static str = "text";
    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path";
    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| PathBuf::from(text))
    }
    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "`yes` or `no`";
    fn read(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        }
    }
    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

macro_rules! whole_number {
    ($($number:ty),+) => {$(
        impl Value for $number {
            const EXPECTED: &'static str = "a whole number";
            fn read(text: &str) -> Option<Self> {
                text.trim().replace('_', "").parse().ok()
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}
whole_number!(u32, u64, usize);

impl Value for Money {
    const EXPECTED: &'static str = "an amount of money such as `0.50`";
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    const EXPECTED: &'static str =
        "a time such as `500ms`, `30s`, `5m` or `1h 30m`, of at most 36500 days";
    fn read(text: &str) -> Option<Self> {
        let time = humantime::parse_duration(text.trim()).ok()?;
        (time <= Self::from_millis(LONGEST_MS)).then_some(time)
    }
    fn show(&self) -> String {
        // Months and years are of no round number of days.
        const DAY: u64 = 86_400;
        let days = self.as_secs() / DAY;
        if days > 0 && *self == Self::from_secs(days * DAY) {
            return format!("{days}d");
        }
        humantime::format_duration(*self)
            .to_string()
            .replace(' ', "")
    }
}

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    fn read(text: &str) -> Option<Self> {
        if text.is_empty() || text == "never" {
            Some(None)
        } else {
            T::read(text).map(Some)
        }
    }
    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

/// Where a part of the fleet's state lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the data directory.
    Embedded,
    /// On the server at this address.
    At(String),
}

/// The value of a setting without credentials. No address of a server has an `@` but behind them, and in one
/// that cannot be read they may stand anywhere before it.
pub(super) fn masked(text: &str) -> String {
    if text.to_lowercase().contains("password=") {
        return HIDDEN.to_owned();
    }
    let shown = redacted(text);
    match shown.rsplit_once('@') {
        Some((before, host)) if before.contains(':') && !before.ends_with("://***") => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            let after = if scheme.is_empty() { "" } else { "://" };
            format!("{scheme}{after}{HIDDEN}@{host}")
        }
        _ => shown.into_owned(),
    }
}

/// For people: without credentials.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::At(address) => f.write_str(&masked(address)),
        }
    }
}

impl Value for Place {
    const EXPECTED: &'static str = "`embedded`, or an address such as `pulsar://HOST:6650`, `http://HOST:3030/ds` or `postgres://USER:PASSWORD@HOST/DATABASE`";
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "embedded" {
            return Some(Self::Embedded);
        }
        let (scheme, rest) = text.split_once("://")?;
        (!scheme.is_empty() && !rest.is_empty()).then(|| Self::At(text.to_owned()))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Value for Secret {
    const EXPECTED: &'static str = "text";
    fn read(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
    fn show(&self) -> String {
        "(hidden)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn credentials_are_hidden_also_where_an_address_cannot_be_read() {
        for (text, shown) in [
            ("postgres://fleet:s3k@h/x", "postgres://***@h/x"),
            ("postgres:/fleet:s3k@h/x", "***@h/x"),
            ("http:/user:s3k@h/ds", "***@h/ds"),
            ("http://user:s3k/ret@h/ds", "http://***@h/ds"),
            ("host=h password=s3k", "***"),
            ("pulsar://h:6650", "pulsar://h:6650"),
            ("embeded", "embeded"),
            ("s3://bucket/fleet", "s3://bucket/fleet"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
