//! Which files can be read, as what, and how their bytes become text.
//!
//! Owns the open set of file types by extension, the sniffing where an extension says too little,
//! and decoding. A file that cannot be read gets a reason for the person who loads it.

use super::passage::Passage;
use encoding_rs::Encoding;
use oxrdfio::{JsonLdProfileSet, RdfFormat};
use std::borrow::Cow;
use std::path::Path;

/// The file types that are read, by extension; files without one are read if they are text.
pub const EXTENSIONS: &[&str] = &[
    "md", "markdown", "mdown", "mkd", "mdx", "html", "htm", "xhtml", "pdf", "docx", "rst", "txt",
    "text", "adoc", "asciidoc", "org", "log", "csv", "tsv", "tab", "ttl", "turtle", "nt", "nq",
    "trig", "n3", "rdf", "rdfs", "owl", "jsonld", "xml",
];

/// A document read whole.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) title: Option<String>,
    pub(crate) passages: Vec<Passage>,
}

/// Why the reading of a file ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The file is left out, for this reason.
    Unreadable(String),
    /// Nobody waits for the result any more.
    Cancelled,
}

impl Halt {
    pub(crate) fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable(reason.into())
    }

    // By value, to be handed to `map_err`.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn io(error: std::io::Error) -> Self {
        Self::Unreadable(format!("cannot be read: {error}"))
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Markdown,
    Html,
    Rst,
    Pdf,
    Docx,
    Text,
    Rows,
    Rdf(RdfFormat),
}

impl Format {
    /// Decides by the extension and, where that is not enough, by the first bytes.
    pub(crate) fn of(path: &Path, head: &[u8]) -> Result<Self, Halt> {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .map(str::to_ascii_lowercase);
        let format = match extension.as_deref() {
            Some("md" | "markdown" | "mdown" | "mkd" | "mdx") => Self::Markdown,
            Some("html" | "htm" | "xhtml") => Self::Html,
            Some("rst") => Self::Rst,
            Some("pdf") => return Ok(Self::Pdf),
            Some("docx") => return Ok(Self::Docx),
            Some("txt" | "text" | "adoc" | "asciidoc" | "org" | "log") => Self::Text,
            Some("csv" | "tsv" | "tab") => Self::Rows,
            Some("ttl" | "turtle") => Self::Rdf(RdfFormat::Turtle),
            Some("nt") => Self::Rdf(RdfFormat::NTriples),
            Some("nq") => Self::Rdf(RdfFormat::NQuads),
            Some("trig") => Self::Rdf(RdfFormat::TriG),
            Some("n3") => Self::Rdf(RdfFormat::N3),
            Some("jsonld") => Self::Rdf(RdfFormat::JsonLd {
                profile: JsonLdProfileSet::empty(),
            }),
            Some("rdf" | "rdfs" | "owl") => Self::Rdf(ontology(head)),
            Some("xml") => xml(head)?,
            Some("json") => {
                return Err(Halt::unreadable(
                    "plain JSON is not read; JSON-LD is, as `.jsonld`",
                ));
            }
            Some(other) => {
                return Err(Halt::unreadable(format!("has the unknown type `.{other}`")));
            }
            None if is_binary(head) => return Err(Halt::unreadable("holds binary data")),
            None => Self::Text,
        };
        // UTF-16 text is full of zero bytes; its byte order mark tells it apart.
        if is_binary(head) && Encoding::for_bom(head).is_none() {
            return Err(Halt::unreadable("holds binary data"));
        }
        Ok(format)
    }

    pub(crate) fn media_type(self, path: &Path) -> &'static str {
        match self {
            Self::Markdown => "text/markdown",
            Self::Html => "text/html",
            Self::Rst => "text/x-rst",
            Self::Pdf => "application/pdf",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Text => "text/plain",
            Self::Rows
                if path
                    .extension()
                    .is_some_and(|e| e.eq_ignore_ascii_case("csv")) =>
            {
                "text/csv"
            }
            Self::Rows => "text/tab-separated-values",
            Self::Rdf(format) => format.media_type(),
        }
    }

    /// Whether files of this format are read in one piece.
    pub(crate) fn is_read_whole(self) -> bool {
        match self {
            Self::Markdown | Self::Html | Self::Rst | Self::Pdf | Self::Docx => true,
            Self::Text | Self::Rows | Self::Rdf(_) => false,
        }
    }
}

/// The text of a file: by its byte order mark, else UTF-8, else what an HTML page declares.
pub(crate) fn decode(bytes: &[u8], format: Format) -> Result<Cow<'_, str>, Halt> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return marked(&bytes[mark..], encoding);
    }
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(Cow::Borrowed(text)),
        Err(error) => error,
    };
    if format == Format::Html
        && let Some(encoding) = declared(bytes)
    {
        return marked(bytes, encoding);
    }
    let line = bytes[..error.valid_up_to()]
        .split(|byte| *byte == b'\n')
        .count();
    Err(Halt::unreadable(format!("line {line} is not UTF-8 text")))
}

/// A title for a document that has none: its file name in words.
pub(crate) fn title_from(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let words = stem.replace(['-', '_'], " ");
    let mut chars = words.chars();
    chars.next().map_or_else(
        || name.to_owned(),
        |first| first.to_uppercase().chain(chars).collect(),
    )
}

fn marked<'b>(bytes: &'b [u8], encoding: &'static Encoding) -> Result<Cow<'b, str>, Halt> {
    let (text, broken) = encoding.decode_without_bom_handling(bytes);
    if broken {
        let encoding = encoding.name();
        let reason = format!("is marked as {encoding} but is not such text");
        return Err(Halt::unreadable(reason));
    }
    Ok(text)
}

/// The encoding an HTML page names in its first bytes.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_ascii_lowercase();
    let (_, rest) = head.split_once("charset=")?;
    let label = rest.trim_start_matches(['"', '\'']);
    let end = label.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:".contains(c));
    Encoding::for_label(&label.as_bytes()[..end.unwrap_or(label.len())])
}

fn is_binary(head: &[u8]) -> bool {
    head.contains(&0)
}

/// Ontologies are published under the same extensions in RDF/XML and in Turtle.
fn ontology(head: &[u8]) -> RdfFormat {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    // An IRI has no space in it, the first element nearly always: it declares its prefixes.
    let element = text.strip_prefix('<').and_then(|inner| {
        let ends = inner.find(|c: char| c.is_whitespace() || c == '>')?;
        Some(inner[ends..].starts_with(char::is_whitespace))
    });
    if element == Some(true) || text.starts_with("<?xml") || text.starts_with("<!") {
        RdfFormat::RdfXml
    } else {
        RdfFormat::Turtle
    }
}

fn xml(head: &[u8]) -> Result<Format, Halt> {
    let text = String::from_utf8_lossy(head);
    if text.contains("<rdf:RDF") || text.contains("http://www.w3.org/1999/02/22-rdf-syntax-ns#") {
        Ok(Format::Rdf(RdfFormat::RdfXml))
    } else if text.contains("<html") {
        Ok(Format::Html)
    } else {
        Err(Halt::unreadable(
            "XML that is neither RDF/XML nor XHTML is not read",
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn types_are_told_by_extension_and_head() {
        for (path, head, expected) in [
            ("a.MD", "", Ok(Format::Markdown)),
            ("LICENSE", "text", Ok(Format::Text)),
            (
                "a.owl",
                "<?xml version='1.0'?>",
                Ok(Format::Rdf(RdfFormat::RdfXml)),
            ),
            (
                "a.rdf",
                "<RDF xmlns='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>",
                Ok(Format::Rdf(RdfFormat::RdfXml)),
            ),
            (
                "a.rdf",
                "<http://a> a <http://b> .",
                Ok(Format::Rdf(RdfFormat::Turtle)),
            ),
            (
                "a.owl",
                "@prefix a: <b> .",
                Ok(Format::Rdf(RdfFormat::Turtle)),
            ),
            (
                "a.xml",
                "<rdf:RDF xmlns:rdf=''>",
                Ok(Format::Rdf(RdfFormat::RdfXml)),
            ),
            (
                "a.xml",
                "<note/>",
                Err("XML that is neither RDF/XML nor XHTML is not read"),
            ),
            (
                "a.json",
                "{}",
                Err("plain JSON is not read; JSON-LD is, as `.jsonld`"),
            ),
            ("a.png", "x", Err("has the unknown type `.png`")),
            ("data", "a\0b", Err("holds binary data")),
            ("a.txt", "a\0b", Err("holds binary data")),
        ] {
            let expected = expected.map_err(Halt::unreadable);
            assert_eq!(
                Format::of(Path::new(path), head.as_bytes()),
                expected,
                "{path}"
            );
        }
        for extension in EXTENSIONS {
            let head = b"<rdf:RDF>";
            let path = format!("a.{extension}");
            assert!(Format::of(Path::new(&path), head).is_ok(), "{path}");
        }
    }

    #[test]
    fn bytes_become_text_by_mark_then_utf8_then_declaration() {
        let utf16: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain("aü".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        for (bytes, format, expected) in [
            (&b"\xef\xbb\xbfa"[..], Format::Text, "a"),
            (&utf16, Format::Text, "aü"),
            (
                &b"<meta charset=\"iso-8859-1\">\xfc"[..],
                Format::Html,
                "<meta charset=\"iso-8859-1\">ü",
            ),
        ] {
            assert_eq!(decode(bytes, format).unwrap(), expected);
        }
        assert_eq!(
            decode(b"a\nb\xfc", Format::Text).unwrap_err(),
            Halt::unreadable("line 2 is not UTF-8 text")
        );
    }

    #[test]
    fn a_file_name_can_be_a_title() {
        assert_eq!(
            title_from("a/b/annual-report_2025.v2.md"),
            "Annual report 2025.v2"
        );
        assert_eq!(title_from("README"), "README");
    }
}
