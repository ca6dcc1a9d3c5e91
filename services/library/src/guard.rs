//! Bounds on what one file may cost to parse, whatever is in it: nesting, the expansion of entities,
//! and time. A parser may be recursive, or slow where it is deep, and a stack that overflows ends the
//! process and not the file.
//!
//! A [`Guard`] reads ahead of the parser: it looks at every piece of a file before the parser gets it.

use super::format::Halt;
use oxrdfio::RdfFormat;
use std::collections::HashMap;
use std::io::{Error, Read, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Deepest nesting of elements, brackets and quoted triples.
pub(crate) const MAX_DEPTH: usize = 200;
/// Most bytes that an entity of XML may stand for, with those inside it.
const MAX_ENTITY: usize = 64 * 1024;
/// Most bytes that all uses of large entities may come to.
const MAX_EXPANDED: usize = 16 * 1024 * 1024;
/// An entity above this is a large one. Ontologies use short ones everywhere.
const LARGE_ENTITY: usize = 1024;
/// Most bytes of a document type: nothing else of a file is kept.
const MAX_DOCTYPE: usize = 1024 * 1024;
/// Time that a file may take to parse, and what each further MiB adds.
const TIME: Duration = Duration::from_secs(30);
const TIME_PER_MIB: Duration = Duration::from_secs(5);

/// How long a file may still take. The time that the reader waits for the writer does not count.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    started: Instant,
    most: Duration,
    waited_micros: Arc<AtomicU64>,
}

impl Patience {
    pub(crate) fn of(bytes: u64) -> Self {
        let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        Self {
            started: Instant::now(),
            most: TIME.saturating_add(TIME_PER_MIB.saturating_mul(mib)),
            waited_micros: Arc::default(),
        }
    }

    /// Leaves out the time that this takes.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let out = wait();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited_micros.fetch_add(micros, Ordering::Relaxed);
        out
    }

    pub(crate) fn check(&self) -> std::result::Result<(), Halt> {
        let waited = Duration::from_micros(self.waited_micros.load(Ordering::Relaxed));
        let taken = self.started.elapsed().saturating_sub(waited);
        if taken <= self.most {
            return Ok(());
        }
        let most = self.most.as_secs();
        Err(Halt::unreadable(format!(
            "takes longer than {most} s to parse"
        )))
    }
}

/// Hands on what passes the scan, and fails where the file goes beyond a bound.
pub(crate) struct Guard<R> {
    inner: R,
    scan: Option<Scan>,
    patience: Patience,
}

impl<R> Guard<R> {
    pub(crate) fn new(inner: R, format: Option<RdfFormat>, patience: &Patience) -> Self {
        let scan = format.map(|format| match format {
            RdfFormat::RdfXml => Scan::Xml(Xml::default()),
            RdfFormat::JsonLd { .. } => Scan::Json(Nesting::default(), Json::Plain),
            _ => Scan::Turtle(Nesting::default(), Turtle::Plain),
        });
        Self {
            inner,
            scan,
            patience: patience.clone(),
        }
    }
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let failed = |halt: Halt| match halt {
            Halt::Unreadable(reason) => Error::other(reason),
            Halt::Cancelled => Error::other("cancelled"),
        };
        self.patience.check().map_err(failed)?;
        let count = self.inner.read(buffer)?;
        if let Some(scan) = &mut self.scan {
            for byte in &buffer[..count] {
                scan.byte(*byte).map_err(failed)?;
            }
        }
        Ok(count)
    }
}

enum Scan {
    Xml(Xml),
    Json(Nesting, Json),
    Turtle(Nesting, Turtle),
}

impl Scan {
    fn byte(&mut self, byte: u8) -> std::result::Result<(), Halt> {
        match self {
            Self::Xml(xml) => xml.byte(byte),
            Self::Json(nesting, state) => state.byte(byte, nesting),
            Self::Turtle(nesting, state) => state.byte(byte, nesting),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Nesting(usize);

impl Nesting {
    pub(crate) fn opens(&mut self) -> std::result::Result<(), Halt> {
        self.0 += 1;
        if self.0 <= MAX_DEPTH {
            return Ok(());
        }
        Err(Halt::unreadable(format!(
            "is nested deeper than {MAX_DEPTH} levels"
        )))
    }

    pub(crate) fn closes(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}

enum Json {
    Plain,
    Text,
    Escape,
}

impl Json {
    fn byte(&mut self, byte: u8, nesting: &mut Nesting) -> std::result::Result<(), Halt> {
        match (&self, byte) {
            (Self::Plain, b'"') => *self = Self::Text,
            (Self::Plain, b'{' | b'[') => nesting.opens()?,
            (Self::Plain, b'}' | b']') => nesting.closes(),
            (Self::Text, b'\\') => *self = Self::Escape,
            (Self::Text, b'"') => *self = Self::Plain,
            (Self::Escape, _) => *self = Self::Text,
            _ => {}
        }
        Ok(())
    }
}

/// Where a scan of the Turtle family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turtle {
    Plain,
    /// After one `<`, which begins an IRI or a quoted triple.
    Less,
    Greater,
    Escape,
    Comment,
    Iri,
    /// So many quotes of this kind were met in a row, at the beginning of a literal.
    Opening(u8, u8),
    /// Inside a literal of this kind of quote; long ones have three. So many closing ones were met.
    Text {
        quote: u8,
        long: bool,
        met: u8,
        escaped: bool,
    },
}

impl Turtle {
    fn byte(&mut self, byte: u8, nesting: &mut Nesting) -> std::result::Result<(), Halt> {
        *self = match *self {
            Self::Less if byte == b'<' => {
                nesting.opens()?;
                Self::Plain
            }
            Self::Less if byte == b'=' => Self::Plain,
            // No IRI has blanks.
            Self::Less | Self::Iri if byte.is_ascii_whitespace() => Self::Plain,
            Self::Less | Self::Iri if byte == b'>' => Self::Plain,
            Self::Less | Self::Iri => Self::Iri,
            Self::Comment if matches!(byte, b'\n' | b'\r') => Self::Plain,
            Self::Comment => Self::Comment,
            Self::Escape => Self::Plain,
            Self::Greater if byte == b'>' => {
                nesting.closes();
                Self::Plain
            }
            Self::Plain | Self::Greater => Self::plain(byte, nesting)?,
            Self::Opening(quote, 1) if byte == quote => Self::Opening(quote, 2),
            Self::Opening(quote, 2) if byte == quote => Self::text(quote, true),
            // Two quotes were an empty literal.
            Self::Opening(_, 2) => Self::plain(byte, nesting)?,
            Self::Opening(quote, _) => Self::text(quote, false).within(byte),
            text @ Self::Text { .. } => text.within(byte),
        };
        Ok(())
    }

    fn plain(byte: u8, nesting: &mut Nesting) -> std::result::Result<Self, Halt> {
        Ok(match byte {
            b'(' | b'[' | b'{' => {
                nesting.opens()?;
                Self::Plain
            }
            b')' | b']' | b'}' => {
                nesting.closes();
                Self::Plain
            }
            b'<' => Self::Less,
            b'>' => Self::Greater,
            b'#' => Self::Comment,
            b'\\' => Self::Escape,
            b'"' | b'\'' => Self::Opening(byte, 1),
            _ => Self::Plain,
        })
    }

    fn text(quote: u8, long: bool) -> Self {
        Self::Text {
            quote,
            long,
            met: 0,
            escaped: false,
        }
    }

    fn within(self, byte: u8) -> Self {
        let Self::Text {
            quote,
            long,
            met,
            escaped,
        } = self
        else {
            return self;
        };
        if escaped {
            return Self::text(quote, long);
        }
        let met = if byte == quote { met + 1 } else { 0 };
        // A short literal ends with its line, because the parser refuses the rest of it.
        if met == if long { 3 } else { 1 } || !long && matches!(byte, b'\n' | b'\r') {
            return Self::Plain;
        }
        Self::Text {
            quote,
            long,
            met,
            escaped: byte == b'\\',
        }
    }
}

/// Counts open elements and what entities come to.
#[derive(Debug, Default)]
struct Xml {
    nesting: Nesting,
    at: Markup,
    /// The last bytes, to tell where a comment ends.
    recent: [u8; 3],
    /// Open brackets of the document type, and its text.
    open: usize,
    doctype: Vec<u8>,
    entities: HashMap<Vec<u8>, usize>,
    /// The name of the entity being used.
    name: Option<Vec<u8>>,
    expanded: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Markup {
    #[default]
    Text,
    /// The first bytes after `<`.
    Begins,
    Start,
    /// Inside a value of an attribute.
    Value(u8),
    End,
    Instruction,
    /// After `<!`.
    Declares,
    Comment,
    Section,
    Doctype,
}

impl Xml {
    fn byte(&mut self, byte: u8) -> std::result::Result<(), Halt> {
        let [_, before, last] = self.recent;
        self.recent = [before, last, byte];
        self.at = match (self.at, byte) {
            (Markup::Text, b'<') => Markup::Begins,
            (Markup::Begins, b'/') => Markup::End,
            (Markup::Begins, b'?') => Markup::Instruction,
            (Markup::Begins, b'!') => Markup::Declares,
            (Markup::Begins, _) => {
                self.nesting.opens()?;
                if byte == b'>' {
                    Markup::Text
                } else {
                    Markup::Start
                }
            }
            (Markup::Start, b'>') => {
                if last == b'/' {
                    self.nesting.closes();
                }
                Markup::Text
            }
            (Markup::Start, b'"' | b'\'') => Markup::Value(byte),
            (Markup::Value(quote), _) if byte == quote => Markup::Start,
            (Markup::End, b'>') => {
                self.nesting.closes();
                Markup::Text
            }
            (Markup::Instruction, b'>') if last == b'?' => Markup::Text,
            (Markup::Declares, b'-') => Markup::Comment,
            (Markup::Declares, b'[') => Markup::Section,
            (Markup::Declares, _) => {
                self.open = 1;
                self.doctype.clear();
                Markup::Doctype
            }
            (Markup::Comment, b'>') if self.recent == *b"-->" => Markup::Text,
            (Markup::Section, b'>') if self.recent == *b"]]>" => Markup::Text,
            (Markup::Doctype, _) => self.doctype(byte)?,
            (at @ (Markup::Text | Markup::Value(_)), _) => {
                self.entity_used(byte)?;
                at
            }
            (at, _) => at,
        };
        Ok(())
    }

    fn doctype(&mut self, byte: u8) -> std::result::Result<Markup, Halt> {
        match byte {
            b'<' => self.open += 1,
            b'>' => self.open -= 1,
            _ => {}
        }
        if self.open == 0 {
            self.declare()?;
            return Ok(Markup::Text);
        }
        if self.doctype.len() >= MAX_DOCTYPE {
            return Err(Halt::unreadable(
                "has a document type of more than 1 MiB".to_owned(),
            ));
        }
        self.doctype.push(byte);
        Ok(Markup::Doctype)
    }

    /// Adds up what each declared entity stands for.
    fn declare(&mut self) -> std::result::Result<(), Halt> {
        let doctype = std::mem::take(&mut self.doctype);
        let doctype = String::from_utf8_lossy(&doctype);
        for declared in doctype.split("<!ENTITY").skip(1) {
            let declared = declared.trim_start().trim_start_matches('%').trim_start();
            let (name, rest) = declared
                .split_once(|c: char| c.is_ascii_whitespace())
                .unwrap_or((declared, ""));
            // All up to the next declaration, so that quotes need not be understood.
            let mut size = rest.len();
            for used in rest.split('&').skip(1) {
                let used = used.split(';').next().unwrap_or_default();
                size += self.entities.get(used.as_bytes()).unwrap_or(&0);
            }
            if size > MAX_ENTITY {
                return Err(Halt::unreadable(format!(
                    "has the entity `{}`, which stands for more than 64 KiB",
                    name.chars().take(40).collect::<String>()
                )));
            }
            self.entities.insert(name.as_bytes().to_vec(), size);
        }
        Ok(())
    }

    fn entity_used(&mut self, byte: u8) -> std::result::Result<(), Halt> {
        match (byte, &mut self.name) {
            (b'&', _) => self.name = Some(Vec::new()),
            (b';', Some(name)) => {
                let size = self.entities.get(name.as_slice()).unwrap_or(&0);
                if *size > LARGE_ENTITY {
                    self.expanded += size;
                }
                self.name = None;
                if self.expanded > MAX_EXPANDED {
                    return Err(Halt::unreadable(
                        "uses entities that stand for more than 16 MiB".to_owned(),
                    ));
                }
            }
            (_, Some(name)) if name.len() < 256 => name.push(byte),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxrdfio::JsonLdProfileSet;

    fn scanned(text: &str, format: RdfFormat) -> String {
        let mut guard = Guard::new(text.as_bytes(), Some(format), &Patience::of(0));
        let read = guard.read_to_end(&mut Vec::new());
        read.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn nesting_counts_where_it_is_markup_and_not_where_it_is_text() {
        let json = RdfFormat::JsonLd {
            profile: JsonLdProfileSet::empty(),
        };
        let many = |text: &str| text.repeat(MAX_DEPTH + 1);
        let deep = "is nested deeper than 200 levels";
        for (format, text, expected) in [
            (RdfFormat::Turtle, many("<<( "), deep),
            (RdfFormat::Turtle, many("[ <urn:p> "), deep),
            (RdfFormat::Turtle, format!("'' {}", many("(")), deep),
            (RdfFormat::N3, many("{"), deep),
            (RdfFormat::NTriples, many("<< "), deep),
            // A line may end with a carriage return.
            (RdfFormat::Turtle, format!("#\r{}", many("<<( ")), deep),
            (RdfFormat::Turtle, format!("'a\r{}", many("[ ")), deep),
            (
                RdfFormat::Turtle,
                format!("\"\"\"a\"\"b\\\"{}\"\"\"", many("(")),
                "",
            ),
            (RdfFormat::Turtle, format!("'{}\\''", many("[")), ""),
            (
                RdfFormat::Turtle,
                format!("# {}\n<urn:{}>", many("["), many("(")),
                "",
            ),
            (RdfFormat::Turtle, many("[ ] <<( a )>> "), ""),
            (json, many("{\"a\":["), deep),
            (json, format!("[\"\\\"{}\"]", many("[")), ""),
            (json, many("[],"), ""),
            (RdfFormat::RdfXml, many("<a b='>'>"), deep),
            (RdfFormat::RdfXml, many("<a/><b c='/'></b>"), ""),
            (
                RdfFormat::RdfXml,
                format!("<!--{0}--><![CDATA[{0}]]><?x {0}?>", many("<a>")),
                "",
            ),
        ] {
            assert_eq!(scanned(&text, format), expected, "{format}: {text:.60}");
        }
    }

    #[test]
    fn entities_are_added_up_before_they_are_expanded() {
        let bomb = (1..12).fold("<!DOCTYPE r [<!ENTITY e0 \"lol\">".to_owned(), |text, n| {
            let inner = format!("&e{};", n - 1).repeat(10);
            format!("{text}<!ENTITY e{n} \"{inner}\">")
        });
        let large = format!(
            "<!DOCTYPE r [<!ENTITY e \"{}\">]><r>{}</r>",
            "x".repeat(60_000),
            "&e;".repeat(300)
        );
        let usual = format!(
            "<!DOCTYPE r [<!ENTITY owl \"http://www.w3.org/2002/07/owl#\">]><r>{}</r>",
            "&owl;".repeat(900_000)
        );
        for (text, expected) in [
            (
                format!("{bomb}]><r/>"),
                "has the entity `e4`, which stands for more than 64 KiB",
            ),
            (large, "uses entities that stand for more than 16 MiB"),
            (usual, ""),
        ] {
            assert_eq!(scanned(&text, RdfFormat::RdfXml), expected);
        }
    }

    #[test]
    fn time_is_bounded_but_for_the_time_of_others() {
        let mut patience = Patience::of(1 << 20);
        assert_eq!(patience.most, Duration::from_secs(35));
        assert_eq!(patience.check(), Ok(()));
        patience.most = Duration::ZERO;
        let refused = Err(Halt::unreadable("takes longer than 0 s to parse"));
        assert_eq!(patience.check(), refused);
        patience.waited_micros.store(9_000_000, Ordering::Relaxed);
        assert_eq!(patience.check(), Ok(()));
    }
}
