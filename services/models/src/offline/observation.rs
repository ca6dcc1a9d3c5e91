//! Reads what tools returned: numbered passages, facts, or plain text, each with its source.
//!
//! ```text
//! [1] Title (uri)
//! passage text
//!
//! [2] Title (uri)
//! - subject | predicate | object [uri of the subject]
//! ```
//! A statement comes from the document it stands under, and from what it is about where there is none.
//! The reader is tolerant: what it does not recognise is one passage, and its source is the call.

use super::inputs::PastCall;

/// Where a passage comes from, as the observation says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub title: String,
    /// Empty where the observation names none.
    pub uri: String,
}

impl Origin {
    /// `Title (uri)`, or whichever of the two there is.
    pub(super) fn shown(&self) -> String {
        match (self.title.is_empty(), self.uri.is_empty()) {
            (false, false) => format!("{} ({})", self.title, self.uri),
            (false, true) => self.title.clone(),
            (true, _) => self.uri.clone(),
        }
    }

    /// Words of the address that say what the document is: the path, without scheme, collection and
    /// file type.
    pub(super) fn path(&self) -> &str {
        let path = match self.uri.split_once("://") {
            Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
            None if self.uri.starts_with("urn:") => self.uri.rsplit(':').next().unwrap_or_default(),
            None => &self.uri,
        };
        let name = path.rfind('/').map_or(0, |at| at + 1);
        path.rfind('.')
            .filter(|at| *at > name)
            .map_or(path, |at| &path[..at])
    }

    /// What tells one source from another.
    pub(super) fn key(&self) -> &str {
        if self.uri.is_empty() {
            &self.title
        } else {
            &self.uri
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// One statement of a graph: its parts are not sentences.
    Fact,
}

/// A piece of text with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub origin: Origin,
    /// The headings it stands under in its document; empty where the observation names none.
    pub heading: String,
    pub text: String,
    pub form: Form,
    /// What a statement is about, where that is not its origin.
    pub about: String,
    /// The text is visibly an excerpt, or was cut on its way here.
    pub is_cut: bool,
}

impl Passage {
    pub(super) fn of_text(origin: Origin, text: &str) -> Self {
        let (text, cut_on_the_way) = without_remarks(text);
        let trimmed = text.trim();
        let dots = |edge: &str| ["…", "..."].iter().any(|dots| edge.starts_with(dots));
        let is_cut =
            cut_on_the_way || dots(trimmed) || trimmed.ends_with('…') || trimmed.ends_with("...");
        Self {
            origin,
            heading: String::new(),
            text: trimmed.to_owned(),
            form: Form::Text,
            about: String::new(),
            is_cut,
        }
    }
}

/// A text without what tools and the fleet remark at its end, and whether that was that it is cut.
fn without_remarks(text: &str) -> (String, bool) {
    let mut cut = false;
    let is_remark = |line: &str| {
        let line = line.trim();
        let is_cut = line.starts_with('[') && line.ends_with(']') && line.contains("cut");
        is_cut || line.starts_with("(Not run,")
    };
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| {
            let remark = is_remark(line);
            cut |= remark && line.contains("cut");
            !remark
        })
        .collect();
    (kept.join("\n"), cut)
}

/// The passages of one call's observation, in order; none if it failed or found nothing.
pub(super) fn passages(call: &PastCall) -> Vec<Passage> {
    let text = call.observation.trim();
    if text.is_empty() || is_left_out(text) || is_failure(text) {
        return Vec::new();
    }
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish(call)
}

/// Whether an observation is no longer in the history, for want of room.
pub(super) fn is_left_out(text: &str) -> bool {
    text.trim_start().starts_with("[left out: ")
}

/// Whether an observation says that nothing came of the call.
pub(super) fn is_failure(text: &str) -> bool {
    let first = text
        .trim()
        .lines()
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let nothing = [
        "no results",
        "no passages",
        "no facts",
        "no matches",
        "nothing found",
        "nothing was found",
        "no documents",
        "no rows",
    ];
    first.starts_with("error") || nothing.iter().any(|start| first.starts_with(start))
}

#[derive(Default)]
struct Reader {
    done: Vec<Passage>,
    /// The numbered passage being read.
    open: Option<(Origin, String)>,
    /// Text under no marker.
    loose: String,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if let Some(origin) = numbered(line) {
            self.close();
            self.open = Some((origin, String::new()));
            return;
        }
        if let Some((text, uri)) = fact(line) {
            let document = self
                .open
                .as_ref()
                .filter(|(_, body)| body.trim().is_empty());
            let (origin, about) = match document {
                Some((document, _)) => (document.clone(), uri),
                None => {
                    self.close();
                    let origin = Origin {
                        title: String::new(),
                        uri,
                    };
                    (origin, String::new())
                }
            };
            self.done.push(Passage {
                form: Form::Fact,
                about,
                ..Passage::of_text(origin, &text)
            });
            return;
        }
        let body = match &mut self.open {
            Some((_, body)) => body,
            None => &mut self.loose,
        };
        body.push_str(line);
        body.push('\n');
    }

    fn close(&mut self) {
        if let Some((origin, body)) = self.open.take() {
            // "Title > Heading > Heading" names the place within the document.
            let (title, heading) = match origin.title.split_once(" > ") {
                Some((title, heading)) => (title.to_owned(), heading.to_owned()),
                None => (origin.title, String::new()),
            };
            let origin = Origin {
                title,
                uri: origin.uri,
            };
            let passage = Passage {
                heading,
                ..Passage::of_text(origin, &body)
            };
            if !passage.text.is_empty() {
                self.done.push(passage);
            }
        }
    }

    fn finish(mut self, call: &PastCall) -> Vec<Passage> {
        self.close();
        let loose = self.loose.trim();
        // Beside marked passages, loose text is the tool's own talk ("5 passages found").
        if self.done.is_empty() && !loose.is_empty() {
            let (origin, text) = whole(loose, call);
            self.done.push(Passage::of_text(origin, &text));
        }
        for passage in &mut self.done {
            if passage.origin == Origin::default() {
                passage.origin.title = format!("`{}`", call.tool);
            }
        }
        self.done
    }
}

/// `[1] Title (uri)`: the number is dropped, since another call numbers anew.
fn numbered(line: &str) -> Option<Origin> {
    let rest = line.trim_start().strip_prefix('[')?;
    let (number, rest) = rest.split_once(']')?;
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    (is_number && rest.starts_with([' ', ':'])).then(|| origin(rest.trim_start_matches([' ', ':'])))
}

/// `Title (uri)`, `uri`, or `Title`.
fn origin(text: &str) -> Origin {
    let text = text.trim().trim_matches('*').trim();
    if let Some((title, uri)) = text.strip_suffix(')').and_then(|t| t.rsplit_once('('))
        && looks_like_a_uri(uri)
    {
        let title = title.trim().trim_matches('*').trim();
        return Origin {
            title: title.to_owned(),
            uri: uri.trim().to_owned(),
        };
    }
    if looks_like_a_uri(text) {
        return Origin {
            title: String::new(),
            uri: text.to_owned(),
        };
    }
    Origin {
        title: text.to_owned(),
        uri: String::new(),
    }
}

fn looks_like_a_uri(text: &str) -> bool {
    let text = text.trim();
    let has_scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.len() > 1
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    });
    !text.is_empty()
        && !text.contains(char::is_whitespace)
        && (has_scheme || text.contains('/') || text.contains('.'))
}

/// `- subject | predicate | object [uri]`: the statement and its source.
fn fact(line: &str) -> Option<(String, String)> {
    let rest = line.trim().strip_prefix("- ")?;
    if rest.matches(" | ").count() < 2 {
        return None;
    }
    match rest.strip_suffix(']').and_then(|t| t.rsplit_once(" [")) {
        Some((statement, uri)) => Some((statement.trim().to_owned(), uri.trim().to_owned())),
        None => Some((rest.trim().to_owned(), String::new())),
    }
}

/// A text without markers: a fetched document, named by its first line or by what was asked for.
fn whole(text: &str, call: &PastCall) -> (Origin, String) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let heading = origin(first.trim_start_matches(['#', ' ']));
    if !heading.uri.is_empty() && !rest.trim().is_empty() {
        return (heading, rest.trim().to_owned());
    }
    let asked = call.arguments.iter().find(|(name, value)| {
        matches!(
            name.as_str(),
            "uri" | "url" | "document" | "id" | "source" | "path"
        ) && !value.is_empty()
    });
    let uri = asked.map(|(_, value)| value.clone()).unwrap_or_default();
    let title = if uri.is_empty() {
        String::new()
    } else {
        title_of(first)
    };
    (Origin { title, uri }, text.to_owned())
}

fn title_of(first_line: &str) -> String {
    first_line
        .trim()
        .strip_prefix("# ")
        .map(|t| t.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(observation: &str) -> Vec<(String, String)> {
        let call = PastCall {
            tool: "look".into(),
            arguments: vec![("uri".into(), "doc:asked".into())],
            observation: observation.into(),
        };
        passages(&call)
            .into_iter()
            .map(|p| (p.origin.shown(), p.text))
            .collect()
    }

    #[test]
    fn passages_facts_and_texts_keep_their_sources() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            (
                "2 passages found\n\n[1] The mill (urn:doc:1)\nIt burned.\nTwice.\n\n[2] urn:doc:2\nIt was rebuilt.\n",
                &[
                    ("The mill (urn:doc:1)", "It burned.\nTwice."),
                    ("urn:doc:2", "It was rebuilt."),
                ],
            ),
            (
                "[1] Notes (draft) (file:///a/b.md)\nText with [2] inside.",
                &[("Notes (draft) (file:///a/b.md)", "Text with [2] inside.")],
            ),
            (
                "- Mill | built in | 1820 [urn:fact:7]\n- Mill | owner | A | B",
                &[
                    ("urn:fact:7", "Mill | built in | 1820"),
                    ("`look`", "Mill | owner | A | B"),
                ],
            ),
            (
                "# The mill\n\nIt burned.",
                &[("The mill (doc:asked)", "# The mill\n\nIt burned.")],
            ),
            (
                "The mill (urn:doc:1)\nIt burned.",
                &[("The mill (urn:doc:1)", "It burned.")],
            ),
            ("It burned.", &[("doc:asked", "It burned.")]),
            ("", &[]),
            ("No results for \"mill\".", &[]),
            ("error: the index is busy", &[]),
        ];
        for (observation, expected) in cases {
            let found = read(observation);
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(s, t)| (s.as_str(), t.as_str()))
                .collect();
            assert_eq!(&found, expected, "{observation}");
        }
    }

    #[test]
    fn statements_come_from_the_document_they_stand_under() {
        let call = PastCall {
            observation:
                "[1] Register (urn:doc:r)\n- Mill | owner | A [urn:mill]\n- A | seat | B\n\n\
                          [2] Notes (urn:doc:n)\n- not a statement\n- x | y | z [urn:x]\n"
                    .into(),
            ..PastCall::default()
        };
        let told: Vec<(String, String, Form, String)> = passages(&call)
            .into_iter()
            .map(|p| (p.origin.shown(), p.text, p.form, p.about))
            .collect();
        let told: Vec<(&str, &str, Form, &str)> = told
            .iter()
            .map(|(o, t, f, a)| (o.as_str(), t.as_str(), *f, a.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    "Register (urn:doc:r)",
                    "Mill | owner | A",
                    Form::Fact,
                    "urn:mill"
                ),
                ("Register (urn:doc:r)", "A | seat | B", Form::Fact, ""),
                ("Notes (urn:doc:n)", "- not a statement", Form::Text, ""),
                ("urn:x", "x | y | z", Form::Fact, ""),
            ]
        );
    }

    #[test]
    fn an_excerpt_is_told_from_a_whole_text() {
        for (text, cut, kept) in [
            ("… went on", true, "… went on"),
            ("It went on...", true, "It went on..."),
            ("It ended.", false, "It ended."),
            (
                "It went.\n[cut: the whole has 99 bytes, urn:x]",
                true,
                "It went.",
            ),
            (
                "It went.\n\n[12 more characters were cut; call again]",
                true,
                "It went.",
            ),
            (
                "It ended.\n\n(Not run, because one call is made a turn: a.)",
                false,
                "It ended.",
            ),
        ] {
            let passage = Passage::of_text(Origin::default(), text);
            assert_eq!(
                (passage.is_cut, passage.text.as_str()),
                (cut, kept),
                "{text}"
            );
        }
    }

    #[test]
    fn the_place_within_a_document_is_told_from_its_title() {
        let call = PastCall {
            observation: "[1] The mill > History > Fires (urn:doc:1)\nIt burned.".into(),
            ..PastCall::default()
        };
        let found = passages(&call);
        assert_eq!(found[0].origin.shown(), "The mill (urn:doc:1)");
        assert_eq!(found[0].heading, "History > Fires");
    }
}
