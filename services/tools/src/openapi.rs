//! Tools from an OpenAPI description: an item for each operation.
//!
//! The description is somebody else's text: everything in it is bounded, references are followed only within
//! it, and what a tool cannot do is left out by name.

use crate::schemas::{MAX_DESCRIPTION, MAX_SCHEMA, Whole};
use agentfleet_schema::config::{Effect, ToolItem, fits, tool_kind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most operations of a description.
pub const MOST: usize = 500;
const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];

/// What a description came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub tools: Vec<ToolItem>,
    /// What no tool was made of, and why.
    pub left_out: Vec<String>,
}

/// How tools are named and which are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Put before each name.
    pub prefix: &'a str,
    /// A glob that names have to fit, prefix included.
    pub only: &'a str,
    /// The address of the services, where the description has none.
    pub base: Option<&'a str>,
}

/// The tools of a description, or what is wrong with it as a whole.
pub fn tools(description: &Value, wanted: Wanted<'_>) -> Result<Imported, String> {
    let version = description["openapi"].as_str().unwrap_or_default();
    if !version.starts_with("3.") {
        return Err(match description["swagger"].as_str() {
            Some(old) => format!("this is Swagger {old}, and OpenAPI 3 is read: convert it first"),
            None => "this is no OpenAPI 3 description: it has no `openapi: 3...`".to_owned(),
        });
    }
    let base = base(description, wanted.base)?;
    let paths = description["paths"].as_object();
    let paths = paths.ok_or("the description has no `paths`")?;
    let mut imported = Imported::default();
    for (path, item) in paths {
        for method in METHODS.iter().filter(|method| item.get(**method).is_some()) {
            let operation = Operation {
                description,
                item,
                path,
                method,
                itself: &item[*method],
                whole: Whole::of(description),
            };
            let name = format!("{}{}", wanted.prefix, operation.name());
            if !fits(wanted.only, &name) {
                continue;
            }
            if imported.tools.len() >= MOST {
                return Err(format!("more than {MOST} operations: choose with `--only`"));
            }
            match operation.tool(&name, &base) {
                Ok(tool) if imported.tools.iter().any(|one| one.name == tool.name) => {
                    let says = format!("{name}: another operation has this name");
                    imported.left_out.push(says);
                }
                Ok(tool) => imported.tools.push(tool),
                Err(why) => imported.left_out.push(format!("{name}: {why}")),
            }
        }
    }
    Ok(imported)
}

/// Where the services are.
fn base(description: &Value, given: Option<&str>) -> Result<String, String> {
    let own = description["servers"][0]["url"].as_str();
    let url = given.or(own).unwrap_or_default().trim_end_matches('/');
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    if !is_address || url.contains('{') {
        return Err(format!(
            "the description says no address of its services (`{url}`): say it with `--base URL`"
        ));
    }
    Ok(url.to_owned())
}

struct Operation<'a> {
    description: &'a Value,
    /// Its path with all its methods.
    item: &'a Value,
    path: &'a str,
    method: &'a str,
    itself: &'a Value,
    whole: Whole<'a>,
}

impl Operation<'_> {
    /// Its own id, else what it does to which path.
    fn name(&self) -> String {
        let own = self.itself["operationId"].as_str();
        let text = own.map_or_else(|| format!("{}{}", self.method, self.path), str::to_owned);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let name: String = text
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .collect();
        let name = name.replace("__", "_");
        name.trim_matches('_').to_owned()
    }

    fn tool(&self, name: &str, base: &str) -> Result<ToolItem, String> {
        if name.len() > 64 {
            return Err("its name has more than 64 characters".to_owned());
        }
        let mut properties = Map::new();
        let mut required = Vec::new();
        for parameter in self.parameters() {
            self.parameter(&parameter, &mut properties, &mut required)?;
        }
        if let Some(body) = self.itself.get("requestBody") {
            self.body(body, &mut properties, &mut required)?;
        }
        for name in self
            .path
            .split('{')
            .skip(1)
            .filter_map(|part| part.split('}').next())
        {
            if !properties.contains_key(name) {
                return Err(format!("its path names `{name}`, which is no parameter"));
            }
        }
        if let Some(reference) = self.whole.missing() {
            return Err(format!("it refers to `{reference}`, which is not there"));
        }
        let schema = json!({"type": "object", "properties": properties, "required": required});
        if schema.to_string().len() > MAX_SCHEMA {
            return Err(format!("its schema has more than {MAX_SCHEMA} bytes"));
        }
        let texts = ["description", "summary"].map(|field| self.itself[field].as_str());
        let text = texts.into_iter().flatten().next().unwrap_or(name);
        Ok(ToolItem {
            name: name.to_owned(),
            kind: tool_kind::HTTP.to_owned(),
            description: text.chars().take(MAX_DESCRIPTION).collect(),
            parameters: Some(schema),
            group: vec!["default".to_owned()],
            applicable_states: vec!["*".to_owned()],
            url: Some(format!("{base}{}", self.path)),
            method: Some(self.method.to_ascii_uppercase()),
            headers: self.headers()?,
            effect: Some(match self.method {
                "get" | "head" => Effect::ReadOnly,
                "put" => Effect::Idempotent,
                "delete" => Effect::Destructive,
                _ => Effect::NotIdempotent,
            }),
            ..ToolItem::default()
        })
    }

    /// Its parameters, with those of its path.
    fn parameters(&self) -> Vec<Value> {
        let all = [&self.item["parameters"], &self.itself["parameters"]];
        let all = all.into_iter().filter_map(Value::as_array).flatten();
        all.map(|one| self.whole.value(one)).collect()
    }

    fn parameter(
        &self,
        parameter: &Value,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
    ) -> Result<(), String> {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        let place = parameter["in"].as_str().unwrap_or_default();
        let is_required = parameter["required"] == true;
        let sends_body = ["post", "put", "patch"].contains(&self.method);
        let can_be_had = place == "path" || place == "query" && !sends_body;
        if !can_be_had {
            if is_required {
                return Err(format!("it needs `{name}` in its {place}"));
            }
            return Ok(());
        }
        let mut schema = if parameter["schema"].is_object() {
            parameter["schema"].clone()
        } else {
            json!({"type": "string"})
        };
        if let Some(text) = parameter["description"].as_str()
            && schema.get("description").is_none()
        {
            schema["description"] = text.into();
        }
        if is_required || place == "path" {
            required.push(name.clone());
        }
        properties.insert(name, schema);
        Ok(())
    }

    /// The fields of a JSON object are arguments beside the parameters.
    fn body(
        &self,
        body: &Value,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
    ) -> Result<(), String> {
        let is_json = |body: &Value| body["content"].get("application/json").is_some();
        let body = self.whole.value(body);
        let schema = &body["content"]["application/json"]["schema"];
        let Some(fields) = schema["properties"].as_object() else {
            return if body["required"] == true || is_json(&body) {
                Err("its body is no JSON object with named fields".to_owned())
            } else {
                Ok(())
            };
        };
        for (name, field) in fields {
            if properties.insert(name.clone(), field.clone()).is_some() {
                return Err(format!("`{name}` is a parameter and a field of its body"));
            }
        }
        let names = schema["required"].as_array().into_iter().flatten();
        required.extend(names.filter_map(Value::as_str).map(str::to_owned));
        Ok(())
    }

    /// The header by which it knows its caller, with the name of a secret in place of one.
    fn headers(&self) -> Result<BTreeMap<String, String>, String> {
        let none = BTreeMap::new();
        let asked = self
            .itself
            .get("security")
            .unwrap_or(&self.description["security"]);
        let Some(asked) = asked.as_array().filter(|asked| !asked.is_empty()) else {
            return Ok(none);
        };
        let schemes = &self.description["components"]["securitySchemes"];
        for one in asked.iter().filter_map(Value::as_object) {
            let mut names = one.keys();
            let (Some(name), None) = (names.next(), names.next()) else {
                if one.is_empty() {
                    return Ok(none);
                }
                continue;
            };
            let secret: String = name
                .to_ascii_uppercase()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            let scheme = self.whole.value(&schemes[name]);
            let bearer = scheme["scheme"].as_str().unwrap_or_default();
            let header = match (scheme["type"].as_str(), scheme["in"].as_str()) {
                (Some("http"), _) if bearer.eq_ignore_ascii_case("bearer") => {
                    ("authorization".to_owned(), format!("Bearer ${{{secret}}}"))
                }
                (Some("oauth2" | "openIdConnect"), _) => {
                    ("authorization".to_owned(), format!("Bearer ${{{secret}}}"))
                }
                (Some("apiKey"), Some("header")) => {
                    let header = scheme["name"].as_str().unwrap_or_default();
                    (header.to_ascii_lowercase(), format!("${{{secret}}}"))
                }
                _ => continue,
            };
            return Ok([header].into());
        }
        Err("it knows its caller by none of: bearer token, key in a header".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn description() -> Value {
        json!({
            "openapi": "3.0.3",
            "servers": [{"url": "https://blog.example/v1/"}],
            "security": [{"token": []}],
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
                "schemas": {"Post": {
                    "type": "object", "required": ["title"],
                    "properties": {"title": {"type": "string"}, "parent": {"$ref": "#/components/schemas/Post"}},
                }},
            },
            "paths": {"/posts/{post_id}": {
                "parameters": [{"name": "post_id", "in": "path", "required": true, "schema": {"type": "string"}}],
                "get": {"operationId": "get_post", "summary": "One post", "security": []},
                "put": {"requestBody": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Post"}}}}},
                "delete": {"operationId": "delete post"},
                "post": {"operationId": "upload", "requestBody": {"required": true, "content": {"image/png": {}}}},
                "patch": {"operationId": "touch", "parameters": [{"name": "x", "in": "cookie", "required": true}]},
            }},
        })
    }

    fn wanted(only: &str) -> Wanted<'_> {
        Wanted {
            prefix: "blog.",
            only,
            base: None,
        }
    }

    #[test]
    fn an_operation_becomes_a_tool_and_what_cannot_be_had_is_named() {
        let imported = tools(&description(), wanted("*")).unwrap();
        let told: Vec<(&str, &str, usize)> = imported
            .tools
            .iter()
            .map(|one| (one.name.as_str(), one.effect().as_str(), one.headers.len()))
            .collect();
        assert_eq!(
            told,
            [
                ("blog.get_post", "read-only", 0),
                ("blog.put_posts_post_id", "idempotent", 1),
                ("blog.delete_post", "destructive", 1),
            ]
        );
        assert_eq!(
            imported.left_out,
            [
                "blog.upload: its body is no JSON object with named fields",
                "blog.touch: it needs `x` in its cookie",
            ]
        );
        let put = &imported.tools[1];
        assert_eq!(
            put.url.as_deref(),
            Some("https://blog.example/v1/posts/{post_id}")
        );
        assert_eq!(put.headers["authorization"], "Bearer ${TOKEN}");
        let schema = put.parameters.as_ref().unwrap();
        assert_eq!(schema["required"], json!(["post_id", "title"]));
        // A schema that refers to itself has an end.
        assert!(schema.to_string().len() < MAX_SCHEMA);
        assert_eq!(
            tools(&description(), wanted("blog.get_*"))
                .unwrap()
                .tools
                .len(),
            1
        );
    }

    #[test]
    fn what_is_no_description_is_told() {
        for (given, expected) in [
            (json!({"swagger": "2.0"}), "this is Swagger 2.0"),
            (json!({}), "no OpenAPI 3 description"),
            (
                json!({"openapi": "3.1.0", "paths": {}}),
                "say it with `--base URL`",
            ),
        ] {
            let error = tools(&given, wanted("*")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
