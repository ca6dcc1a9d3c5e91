//! Credentials are taken out of whatever is shown, recorded or told to the graph. In one place, so that
//! nobody forgets one of the shapes they come in.

use std::borrow::Cow;
use std::ops::Range;

/// What stands where a credential was.
pub const HIDDEN: &str = "***";

/// Beginnings of keys that providers give out, and of what is sent as a header.
const KEYS: [&str; 8] = [
    "Bearer ",
    "bearer ",
    "Basic ",
    "sk-",
    "AIza",
    "ghp_",
    "github_pat_",
    "xoxb-",
];
/// Fewest characters of a key after its beginning: less is a word.
const SHORTEST_KEY: usize = 16;

/// Beginnings of keys that stand as a segment in the path of an address: there a shorter one is no word.
const KEYS_IN_PATHS: [&str; 7] = ["sk-", "sk_", "pk_", "rk_", "AIza", "ghp_", "xoxb-"];
/// Fewest characters of such a segment behind its beginning.
const SHORTEST_IN_PATH: usize = 8;
/// Fewest digits of a segment behind one such as `/token/`: with less it is a word.
const FEWEST_DIGITS: usize = 4;

/// What stands for credentials where an address is described.
const EXAMPLES: &[&str] = &["USER", "USER:PASSWORD"];

/// The text without credentials: user and password of addresses, the values of parameters whose names
/// say that they are secret, and keys that are known by their beginning.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut hidden: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices("://") {
        let from = at + 3;
        // Its drivers take passwords that have these characters in them.
        let is_database = ["postgres", "postgresql"]
            .iter()
            .any(|it| text[..at].ends_with(it));
        let authority = until(&text[from..], |c| {
            ends(c) || (!is_database && matches!(c, '/' | '?' | '#'))
        });
        if let Some(end) = authority.rfind('@')
            && !EXAMPLES.contains(&&authority[..end])
        {
            hidden.push(from..from + end);
        }
        hidden.extend(of_path(text, from + authority.len()));
    }
    for (at, _) in text.match_indices('=') {
        let is_name = |c: char| c.is_alphanumeric() || "-_.%[]$".contains(c);
        let before = text[..at].trim_end_matches(is_name);
        let value = until(&text[at + 1..], |c| ends(c) || matches!(c, '&' | '#' | ';'));
        if before.ends_with(['?', '&', ';', '#']) && is_secret(&text[before.len()..at]) {
            hidden.push(at + 1..at + 1 + value.len());
        }
    }
    for begin in KEYS {
        for (at, _) in text.match_indices(begin) {
            let inside_a_word = text[..at].ends_with(|c: char| c.is_alphanumeric());
            let from = at + begin.len();
            let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.~+/=*".contains(c);
            let key = until(&text[from..], |c| !is_key(c));
            if !inside_a_word && key.len() >= SHORTEST_KEY {
                hidden.push(from..from + key.len());
            }
        }
    }
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    hidden.sort_by_key(|range| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for range in hidden {
        if range.start >= done {
            out.push_str(&text[done..range.start]);
            out.push_str(HIDDEN);
        }
        done = done.max(range.end);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// The segments of an address's path, which begins at `from`, that are keys: by their beginning, or
/// behind a segment that says that one follows.
fn of_path(text: &str, from: usize) -> Vec<Range<usize>> {
    let path = until(&text[from..], |c| ends(c) || matches!(c, '?' | '#'));
    let (mut found, mut at, mut before) = (Vec::new(), from, "");
    for segment in path.split('/') {
        let begin = KEYS_IN_PATHS
            .iter()
            .find(|begin| segment.starts_with(*begin));
        let begin = begin.map_or(0, |begin| begin.len());
        let key = &segment[begin..];
        let digits = key.bytes().filter(u8::is_ascii_digit).count();
        let is_key = if begin > 0 {
            key.len() >= SHORTEST_IN_PATH && digits > 0
        } else {
            key.len() >= SHORTEST_KEY && digits >= FEWEST_DIGITS && is_secret(before)
        };
        // Telegram's: `bot`, a number, and the key.
        let is_bot = segment.starts_with("bot") && segment[3..].contains(':') && digits > 0;
        if is_key || is_bot {
            found.push(at + begin..at + segment.len());
        }
        before = segment;
        at += segment.len() + 1;
    }
    found
}

fn until(text: &str, end: impl Fn(char) -> bool) -> &str {
    &text[..text.find(end).unwrap_or(text.len())]
}

/// Whether an address in a text is over.
fn ends(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`<>|\\".contains(c)
}

/// Whether the value of a parameter is for nobody's eyes, by its name.
fn is_secret(name: &str) -> bool {
    let plain = name.chars().filter(|c| c.is_alphanumeric());
    let plain = plain.collect::<String>().to_lowercase();
    let parts = [
        "token",
        "secret",
        "passw",
        "credential",
        "signature",
        "authorization",
    ];
    let whole = ["pass", "pwd", "auth", "sig", "jwt", "sas"];
    plain.ends_with("key")
        || whole.contains(&&*plain)
        || parts.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_are_hidden_and_the_rest_stays() {
        for (text, expected) in [
            ("nothing = hidden & fine", "nothing = hidden & fine"),
            (
                "https://medium.com/@user/a?page=2",
                "https://medium.com/@user/a?page=2",
            ),
            ("http://ada:se:cret@host:1/ds", "http://***@host:1/ds"),
            (
                "such as `postgres://USER:PASSWORD@HOST/DATABASE` or `postgres://USER@HOST`",
                "such as `postgres://USER:PASSWORD@HOST/DATABASE` or `postgres://USER@HOST`",
            ),
            (
                "pulsar://tok@a,b:6650 and x@y.z",
                "pulsar://***@a,b:6650 and x@y.z",
            ),
            (
                "`postgres://u:a/b?c@host/db?schema=x` is",
                "`postgres://***@host/db?schema=x` is",
            ),
            (
                "`https://e.org/q?api_key=abc&n=1#t`",
                "`https://e.org/q?api_key=***&n=1#t`",
            ),
            (
                "https://e.org/?X-Amz-Signature=ab%2F&a=b",
                "https://e.org/?X-Amz-Signature=***&a=b",
            ),
            (
                "https://e.org/?access%5Ftoken=ab",
                "https://e.org/?access%5Ftoken=***",
            ),
            (
                "https://e.org/#access_token=ab&x=1",
                "https://e.org/#access_token=***&x=1",
            ),
            (
                "Authorization: Bearer abcdefgh12345678.x",
                "Authorization: Bearer ***",
            ),
            (
                "https://e.org/v1/sk-abc12345/models?x=1",
                "https://e.org/v1/sk-***/models?x=1",
            ),
            (
                // Keys may hold a slash, so what follows a long one goes with it.
                "https://e.org/v1/sk-abcdefgh12345678/models",
                "https://e.org/v1/sk-***",
            ),
            (
                "https://api.e.org/bot123456:AAE-x_y/send",
                "https://api.e.org/***/send",
            ),
            (
                "https://e.org/token/0a1b2c3d4e5f6a7b/x /token/0a1b2c3d4e5f6a7b",
                "https://e.org/token/***/x /token/0a1b2c3d4e5f6a7b",
            ),
            (
                "https://e.org/docs/botany/bottles-12345678/key/concepts-of-nature",
                "https://e.org/docs/botany/bottles-12345678/key/concepts-of-nature",
            ),
            ("Bearer bonds are bonds", "Bearer bonds are bonds"),
            (
                "wrong key sk-proj-abcdefgh12345678: no",
                "wrong key sk-***: no",
            ),
            (
                "task-abcdefgh12345678abcdefgh",
                "task-abcdefgh12345678abcdefgh",
            ),
        ] {
            assert_eq!(redacted(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_credential_is_left_wherever_it_stands(
            before in "[ -~é]{0,20}",
            scheme in "(http|https|pulsar|pulsar\\+ssl|s3)",
            user in "[a-z]{0,5}",
            secret in "Q[A-Z0-9_~.%!*-]{7,20}",
            name in "(key|apikey|api-key|api_key|access_token|client_secret|password|sig|X-Amz-Credential)",
            after in "( [ -~é]{0,20})?",
        ) {
            for text in [
                format!("{before}{scheme}://{user}:{secret}@host.example/ds{after}"),
                format!("{before}{scheme}://host.example/a?b=1&{name}={secret}{after}"),
                format!("{before}{scheme}://host.example/a?{name}={secret}&b=1{after}"),
            ] {
                let shown = redacted(&text);
                prop_assert!(!shown.contains(&secret), "{shown}");
                prop_assert!(shown.contains("host.example"), "{shown}");
                prop_assert_eq!(redacted(&shown), shown.as_ref(), "twice is once");
            }
        }

        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            redacted(&text);
        }
    }
}
