//! Word documents (DOCX) to titled passages: headings by their styles, paragraphs, lists and tables.
//!
//! A DOCX file is a ZIP archive with XML in it. Only the text and the names of styles are read; each is
//! unpacked in a stream and bounded, so an archive that unpacks to gigabytes is refused and not filled in.

use super::format::{Halt, Parsed};
use super::guard::{Nesting, Patience};
use super::outline::{Outline, one_line, table_row};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::HashMap;
use std::io::{Cursor, Read as _};
use zip::ZipArchive;
use zip::result::ZipError;

const TEXT: &str = "word/document.xml";
const STYLES: &str = "word/styles.xml";
/// Most bytes that one part unpacks to.
const MAX_PART: u64 = 128 * 1024 * 1024;
/// Events between two looks at the clock.
const EVENTS: usize = 4_096;

/// Reads a whole file.
pub(crate) fn parse(bytes: &[u8], patience: &Patience) -> Result<Parsed, Halt> {
    let text = part(bytes, TEXT)?
        .ok_or_else(|| Halt::unreadable(format!("broken DOCX: there is no `{TEXT}` in it")))?;
    let styles = part(bytes, STYLES)?.unwrap_or_default();
    let mut names = Names::default();
    each(&styles, patience, &mut |event| names.event(event))?;
    let mut body = Body {
        levels: names.levels,
        ..Body::default()
    };
    each(&text, patience, &mut |event| body.event(event))?;
    body.end_paragraph();
    Ok(body.outline.into_parsed(body.title, None))
}

/// What an archive has under a name.
fn part(bytes: &[u8], name: &str) -> Result<Option<Vec<u8>>, Halt> {
    let broken = || Halt::unreadable("broken DOCX: it is no ZIP archive that can be read");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| broken())?;
    let packed = match archive.by_name(name) {
        Ok(packed) => packed,
        Err(ZipError::FileNotFound) => return Ok(None),
        Err(_) => return Err(broken()),
    };
    let mut out = Vec::new();
    let mut packed = packed.take(MAX_PART + 1);
    packed.read_to_end(&mut out).map_err(|_| broken())?;
    if out.len() as u64 > MAX_PART {
        let most = MAX_PART >> 20;
        return Err(Halt::unreadable(format!(
            "has `{name}`, which unpacks to more than {most} MiB"
        )));
    }
    Ok(Some(out))
}

/// Reads XML. Entities other than those of XML itself are left out: Word declares none.
fn each(xml: &[u8], patience: &Patience, out: &mut dyn FnMut(&Event<'_>)) -> Result<(), Halt> {
    let mut reader = Reader::from_reader(xml);
    let mut nesting = Nesting::default();
    for count in 1.. {
        if count % EVENTS == 0 {
            patience.check()?;
        }
        let event = reader
            .read_event()
            .map_err(|error| Halt::unreadable(format!("broken DOCX: {error}")))?;
        match &event {
            Event::Start(_) => nesting.opens()?,
            Event::End(_) => nesting.closes(),
            Event::Eof => break,
            _ => {}
        }
        out(&event);
    }
    Ok(())
}

/// Which styles are headings, and of which level: `heading 1` in every language of Word.
#[derive(Debug, Default)]
struct Names {
    style: String,
    levels: HashMap<String, usize>,
}

impl Names {
    fn event(&mut self, event: &Event<'_>) {
        let (Event::Start(tag) | Event::Empty(tag)) = event else {
            return;
        };
        match tag.name().as_ref() {
            b"w:style" => self.style = attribute(tag, "w:styleId"),
            b"w:name" => {
                let name = attribute(tag, "w:val").to_lowercase();
                let level = match name.strip_prefix("heading ") {
                    Some(level) => level.parse().ok(),
                    None => (name == "title").then_some(1),
                };
                if let Some(level) = level {
                    self.levels.insert(std::mem::take(&mut self.style), level);
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Body {
    levels: HashMap<String, usize>,
    outline: Outline,
    title: Option<String>,
    paragraph: String,
    heading: Option<usize>,
    is_item: bool,
    in_text: bool,
    /// Open tables, each with its header and the cells of the present row.
    tables: Vec<(Vec<String>, Vec<String>)>,
}

impl Body {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::Empty(tag) => {
                self.start(tag);
                self.end(tag.name().as_ref());
            }
            Event::End(tag) => self.end(tag.name().as_ref()),
            Event::Text(text) if self.in_text => {
                if let Ok(text) = text.unescape() {
                    self.paragraph.push_str(&text);
                }
            }
            _ => {}
        }
    }

    fn start(&mut self, tag: &BytesStart<'_>) {
        match tag.name().as_ref() {
            b"w:t" => self.in_text = true,
            b"w:tab" | b"w:br" | b"w:cr" => self.paragraph.push(' '),
            b"w:numPr" => self.is_item = true,
            b"w:pStyle" => self.heading = self.levels.get(&attribute(tag, "w:val")).copied(),
            b"w:tbl" => self.tables.push((Vec::new(), Vec::new())),
            b"w:tc" => {
                if let Some((_, cells)) = self.tables.last_mut() {
                    cells.push(String::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &[u8]) {
        match name {
            b"w:t" => self.in_text = false,
            b"w:p" => self.end_paragraph(),
            b"w:tr" => {
                let Some((header, cells)) = self.tables.last_mut() else {
                    return;
                };
                let cells = std::mem::take(cells);
                if header.is_empty() && cells.len() > 1 {
                    *header = cells;
                } else {
                    let row = table_row(header, &cells);
                    self.outline.block(&row);
                }
            }
            b"w:tbl" => drop(self.tables.pop()),
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = one_line(&std::mem::take(&mut self.paragraph));
        let heading = self.heading.take();
        let is_item = std::mem::take(&mut self.is_item);
        if let Some(cell) = self
            .tables
            .last_mut()
            .and_then(|(_, cells)| cells.last_mut())
        {
            if !cell.is_empty() {
                cell.push(' ');
            }
            cell.push_str(&text);
        } else if let Some(level) = heading {
            self.title.get_or_insert_with(|| text.clone());
            self.outline.heading(level, &text);
        } else if is_item {
            self.outline.block(&format!("- {text}"));
        } else {
            self.outline.block(&text);
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> String {
    let value = tag.try_get_attribute(name).ok().flatten();
    let value = value.and_then(|value| Some(value.unescape_value().ok()?.into_owned()));
    value.unwrap_or_default()
}
