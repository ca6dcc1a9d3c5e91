//! What is wrong with a `tool` item.

use super::{ARGUMENT_TYPES, Check, METHODS, MOST_RETRIES, nearest};
use agentfleet_schema::config::{DefaultAnswer, Effect, ToolItem, tool_kind};
use agentfleet_schema::names::is_plain;
use std::collections::BTreeSet;

/// Values that one tool may give.
const MOST_OUTPUTS: usize = 10;

impl Check<'_> {
    pub(super) fn tool(&mut self, tool: &ToolItem) {
        self.named(&tool.name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if tool.name.len() > 64 || !tool.name.chars().all(plain) {
            let reason = "takes only letters, digits, `_`, `-` and `.`, at most 64 of them";
            self.problem("/name", reason);
        }
        self.among("/type", &tool.kind, tool_kind::ALL);
        if tool.kind == tool_kind::PROMPT && tool.template.is_none() {
            self.problem("/template", "a `prompt` tool must name a prompt here");
        }
        if tool.kind == tool_kind::HTTP {
            match &tool.url {
                Some(url) if url.starts_with("https://") || url.starts_with("http://") => {
                    let host = url
                        .split_once("://")
                        .and_then(|(_, rest)| rest.split('/').next());
                    if host.is_some_and(|host| host.contains('{')) {
                        self.problem("/url", "an argument may not choose the host");
                    }
                }
                Some(_) => self.problem("/url", "must begin with `https://` or `http://`"),
                None => self.problem("/url", "an `http` tool must have an address here"),
            }
        }
        self.body(tool);
        let is_mcp = tool.kind == tool_kind::MCP;
        if is_mcp && tool.server.is_none() {
            self.problem("/server", "an `mcp` tool must name its server here");
        }
        if is_mcp && tool.tool.is_some() == tool.resource.is_some() {
            let says = "an `mcp` tool must have either `tool` or `resource`";
            self.problem("/tool", says);
        }
        if tool.kind == tool_kind::TOOL_SERVICE && tool.service.is_none() {
            let says = "a `tool-service` tool must name its service here";
            self.problem("/service", says);
        }
        if let Some(method) = &tool.method {
            self.among("/method", &method.to_ascii_uppercase(), METHODS);
        }
        self.terms(tool);
        let mut names = BTreeSet::new();
        for (index, argument) in tool.arguments.iter().enumerate() {
            if argument.name.is_empty() || !names.insert(&argument.name) {
                let reason = "each argument must have a name of its own";
                self.problem(format!("/arguments/{index}/name"), reason);
            }
            self.among(
                &format!("/arguments/{index}/type"),
                &argument.kind,
                ARGUMENT_TYPES,
            );
        }
        if tool.limit == Some(0) {
            self.problem("/limit", "must be at least 1");
        }
        if let Some(approval) = &tool.approval {
            let is_approved_by_time = approval.default == DefaultAnswer::Approve;
            if is_approved_by_time && tool.effect() == Effect::Destructive {
                let says =
                    "must be `deny`: nobody would have agreed to a call that cannot be undone";
                self.problem("/approval/default", says);
            }
            if approval.timeout_ms == 0 {
                self.problem(
                    "/approval/timeout-ms",
                    "must be at least 1: it is how long a person may take, in milliseconds",
                );
            }
            if approval.reason.len() > 1_000 {
                self.problem("/approval/reason", "must be at most 1000 bytes");
            }
        }
        if tool.timeout_ms == Some(0) {
            self.problem("/timeout-ms", "must be at least 1");
        }
    }

    /// How an `http` tool sends what it sends.
    fn body(&mut self, tool: &ToolItem) {
        let is_http = tool.kind == tool_kind::HTTP;
        if tool.oauth.is_some() && !is_http {
            self.problem(
                "/oauth",
                "is for `http` tools; an `mcp` tool has it in the item of its server",
            );
            return;
        }
        self.oauth(tool.oauth.as_ref(), tool.headers.keys());
        for (name, template) in &tool.headers {
            let mut of_run = template
                .split("${")
                .skip(1)
                .filter(|place| place.starts_with("run."));
            if of_run.any(|place| !place.starts_with("run.tenant}")) {
                let says = "of the run it may have `${run.tenant}` alone";
                self.problem(format!("/headers/{name}"), says);
            }
        }
        let Some(body) = &tool.body else {
            return;
        };
        let method = tool.method.as_deref().unwrap_or_default();
        if !is_http || !["POST", "PUT", "PATCH"].contains(&method.to_ascii_uppercase().as_str()) {
            let says = "is for `http` tools with the method `POST`, `PUT` or `PATCH`";
            self.problem("/body", says);
            return;
        }
        let (body, url) = (body.to_string(), tool.url.as_deref().unwrap_or_default());
        for argument in tool.declared() {
            let place = format!("{{{}}}", argument.name);
            if !body.contains(&place) && !url.contains(&place) {
                let says = format!(
                    "has no place for the argument `{}`: write `{place}` where it belongs",
                    argument.name
                );
                self.problem("/body", says);
            }
        }
    }

    /// On which terms a tool is called, and with what.
    fn terms(&mut self, tool: &ToolItem) {
        if let Some(schema) = &tool.parameters {
            if !tool.arguments.is_empty() {
                self.problem(
                    "/parameters",
                    "say the arguments once: here or in `arguments`",
                );
            }
            let is_object = schema["type"] == "object" && schema["properties"].is_object();
            if !is_object {
                let says = "must be the JSON Schema of an object with `properties`";
                self.problem("/parameters", says);
            } else if let Err(error) = jsonschema::validator_for(schema) {
                self.problem("/parameters", format!("is no JSON Schema: {error}"));
            }
        }
        if tool.kind == tool_kind::AGENT
            && !(tool.arguments.is_empty() && tool.parameters.is_none())
        {
            let says = "are fixed for an `agent`: `question` and `context`; leave them out";
            self.problem("/arguments", says);
        }
        if tool.kind == tool_kind::AGENT && tool.rate_limit.is_some() {
            let says = "is not for an `agent`: the limits of a run bound how many agents it asks";
            self.problem("/rate-limit", says);
        }
        if tool.kind == tool_kind::SPARQL && tool.sparql.is_none() {
            self.problem("/sparql", "a `sparql-select` tool must have its query here");
        }
        let declared = tool.declared();
        for name in tool.aliases.keys() {
            if !declared.iter().any(|one| one.name == *name) {
                let known = declared.iter().map(|one| one.name.as_str());
                self.problem(format!("/aliases/{name}"), nearest("argument", name, known));
            }
        }
        if tool.side_effects && tool.effect.is_some_and(Effect::may_repeat) {
            self.problem("/effect", "contradicts `side-effects`: leave that out");
        }
        if tool.retries.is_some_and(|retries| retries > MOST_RETRIES) {
            self.problem("/retries", format!("must be at most {MOST_RETRIES}"));
        }
        if tool.retries.is_some_and(|retries| retries > 0) && !tool.effect().may_repeat() {
            let says = "a call with effect `not-idempotent` or `destructive` is never made again";
            self.problem("/retries", says);
        }
        if let Some(limit) = tool.rate_limit
            && (limit.calls == 0 || limit.per_ms == 0)
        {
            self.problem("/rate-limit", "`calls` and `per-ms` must be at least 1");
        }
        if tool.permission.as_deref().is_some_and(str::is_empty) {
            self.problem(
                "/permission",
                "must name a permission; leave it out to need none",
            );
        }
        let result = tool
            .result
            .iter()
            .map(|pointer| ("/result".to_owned(), pointer));
        let outputs = tool.outputs.iter();
        let outputs = outputs.map(|(name, pointer)| (format!("/outputs/{name}"), pointer));
        for (field, pointer) in result.chain(outputs) {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                self.problem(field, "must be a JSON Pointer, such as `/data/items`");
            }
        }
        if tool.outputs.len() > MOST_OUTPUTS || tool.outputs.keys().any(|name| !is_plain(name)) {
            let says = format!(
                "must be at most {MOST_OUTPUTS}, each with a name of letters, digits and `-_.`, such as `contact_id`"
            );
            self.problem("/outputs", says);
        }
    }
}
