//! Long texts that travel in part: cut with the place of the whole, left out, or on one line.

const CUT: &str = "[cut: the whole has ";
pub(super) const LEFT_OUT: &str = "[left out: ";

/// Whether an observation tells of a failure: of a call, or of one that could not be made.
pub(crate) fn is_error(observation: &str) -> bool {
    observation.starts_with("Error:")
}

/// Whether an observation was left out.
pub fn is_left_out(observation: &str) -> bool {
    observation.starts_with(LEFT_OUT)
}

pub(super) fn is_short(text: &str) -> bool {
    is_left_out(text) || whole(text).is_some()
}

/// Size and place of the text that a preview is of.
pub(super) fn whole(text: &str) -> Option<(usize, &str)> {
    let at = text.rfind(CUT).filter(|_| text.ends_with(']'))?;
    let rest = text[at + CUT.len()..].strip_suffix(']')?;
    let (bytes, uri) = rest.split_once(" bytes, ")?;
    Some((bytes.parse().ok()?, uri))
}

/// What of a long text travels with the messages; the whole lies in the document.
pub(crate) fn preview(text: &str, max_bytes: usize, document: &str) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let head = head(text, max_bytes);
    format!("{head}\n{CUT}{} bytes, {document}]", text.len())
}

/// A preview, made shorter.
pub(super) fn shorter(text: &str, max_bytes: usize, document: &str) -> String {
    match whole(text) {
        Some((bytes, uri)) => format!("{}\n{CUT}{bytes} bytes, {uri}]", head(text, max_bytes)),
        None => preview(text, max_bytes, document),
    }
}

pub(super) fn head(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes.min(text.len()))]
}

/// A text on one line, of at most so many bytes.
pub(super) fn line(text: &str, max_bytes: usize) -> String {
    let joined = crate::say::in_one_line(text);
    if joined.len() <= max_bytes {
        return joined;
    }
    format!("{}...", head(&joined, max_bytes))
}
