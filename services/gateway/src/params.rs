//! Parameters of a URL: read once, unknown ones refused, each error naming its parameter.

use crate::intake::meant;
use crate::problem::Problem;
use std::str::FromStr;

/// How many a page of a list has where nobody says.
const DEFAULT_LIMIT: usize = 20;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
}

impl Params {
    /// Reads a query string, refusing parameters that are not in `known`.
    pub(crate) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let params = Self::of(query.unwrap_or_default().as_bytes());
        for (name, _) in &params.pairs {
            if !known.contains(&name.as_str()) {
                let known = known.iter().copied();
                return Err(Problem::parameter(name, meant("parameter", name, known)));
            }
        }
        Ok(params)
    }

    /// Reads `application/x-www-form-urlencoded` text.
    pub(crate) fn of(encoded: &[u8]) -> Self {
        Self {
            pairs: form_urlencoded::parse(encoded).into_owned().collect(),
        }
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.pairs.extend(others.pairs);
    }

    pub(crate) fn all<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.pairs
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The one value of a parameter; an empty one counts as absent.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(Problem::parameter(name, "given more than once"));
        }
        Ok(value.filter(|value| !value.is_empty()))
    }

    /// How many a page of a list has, `most` at the highest.
    pub(crate) fn limit(&self, most: usize) -> Result<usize, Problem> {
        let limit = self.number("limit", "a whole number")?;
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if (1..=most).contains(&limit) {
            Ok(limit)
        } else {
            Err(Problem::parameter("limit", format!("from 1 to {most}")))
        }
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        self.one(name)?
            .map(|text| {
                text.parse()
                    .map_err(|_| Problem::parameter(name, format!("`{text}` is not {what}")))
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parameters_are_decoded_and_wrong_ones_are_named() {
        let params = Params::read(
            Some("uri=urn%3Aa+b&limit=7&after="),
            &["uri", "limit", "after"],
        );
        let params = params.unwrap();
        assert_eq!(params.one("uri").unwrap(), Some("urn:a b"));
        assert_eq!(params.number::<u32>("limit", "a number").unwrap(), Some(7));
        assert_eq!(params.one("after").unwrap(), None);

        let table = [
            ("a=1&a=2", "parameter `a`: given more than once"),
            ("a=x", "parameter `a`: `x` is not a number"),
            ("b=1", "parameter `b`: unknown parameter (known here: `a`)"),
        ];
        for (query, message) in table {
            let read = Params::read(Some(query), &["a"]);
            let problem = read
                .and_then(|p| p.number::<u32>("a", "a number"))
                .unwrap_err();
            assert_eq!(problem.message, message);
        }
    }
}
