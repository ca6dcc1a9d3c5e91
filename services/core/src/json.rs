//! JSON out of a model's prose: fences stripped, the outermost object found, small damage mended.

use serde_json::Value;

/// The first JSON object or array in `text`, or `None`.
///
/// Takes text around it, code fences, trailing commas and a missing end. Never invents content.
pub fn extract(text: &str) -> Option<Value> {
    let start = text.find(['{', '['])?;
    let body = &text[start..];
    let end = balanced_end(body);
    if let Some(end) = end
        && let Ok(value) = serde_json::from_str(&body[..end])
    {
        return Some(value);
    }
    let candidate = end.map_or(body, |end| &body[..end]);
    serde_json::from_str(&mended(candidate)).ok()
}

/// A field of an object as a text without space around it; empty where it is none.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    let text = object.get(name).and_then(Value::as_str);
    text.unwrap_or_default().trim()
}

/// Whether the first JSON object or array in `text` is there to its end.
pub fn is_whole(text: &str) -> bool {
    let start = text.find(['{', '[']);
    start.is_some_and(|start| balanced_end(&text[start..]).is_some())
}

/// Where the JSON value that `text` starts with ends: strings and escapes are respected.
pub fn balanced_end(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + c.len_utf8());
                }
            }
            _ => {}
        }
    }
    None
}

/// Drops trailing commas, escapes raw line ends within strings, closes what was left open.
fn mended(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut open = Vec::new();
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                '\n' => {
                    out.push_str("\\n");
                    continue;
                }
                _ => {}
            }
            out.push(c);
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                drop_trailing_comma(&mut out);
                open.pop();
            }
            _ => {}
        }
        out.push(c);
    }
    if in_string {
        out.push('"');
    }
    drop_trailing_comma(&mut out);
    while let Some(close) = open.pop() {
        out.push(close);
    }
    out
}

fn drop_trailing_comma(out: &mut String) {
    let kept = out.trim_end().len();
    if out[..kept].ends_with(',') {
        out.truncate(kept - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_the_object_in_what_models_write() {
        let cases = [
            (r#"{"a":1}"#, json!({"a": 1})),
            (
                "Sure!\n```json\n{\"a\": [1, 2,],}\n```\nHope it helps",
                json!({"a": [1, 2]}),
            ),
            (
                r#"{"a": "br}ace", "b": {"c": "\"q\""}} trailing"#,
                json!({"a": "br}ace", "b": {"c": "\"q\""}}),
            ),
            ("{\"a\": \"two\nlines\"}", json!({"a": "two\nlines"})),
            (r#"{"a": ["x", "y"#, json!({"a": ["x", "y"]})),
            (r#"["one", "two"]"#, json!(["one", "two"])),
        ];
        for (text, expected) in cases {
            assert_eq!(extract(text), Some(expected), "{text}");
        }
        for text in ["", "no json here", "{not json}", "}"] {
            assert_eq!(extract(text), None, "{text}");
        }
    }
}
