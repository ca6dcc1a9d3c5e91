//! From the body of a request to an `AgentRequest` that may be published, or what is wrong with it.
//!
//! What only workers write is dropped (`control`) or refused (a subagent's fields): a caller cannot
//! pass for a worker, nor for somebody's subagent.

use crate::problem::{Code, Problem};
use agentfleet_core::patterns::is_implemented;
use agentfleet_core::tools::UNDEFINED_STATE;
use agentfleet_core::{bounds, conductor, error};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::{
    AgentRequest, AgentStep, CollectionName, RoutingContext, RunControl, RunLimits,
};
use schemars::JsonSchema;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// What is there when nothing is configured.
const ALWAYS_PATTERN: &str = "react";
const ALWAYS_TASK_TYPE: &str = "general";
/// Groups that mean something although no tool is in them.
const ALWAYS_GROUPS: [&str; 2] = ["*", "default"];

/// Reads a body. `streaming` says whether the caller listens, where the body does not say it.
pub(crate) fn parse(body: &[u8], streaming: bool) -> Result<AgentRequest, Problem> {
    if body.starts_with("\u{feff}".as_bytes()) {
        let what = "the body begins with a byte order mark (U+FEFF): send UTF-8 without one";
        return Err(Problem::new(Code::InvalidJson, what));
    }
    let mut value: Value = serde_json::from_slice(body).map_err(|error| {
        Problem::new(Code::InvalidJson, format!("the body is not JSON: {error}"))
            .hint("send an `AgentRequest`, such as {\"question\": \"What is known about X?\"}")
    })?;
    let Some(fields) = value.as_object_mut() else {
        return Err(invalid("$", "the body must be a JSON object")
            .hint("send an `AgentRequest`, such as {\"question\": \"What is known about X?\"}"));
    };
    fields.remove("control");
    known_fields(fields)?;
    let says_streaming = fields
        .get("streaming")
        .is_some_and(|value| !value.is_null());
    let mut request: AgentRequest = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." {
            "$".to_owned()
        } else {
            format!("$.{path}")
        };
        invalid(&path, error.inner()).hint("`GET /openapi.json` has the types of all fields")
    })?;
    if !says_streaming {
        request.streaming = streaming;
    }
    request.control = RunControl::default();
    check(&request)?;
    Ok(request)
}

/// Refuses fields that nobody reads: a limit that is spelled wrong would be none.
fn known_fields(fields: &Map<String, Value>) -> Result<(), Problem> {
    static REQUEST: LazyLock<Vec<String>> =
        LazyLock::new(|| fields_of::<AgentRequest>(&["framing_prompt", "context_type"]));
    static LIMITS: LazyLock<Vec<String>> = LazyLock::new(|| fields_of::<RunLimits>(&[]));
    static ROUTING: LazyLock<Vec<String>> = LazyLock::new(|| fields_of::<RoutingContext>(&[]));
    static STEP: LazyLock<Vec<String>> = LazyLock::new(|| fields_of::<AgentStep>(&[]));
    refuse_unknown("$", fields, &REQUEST)?;
    for (name, known) in [("limits", &LIMITS), ("routing", &ROUTING)] {
        if let Some(fields) = fields.get(name).and_then(Value::as_object) {
            refuse_unknown(&format!("$.{name}"), fields, known)?;
        }
    }
    let history = fields.get("history").and_then(Value::as_array);
    for (at, step) in history.into_iter().flatten().enumerate() {
        if let Some(fields) = step.as_object() {
            refuse_unknown(&format!("$.history[{at}]"), fields, &STEP)?;
        }
    }
    Ok(())
}

/// Refuses a field that is not known, and says which may have been meant.
pub(crate) fn refuse_unknown(
    path: &str,
    fields: &Map<String, Value>,
    known: &[String],
) -> Result<(), Problem> {
    match fields.keys().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let says = meant("field", name, known.iter().map(String::as_str));
            Err(invalid(&format!("{path}.{name}"), says).hint("`GET /openapi.json` has all fields"))
        }
    }
}

/// The fields of a type, as JSON has them.
pub(crate) fn fields_of<T: JsonSchema>(others: &[&str]) -> Vec<String> {
    let schema = schemars::schema_for!(T);
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flat_map(Map::keys).cloned();
    fields
        .chain(others.iter().map(|&name| name.to_owned()))
        .collect()
}

/// Says what was probably meant by a name that nobody knows.
pub(crate) fn meant<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let alike = |one: &str| strsim::jaro_winkler(&name.to_lowercase(), &one.to_lowercase());
    let best = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|best| alike(best) > 0.8) {
        Some(near) => format!("unknown {what}: did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown {what} (known here: none)"),
        None => format!("unknown {what} (known here: `{}`)", known.join("`, `")),
    }
}

/// Refuses a collection that nothing was loaded as, where one has nearly the same name. Any other
/// may be asked: tools see more than what was loaded.
pub fn check_collection(wanted: &CollectionName, loaded: &[String]) -> Result<(), Problem> {
    // What is asked where nobody names a collection is no slip.
    if *wanted == AgentRequest::default().collection
        || loaded.iter().any(|known| known == wanted.as_str())
    {
        return Ok(());
    }
    let wanted = wanted.as_str();
    // `tenant-2` is no slip for `tenant-1`.
    let bare = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    let slips = |other: &str| strsim::osa_distance(&wanted.to_lowercase(), &other.to_lowercase());
    let others = loaded.iter().map(String::as_str);
    let near = others.filter(|other| {
        bare(other) != bare(wanted) && slips(other) <= 2.min(wanted.chars().count() / 3)
    });
    match near.min_by_key(|other| slips(other)) {
        None => Ok(()),
        Some(near) => Err(Problem::new(
            Code::UnknownCollection,
            format!("nothing was loaded as collection `{wanted}`: did you mean `{near}`?"),
        )
        .hint("load something as this collection first, if it is meant")),
    }
}

fn invalid(path: &str, what: impl std::fmt::Display) -> Problem {
    let what = format!("`{path}`: {what}");
    Problem::new(Code::InvalidRequest, bounds::reason(&what))
}

pub(crate) fn check(request: &AgentRequest) -> Result<(), Problem> {
    bounds::check(request).map_err(|(code, what, hint)| {
        let code = match code {
            error::Code::EmptyQuestion => Code::EmptyQuestion,
            error::Code::QuestionTooLong => Code::QuestionTooLong,
            _ => Code::InvalidRequest,
        };
        let problem = Problem::new(code, what);
        if hint.is_empty() {
            problem
        } else {
            problem.hint(hint)
        }
    })?;
    let by_workers = [
        ("correlation_id", !request.correlation_id.is_empty()),
        ("parent_session_id", !request.parent_session_id.is_empty()),
        ("subagent_goal", !request.subagent_goal.is_empty()),
        ("expected_siblings", request.expected_siblings != 0),
        ("step", request.step != 0),
    ];
    if let Some((field, _)) = by_workers.into_iter().find(|(_, set)| *set) {
        return Err(
            invalid(&format!("$.{field}"), "only the fleet's workers set this")
                .hint("leave it out"),
        );
    }
    let session = &request.session_id;
    if !session.is_empty() && !session.is_well_formed() {
        return Err(invalid(
            "$.session_id",
            "must have at most 128 letters, digits, `-`, `_`, `.`, `~` or `:`, a letter or digit first",
        )
        .hint("a UUID will do; leave it out to get one"));
    }
    Ok(())
}

/// Checks what a request names against the config in force.
pub(crate) fn check_names(request: &AgentRequest, config: &Snapshot) -> Result<(), Problem> {
    let wanted = request.pattern.as_str();
    let known = is_implemented(wanted) && config.patterns.contains_key(wanted);
    if !wanted.is_empty() && wanted != ALWAYS_PATTERN && !known {
        let usable = config.patterns.keys().filter(|name| is_implemented(name));
        let what = if config.patterns.contains_key(wanted) {
            "is configured, and this version cannot run it"
        } else {
            "is not known"
        };
        return Err(Problem::new(
            Code::UnknownPattern,
            format!(
                "`$.pattern`: pattern `{wanted}` {what} (available: {})",
                listed(usable, ALWAYS_PATTERN)
            ),
        )
        .hint("leave it out to let the router choose"));
    }
    let wanted = request.task_type.as_str();
    if !wanted.is_empty() && wanted != ALWAYS_TASK_TYPE && !config.task_types.contains_key(wanted) {
        let known = listed(config.task_types.keys(), ALWAYS_TASK_TYPE);
        return Err(Problem::new(
            Code::UnknownTaskType,
            format!("`$.task_type`: task type `{wanted}` is not known (available: {known})"),
        )
        .hint("leave it out to let the router choose"));
    }
    if let Some(what) = conductor::unknown(request, config) {
        return Err(invalid("$.tool_policy", what).hint("leave it out to have none"));
    }
    let groups = || config.tools.values().flat_map(|tool| &tool.group);
    let unknown = request.group.iter().flatten().find(|wanted| {
        let wanted = wanted.as_str();
        !ALWAYS_GROUPS.contains(&wanted) && groups().all(|group| group.as_str() != wanted)
    });
    if let Some(wanted) = unknown {
        return Err(Problem::new(
            Code::UnknownGroup,
            format!(
                "`$.group`: no tool is in group `{wanted}` (available: {})",
                listed(groups(), ALWAYS_GROUPS[0])
            ),
        )
        .hint("leave it out to offer the tools of group `default`, or give `*` for all"));
    }
    let wanted = request.state.as_str();
    let states = || {
        let tools = config.tools.values();
        let named = tools.flat_map(|tool| tool.applicable_states.iter().chain(&tool.state));
        named.filter(|state| *state != "*")
    };
    if !wanted.is_empty() && wanted != UNDEFINED_STATE && states().all(|state| state != wanted) {
        let known = listed(states(), UNDEFINED_STATE);
        return Err(invalid(
            "$.state",
            format!("no tool knows state `{wanted}` (available: {known})"),
        )
        .hint("leave it out to begin without one"));
    }
    Ok(())
}

fn listed<'a>(configured: impl Iterator<Item = &'a String>, always: &'a str) -> String {
    let mut names: BTreeSet<&str> = configured.map(String::as_str).collect();
    names.insert(always);
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_core::bounds::MAX_QUESTION;
    use agentfleet_schema::config::{AgentPattern, AgentTaskType, ToolItem};

    #[test]
    fn a_tolerable_body_is_read() {
        let body = br#"{"question": "why?", "history": null, "group": null, "user": null,
            "framing_prompt": "think", "control": {"root": 4, "hard_deadline": 1}}"#;
        let request = parse(body, true).unwrap();
        assert_eq!(request.question, "why?");
        assert_eq!(request.framing, "think");
        assert_eq!(request.control, RunControl::default());
        assert_eq!(request.collection.as_str(), "default");
        assert!(request.streaming);
        assert!(
            !parse(br#"{"question": "why?", "streaming": false}"#, true)
                .unwrap()
                .streaming
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let long = format!(r#"{{"question": "{}"}}"#, "x".repeat(MAX_QUESTION + 1));
        let table = [
            ("", Code::InvalidJson, "not JSON"),
            ("\u{feff}{}", Code::InvalidJson, "byte order mark"),
            ("{\"question\": }", Code::InvalidJson, "line 1 column 14"),
            ("[\"why?\"]", Code::InvalidRequest, "`$`: "),
            (
                r#"{"question": 7}"#,
                Code::InvalidRequest,
                "`$.question`: invalid type: integer `7`",
            ),
            (
                r#"{"question": "q", "group": "a"}"#,
                Code::InvalidRequest,
                "`$.group`: ",
            ),
            (
                r#"{"question": "q", "limits": {"max_depth": "two"}}"#,
                Code::InvalidRequest,
                "`$.limits.max_depth`: ",
            ),
            (
                r#"{"question": "q", "history": [{}, {"plan": [{"depends_on": ["x"]}]}]}"#,
                Code::InvalidRequest,
                "`$.history[1].plan[0].depends_on[0]`: ",
            ),
            (r"{}", Code::EmptyQuestion, "`$.question`"),
            (
                r#"{"question": " \n "}"#,
                Code::EmptyQuestion,
                "`$.question`",
            ),
            (
                &long,
                Code::QuestionTooLong,
                "`$.question` has 262145 bytes",
            ),
            (
                r#"{"question": "q", "step": 3}"#,
                Code::InvalidRequest,
                "`$.step`: ",
            ),
            (
                r#"{"question": "q", "correlation_id": "c"}"#,
                Code::InvalidRequest,
                "`$.correlation_id`: ",
            ),
            (
                r#"{"question": "q", "session_id": "a/steps/0"}"#,
                Code::InvalidRequest,
                "`$.session_id`: ",
            ),
            (
                r#"{"question": "q", "user": "a\u0000b"}"#,
                Code::InvalidRequest,
                "`$.user`: ",
            ),
        ];
        for (body, code, text) in table {
            let problem = parse(body.as_bytes(), false).unwrap_err();
            assert_eq!(problem.code, code, "{}", problem.message);
            assert!(problem.message.contains(text), "{}", problem.message);
        }
    }

    #[test]
    fn names_must_be_configured_and_the_refusal_lists_what_is() {
        let mut config = Snapshot::default();
        config
            .patterns
            .insert("supervisor".into(), AgentPattern::default());
        config
            .task_types
            .insert("research".into(), AgentTaskType::default());
        let ask = |pattern: &str, task_type: &str| AgentRequest {
            pattern: pattern.into(),
            task_type: task_type.into(),
            ..AgentRequest::default()
        };
        for (pattern, task_type) in [("", ""), ("react", "general"), ("supervisor", "research")] {
            check_names(&ask(pattern, task_type), &config).unwrap();
        }
        let problem = check_names(&ask("supervise", ""), &config).unwrap_err();
        assert_eq!(problem.code, Code::UnknownPattern);
        assert!(
            problem
                .message
                .contains("(available: `react`, `supervisor`)")
        );
        let begins = |state: &str| AgentRequest {
            state: state.into(),
            ..AgentRequest::default()
        };
        config.tools.insert(
            "book".into(),
            ToolItem {
                applicable_states: vec!["found".into()],
                ..ToolItem::default()
            },
        );
        for state in ["", "undefined", "found"] {
            check_names(&begins(state), &config).unwrap();
        }
        let problem = check_names(&begins("fund"), &config).unwrap_err();
        let told = "`$.state`: no tool knows state `fund` (available: `found`, `undefined`)";
        assert_eq!(problem.message, told);
        let problem = check_names(&ask("", "analysis"), &config).unwrap_err();
        assert_eq!(problem.code, Code::UnknownTaskType);
        assert!(
            problem
                .message
                .contains("(available: `general`, `research`)")
        );
    }
}
