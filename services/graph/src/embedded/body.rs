//! How the quads of one batch lie in the log: each term once, then quads as numbers.
//!
//! A provenance batch repeats its subjects, predicates and graph, so this takes about a third of
//! the same N-Quads, and is read back without a copy. The same quads in the same order always give
//! the same bytes: the log's digests rest on it.
//!
//! Layout: version, number of terms, terms, number of quads, quads. Numbers are LEB128. A term is
//! its kind and its parts; a text is its length and its UTF-8 bytes; a part that is a term is its
//! number, and lies before. A quad is four numbers; graph 0 is the default graph, `n + 1` term `n`.

use oxigraph::model::vocab::xsd;
use oxigraph::model::{
    BaseDirection, BlankNodeRef, GraphNameRef, LiteralRef, NamedNodeRef, NamedOrBlankNode,
    NamedOrBlankNodeRef, Quad, QuadRef, TermRef, Triple,
};
use std::collections::HashMap;

const VERSION: u8 = 1;

const IRI: u8 = 0;
const BLANK: u8 = 1;
const PLAIN: u8 = 2;
const LANGUAGE: u8 = 3;
const LANGUAGE_LTR: u8 = 4;
const LANGUAGE_RTL: u8 = 5;
const TYPED: u8 = 6;
const TRIPLE: u8 = 7;

/// Writes quads down.
pub(crate) fn encode(quads: &[Quad]) -> Vec<u8> {
    let mut encoder = Encoder {
        terms: Vec::new(),
        count: 0,
        known: HashMap::new(),
    };
    let mut rows = Vec::with_capacity(quads.len() * 4);
    for quad in quads {
        let quad = quad.as_ref();
        let subject = encoder.term(quad.subject.into());
        let predicate = encoder.term(quad.predicate.into());
        let object = encoder.term(quad.object);
        let graph = match quad.graph_name {
            GraphNameRef::DefaultGraph => 0,
            GraphNameRef::NamedNode(node) => encoder.term(node.into()) + 1,
            GraphNameRef::BlankNode(node) => encoder.term(node.into()) + 1,
        };
        for number in [subject, predicate, object, graph] {
            push_number(&mut rows, number);
        }
    }
    let mut body = Vec::with_capacity(encoder.terms.len() + rows.len() + 8);
    body.push(VERSION);
    push_number(&mut body, encoder.count);
    body.append(&mut encoder.terms);
    push_number(&mut body, quads.len() as u64);
    body.append(&mut rows);
    body
}

struct Encoder<'q> {
    terms: Vec<u8>,
    count: u64,
    known: HashMap<TermRef<'q>, u64>,
}

impl<'q> Encoder<'q> {
    fn term(&mut self, term: TermRef<'q>) -> u64 {
        if let Some(number) = self.known.get(&term) {
            return *number;
        }
        match term {
            TermRef::NamedNode(node) => self.text(IRI, node.as_str()),
            TermRef::BlankNode(node) => self.text(BLANK, node.as_str()),
            TermRef::Literal(literal) => self.literal(literal),
            TermRef::Triple(triple) => {
                let subject = self.term(triple.subject.as_ref().into());
                let predicate = self.term(triple.predicate.as_ref().into());
                let object = self.term(triple.object.as_ref());
                self.terms.push(TRIPLE);
                for number in [subject, predicate, object] {
                    push_number(&mut self.terms, number);
                }
            }
        }
        let number = self.count;
        self.count += 1;
        self.known.insert(term, number);
        number
    }

    fn literal(&mut self, literal: LiteralRef<'q>) {
        if let Some(language) = literal.language() {
            let kind = match literal.direction() {
                None => LANGUAGE,
                Some(BaseDirection::Ltr) => LANGUAGE_LTR,
                Some(BaseDirection::Rtl) => LANGUAGE_RTL,
            };
            self.text(kind, language);
            push_text(&mut self.terms, literal.value());
        } else if literal.datatype() == xsd::STRING {
            self.text(PLAIN, literal.value());
        } else {
            let datatype = self.term(literal.datatype().into());
            self.terms.push(TYPED);
            push_number(&mut self.terms, datatype);
            push_text(&mut self.terms, literal.value());
        }
    }

    fn text(&mut self, kind: u8, text: &str) {
        self.terms.push(kind);
        push_text(&mut self.terms, text);
    }
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8 & 0x7f) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A term of a body; its texts are borrowed from it.
enum Stored<'b> {
    Plain(TermRef<'b>),
    Triple(Box<Triple>),
}

impl Stored<'_> {
    fn term(&self) -> TermRef<'_> {
        match self {
            Self::Plain(term) => *term,
            Self::Triple(triple) => TermRef::Triple(triple),
        }
    }
}

/// Reads quads back, calling `each` with every one; returns how many there were, or why the bytes
/// are no body.
pub(crate) fn decode(body: &[u8], mut each: impl FnMut(QuadRef<'_>)) -> Result<u64, &'static str> {
    let mut reader = Reader { rest: body };
    if reader.byte()? != VERSION {
        return Err("unknown version");
    }
    let count = reader.size()?;
    let mut terms: Vec<Stored<'_>> = Vec::with_capacity(count.min(body.len()));
    for _ in 0..count {
        let term = reader.term(&terms)?;
        terms.push(term);
    }
    let rows = reader.size()?;
    for _ in 0..rows {
        let subject = subject_of(reader.known(&terms)?)?;
        let predicate = predicate_of(reader.known(&terms)?)?;
        let object = reader.known(&terms)?;
        let graph = match reader.number()? {
            0 => GraphNameRef::DefaultGraph,
            number => match known(&terms, number - 1)? {
                TermRef::NamedNode(node) => node.into(),
                TermRef::BlankNode(node) => node.into(),
                TermRef::Literal(_) | TermRef::Triple(_) => return Err("a graph is no name"),
            },
        };
        each(QuadRef::new(subject, predicate, object, graph));
    }
    if reader.rest.is_empty() {
        Ok(rows as u64)
    } else {
        Err("too long")
    }
}

fn known<'t>(terms: &'t [Stored<'_>], number: u64) -> Result<TermRef<'t>, &'static str> {
    let index = usize::try_from(number).map_err(|_| "an unknown term")?;
    terms.get(index).map(Stored::term).ok_or("an unknown term")
}

fn subject_of(term: TermRef<'_>) -> Result<NamedOrBlankNodeRef<'_>, &'static str> {
    match term {
        TermRef::NamedNode(node) => Ok(node.into()),
        TermRef::BlankNode(node) => Ok(node.into()),
        TermRef::Literal(_) | TermRef::Triple(_) => Err("a subject is no name"),
    }
}

fn predicate_of(term: TermRef<'_>) -> Result<NamedNodeRef<'_>, &'static str> {
    match term {
        TermRef::NamedNode(node) => Ok(node),
        TermRef::BlankNode(_) | TermRef::Literal(_) | TermRef::Triple(_) => {
            Err("a predicate is no IRI")
        }
    }
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (first, rest) = self.rest.split_first().ok_or("too short")?;
        self.rest = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number is too long")
    }

    fn size(&mut self) -> Result<usize, &'static str> {
        usize::try_from(self.number()?).map_err(|_| "a size is too large")
    }

    fn text(&mut self) -> Result<&'b str, &'static str> {
        let length = self.size()?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or("too short")?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| "a text is not UTF-8")
    }

    fn known<'t>(&mut self, terms: &'t [Stored<'_>]) -> Result<TermRef<'t>, &'static str> {
        known(terms, self.number()?)
    }

    fn term(&mut self, before: &[Stored<'b>]) -> Result<Stored<'b>, &'static str> {
        let kind = self.byte()?;
        // What is stored was checked when it came in, so nothing is parsed again here.
        Ok(Stored::Plain(match kind {
            IRI => NamedNodeRef::new_unchecked(self.text()?).into(),
            BLANK => BlankNodeRef::new_unchecked(self.text()?).into(),
            PLAIN => LiteralRef::new_simple_literal(self.text()?).into(),
            LANGUAGE | LANGUAGE_LTR | LANGUAGE_RTL => {
                let language = self.text()?;
                let value = self.text()?;
                let directed = LiteralRef::new_directional_language_tagged_literal_unchecked;
                match kind {
                    LANGUAGE_LTR => directed(value, language, BaseDirection::Ltr).into(),
                    LANGUAGE_RTL => directed(value, language, BaseDirection::Rtl).into(),
                    _ => LiteralRef::new_language_tagged_literal_unchecked(value, language).into(),
                }
            }
            TYPED => {
                let number = usize::try_from(self.number()?).map_err(|_| "an unknown term")?;
                let Some(Stored::Plain(TermRef::NamedNode(datatype))) = before.get(number) else {
                    return Err("a datatype is no IRI");
                };
                LiteralRef::new_typed_literal(self.text()?, *datatype).into()
            }
            TRIPLE => {
                let subject: NamedOrBlankNode = subject_of(self.known(before)?)?.into_owned();
                let predicate = predicate_of(self.known(before)?)?.into_owned();
                let object = self.known(before)?.into_owned();
                return Ok(Stored::Triple(Box::new(Triple::new(
                    subject, predicate, object,
                ))));
            }
            _ => return Err("an unknown kind of term"),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use oxigraph::io::{RdfFormat, RdfParser};
    use proptest::prelude::*;

    fn parse(text: &str) -> Vec<Quad> {
        RdfParser::from_format(RdfFormat::NQuads)
            .for_slice(text)
            .collect::<Result<_, _>>()
            .unwrap()
    }

    const EVERY_KIND: &str = r#"
        <urn:s> <urn:p> "plain" .
        <urn:s> <urn:p> "tagged"@en-gb <urn:g> .
        <urn:s> <urn:p> "tagged"@ar--rtl <urn:g> .
        <urn:s> <urn:p> "tagged"@en--ltr <urn:g> .
        _:b <urn:p> "007"^^<http://www.w3.org/2001/XMLSchema#integer> _:g .
        <urn:s> <urn:says> <<( <urn:s> <urn:p> <<( _:b <urn:p> "inner" )>> )>> <urn:g> .
    "#;

    #[test]
    fn every_kind_of_term_comes_back_as_it_was() {
        let quads = parse(EVERY_KIND);
        let body = encode(&quads);
        let mut back = Vec::new();
        assert_eq!(decode(&body, |quad| back.push(quad.into_owned())), Ok(6));
        assert_eq!(back, quads);
    }

    #[test]
    fn equal_quads_give_equal_bytes() {
        assert_eq!(encode(&parse(EVERY_KIND)), encode(&parse(EVERY_KIND)));
    }

    #[test]
    fn a_body_cut_short_is_refused_at_every_length() {
        let body = encode(&parse(EVERY_KIND));
        for length in 0..body.len() {
            assert!(decode(&body[..length], |_| ()).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, |_| ());
        }

        #[test]
        fn no_change_of_one_byte_makes_it_panic(at in 0_usize..1000, byte in any::<u8>()) {
            let mut body = encode(&parse(EVERY_KIND));
            let at = at % body.len();
            body[at] = byte;
            let _ = decode(&body, |_| ());
        }
    }
}
