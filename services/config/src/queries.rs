//! Saved queries: how a file of one is read, what its parameters become, and what is checked before
//! one is stored. A value becomes an RDF term and takes the place of a variable; no text of it ever
//! gets into the query.
//!
//! A file is SPARQL with comments ahead, so that any tool can read it:
//!
//! ```text
//! # What each conversation spent.
//! # @param since date-time optional  Only what was committed at or after this.
//! # @param reason text = timeout     A word after `=` is the default.
//! SELECT ...
//! ```

use agentfleet_schema::config::{QueryItem, QueryParameter, parameter_type};
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Millis, SessionId, Term, uris};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Begins a parameter, after the `#` of a comment.
const PARAMETER: &str = "@param ";

/// Whether a text can be the key of a saved query. SPARQL never is: it has blanks or
/// brackets, and people write its words in capitals.
pub fn is_name(text: &str) -> bool {
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text != "-" && text.chars().all(plain)
}

/// The item of a file.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let mut description: Vec<&str> = Vec::new();
    let mut parameters = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}');
    while let Some(comment) = rest.strip_prefix('#') {
        let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
        let line = line.trim();
        match line.strip_prefix(PARAMETER) {
            Some(parameter) => parameters.push(read_parameter(parameter)?),
            None if !line.is_empty() => description.push(line),
            None => {}
        }
        rest = after;
    }
    if rest.trim().is_empty() {
        return Err("there is no query after the comments".to_owned());
    }
    let mut value = json!({"description": description.join(" "), "sparql": rest.trim()});
    if !parameters.is_empty() {
        value["parameters"] = json!(parameters);
    }
    Ok(value)
}

/// `NAME TYPE [optional] [= DEFAULT] DESCRIPTION`
fn read_parameter(text: &str) -> Result<Value, String> {
    let next = |rest: &mut &str| {
        let trimmed = rest.trim_start();
        let (word, after) = trimmed
            .split_once(char::is_whitespace)
            .unwrap_or((trimmed, ""));
        *rest = after;
        word.to_owned()
    };
    let mut rest = text;
    let (name, kind) = (next(&mut rest), next(&mut rest));
    if name.is_empty() || kind.is_empty() {
        return Err(format!(
            "`{PARAMETER}{text}` has no name or no type (expected `@param NAME TYPE DESCRIPTION`)"
        ));
    }
    let mut value = json!({"name": name, "type": kind});
    let mut words = rest.trim_start();
    if let Some(after) = words.strip_prefix("optional") {
        value["required"] = json!(false);
        words = after.trim_start();
    }
    if let Some(after) = words.strip_prefix('=') {
        let mut after = after;
        value["default"] = json!(next(&mut after));
        words = after.trim_start();
    }
    value["description"] = json!(words.trim());
    Ok(value)
}

/// What a value of a parameter stands for in the query. `now` is what ages are counted from.
pub fn term(parameter: &QueryParameter, text: &str, now: Millis) -> Result<Term, String> {
    let wrong = |expected: &str| {
        format!(
            "`{text}` is no value of `{}` (expected {expected})",
            parameter.name
        )
    };
    match parameter.kind.as_str() {
        parameter_type::TEXT => Ok(Term::text(text)),
        parameter_type::INTEGER => match text.trim().parse::<i64>() {
            Ok(number) => Ok(Term::typed(number.to_string(), xsd::INTEGER)),
            Err(_) => Err(wrong("a whole number")),
        },
        parameter_type::DECIMAL => {
            let text = text.trim();
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
            let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if number(whole) && number(part) {
                Ok(Term::typed(text, xsd::DECIMAL))
            } else {
                Err(wrong("a number such as `0.25`"))
            }
        }
        parameter_type::BOOLEAN => match text.trim() {
            flag @ ("true" | "false") => Ok(Term::typed(flag, xsd::BOOLEAN)),
            _ => Err(wrong("`true` or `false`")),
        },
        parameter_type::DATE_TIME => match instant(text, now) {
            Some(at) => Ok(Term::typed(at, xsd::DATE_TIME)),
            None => Err(wrong(
                "an instant such as `2026-11-21` or `2026-11-21T06:30:00Z`, or an age such as `7d`",
            )),
        },
        parameter_type::IRI => match uris::as_iri(text.trim()) {
            Some(iri) => Ok(Term::iri(iri)),
            None => Err(wrong("an absolute IRI, such as `urn:...`")),
        },
        parameter_type::SESSION => {
            let session = uris::session_of(text.trim());
            let session = session.unwrap_or_else(|| SessionId::new(text.trim()));
            Ok(Term::iri(uris::session(&session)))
        }
        other => Err(format!(
            "parameter `{}` has the unknown type `{other}` (available: {})",
            parameter.name,
            parameter_type::ALL.join(", ")
        )),
    }
}

/// An instant as `xsd:dateTime` in UTC: from a date, a date and a time, or an age counted from `now`.
pub fn instant(text: &str, now: Millis) -> Option<String> {
    let text = text.trim();
    let date = text.len() == 10 && text.bytes().filter(|b| *b == b'-').count() == 2;
    let whole = if date {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    let at = match humantime::parse_rfc3339_weak(&whole) {
        Ok(at) => at,
        Err(_) => {
            let now = Duration::from_millis(u64::try_from(now).ok()?);
            let age = humantime::parse_duration(text).ok()?;
            SystemTime::UNIX_EPOCH.checked_add(now.checked_sub(age).unwrap_or_default())?
        }
    };
    Some(humantime::format_rfc3339_millis(at).to_string())
}

/// The bindings of a run: each value given, then each default. Says what is wrong with them all.
pub fn bindings<'a>(
    query: &'a QueryItem,
    given: &BTreeMap<String, String>,
    now: Millis,
) -> Result<Vec<(&'a str, Term)>, String> {
    let parameters = &query.parameters;
    for name in given.keys() {
        if !parameters.iter().any(|parameter| parameter.name == *name) {
            let known: Vec<String> = parameters
                .iter()
                .map(|parameter| format!("`{}`", parameter.name))
                .collect();
            return Err(if known.is_empty() {
                format!("it has no parameter `{name}`, nor any other")
            } else {
                format!(
                    "it has no parameter `{name}` (available: {})",
                    known.join(", ")
                )
            });
        }
    }
    let mut bound = Vec::new();
    for parameter in parameters {
        match given.get(&parameter.name).or(parameter.default.as_ref()) {
            Some(text) => bound.push((parameter.name.as_str(), term(parameter, text, now)?)),
            None if parameter.required => {
                return Err(format!(
                    "it needs `--param {}=...`, {}: {}",
                    parameter.name, parameter.kind, parameter.description
                ));
            }
            None => {}
        }
    }
    Ok(bound)
}

/// Whether a query can be run: with every parameter bound, and with those only that must be.
pub(crate) fn check(query: &QueryItem) -> Result<(), String> {
    let all = example(query.parameters.iter())?;
    agentfleet_graph::check_query(&query.sparql, &all).map_err(|error| error.to_string())?;
    let needed = query.parameters.iter();
    let needed = example(needed.filter(|it| it.required || it.default.is_some()))?;
    agentfleet_graph::check_query(&query.sparql, &needed).map_err(|error| error.to_string())
}

/// Some value for each parameter.
fn example<'a>(
    parameters: impl Iterator<Item = &'a QueryParameter>,
) -> Result<Vec<(&'a str, Term)>, String> {
    let value = |kind: &str| match kind {
        parameter_type::INTEGER | parameter_type::DECIMAL => "1",
        parameter_type::BOOLEAN => "true",
        parameter_type::DATE_TIME => "2000-01-01",
        parameter_type::IRI => "urn:example:a",
        _ => "a",
    };
    parameters
        .map(|parameter| {
            let text = parameter.default.as_deref();
            let text = text.unwrap_or_else(|| value(&parameter.kind));
            Ok((parameter.name.as_str(), term(parameter, text, 0)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parameter(kind: &str) -> QueryParameter {
        QueryParameter {
            name: "p".to_owned(),
            kind: kind.to_owned(),
            ..QueryParameter::default()
        }
    }

    #[test]
    fn a_value_becomes_a_term_of_its_type_or_is_refused() {
        // 2026-11-21T12:00:00Z
        let now = 1_795_262_400_000;
        let typed = |text: &str, datatype: &str| Some(Term::typed(text, datatype));
        let iri = |text: &str| Some(Term::iri(text));
        for (kind, text, expected) in [
            ("text", "it's \"} DROP", Some(Term::text("it's \"} DROP"))),
            ("integer", " 7 ", typed("7", xsd::INTEGER)),
            ("integer", "7.5", None),
            ("decimal", "-0.25", typed("-0.25", xsd::DECIMAL)),
            ("decimal", "3", typed("3", xsd::DECIMAL)),
            ("decimal", "1e5", None),
            ("decimal", ".", None),
            ("boolean", "true", typed("true", xsd::BOOLEAN)),
            ("boolean", "yes", None),
            (
                "date-time",
                "2026-11-21",
                typed("2026-11-21T00:00:00.000Z", xsd::DATE_TIME),
            ),
            (
                "date-time",
                "2026-11-21T06:30:00Z",
                typed("2026-11-21T06:30:00.000Z", xsd::DATE_TIME),
            ),
            (
                "date-time",
                "2d",
                typed("2026-11-19T12:00:00.000Z", xsd::DATE_TIME),
            ),
            ("date-time", "soon", None),
            ("iri", "urn:a b>", iri("urn:a%20b%3E")),
            ("iri", "a", None),
            ("session", "s1", iri("urn:trustgraph:agent:s1")),
            (
                "session",
                "urn:trustgraph:agent:s1/i1",
                iri("urn:trustgraph:agent:s1"),
            ),
            ("colour", "red", None),
        ] {
            assert_eq!(
                term(&parameter(kind), text, now).ok(),
                expected,
                "{kind} {text}"
            );
        }
    }

    #[test]
    fn a_file_says_in_comments_what_it_answers_and_which_parameters_it_has() {
        let read = read(
            "# Steps that took long.\n# Slowest first.\n\
             # @param session session The run.\n\
             # @param since date-time optional Only later ones.\n\
             # @param least integer = 5 At least so many.\n#\n\
             # @param word text optional\n\
             SELECT ?a WHERE { ?a ?b ?c } # no header\n",
        );
        assert_eq!(
            read.unwrap(),
            json!({
                "description": "Steps that took long. Slowest first.",
                "parameters": [
                    {"name": "session", "type": "session", "description": "The run."},
                    {"name": "since", "type": "date-time", "required": false,
                     "description": "Only later ones."},
                    {"name": "least", "type": "integer", "default": "5",
                     "description": "At least so many."},
                    {"name": "word", "type": "text", "required": false, "description": ""},
                ],
                "sparql": "SELECT ?a WHERE { ?a ?b ?c } # no header",
            })
        );
        for broken in ["", "# only words\n", "# @param x\nASK {}"] {
            assert!(super::read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        let query = QueryItem {
            parameters: vec![
                QueryParameter {
                    required: true,
                    description: "The document.".to_owned(),
                    ..parameter("iri")
                },
                QueryParameter {
                    name: "q".to_owned(),
                    default: Some("3".to_owned()),
                    ..parameter("integer")
                },
            ],
            ..QueryItem::default()
        };
        let given = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let missing = bindings(&query, &given(&[]), 0).unwrap_err();
        assert!(missing.contains("`--param p=...`"), "{missing}");
        let unknown = bindings(&query, &given(&[("r", "1")]), 0).unwrap_err();
        assert!(unknown.contains("available: `p`, `q`"), "{unknown}");
        let bound = given(&[("p", "urn:x")]);
        let bound = bindings(&query, &bound, 0).unwrap();
        assert_eq!(
            bound,
            [
                ("p", Term::iri("urn:x")),
                ("q", Term::typed("3", xsd::INTEGER))
            ]
        );
    }

    #[test]
    fn names_are_no_sparql_and_sparql_is_no_name() {
        for name in ["slowest-steps", "a.b_c", "2fa"] {
            assert!(is_name(name), "{name}");
        }
        for query in [
            "",
            "-",
            "SELEC",
            "ASK {}",
            "ASK{}",
            "SELECT * WHERE {?s ?p ?o}",
        ] {
            assert!(!is_name(query), "{query}");
        }
    }
}
