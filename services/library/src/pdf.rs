//! PDF to titled passages: the text of each page below a heading that says which page it is.
//!
//! A page is what a PDF knows; paragraphs and headings are not in it, so lines are joined as those of a
//! wrapped text are. What a page's streams unpack to is bounded, one by one and together.

use super::format::{Halt, Parsed};
use super::guard::Patience;
use super::outline::{Outline, one_line};
use lopdf::{DecompressError, Document, Error, LoadOptions};

/// Most bytes that one stream of a file may unpack to.
const MAX_STREAM: usize = 16 * 1024 * 1024;
/// Most streams that are unpacked while the file is opened: each may hold thousands of objects.
const MAX_OBJECT_STREAMS: usize = 4_096;
/// Most characters of text of a file.
const MAX_TEXT: usize = 64 * 1024 * 1024;

/// Reads a whole file.
pub(crate) fn parse(bytes: &[u8], patience: &Patience) -> Result<Parsed, Halt> {
    let packed = bytes.windows(7).filter(|window| *window == b"/ObjStm");
    if packed.count() > MAX_OBJECT_STREAMS {
        return Err(Halt::unreadable(format!(
            "holds more than {MAX_OBJECT_STREAMS} streams of objects"
        )));
    }
    let options = LoadOptions {
        max_decompressed_size: Some(MAX_STREAM),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(bytes, options).map_err(|e| broken(&e))?;
    if document.is_encrypted() {
        return Err(Halt::unreadable("is encrypted"));
    }
    let mut outline = Outline::default();
    let mut size = 0;
    for number in document.get_pages().into_keys() {
        patience.check()?;
        let text = document
            .extract_text_with_limit(&[number], MAX_STREAM)
            .map_err(|error| broken(&error))?;
        size += text.len();
        if size > MAX_TEXT {
            return Err(Halt::unreadable("holds more than 64 MiB of text"));
        }
        outline.part(2, &format!("page {number}"));
        for paragraph in text.split("\n\n") {
            outline.block(&one_line(paragraph));
        }
    }
    Ok(outline.into_parsed(title(&document), None))
}

/// The title that the file gives itself.
fn title(document: &Document) -> Option<String> {
    let info = document.trailer.get(b"Info").ok()?;
    let (_, info) = document.dereference(info).ok()?;
    let title = lopdf::decode_text_string(info.as_dict().ok()?.get(b"Title").ok()?).ok()?;
    let title = one_line(&title);
    (!title.is_empty()).then_some(title)
}

fn broken(error: &Error) -> Halt {
    match error {
        Error::Decompress(DecompressError::MemoryLimitExceeded { .. }) => {
            Halt::unreadable("holds a stream that unpacks to more than 16 MiB")
        }
        error => Halt::unreadable(format!("broken PDF: {error}")),
    }
}
