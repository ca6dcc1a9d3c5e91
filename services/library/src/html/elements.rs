//! What elements mean: which are blocks, which are no text, and what stands in them.

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TokenSinkResult};

/// Elements whose text nobody reads.
pub(super) const NEVER_READ: &[&str] = &[
    "script", "style", "noscript", "template", "svg", "math", "select", "button", "iframe",
    "object", "canvas", "audio", "video", "textarea",
];

/// Elements and roles that lead elsewhere.
pub(super) const NAVIGATION: &[&str] = &["nav", "footer"];

pub(super) const NAVIGATION_ROLES: &[&str] = &[
    "navigation",
    "search",
    "banner",
    "contentinfo",
    "menu",
    "menubar",
    "toolbar",
];

/// Classes by which generators of documentation mark such parts.
pub(super) const NAVIGATION_CLASSES: &[&str] = &[
    "breadcrumb",
    "breadcrumbs",
    "headerlink",
    "navbar",
    "navfooter",
    "navheader",
    "pagination",
    "sidebar",
    "sphinxsidebar",
    "toc",
];

pub(super) const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "center",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "form",
    "header",
    "hr",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "ul",
];

/// Elements without content, which have no end tag.
pub(super) const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];

pub(super) fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut cut = size.min(rest.len());
        while !rest.is_char_boundary(cut) {
            cut += 1;
        }
        let (piece, tail) = rest.split_at(cut);
        rest = tail;
        Some(piece)
    })
}

pub(super) fn heading_level(name: &str) -> Option<usize> {
    match name.as_bytes() {
        [b'h', level @ b'1'..=b'6'] => Some(usize::from(level - b'0')),
        _ => None,
    }
}

pub(super) fn attribute<'t>(tag: &'t Tag, name: &str) -> Option<&'t str> {
    tag.attrs
        .iter()
        .find(|a| &*a.name.local == name)
        .map(|a| &*a.value)
}

/// The tokenizer leaves it to its caller to say where markup is not markup.
pub(super) fn raw_text(name: &str, starts: bool) -> TokenSinkResult<()> {
    if !starts {
        return TokenSinkResult::Continue;
    }
    match name {
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "iframe" | "noembed" | "noframes" | "xmp" => {
            TokenSinkResult::RawData(RawKind::Rawtext)
        }
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        _ => TokenSinkResult::Continue,
    }
}
