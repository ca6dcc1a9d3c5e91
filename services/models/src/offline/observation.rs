//! Reads what tools returned: numbered passages, statements, or plain text, each with its source.
//!
//! ```text
//! [1] Title > Heading (uri)
//! passage text
//!
//! [2] Title (uri)
//! - subject | predicate | object [uri of the subject]
//! ```
//! What is not written like this is one passage, and its source is the call.

use super::inputs::PastCall;

/// A piece of text with its source, in the order in which the search ranked it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// `Title (uri)`.
    pub source: String,
    /// The headings it stands under in its document; empty where the observation names none.
    pub heading: String,
    pub text: String,
    /// It is one statement of a graph.
    pub is_fact: bool,
}

/// The passages of one call, the best first; none if it failed or found nothing.
pub(super) fn passages(call: &PastCall) -> Vec<Passage> {
    let text = call.observation.trim();
    if text.is_empty() || is_failure(text) {
        return Vec::new();
    }
    let mut blocks: Vec<(&str, Vec<&str>)> = vec![("", Vec::new())];
    for line in text.lines() {
        match (numbered(line), blocks.last_mut()) {
            (Some(place), _) => blocks.push((place, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    // Beside numbered passages, other text is the tool's own talk ("5 passages found").
    if blocks.len() > 1 {
        blocks.remove(0);
    }
    let mut all = Vec::new();
    for (place, lines) in blocks {
        let (source, heading) = source(place, call);
        let text = lines.join("\n").trim().to_owned();
        let facts: Option<Vec<String>> = text.lines().map(fact).collect();
        let is_fact = facts.is_some();
        let texts = facts.unwrap_or_else(|| vec![text]);
        all.extend(
            texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(|text| Passage {
                    source: source.clone(),
                    heading: heading.clone(),
                    text,
                    is_fact,
                }),
        );
    }
    all
}

/// Whether an observation says that nothing came of the call, or is no longer there.
pub(super) fn is_failure(text: &str) -> bool {
    let first = text.trim().lines().next().unwrap_or_default();
    let first = first.to_lowercase();
    ["error", "no ", "nothing ", "[left out: "]
        .iter()
        .any(|start| first.starts_with(start))
}

/// `Title > Heading (uri)` of `[1] Title > Heading (uri)`; another call numbers anew.
fn numbered(line: &str) -> Option<&str> {
    let (number, place) = line.strip_prefix('[')?.split_once("] ")?;
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| place.trim())
}

/// The source and the heading within it.
fn source(place: &str, call: &PastCall) -> (String, String) {
    if place.is_empty() {
        return (format!("`{}`", call.tool), String::new());
    }
    let (name, uri) = match place.rfind(" (") {
        Some(at) => place.split_at(at),
        None => (place, ""),
    };
    match name.split_once(" > ") {
        Some((title, heading)) => (format!("{title}{uri}"), heading.to_owned()),
        None => (place.to_owned(), String::new()),
    }
}

/// The statement of `- subject | predicate | object [uri]`.
fn fact(line: &str) -> Option<String> {
    let rest = line.strip_prefix("- ")?;
    (rest.matches(" | ").count() >= 2).then(|| rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_statements_and_texts_keep_their_sources() {
        let cases: &[(&str, &[(&str, &str, &str, bool)])] = &[
            (
                "2 passages found\n\n[1] The mill > Fires (urn:d:1)\nIt burned.\n- Twice.\n\n[2] Notes (draft) (urn:d:2)\nSee [2] inside.",
                &[
                    ("The mill (urn:d:1)", "Fires", "It burned.\n- Twice.", false),
                    ("Notes (draft) (urn:d:2)", "", "See [2] inside.", false),
                ],
            ),
            (
                "[1] Register (urn:d:r)\n- Mill | owner | A [urn:mill]\n- A | seat | B [urn:a]\n\n[2] T (urn:d:t)\n- no statement\n- x | y | z [urn:x]",
                &[
                    (
                        "Register (urn:d:r)",
                        "",
                        "Mill | owner | A [urn:mill]",
                        true,
                    ),
                    ("Register (urn:d:r)", "", "A | seat | B [urn:a]", true),
                    (
                        "T (urn:d:t)",
                        "",
                        "- no statement\n- x | y | z [urn:x]",
                        false,
                    ),
                ],
            ),
            ("It burned.", &[("`look`", "", "It burned.", false)]),
            ("No passages for \"mill\".", &[]),
            ("error: the index is busy", &[]),
            ("[left out: urn:x]", &[]),
            ("", &[]),
        ];
        for (observation, expected) in cases {
            let call = PastCall {
                tool: "look".into(),
                observation: (*observation).into(),
                ..PastCall::default()
            };
            let found = passages(&call);
            let found: Vec<_> = found
                .iter()
                .map(|p| (&*p.source, &*p.heading, &*p.text, p.is_fact))
                .collect();
            assert_eq!(&found, expected, "{observation}");
        }
    }
}
