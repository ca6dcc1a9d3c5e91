//! Literals as values: whether their text is of their datatype, and how numbers compare.

use crate::terms::XSD;
use oxigraph::model::{Literal, LiteralRef, TermRef};
use oxsdatatypes::{DateTime, Decimal, Double};
use std::cmp::Ordering;
use std::str::FromStr;

/// The datatypes that shapes may ask for: for these it is known which texts are values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    String,
    Boolean,
    Integer,
    Decimal,
    Double,
    DateTime,
}

impl Datatype {
    const ALL: [Self; 6] = [
        Self::String,
        Self::Boolean,
        Self::Integer,
        Self::Decimal,
        Self::Double,
        Self::DateTime,
    ];

    /// The local name in the name space of XML Schema.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Double => "double",
            Self::DateTime => "dateTime",
        }
    }

    pub(crate) fn of(iri: &str) -> Option<Self> {
        let name = iri.strip_prefix(XSD)?;
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Whether a term is a literal of this datatype, and its text is one of the datatype's.
    pub(crate) fn has(self, term: TermRef<'_>) -> bool {
        let TermRef::Literal(literal) = term else {
            return false;
        };
        Self::of(literal.datatype().as_str()) == Some(self) && self.is_well_formed(literal.value())
    }

    fn is_well_formed(self, text: &str) -> bool {
        match self {
            Self::String => true,
            Self::Boolean => matches!(text, "true" | "false" | "1" | "0"),
            Self::Integer => is_digits(unsigned(text)),
            Self::Decimal => {
                // As long as one likes, so this is no question for a type of some size.
                let text = unsigned(text);
                let (whole, part) = text.split_once('.').unwrap_or((text, ""));
                [whole, part]
                    .iter()
                    .all(|it| it.is_empty() || is_digits(it))
                    && !(whole.is_empty() && part.is_empty())
            }
            Self::Double => Double::from_str(text).is_ok(),
            Self::DateTime => DateTime::from_str(text).is_ok(),
        }
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// How the number of a term stands to a limit; none where the term is no number.
pub(crate) fn compare(term: TermRef<'_>, limit: &Literal) -> Option<Ordering> {
    let TermRef::Literal(literal) = term else {
        return None;
    };
    let (value, limit) = (numeral(literal)?, numeral(limit.as_ref())?);
    match (Decimal::from_str(value), Decimal::from_str(limit)) {
        (Ok(value), Ok(limit)) => Some(value.cmp(&limit)),
        // Too large for exact arithmetic, or with an exponent.
        _ => {
            let (value, limit) = (Double::from_str(value).ok()?, Double::from_str(limit).ok()?);
            value.partial_cmp(&limit)
        }
    }
}

/// The text of a literal that is a number.
pub(crate) fn numeral(literal: LiteralRef<'_>) -> Option<&str> {
    let text = literal.value();
    let datatype = literal.datatype();
    let datatype = match datatype.as_str().strip_prefix(XSD)? {
        "float" => Datatype::Double,
        _ => Datatype::of(datatype.as_str())?,
    };
    match datatype {
        Datatype::Integer | Datatype::Decimal | Datatype::Double => {
            datatype.is_well_formed(text).then_some(literal.value())
        }
        Datatype::String | Datatype::Boolean | Datatype::DateTime => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigraph::model::NamedNode;

    #[test]
    fn texts_are_of_their_datatype_or_not() {
        let table: [(Datatype, &[&str], &[&str]); 6] = [
            (Datatype::String, &["", "x"], &[]),
            (Datatype::Boolean, &["true", "0"], &["yes", "TRUE", ""]),
            (
                Datatype::Integer,
                &["0", "-7", "+7", "007", "99999999999999999999999"],
                &["", "-", "1.0", "some", "1e3"],
            ),
            (
                Datatype::Decimal,
                &["0", "-0.5", ".5", "5.", "+1.25"],
                &["", ".", "-", "1e3", "1.2.3", "some"],
            ),
            (Datatype::Double, &["1e3", "INF", "-0.5"], &["some", ""]),
            (
                Datatype::DateTime,
                &["2026-11-21T10:00:00Z", "2026-11-21T10:00:00.123+01:00"],
                &["2026-11-21", "some", "2026-13-01T00:00:00Z"],
            ),
        ];
        for (datatype, good, bad) in table {
            let name = NamedNode::new_unchecked(format!("{XSD}{}", datatype.as_str()));
            for (texts, expected) in [(good, true), (bad, false)] {
                for text in texts {
                    let literal = Literal::new_typed_literal(*text, name.clone());
                    let found = datatype.has(literal.as_ref().into());
                    assert_eq!(found, expected, "{datatype:?} `{text}`");
                }
            }
        }
    }

    #[test]
    fn numbers_compare_across_datatypes_and_sizes() {
        let number = |text: &str, datatype: &str| {
            Literal::new_typed_literal(text, NamedNode::new_unchecked(format!("{XSD}{datatype}")))
        };
        let zero = number("0", "integer");
        for (value, expected) in [
            (number("-1", "integer"), Some(Ordering::Less)),
            (number("0.0", "decimal"), Some(Ordering::Equal)),
            (number("1e-3", "double"), Some(Ordering::Greater)),
            (number("3.5", "float"), Some(Ordering::Greater)),
            (
                number("-99999999999999999999999999999999999999999", "integer"),
                Some(Ordering::Less),
            ),
            (number("some", "integer"), None),
            (number("5", "string"), None),
            (number("NaN", "double"), None),
        ] {
            assert_eq!(compare(value.as_ref().into(), &zero), expected, "{value}");
        }
    }
}
