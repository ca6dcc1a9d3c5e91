//! Checks before anything is stored: each item by its schema and its meaning, and all together.

mod access;
mod mcp_server;
mod together;
mod tool;
mod tool_policy;
mod tool_service;

pub(crate) use together::together;

use crate::error::Problem;
use crate::{Item, prompts, queries};
use agentfleet_schema::config::{
    AgentPattern, AgentTaskType, Intent, JoinPolicy, ModelProfile, PromptItem, QueryItem,
    Specialist, choice, item_type, parameter_type, tool_kind,
};
use agentfleet_schema::request::RunLimits;
use agentfleet_schema::{Money, Operation, json_schema};
use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The longest type or key.
const MAX_NAME: usize = 200;
/// The smallest window of a model, in tokens, that leaves room for a step.
/// Most retries of one call.
const MOST_RETRIES: u32 = 5;
const MIN_WINDOW: u32 = 1_000;
/// JSON types an argument may have.
const ARGUMENT_TYPES: &[&str] = &["string", "integer", "number", "boolean", "object", "array"];
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
/// The specialist for what no other is meant for.
const GENERAL: &str = "general";
/// What a specialist may be told beside the message.
const CONTEXT: &[&str] = &[
    "tenant_type",
    "active_services",
    "recent_topics",
    "memories",
    "intent",
    "services",
    "entities",
    "time_scope",
    "action_required",
];
const RESPONSE_TYPES: &[&str] = &["", "text", "json"];

/// What an item of a type looks like, and what checks that.
static SCHEMAS: LazyLock<BTreeMap<&'static str, (Value, Validator)>> = LazyLock::new(|| {
    let compile = |(item_type, schema): (&'static str, Value)| {
        let validator = jsonschema::validator_for(&schema).ok()?;
        Some((item_type, (schema, validator)))
    };
    let schemas = json_schema::config_items().into_iter();
    schemas.filter_map(compile).collect()
});

/// A schema, or the one in `$defs` that it refers to.
fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let found = reference.and_then(|path| whole.pointer(path.strip_prefix('#')?));
    found.unwrap_or(schema)
}

/// Everything that is wrong with items by themselves.
pub fn items(items: &[Item]) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for item in items {
        let mut check = Check {
            item,
            problems: &mut problems,
        };
        check.names();
        if !seen.insert((&item.item_type, &item.key)) {
            check.problem("", "it is there twice");
        }
        check.value();
    }
    problems
}

/// Beyond it a sum of costs could not be counted.
const MOST_PRICE: f64 = 1_000_000.0;

struct Check<'a> {
    item: &'a Item,
    problems: &'a mut Vec<Problem>,
}

impl Check<'_> {
    fn problem(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.problems.push(Problem {
            item_type: self.item.item_type.clone(),
            key: self.item.key.clone(),
            field: field.into(),
            reason: reason.into(),
        });
    }

    fn names(&mut self) {
        for (what, name) in [("type", &self.item.item_type), ("key", &self.item.key)] {
            if name.trim() != name
                || name.is_empty()
                || name.len() > MAX_NAME
                || name.contains(char::is_control)
            {
                let reason = format!(
                    "the {what} must have 1 to {MAX_NAME} characters and no blanks around it"
                );
                self.problem("", reason);
            }
        }
    }

    fn value(&mut self) {
        match self.item.item_type.as_str() {
            item_type::AGENT_PATTERN => self.typed(Self::pattern),
            item_type::AGENT_TASK_TYPE => self.typed(Self::task_type),
            item_type::PROMPT => self.typed(Self::prompt),
            item_type::TOOL => self.typed(Self::tool),
            item_type::MODEL_PROFILE => self.typed(Self::profile),
            item_type::INTENT => self.typed(|check, intent: &Intent| check.named(&intent.name)),
            item_type::SPECIALIST => self.typed(Self::specialist),
            item_type::QUERY => self.typed(Self::query),
            item_type::MCP_SERVER => self.typed(Self::mcp_server),
            item_type::ROLE => self.typed(Self::role),
            item_type::TENANT => self.typed(Self::tenant),
            item_type::TOOL_POLICY => self.typed(Self::tool_policy),
            item_type::TOOL_SERVICE => self.typed(Self::tool_service),
            other => {
                let reason = nearest("type", other, item_type::ALL.iter().copied());
                self.problem("", reason);
            }
        }
    }

    /// Whether it is a tool whose service says which further fields it has.
    fn is_of_service(&self) -> bool {
        self.item.item_type == item_type::TOOL && self.item.value["type"] == tool_kind::TOOL_SERVICE
    }

    /// Names fields that nothing would read: most are misspelt.
    fn unknown_fields(&mut self, whole: &Value, schema: &Value, value: &Value, path: &str) {
        let schema = resolved(whole, schema);
        let is_whole = path.is_empty();
        match value {
            Value::Object(fields) => {
                let Some(known) = schema.get("properties").and_then(Value::as_object) else {
                    return;
                };
                for (name, value) in fields {
                    let path = format!("{path}/{name}");
                    match known.get(name) {
                        Some(schema) => self.unknown_fields(whole, schema, value, &path),
                        // What is given to a service is held against the item of that.
                        None if is_whole && self.is_of_service() => {}
                        None => {
                            let known = known.keys().map(String::as_str);
                            self.problem(path, nearest("field", name, known));
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.unknown_fields(whole, schema, item, &format!("{path}/{index}"));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Checks the shape, and if it holds, the meaning.
    fn typed<T: DeserializeOwned>(&mut self, meaning: impl FnOnce(&mut Self, &T)) {
        let before = self.problems.len();
        let item = self.item;
        let owner = match item.item_type.as_str() {
            item_type::AGENT_TASK_TYPE => "AgentTaskType",
            item_type::TOOL => "ToolItem",
            _ => "",
        };
        for (_, alias, field) in json_schema::ALIASES
            .iter()
            .filter(|(name, ..)| *name == owner)
        {
            if item.value.get(alias).is_some() && item.value.get(field).is_some() {
                let reason = format!("is another name of `{field}`: keep one of the two");
                self.problem(format!("/{alias}"), reason);
                return;
            }
        }
        if let Some((schema, validator)) = SCHEMAS.get(item.item_type.as_str()) {
            self.unknown_fields(schema, schema, &item.value, "");
            for error in validator.iter_errors(&item.value) {
                for (field, reason) in reasons(&error) {
                    self.problem(field, reason);
                }
            }
        }
        if self.problems.len() > before {
            return;
        }
        match serde_json::from_value(item.value.clone()) {
            Ok(value) => meaning(self, &value),
            Err(error) => self.problem("", error.to_string()),
        }
    }

    fn named(&mut self, name: &str) {
        if name != self.item.key {
            let reason = format!("the name `{name}` must equal the key `{}`", self.item.key);
            self.problem("/name", reason);
        }
    }

    fn bounds(&mut self, below: &str, limits: &RunLimits) {
        let numbers = [
            ("max_iterations", limits.max_iterations.map(u64::from)),
            ("max_subagents", limits.max_subagents.map(u64::from)),
            ("max_tokens", limits.max_tokens),
            ("max_cost", limits.max_cost.map(Money::as_millionths)),
            ("max_model_calls", limits.max_model_calls),
            ("subagent_timeout_ms", limits.subagent_timeout_ms),
            ("run_timeout_ms", limits.run_timeout_ms),
        ];
        for (name, number) in numbers {
            if number == Some(0) {
                self.problem(format!("{below}/{name}"), "must be at least 1");
            }
        }
    }

    fn pattern(&mut self, pattern: &AgentPattern) {
        self.named(&pattern.name);
        self.bounds("", &pattern.limits);
        let mut names = BTreeSet::new();
        for (index, reasoner) in pattern.reasoners.iter().enumerate() {
            let field = format!("/reasoners/{index}/name");
            if reasoner.name.trim().is_empty() {
                self.problem(field, "must not be empty");
            } else if !names.insert(&reasoner.name) {
                self.problem(
                    field,
                    format!("there are two reasoners `{}`", reasoner.name),
                );
            }
        }
        if pattern
            .min_confidence
            .is_some_and(|least| !(0.0..=1.0).contains(&least))
        {
            self.problem("/min_confidence", "must be from 0 to 1");
        }
    }

    fn specialist(&mut self, specialist: &Specialist) {
        self.named(&specialist.name);
        if specialist.name == GENERAL && !specialist.tools.is_empty() {
            self.problem(
                "/tools",
                "`general` has no tools: it is for what no specialist can do",
            );
        }
        for (index, name) in specialist.context.iter().enumerate() {
            self.among(&format!("/context/{index}"), name, CONTEXT);
        }
    }

    fn task_type(&mut self, task_type: &AgentTaskType) {
        self.named(&task_type.name);
        self.bounds("", &task_type.limits);
        if task_type.join == JoinPolicy::AtLeast(0) {
            self.problem("/join", "`at-least` must be at least 1");
        }
        self.bounds("/most", &task_type.most);
        if task_type.termination.max_failures == Some(0) {
            self.problem("/termination/max_failures", "must be at least 1");
        }
        let constraints = task_type.gate.iter().flat_map(|gate| &gate.constraints);
        for (index, constraint) in constraints.enumerate() {
            let field = format!("/gate/constraints/{index}");
            let is_blank = |phrase: &String| phrase.trim().is_empty();
            if constraint.phrases.is_empty() || constraint.phrases.iter().any(is_blank) {
                self.problem(
                    format!("{field}/phrases"),
                    "must be one phrase or more, none of them empty",
                );
            }
            if constraint.without.is_empty() {
                self.problem(
                    format!("{field}/without"),
                    "must name the tools that it closes",
                );
            }
        }
        if task_type.same_tool == Some(0) {
            self.problem("/same_tool", "must be at least 1");
        }
        for (index, fixed) in task_type.fixed.iter().enumerate() {
            self.among(&format!("/fixed/{index}"), fixed, choice::ALL);
        }
        let operations = Operation::ALL.map(Operation::as_str);
        for operation in task_type.prompts.keys() {
            self.among("/prompts", operation, &operations);
        }
    }

    fn prompt(&mut self, prompt: &PromptItem) {
        if prompt.prompt.trim().is_empty() {
            self.problem("/prompt", "must not be empty");
        }
        for (field, source) in [("/prompt", &prompt.prompt), ("/system", &prompt.system)] {
            if let Err((line, reason)) = prompts::check(&self.item.key, source) {
                self.problem(field, format!("line {line}: {reason}"));
            }
        }
        self.among("/response-type", &prompt.response_type, RESPONSE_TYPES);
    }

    fn profile(&mut self, profile: &ModelProfile) {
        for (at, name) in profile.fallbacks.iter().enumerate() {
            let is_named = name
                .split_once(':')
                .is_some_and(|(p, m)| !p.is_empty() && !m.is_empty());
            if !is_named {
                let says = "must be `PROVIDER:MODEL`, such as `anthropic:claude-sonnet-4-5`";
                self.problem(format!("/fallbacks/{at}"), says);
            }
        }
        for (field, price) in [
            ("/input-price", profile.input_price),
            ("/output-price", profile.output_price),
        ] {
            if price.is_some_and(|price| !(0.0..=MOST_PRICE).contains(&price)) {
                let says = format!("a price of a million tokens must be from 0 to {MOST_PRICE}");
                self.problem(field, says);
            }
        }
        if profile
            .temperature
            .is_some_and(|t| !(0.0..=2.0).contains(&t))
        {
            self.problem("/temperature", "must be from 0 to 2");
        }
        if profile.max_tokens == Some(0) {
            self.problem("/max-tokens", "must be at least 1");
        }
        if profile
            .context_window
            .is_some_and(|window| window < MIN_WINDOW)
        {
            self.problem(
                "/context-window",
                format!("must be at least {MIN_WINDOW}, in tokens"),
            );
        }
    }

    fn query(&mut self, query: &QueryItem) {
        // The name stands on a command line, where anything else is a query in full.
        if !queries::is_name(&self.item.key) {
            self.problem(
                "",
                "the key of a query has small letters, digits, `-`, `_` and `.` only",
            );
        }
        if query.description.trim().is_empty() {
            self.problem("/description", "must say what the query answers");
        }
        let before = self.problems.len();
        let mut names = BTreeSet::new();
        for (index, parameter) in query.parameters.iter().enumerate() {
            let path = format!("/parameters/{index}");
            if !names.insert(&parameter.name) {
                self.problem(format!("{path}/name"), "it is there twice");
            }
            self.among(
                &format!("{path}/type"),
                &parameter.kind,
                parameter_type::ALL,
            );
            if let Some(default) = &parameter.default
                && let Err(reason) = queries::term(parameter, default, 0)
            {
                self.problem(format!("{path}/default"), reason);
            }
        }
        if self.problems.len() > before {
            return;
        }
        if let Err(reason) = queries::check(query) {
            self.problem("/sparql", reason);
        }
    }

    fn among(&mut self, field: &str, value: &str, known: &[&str]) {
        if !known.contains(&value) {
            let known: Vec<_> = known.iter().filter(|one| !one.is_empty()).collect();
            self.problem(field, unknown("value", value, known));
        }
    }
}

/// What is wrong, by field. Of a value that may also be left out, what is wrong with the value.
fn reasons(error: &jsonschema::ValidationError<'_>) -> Vec<(String, String)> {
    let field = error.instance_path().as_str().to_owned();
    if let ValidationErrorKind::AnyOf { context } = error.kind() {
        let inside = |errors: &&Vec<jsonschema::ValidationError<'static>>| {
            let paths = errors.iter().map(|one| one.instance_path().as_str());
            paths.clone().count() > 0 && paths.into_iter().all(|path| path.len() > field.len())
        };
        if let Some(errors) = context.iter().find(inside) {
            return errors.iter().flat_map(reasons).collect();
        }
    }
    vec![(field, shortened(&error.to_string()))]
}

/// Says what was probably meant.
fn nearest<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let alike = |one: &str| strsim::jaro_winkler(&name.to_lowercase(), one);
    let best = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|best| alike(best) > 0.8) {
        Some(best) => format!("unknown {what} `{name}`: did you mean `{best}`?"),
        None => unknown(what, name, known),
    }
}

fn unknown<T: std::fmt::Display>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = T>,
) -> String {
    let known: Vec<String> = known.into_iter().map(|one| format!("`{one}`")).collect();
    if known.is_empty() {
        return format!("unknown {what} `{name}` (there is none)");
    }
    format!("unknown {what} `{name}` (available: {})", known.join(", "))
}

/// A message may quote the whole value; people need its beginning.
fn shortened(message: &str) -> String {
    if message.chars().count() <= 240 {
        return message.to_owned();
    }
    let half = |chars: &mut dyn Iterator<Item = char>| chars.take(110).collect::<String>();
    let tail: String = half(&mut message.chars().rev()).chars().rev().collect();
    format!("{} ... {tail}", half(&mut message.chars()))
}

#[cfg(test)]
mod tests;
