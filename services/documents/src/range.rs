//! Ranges of keys by prefix, for stores that keep keys in the order of their bytes.

/// The first key after all that begin with this prefix; `None` if there is none.
pub(crate) fn after_all_below(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The last character of all has no next one, so the character before it moves on.
        if let Some(next) = successor(last) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn successor(character: char) -> Option<char> {
    // Between U+D7FF and U+E000 there are no characters.
    let next = if character == '\u{d7ff}' {
        0xe000
    } else {
        u32::from(character) + 1
    };
    char::from_u32(next)
}
