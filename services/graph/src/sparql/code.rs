//! The text of a query without what only looks like code.

/// The same characters at the same places, with blanks for strings, IRIs and comments.
pub(crate) fn blanked(sparql: &str) -> Vec<char> {
    let mut chars: Vec<char> = sparql.chars().collect();
    let mut at = 0;
    while let Some(&first) = chars.get(at) {
        let end = match first {
            '#' => find(&chars, at, |c| matches!(c, '\n' | '\r')),
            '"' | '\'' => string_end(&chars, at),
            // What has a character that no IRI has is a comparison.
            '<' => match find(&chars, at + 1, |c| {
                matches!(
                    c,
                    '>' | '<' | '"' | '{' | '}' | '|' | '^' | '`' | '\u{0}'..='\u{20}'
                )
            }) {
                end if chars.get(end) == Some(&'>') => end + 1,
                _ => at,
            },
            _ => at,
        };
        if let Some(hidden) = chars.get_mut(at..end) {
            hidden.fill(' ');
        }
        at = end.max(at + 1);
    }
    chars
}

/// Where the first character from `from` on is that `stop` wants; the end if there is none.
pub(crate) fn find(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    rest.iter()
        .position(|c| stop(*c))
        .map_or(chars.len(), |length| from + length)
}

/// After the string that begins at `from`; quotes may be single or triple.
fn string_end(chars: &[char], from: usize) -> usize {
    let quote = chars.get(from).copied().unwrap_or('"');
    let is_quotes = |at: usize, count: usize| {
        chars
            .get(at..at + count)
            .is_some_and(|found| found.iter().all(|c| *c == quote))
    };
    let closing = if is_quotes(from, 3) { 3 } else { 1 };
    let mut at = from + closing;
    while at < chars.len() {
        if chars.get(at) == Some(&'\\') {
            at += 2;
        } else if is_quotes(at, closing) {
            return at + closing;
        } else {
            at += 1;
        }
    }
    chars.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_iris_and_comments_are_blank_and_nothing_else() {
        let table = [
            ("a \"b\\\"c\" d", "a        d"),
            ("a '''b'c''' d", "a           d"),
            ("a <urn:b> < c # d\ne", "a         < c    \ne"),
            ("a # d\re", "a    \re"),
            ("1<(2||3>4)", "1<(2||3>4)"),
            ("<<( <a> b )>>", "<<(     b )>>"),
            ("\"open", "     "),
            ("", ""),
        ];
        for (before, after) in table {
            assert_eq!(blanked(before).into_iter().collect::<String>(), after);
        }
    }
}
