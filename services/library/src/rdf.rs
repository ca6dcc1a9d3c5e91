//! RDF files as statements for the graph, and as one passage for each subject so that entities are
//! found by their words.
//!
//! Blank nodes become IRIs: the n-th blank node of a file always gets the same one. Statements of a
//! named graph lie in the graph of the collection like all others, and once more in a graph of
//! their own ([`uri::named_graph`]); a file cannot write into any other graph, so it cannot forge
//! provenance.

use super::format::Halt;
use super::outline::shortened;
use super::passage::Passage;
use super::reader::Event;
use super::uri;
use agentfleet_graph::{renamed, wire_triple};
use agentfleet_schema::vocabulary::RDF_TYPE;
use agentfleet_schema::{TermType, Triple};
use oxrdf::{GraphName, NamedNode, NamedOrBlankNode, Quad};
use oxrdfio::{JsonLdProfile, LoadedDocument, RdfFormat, RdfParseError, RdfParser};
use std::collections::HashMap;
use std::io::Read;

/// Statements handed on at once.
const BATCH: usize = 4_096;
/// Subjects kept in memory; a file with more may give a subject several passages.
const MAX_SUBJECTS: usize = 50_000;
/// Most characters of a subject's passage, and of one value in it.
pub(crate) const MAX_PASSAGE: usize = 1_500;
const MAX_VALUE: usize = 400;

/// Predicates that name their subject, best first. `schema` is found with and without TLS.
pub(crate) const LABELS: &[&str] = &[
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://www.w3.org/2000/01/rdf-schema#label",
    "https://schema.org/name",
    "http://schema.org/name",
    "http://xmlns.com/foaf/0.1/name",
    "http://purl.org/dc/terms/title",
    "http://purl.org/dc/elements/1.1/title",
    "https://schema.org/legalName",
    "http://schema.org/legalName",
];

/// Where a file belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    pub(crate) document: &'p str,
    pub(crate) graph: &'p str,
}

/// Whether the whole file can be parsed. The graph cannot take statements back when the last line
/// of a file turns out to be broken, so this comes first.
pub(crate) fn check(reader: impl Read, format: RdfFormat, document: &str) -> Result<(), Halt> {
    let lines = std::rc::Rc::new(std::cell::Cell::new(0));
    let counting = ByLine {
        inner: std::io::BufReader::new(reader),
        lines: lines.clone(),
    };
    for quad in parser(counting, format, document)? {
        quad.map_err(|error| broken(&error, format, lines.get()))?;
    }
    Ok(())
}

/// Reads the whole file, as events with statements and with passages.
pub(crate) fn parse(
    reader: impl Read,
    format: RdfFormat,
    place: Place<'_>,
    out: &mut dyn FnMut(Event) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let mut blanks = Blanks {
        document: place.document,
        numbers: HashMap::new(),
    };
    let mut subjects = Subjects::default();
    let mut triples = Vec::with_capacity(BATCH);
    let mut statements = 0;
    for quad in parser(reader, format, place.document)? {
        let quad = quad.map_err(|error| broken(&error, format, 0))?;
        let named = match &quad.graph_name {
            GraphName::DefaultGraph => None,
            GraphName::NamedNode(name) => Some(name.as_str().to_owned()),
            GraphName::BlankNode(node) => Some(blanks.iri(node.as_str())),
        };
        let triple = statement(quad, &mut blanks, place.graph);
        subjects.note(&triple);
        statements += 1;
        if let Some(name) = named {
            let g = Some(uri::named_graph(place.graph, &name));
            triples.push(Triple {
                g,
                ..triple.clone()
            });
        }
        triples.push(triple);
        if triples.len() >= BATCH {
            out(Event::Triples {
                statements,
                triples: std::mem::take(&mut triples),
            })?;
            statements = 0;
        }
        if subjects.order.len() >= MAX_SUBJECTS {
            out(Event::Passages(subjects.take()))?;
        }
    }
    if !triples.is_empty() {
        out(Event::Triples {
            statements,
            triples,
        })?;
    }
    match subjects.take() {
        passages if passages.is_empty() => Ok(()),
        passages => out(Event::Passages(passages)),
    }
}

fn parser<R: Read>(
    reader: R,
    format: RdfFormat,
    document: &str,
) -> Result<oxrdfio::ReaderQuadParser<R>, Halt> {
    // Relative IRIs of a file are below its own name, wherever it lay.
    let parser = RdfParser::from_format(format)
        .with_base_iri(document)
        .map_err(|error| Halt::unreadable(error.to_string()))?;
    Ok(parser.for_reader(reader).with_document_loader(context))
}

/// The one remote JSON-LD context that is known here: loading a file must not reach for the
/// network. The published context adds datatypes that searches do not need.
fn context(address: &str) -> Result<LoadedDocument, Box<dyn std::error::Error + Send + Sync>> {
    let bare = address
        .trim_end_matches('/')
        .trim_end_matches("/docs/jsonldcontext.jsonld");
    let vocabulary = match bare {
        "https://schema.org" | "http://schema.org" => "https://schema.org/",
        _ => {
            return Err(format!(
                "the context `{address}` is not fetched: put its content into the file, or expand the file"
            )
            .into());
        }
    };
    let content = format!(
        r#"{{"@context":{{"@vocab":"{vocabulary}","schema":"{vocabulary}","id":"@id","type":"@type"}}}}"#
    );
    Ok(LoadedDocument {
        url: address.to_owned(),
        content: content.into_bytes(),
        format: RdfFormat::JsonLd {
            profile: JsonLdProfile::Context.into(),
        },
    })
}

fn broken(error: &RdfParseError, format: RdfFormat, line: u64) -> Halt {
    match error {
        RdfParseError::Io(error) => Halt::unreadable(format!("cannot be read: {error}")),
        RdfParseError::Syntax(syntax) => {
            let line = syntax.location().map_or(line, |found| found.start.line + 1);
            let place = if line > 0 {
                format!("line {line}: ")
            } else {
                String::new()
            };
            Halt::unreadable(format!("broken {}: {place}{error}", format.name()))
        }
    }
}

/// Hands out one line at a time, because the RDF/XML parser does not say where it failed.
struct ByLine<R> {
    inner: std::io::BufReader<R>,
    lines: std::rc::Rc<std::cell::Cell<u64>>,
}

impl<R: Read> Read for ByLine<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::io::BufRead as _;
        let ready = self.inner.fill_buf()?;
        let line = ready
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(ready.len(), |at| at + 1);
        let count = line.min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        if count > 0 && buffer[count - 1] == b'\n' {
            self.lines.set(self.lines.get() + 1);
        }
        self.inner.consume(count);
        Ok(count)
    }
}

/// The stable names of a file's blank nodes, in the order they are met.
struct Blanks<'p> {
    document: &'p str,
    numbers: HashMap<String, usize>,
}

impl Blanks<'_> {
    fn iri(&mut self, label: &str) -> String {
        let next = self.numbers.len() + 1;
        let number = *self.numbers.entry(label.to_owned()).or_insert(next);
        uri::blank(self.document, number)
    }
}

fn statement(quad: Quad, blanks: &mut Blanks<'_>, graph: &str) -> Triple {
    let mut named = |node| match node {
        NamedOrBlankNode::BlankNode(node) => {
            NamedNode::new_unchecked(blanks.iri(node.as_str())).into()
        }
        NamedOrBlankNode::NamedNode(_) => node,
    };
    let (subject, object) = (named(quad.subject), renamed(quad.object, &mut named));
    Triple {
        g: Some(graph.to_owned()),
        ..wire_triple(oxrdf::Triple::new(subject, quad.predicate, object))
    }
}

/// What is known of the subjects so far, in the order they were met.
#[derive(Debug, Default)]
struct Subjects {
    order: Vec<String>,
    found: HashMap<String, Subject>,
}

#[derive(Debug, Default)]
struct Subject {
    /// The best name so far and how good it is; less is better.
    label: Option<(usize, String)>,
    types: Vec<String>,
    facts: String,
    has_words: bool,
}

impl Subjects {
    fn note(&mut self, triple: &Triple) {
        let subject = self.found.entry(triple.s.iri.clone()).or_insert_with(|| {
            self.order.push(triple.s.iri.clone());
            Subject::default()
        });
        let predicate = triple.p.iri.as_str();
        let value = match triple.o.kind {
            TermType::Literal => {
                subject.has_words = true;
                if let Some(quality) = label_quality(predicate, &triple.o.language)
                    && subject
                        .label
                        .as_ref()
                        .is_none_or(|(best, _)| quality < *best)
                {
                    subject.label = Some((quality, one_value(&triple.o.value)));
                }
                one_value(&triple.o.value)
            }
            TermType::Iri if predicate == RDF_TYPE => {
                subject.types.push(local_name(&triple.o.iri));
                return;
            }
            TermType::Iri if !uri::is_blank(&triple.o.iri) => local_name(&triple.o.iri),
            TermType::Iri | TermType::Blank | TermType::Triple => return,
        };
        if subject.facts.len() < MAX_PASSAGE && !value.is_empty() {
            if !subject.facts.is_empty() {
                subject.facts.push_str("; ");
            }
            subject.facts += &format!("{}: {value}", local_name(predicate));
        }
    }

    fn take(&mut self) -> Vec<Passage> {
        let mut found = std::mem::take(&mut self.found);
        let order = std::mem::take(&mut self.order);
        order
            .into_iter()
            .filter_map(|iri| {
                let subject = found.remove(&iri)?;
                // Nodes that only hold others together, such as list cells, have no words.
                if uri::is_blank(&iri) && !subject.has_words {
                    return None;
                }
                let kind = subject.types.join(", ");
                let heading = match subject.label {
                    Some((_, label)) => label,
                    None if uri::is_blank(&iri) => kind.clone(),
                    None => local_name(&iri),
                };
                let mut text = if kind.is_empty() {
                    String::new()
                } else {
                    format!("type: {kind}")
                };
                if !text.is_empty() && !subject.facts.is_empty() {
                    text.push_str("; ");
                }
                text.push_str(&subject.facts);
                Some(Passage {
                    heading,
                    text,
                    entity: Some(iri),
                })
            })
            .collect()
    }
}

/// How well a literal names its subject, less is better; `None` if it does not.
pub fn label_quality(predicate: &str, language: &str) -> Option<usize> {
    let at = LABELS.iter().position(|known| *known == predicate)?;
    // Prompts and most dossiers are English; a text without language is for everyone.
    let foreign = !language.is_empty() && !language.to_ascii_lowercase().starts_with("en");
    Some(at + if foreign { LABELS.len() } else { 0 })
}

/// A literal as it stands in a description: one line, cut where it is long.
pub fn one_value(text: &str) -> String {
    shortened(text, MAX_VALUE)
}

/// The last part of an IRI in words: `hasTotalAmount` is `has total amount`.
pub fn local_name(iri: &str) -> String {
    let trimmed = iri.trim_end_matches(['/', '#']);
    in_words(trimmed.rsplit(['/', '#', ':']).next().unwrap_or(trimmed))
}

/// A name made of words without spaces, with spaces.
pub(crate) fn in_words(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut before = ' ';
    for c in name.chars() {
        if matches!(c, '_' | '-') {
            out.push(' ');
        } else {
            if c.is_uppercase() && before.is_lowercase() {
                out.push(' ');
            }
            out.push(c);
        }
        before = c;
    }
    let words = out.split_whitespace().map(|word| {
        // Abbreviations keep their capitals.
        let is_word = word.chars().skip(1).any(char::is_lowercase) || word.chars().count() == 1;
        if is_word {
            word.to_lowercase()
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const PLACE: Place<'static> = Place {
        document: "urn:agentfleet:document:c:f.ttl",
        graph: "urn:agentfleet:collection:c",
    };

    fn read(text: &str, format: RdfFormat) -> Result<(Vec<Triple>, Vec<Passage>), Halt> {
        check(text.as_bytes(), format, PLACE.document)?;
        let (mut triples, mut passages) = (Vec::new(), Vec::new());
        parse(text.as_bytes(), format, PLACE, &mut |piece| {
            match piece {
                Event::Triples { triples: more, .. } => triples.extend(more),
                Event::Passages(more) => passages.extend(more),
                other => panic!("{other:?}"),
            }
            Ok(())
        })?;
        Ok((triples, passages))
    }

    fn json_ld() -> RdfFormat {
        RdfFormat::JsonLd {
            profile: oxrdfio::JsonLdProfileSet::empty(),
        }
    }

    #[test]
    fn a_subject_becomes_a_passage_with_its_best_name() {
        let text = r#"@prefix schema: <https://schema.org/> . @prefix ex: <https://example.org/> .
            ex:x a schema:Organization ; schema:name "Firma X"@de, "Company X"@en ;
              schema:foundingDate "2009" ; schema:parentOrganization ex:northHolding ."#;
        let (triples, passages) = read(text, RdfFormat::Turtle).unwrap();
        assert_eq!(triples.len(), 5);
        assert_eq!(
            passages,
            [Passage {
                heading: "Company X".into(),
                text: "type: organization; name: Firma X; name: Company X; founding date: 2009; parent organization: north holding".into(),
                entity: Some("https://example.org/x".into()),
            }]
        );
    }

    #[test]
    fn blank_nodes_get_the_same_names_on_every_reading() {
        let text = "@prefix e: <https://e.org/> . e:a e:p [ e:v 1 ], _:x . _:x e:v 2 .";
        let (first, _) = read(text, RdfFormat::Turtle).unwrap();
        let (second, _) = read(text, RdfFormat::Turtle).unwrap();
        assert_eq!(first, second);
        assert!(
            first
                .iter()
                .all(|t| t.s.kind == TermType::Iri && t.o.kind != TermType::Blank)
        );
        assert!(
            first
                .iter()
                .any(|t| t.o.iri == "urn:agentfleet:blank:c:f.ttl:b2"),
            "{first:?}"
        );
    }

    #[test]
    fn literals_keep_their_language_direction_and_datatype() {
        let text = "<urn:s> <urn:p> 'a', 'b'@en, 'c'@ar--rtl, 4 .";
        let (triples, _) = read(text, RdfFormat::Turtle).unwrap();
        let kept: Vec<_> = triples
            .iter()
            .map(|t| {
                (
                    t.o.value.as_str(),
                    t.o.language.as_str(),
                    t.o.datatype.as_str(),
                )
            })
            .collect();
        let integer = "http://www.w3.org/2001/XMLSchema#integer";
        assert_eq!(
            kept,
            [
                ("a", "", ""),
                ("b", "en", ""),
                ("c", "ar--rtl", ""),
                ("4", "", integer)
            ]
        );
    }

    #[test]
    fn named_graphs_stay_below_the_collection() {
        let text = "<urn:s> <urn:p> \"o\" <urn:graph:retrieval> .";
        let (triples, _) = read(text, RdfFormat::NQuads).unwrap();
        let graphs: Vec<_> = triples.iter().filter_map(|t| t.g.as_deref()).collect();
        assert_eq!(
            graphs,
            [
                "urn:agentfleet:collection:c:graph:urn%3Agraph%3Aretrieval",
                "urn:agentfleet:collection:c"
            ]
        );
    }

    #[test]
    fn every_format_is_read() {
        let cases = [
            (RdfFormat::Turtle, "<a> <urn:p> 'o' ."),
            (RdfFormat::NTriples, "<urn:s> <urn:p> \"o\" ."),
            (RdfFormat::NQuads, "<urn:s> <urn:p> \"o\" <urn:g> ."),
            (RdfFormat::TriG, "<urn:g> { <urn:s> <urn:p> 'o' }"),
            (RdfFormat::N3, "<urn:s> <urn:p> \"o\" ."),
            (
                RdfFormat::RdfXml,
                "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:e='urn:e:'><rdf:Description rdf:about='urn:s'><e:p>o</e:p></rdf:Description></rdf:RDF>",
            ),
            (json_ld(), r#"{"@id":"urn:s","urn:p":"o"}"#),
            (
                json_ld(),
                r#"{"@context":"https://schema.org","@type":"Organization","name":"o"}"#,
            ),
        ];
        for (format, text) in cases {
            let (triples, passages) = read(text, format).unwrap();
            assert!(
                triples.iter().any(|t| t.o.value == "o"),
                "{format}: {triples:?}"
            );
            assert_eq!(passages.len(), 1, "{format}");
        }
    }

    #[test]
    fn broken_files_are_refused_with_the_line() {
        let cases = [
            (
                RdfFormat::Turtle,
                "<urn:a> <urn:b> 1 .\n<urn:a> <urn:b\n",
                "broken Turtle: line 2",
            ),
            (
                RdfFormat::NTriples,
                "<urn:a> <urn:b> \"c\" .\n\nnonsense\n",
                "broken N-Triples: line 3",
            ),
            (
                RdfFormat::RdfXml,
                "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>\n<rdf:Description>\n</b>\n</rdf:RDF>",
                "broken RDF/XML: line 3",
            ),
            (json_ld(), "{\n\"@id\": }", "broken JSON-LD: line 2"),
            (
                json_ld(),
                r#"{"@context":"https://example.org/c","name":"o"}"#,
                "`https://example.org/c` is not fetched",
            ),
        ];
        for (format, text, expected) in cases {
            let Err(Halt::Unreadable(reason)) = read(text, format) else {
                panic!("{format} was read")
            };
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn local_names_are_put_into_words() {
        for (iri, words) in [
            (
                "https://schema.org/parentOrganization",
                "parent organization",
            ),
            ("http://e.org/ns#hasLEI", "has LEI"),
            ("urn:e:north_holding-co", "north holding co"),
            ("https://e.org/x/", "x"),
        ] {
            assert_eq!(local_name(iri), words);
        }
    }
}
