//! Reads files one after the other and says what is in them. Runs on a thread of its own.
//!
//! Owns the decisions about one file: what it is called, whether it changed, whether it can be read
//! at all. Leaves writing to the receiver of its events. A file that a parser cannot digest costs
//! that file only, even if the parser panics.

use super::format::{self, Format, Halt};
use super::guard::{Guard, Patience};
use super::passage::Passage;
use super::rdf::{self, Place};
use super::store::{Known, NewSource};
use super::walk::Candidate;
use super::{LoadOptions, Skipped, docx, html, markdown, pdf, rows, rst, text, uri};
use agentfleet_schema::{Digest, Triple, hex, uris};
use sha2::Digest as _;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Files up to this size are read once, into memory.
const SMALL: u64 = 8 * 1024 * 1024;
/// Bytes looked at to tell what a file is.
const HEAD: usize = 4096;
const MIB: u64 = 1024 * 1024;

/// What the reader has to say, in the order of the files.
#[derive(Debug)]
pub(crate) enum Event {
    /// A file is looked at.
    File {
        path: String,
    },
    /// It is the same as when it was last loaded.
    Unchanged,
    /// It cannot be read, or turned out to be unreadable after it was begun.
    Skipped(Skipped),
    Begin {
        source: NewSource,
        has_triples: bool,
    },
    Passages(Vec<Passage>),
    Triples {
        statements: u64,
        triples: Vec<Triple>,
    },
    Finish,
    /// So many bytes of the files are behind us.
    Done {
        bytes: u64,
    },
}

/// The bytes of a file.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Memory(Arc<[u8]>),
    File(PathBuf),
}

impl Content {
    fn open(&self) -> Result<Box<dyn BufRead>, Halt> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            Self::File(path) => Box::new(BufReader::new(File::open(path).map_err(Halt::io)?)),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    options: LoadOptions,
    /// How long the present file may still take.
    patience: Patience,
    /// Documents by URI, with what this load has added.
    known: HashMap<String, Known>,
    /// Documents by where they came from.
    names: HashMap<String, String>,
    events: Sender<Event>,
}

impl Reader {
    pub(crate) fn new(options: LoadOptions, known: Vec<Known>, events: Sender<Event>) -> Self {
        let names = known
            .iter()
            .map(|k| (k.origin.clone(), k.uri.clone()))
            .collect();
        let known = known.into_iter().map(|k| (k.uri.clone(), k)).collect();
        Self {
            options,
            patience: Patience::of(0),
            known,
            names,
            events,
        }
    }

    /// Reads the files; ends early if nobody listens any more.
    pub(crate) fn run(mut self, files: Vec<(Candidate, Content)>) {
        let mut seen = HashSet::new();
        for (file, content) in files {
            // A folder and a file in it may both have been named.
            if !seen.insert(file.origin.clone()) {
                continue;
            }
            let bytes = file.bytes;
            let ended = self
                .say(Event::File {
                    path: file.path.clone(),
                })
                .and_then(|()| self.file(&file, content))
                .and_then(|()| self.say(Event::Done { bytes }));
            if ended.is_err() {
                return;
            }
        }
    }

    fn say(&self, event: Event) -> Result<(), Halt> {
        let send = || {
            self.events
                .blocking_send(event)
                .map_err(|_| Halt::Cancelled)
        };
        self.patience.waiting(send)
    }

    /// The bytes of a file as a parser may see them.
    fn bounded(
        &self,
        content: &Content,
        rdf: Option<oxrdfio::RdfFormat>,
    ) -> Result<Box<dyn BufRead>, Halt> {
        let guard = Guard::new(content.open()?, rdf, &self.patience);
        Ok(Box::new(BufReader::new(guard)))
    }

    /// Reads a file of a format that is read in one piece.
    fn whole(&self, content: &Content, format: Format) -> Result<format::Parsed, Halt> {
        let mut bytes = Vec::new();
        let mut reader = content.open()?.take(self.options.max_document_bytes + 1);
        reader.read_to_end(&mut bytes).map_err(Halt::io)?;
        match format {
            Format::Pdf => return pdf::parse(&bytes, &self.patience),
            Format::Docx => return docx::parse(&bytes, &self.patience),
            _ => {}
        }
        let text = format::decode(&bytes, format)?;
        match format {
            Format::Html => html::parse(&text),
            Format::Rst => Ok(rst::parse(&text)),
            _ => markdown::parse(&text, &self.patience),
        }
    }

    fn file(&mut self, file: &Candidate, content: Content) -> Result<(), Halt> {
        self.patience = Patience::of(file.bytes);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.read(file, content)));
        let reason = match outcome {
            Ok(Err(Halt::Unreadable(reason))) => reason,
            Ok(done) => return done,
            Err(_) => "made its parser fail".to_owned(),
        };
        let path = file.path.clone();
        self.say(Event::Skipped(Skipped { path, reason }))
    }

    fn read(&mut self, file: &Candidate, content: Content) -> Result<(), Halt> {
        let (mut content, head) = self.head(file, content)?;
        let path = Path::new(&file.path);
        let format = Format::of(path, &head)?;
        self.check_size(file, format)?;
        let digest = digest(&content)?;
        let origin = file.origin.to_string_lossy().into_owned();
        let uri = self.name(&file.path, &origin, &digest);
        if self
            .known
            .get(&uri)
            .is_some_and(|known| known.digest == digest)
        {
            return self.say(Event::Unchanged);
        }
        if matches!(format, Format::Text | Format::Rows) {
            content = in_utf8(content, &head, format)?;
        }
        let mut source = NewSource {
            uri: uri.clone(),
            title: format::title_from(&file.path),
            path: file.path.clone(),
            origin: origin.clone(),
            digest: digest.clone(),
            media_type: format.media_type(path).into(),
            bytes: file.bytes,
            loaded_at: None,
            version: None,
        };
        match format {
            Format::Markdown | Format::Html | Format::Rst | Format::Pdf | Format::Docx => {
                let parsed = self.whole(&content, format)?;
                if parsed.passages.is_empty() {
                    return Err(Halt::unreadable("holds no text"));
                }
                source.title = parsed.title.unwrap_or(source.title);
                self.begin(source, false)?;
                self.say(Event::Passages(parsed.passages))?;
            }
            Format::Text => {
                let mut reader = self.bounded(&content, None)?;
                skip_mark(&mut *reader)?;
                let head = reader.fill_buf().map_err(Halt::io)?;
                let head = String::from_utf8_lossy(&head[..head.len().min(HEAD)]).into_owned();
                source.title = text::title(&head).unwrap_or(source.title);
                let title = source.title.clone();
                self.begin(source, false)?;
                self.some_text(|out| text::parse(&mut *reader, &title, out))?;
            }
            Format::Rows => {
                let mut reader = self.bounded(&content, None)?;
                let preface = rows::preface(&mut *reader)?;
                source.title = preface.title().unwrap_or(source.title);
                self.begin(source, false)?;
                self.some_text(|out| rows::parse(&mut *reader, &preface, out))?;
            }
            Format::Rdf(rdf) => {
                rdf::check(self.bounded(&content, Some(rdf))?, rdf, &uri)?;
                self.begin(source, true)?;
                self.statements(self.bounded(&content, Some(rdf))?, rdf, &uri)?;
            }
        }
        self.say(Event::Finish)?;
        self.names.insert(origin.clone(), uri.clone());
        self.known.insert(
            uri.clone(),
            Known {
                uri,
                origin,
                digest,
            },
        );
        Ok(())
    }

    fn begin(&self, source: NewSource, has_triples: bool) -> Result<(), Halt> {
        self.say(Event::Begin {
            source,
            has_triples,
        })
    }

    fn some_text(
        &self,
        parse: impl FnOnce(&mut dyn FnMut(Vec<Passage>) -> Result<(), Halt>) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let mut empty = true;
        parse(&mut |passages| {
            if passages.is_empty() {
                return Ok(());
            }
            empty = false;
            self.say(Event::Passages(passages))
        })?;
        if empty {
            Err(Halt::unreadable("holds no text"))
        } else {
            Ok(())
        }
    }

    fn statements(
        &self,
        reader: Box<dyn BufRead>,
        format: oxrdfio::RdfFormat,
        uri: &str,
    ) -> Result<(), Halt> {
        let graph = uris::collection_graph(self.options.collection.as_str());
        let place = Place {
            document: uri,
            graph: &graph,
        };
        let mut empty = true;
        rdf::parse(reader, format, place, &mut |piece| {
            empty &= !matches!(piece, Event::Triples { .. });
            self.say(piece)
        })?;
        if empty {
            Err(Halt::unreadable("holds no statements"))
        } else {
            Ok(())
        }
    }

    /// The first bytes; a small file is taken into memory on the way.
    fn head(&self, file: &Candidate, content: Content) -> Result<(Content, Vec<u8>), Halt> {
        if file.bytes == 0 {
            return Err(Halt::unreadable("is empty"));
        }
        let options = &self.options;
        let most = options.max_document_bytes.max(options.max_stream_bytes);
        let content = match content {
            Content::File(path) if file.bytes <= SMALL.min(most) => {
                let mut bytes = Vec::new();
                let file = File::open(&path).map_err(Halt::io)?;
                // It may grow while it is read.
                file.take(SMALL).read_to_end(&mut bytes).map_err(Halt::io)?;
                Content::Memory(bytes.into())
            }
            other => other,
        };
        let mut head = Vec::new();
        content
            .open()?
            .take(HEAD as u64)
            .read_to_end(&mut head)
            .map_err(Halt::io)?;
        Ok((content, head))
    }

    fn check_size(&self, file: &Candidate, format: Format) -> Result<(), Halt> {
        let most = if format.is_read_whole() {
            self.options.max_document_bytes
        } else {
            self.options.max_stream_bytes
        };
        if file.bytes <= most {
            return Ok(());
        }
        Err(Halt::unreadable(format!(
            "is too large: {}, and files of this type are read up to {}",
            size(file.bytes),
            size(most)
        )))
    }

    /// The URI of a file. One that was loaded keeps its own. A path that another file holds, which
    /// is still where it was and says something else, is told apart by where the new one lies.
    fn name(&self, path: &str, origin: &str, digest: &str) -> String {
        if let Some(uri) = self.names.get(origin) {
            return uri.clone();
        }
        let plain = uri::document(self.options.collection.as_str(), path);
        match self.known.get(&plain) {
            Some(other) if other.digest != digest && Path::new(&other.origin).exists() => {
                let mark = Digest::of(origin.as_bytes());
                format!("{plain}~{}", &mark.as_str()[..8])
            }
            _ => plain,
        }
    }
}

fn digest(content: &Content) -> Result<String, Halt> {
    let mut hash = sha2::Sha256::new();
    let mut reader = content.open()?;
    loop {
        let bytes = reader.fill_buf().map_err(Halt::io)?;
        if bytes.is_empty() {
            break;
        }
        hash.update(bytes);
        let count = bytes.len();
        reader.consume(count);
    }
    Ok(hex(&hash.finalize()))
}

/// Text with a byte order mark other than UTF-8's is decoded as a whole.
fn in_utf8(content: Content, head: &[u8], format: Format) -> Result<Content, Halt> {
    let marked = encoding_rs::Encoding::for_bom(head);
    let Some((encoding, _)) = marked.filter(|(e, _)| *e != encoding_rs::UTF_8) else {
        return Ok(content);
    };
    let mut bytes = Vec::new();
    content
        .open()?
        .take(SMALL * 8)
        .read_to_end(&mut bytes)
        .map_err(Halt::io)?;
    if bytes.len() as u64 == SMALL * 8 {
        let most = size(SMALL * 8);
        let name = encoding.name();
        return Err(Halt::unreadable(format!(
            "is {name} text above {most}; save it as UTF-8"
        )));
    }
    let text = format::decode(&bytes, format)?;
    Ok(Content::Memory(text.as_bytes().into()))
}

pub(crate) fn skip_mark(reader: &mut dyn BufRead) -> Result<(), Halt> {
    if reader
        .fill_buf()
        .map_err(Halt::io)?
        .starts_with(b"\xef\xbb\xbf")
    {
        reader.consume(3);
    }
    Ok(())
}

fn size(bytes: u64) -> String {
    if bytes >= MIB {
        format!("{:.1} MiB", bytes as f64 / MIB as f64)
    } else {
        format!("{bytes} bytes")
    }
}
