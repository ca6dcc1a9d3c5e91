//! Where a call of an `http` tool goes: its address with arguments in place, and where that sends it on to.

use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::uris;
use reqwest::header::LOCATION;
use reqwest::{Method, Response, Url};
use serde_json::{Map, Value};

/// Where a tool's calls go.
pub(super) struct Target {
    pub(super) url: Url,
    pub(super) method: Method,
    /// Arguments that are no part of the address.
    pub(super) rest: Map<String, Value>,
    /// What the item makes of them for the body.
    pub(super) body: Option<Value>,
    pub(super) is_redirected: bool,
}

impl Target {
    pub(super) fn of(tool: &ToolItem, arguments: &Arguments) -> Result<Self, String> {
        let Some(template) = tool.url.as_deref().filter(|url| !url.is_empty()) else {
            return Err(format!("tool `{}` has no `url`", tool.name));
        };
        let mut rest: Map<String, Value> = arguments
            .iter()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        let url = filled(&tool.name, template, &mut rest)?;
        let url = url.as_str();
        let parsed = Url::parse(url)
            .map_err(|error| format!("tool `{}` has the bad `url` `{url}`: {error}", tool.name))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(format!(
                "tool `{}` has the `url` `{url}`, which is neither `http` nor `https`",
                tool.name
            ));
        }
        let body = tool.body.as_ref();
        let body = body.and_then(|body| templated(body, arguments));
        Ok(Self {
            url: parsed,
            method: method(tool)?,
            rest,
            body,
            is_redirected: false,
        })
    }

    /// The address without what arguments make of it: scheme, host and port.
    pub(super) fn base(tool: &ToolItem) -> Result<Url, String> {
        let template = tool.url.as_deref().unwrap_or_default();
        let fixed = template.split('{').next().unwrap_or_default();
        Url::parse(fixed).map_err(|error| {
            format!(
                "tool `{}` has the bad `url` `{template}`: {error}",
                tool.name
            )
        })
    }

    /// Where an answer sends a reading call on to, if it does so and the item allows it.
    pub(super) fn redirected(
        &self,
        tool: &ToolItem,
        response: &Response,
    ) -> Result<Option<Self>, String> {
        let status = response.status();
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        if !status.is_redirection() || !reads {
            return Ok(None);
        }
        let to = response
            .headers()
            .get(LOCATION)
            .and_then(|to| to.to_str().ok());
        let Some(url) = to.and_then(|to| self.url.join(to).ok()) else {
            return Ok(None);
        };
        let host = url.host_str().unwrap_or_default();
        let is_same = url.origin() == self.url.origin();
        if !is_same
            && !tool
                .allow_hosts
                .iter()
                .any(|one| one.eq_ignore_ascii_case(host))
        {
            return Err(format!(
                "`{}` redirects to `{host}`, which is not among the tool's `allow-hosts`",
                self.url.host_str().unwrap_or_default()
            ));
        }
        if !matches!(url.scheme(), "http" | "https")
            || self.url.scheme() == "https" && url.scheme() == "http"
        {
            return Err(format!("a redirect to `{}:` is not followed", url.scheme()));
        }
        Ok(Some(Self {
            url,
            method: self.method.clone(),
            rest: Map::new(),
            body: None,
            is_redirected: true,
        }))
    }

    pub(super) fn sends_body(&self) -> bool {
        matches!(self.method, Method::POST | Method::PUT | Method::PATCH)
    }
}

/// A template with arguments in the places of their names. A text that is one place becomes the argument as it is,
/// of whatever type; what stands in an object or a list for an argument that is not given is left out.
fn templated(template: &Value, arguments: &Arguments) -> Option<Value> {
    match template {
        Value::String(text) => {
            let name = text
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            match name.filter(|name| is_name(name)) {
                Some(name) => arguments.get(name).cloned(),
                None => Some(Value::String(said(text, arguments))),
            }
        }
        Value::Array(items) => {
            let items = items.iter().filter_map(|item| templated(item, arguments));
            Some(Value::Array(items.collect()))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields
                .filter_map(|(name, value)| Some((name.clone(), templated(value, arguments)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
    }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && name.chars().all(plain)
}

/// A text with arguments within it, as text. One that is not given is nothing, and braces around anything else stay.
fn said(text: &str, arguments: &Arguments) -> String {
    let mut told = String::new();
    let mut left = text;
    while let Some((before, after)) = left.split_once('{') {
        told.push_str(before);
        match after.split_once('}').filter(|(name, _)| is_name(name)) {
            Some((name, behind)) => {
                match arguments.get(name) {
                    Some(Value::String(text)) => told.push_str(text),
                    Some(other) => told.push_str(&other.to_string()),
                    None => {}
                }
                left = behind;
            }
            None => {
                told.push('{');
                left = after;
            }
        }
    }
    told.push_str(left);
    told
}

/// An address with arguments in the places of their names. What an argument says stays within one segment.
fn filled(tool: &str, template: &str, rest: &mut Map<String, Value>) -> Result<String, String> {
    let mut url = String::new();
    let mut left = template;
    while let Some((before, after)) = left.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(format!(
                "tool `{tool}` has the bad `url` `{template}`: `{{` is not closed"
            ));
        };
        url.push_str(before);
        let is_within_path = url
            .split_once("://")
            .is_some_and(|(_, behind)| behind.contains('/'));
        if !is_within_path {
            return Err(format!(
                "tool `{tool}` has the bad `url` `{template}`: an argument may not choose the host"
            ));
        }
        let text = match rest.remove(name) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => return Err(format!("`{name}` is part of the address, and is missing")),
        };
        if ["", ".", ".."].contains(&text.as_str()) {
            return Err(format!(
                "`{name}` is part of the address, and cannot be `{text}`"
            ));
        }
        url.push_str(&uris::encode(&text));
        left = behind;
    }
    url.push_str(left);
    Ok(url)
}

fn method(tool: &ToolItem) -> Result<Method, String> {
    let name = tool
        .method
        .as_deref()
        .unwrap_or_default()
        .to_ascii_uppercase();
    match name.as_str() {
        "" | "GET" => Ok(Method::GET),
        "HEAD" => Ok(Method::HEAD),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(format!(
            "tool `{}` has the unknown `method` `{name}` (known: `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`)",
            tool.name
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::config::ToolArgument;

    fn tool(method: Option<&str>, url: Option<&str>, side_effects: bool) -> ToolItem {
        ToolItem {
            name: "t".into(),
            method: method.map(Into::into),
            url: url.map(Into::into),
            side_effects,
            ..ToolItem::default()
        }
    }

    #[test]
    fn a_body_has_arguments_where_the_template_says() {
        let template = serde_json::json!({
            "data": {"title": "{title}", "tags": ["blog", "{tag}"], "count": "{count}", "note": "{note}"},
            "says": "About {title}, {count} times: {not a name} {", "fixed": true,
        });
        let declared = |name: &str, kind: &str| ToolArgument {
            name: name.into(),
            kind: kind.into(),
            ..ToolArgument::default()
        };
        let declared = [declared("title", "string"), declared("count", "integer")];
        let given = [("title", "A {count}"), ("count", "3")];
        let given = given.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let arguments = Arguments::check(&declared, &given.into()).unwrap();
        let body = templated(&template, &arguments).unwrap_or_default();
        let expected = serde_json::json!({
            "data": {"title": "A {count}", "tags": ["blog"], "count": 3},
            "says": "About A {count}, 3 times: {not a name} {", "fixed": true,
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_bad_item_is_named() {
        for (method, url, expected) in [
            (None, None, "tool `t` has no `url`"),
            (
                None,
                Some("nowhere"),
                "tool `t` has the bad `url` `nowhere`",
            ),
            (
                None,
                Some("http://e.org/{id}"),
                "`id` is part of the address, and is missing",
            ),
            (
                None,
                Some("http://{host}/x"),
                "an argument may not choose the host",
            ),
            (
                None,
                Some("file:///etc/passwd"),
                "neither `http` nor `https`",
            ),
            (
                Some("BREW"),
                Some("http://e.org"),
                "unknown `method` `BREW`",
            ),
        ] {
            let reason = Target::of(&tool(method, url, false), &Arguments::default())
                .err()
                .unwrap_or_default();
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn an_argument_stays_in_its_segment() {
        let fill = |id: &str| {
            let mut rest =
                Map::from_iter([("id".to_owned(), id.into()), ("q".to_owned(), 1.into())]);
            let url = filled("t", "https://e.org/posts/{id}?x=1", &mut rest);
            assert_eq!(rest.len(), 1);
            url
        };
        for (id, expected) in [
            ("p-7", "https://e.org/posts/p-7?x=1"),
            ("a/../b?c#d", "https://e.org/posts/a%2F..%2Fb%3Fc%23d?x=1"),
        ] {
            assert_eq!(fill(id).as_deref(), Ok(expected));
        }
        for id in ["", ".", ".."] {
            assert!(fill(id).is_err(), "{id}");
        }
    }
}
