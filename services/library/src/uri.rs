//! Names of loaded documents and of blank nodes in them.
//!
//! A document keeps its URI for as long as its collection and its path below the loaded root stay
//! the same, so that answers can cite it across reloads.

const DOCUMENT: &str = "urn:agentfleet:document:";
const BLANK: &str = "urn:agentfleet:blank:";

/// `urn:agentfleet:document:{collection}:{path}`, both percent-encoded; `/` stays in the path.
pub(crate) fn document(collection: &str, path: &str) -> String {
    format!("{DOCUMENT}{}", below(collection, path))
}

/// The IRI that stands for the `number`th blank node of a file.
pub(crate) fn blank(document: &str, number: usize) -> String {
    let name = document.strip_prefix(DOCUMENT).unwrap_or(document);
    format!("{BLANK}{name}:b{number}")
}

/// The document whose blank node an IRI stands for.
pub fn document_of_blank(iri: &str) -> Option<String> {
    let (name, _) = iri.strip_prefix(BLANK)?.rsplit_once(":b")?;
    Some(format!("{DOCUMENT}{name}"))
}

/// Whether an IRI stands for a blank node.
pub fn is_blank(iri: &str) -> bool {
    iri.starts_with(BLANK)
}

/// The graph that keeps the statements of one named graph of a loaded file apart.
pub(crate) fn named_graph(collection_graph: &str, name: &str) -> String {
    format!("{collection_graph}:graph:{}", encode(name, ""))
}

fn below(collection: &str, path: &str) -> String {
    format!("{}:{}", encode(collection, ""), encode(path, "/"))
}

/// Percent-encodes everything but unreserved characters and those of `keep`.
fn encode(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain || keep.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_makes_a_valid_urn() {
        for (collection, path, expected) in [
            (
                "dossier",
                "a/b.md",
                "urn:agentfleet:document:dossier:a/b.md",
            ),
            (
                "my docs",
                "ü x:1.md",
                "urn:agentfleet:document:my%20docs:%C3%BC%20x%3A1.md",
            ),
            (
                "a:b",
                "100%#?.txt",
                "urn:agentfleet:document:a%3Ab:100%25%23%3F.txt",
            ),
        ] {
            assert_eq!(document(collection, path), expected);
        }
    }

    #[test]
    fn blank_nodes_of_different_files_never_share_a_name() {
        let one = blank(&document("c", "a.ttl"), 1);
        assert_eq!(one, "urn:agentfleet:blank:c:a.ttl:b1");
        assert!(is_blank(&one));
        assert_eq!(document_of_blank(&one), Some(document("c", "a.ttl")));
        assert_ne!(one, blank(&document("c", "b.ttl"), 1));
        assert!(!is_blank(&document("c", "a.ttl")));
    }
}
