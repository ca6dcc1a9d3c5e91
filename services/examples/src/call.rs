//! One call of an endpoint: what it was given, checked, and the data it may see.

use crate::data::{self, Rows};
use crate::day;
use chrono::{Local, NaiveDate};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

/// Longest text that an argument may be, in bytes.
const LONGEST: usize = 20_000;
/// Most items of a list.
const MOST_LISTED: usize = 50;

/// One thing that a service does.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The arguments it takes, beside those in its path.
    pub(crate) takes: &'static [&'static str],
    pub(crate) act: fn(&Call<'_>) -> Answer,
}

pub(crate) type Answer = Result<Value, Refusal>;

/// Why a call came to nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A value that was given cannot be: which one, and what is wrong with it.
    Bad(&'static str, String),
    /// What the call names is not there.
    Missing(String),
    /// It is there, and is not in a state for this.
    Conflict(String),
    Broken(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error)
    }
}

impl Refusal {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Bad(..) => 400,
            Self::Missing(_) => 404,
            Self::Conflict(_) => 409,
            Self::Broken(_) => 500,
        }
    }

    pub(crate) fn body(&self) -> Value {
        match self {
            Self::Bad(field, says) => json!({"error": format!("`{field}` {says}"), "field": field}),
            Self::Missing(says) | Self::Conflict(says) => json!({"error": says}),
            Self::Broken(_) => json!({"error": "the database of the example cannot be used"}),
        }
    }
}

/// A call, within its transaction.
pub(crate) struct Call<'c> {
    pub(crate) data: &'c Connection,
    /// Whose data it sees; empty for the owner of the fleet.
    pub(crate) tenant: &'c str,
    pub(crate) given: Map<String, Value>,
}

impl Call<'_> {
    /// Runs a statement with named values; `:tenant` is always there.
    pub(crate) fn rows(&self, sql: &str, values: Value) -> Result<Rows, Refusal> {
        Ok(data::rows(self.data, sql, self.tenant, &values)?)
    }

    /// The first row, if there is one.
    pub(crate) fn row(&self, sql: &str, values: Value) -> Result<Option<Value>, Refusal> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// The one row that an id names; ids begin with what they are of.
    pub(crate) fn found(&self, what: &str, sql: &str, id: &str) -> Answer {
        let row = self.row(sql, json!({"id": number_of(what, id)}))?;
        row.ok_or_else(|| Refusal::Missing(format!("there is no {what} `{id}`")))
    }

    /// A text that must be there.
    pub(crate) fn text(&self, name: &'static str) -> Result<String, Refusal> {
        let given = self.maybe(name)?;
        given.ok_or_else(|| Refusal::Bad(name, "is needed, and is missing".to_owned()))
    }

    /// A text that may be left out.
    pub(crate) fn maybe(&self, name: &'static str) -> Result<Option<String>, Refusal> {
        let text = match self.given.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(Refusal::Bad(name, "must be a text".to_owned())),
        };
        if text.len() > LONGEST {
            let says = format!("must be at most {LONGEST} bytes");
            return Err(Refusal::Bad(name, says));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// One of a list, if it is given.
    pub(crate) fn one_of(
        &self,
        name: &'static str,
        known: &[&str],
    ) -> Result<Option<String>, Refusal> {
        let given = self.maybe(name)?;
        match given {
            Some(text) if !known.contains(&text.as_str()) => {
                let says = format!("must be one of {}, not `{text}`", known.join(", "));
                Err(Refusal::Bad(name, says))
            }
            other => Ok(other),
        }
    }

    /// A number within bounds, if it is given.
    pub(crate) fn number(
        &self,
        name: &'static str,
        least: f64,
        most: f64,
    ) -> Result<Option<f64>, Refusal> {
        let number = match self.given.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let says = format!("must be a number from {least} to {most}");
                Err(Refusal::Bad(name, says))
            }
        }
    }

    /// How many rows, and after how many.
    pub(crate) fn page(&self, usual: u32) -> Result<(u32, u32), Refusal> {
        let limit = self.number("limit", 1.0, 50.0)?;
        let offset = self.number("offset", 0.0, 1_000_000.0)?.unwrap_or_default();
        Ok((limit.map_or(usual, |n| n as u32), offset as u32))
    }

    /// A list of texts, if it is given.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<Vec<String>>, Refusal> {
        let wrong = || {
            Refusal::Bad(
                name,
                format!("must be a list of at most {MOST_LISTED} texts"),
            )
        };
        let items = match self.given.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(items)) if items.len() <= MOST_LISTED => items,
            Some(_) => return Err(wrong()),
        };
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        texts
            .collect::<Option<Vec<_>>>()
            .map(Some)
            .ok_or_else(wrong)
    }

    /// A day, if one is given.
    pub(crate) fn day(&self, name: &'static str) -> Result<Option<NaiveDate>, Refusal> {
        let Some(text) = self.maybe(name)? else {
            return Ok(None);
        };
        let day = day::read(&text, day::today());
        let says = || format!("must be a day such as 2026-03-15, not `{text}`");
        day.map(Some).ok_or_else(|| Refusal::Bad(name, says()))
    }

    /// A moment that is still to come, as it is kept: `2026-03-15T09:00`.
    pub(crate) fn moment(&self, name: &'static str) -> Result<Option<String>, Refusal> {
        let Some(text) = self.maybe(name)? else {
            return Ok(None);
        };
        let Some(moment) = day::moment(&text, day::today()) else {
            let says = format!("must be a moment such as 2026-03-15T09:00, not `{text}`");
            return Err(Refusal::Bad(name, says));
        };
        if moment <= Local::now().naive_local() {
            let says = format!("must be in the future, and `{text}` is not");
            return Err(Refusal::Bad(name, says));
        }
        Ok(Some(moment.format("%Y-%m-%dT%H:%M").to_string()))
    }
}

/// The number in the id of a thing, such as `post-7` of a post; no row has 0. An id of something else is none.
pub(crate) fn number_of(what: &str, id: &str) -> i64 {
    let own = id
        .strip_prefix(what)
        .and_then(|rest| rest.strip_prefix('-'));
    own.unwrap_or(id).parse().unwrap_or_default()
}
