//! Items that are right, and items that are wrong in one way each.
#![allow(clippy::panic, clippy::unwrap_used)]

use super::*;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::config::ToolItem;
use serde_json::json;

fn found(item_type: &str, key: &str, value: Value) -> Vec<(String, String)> {
    let item = Item {
        item_type: item_type.to_owned(),
        key: key.to_owned(),
        value,
    };
    items(&[item])
        .into_iter()
        .map(|problem| (problem.field, problem.reason))
        .collect()
}

#[test]
fn every_type_has_a_schema() {
    let known: BTreeSet<_> = SCHEMAS.keys().copied().collect();
    assert_eq!(known, item_type::ALL.iter().copied().collect());
}

#[test]
fn what_is_right_has_no_problem() {
    let table = [
        (
            "agent-pattern",
            "react",
            json!({"name": "react", "max_iterations": 10, "max_depth": 0}),
        ),
        (
            "agent-task-type",
            "t",
            json!({"name": "t", "framing": "as a peer calls it", "join": {"at-least": 2}}),
        ),
        (
            "prompt",
            "own",
            json!({"prompt": "{{ anything }}", "response-type": "json"}),
        ),
        (
            "tool",
            "search",
            json!({"name": "search", "type": "document-search", "available_in_states": []}),
        ),
        (
            "tool",
            "call",
            json!({"name": "call", "type": "http", "url": "https://x/", "method": "post"}),
        ),
        (
            "model-profile",
            "agent-react",
            json!({"model": "m", "input-price": 0, "temperature": 0.2}),
        ),
        (
            "tool-service",
            "sums",
            json!({"request-queue": "request:tg:sums", "response-queue": "response:tg:sums",
                   "config-params": ["style", {"name": "precision", "required": true}]}),
        ),
        // What its service does not know is found once both are there.
        (
            "tool",
            "add",
            json!({"name": "add", "type": "tool-service", "service": "sums", "precision": 2}),
        ),
    ];
    for (item_type, key, value) in table {
        assert_eq!(found(item_type, key, value), [], "{item_type} {key}");
    }
}

#[test]
fn what_is_wrong_is_named_by_field_and_reason() {
    let table = [
        (
            "agent-pattern",
            "a",
            json!({"name": "b"}),
            "/name",
            "must equal the key `a`",
        ),
        (
            "agent-pattern",
            "a",
            json!({}),
            "",
            "\"name\" is a required property",
        ),
        ("agent-pattern", "a", json!("a"), "", "not of type"),
        (
            "agent-pattern",
            "a",
            json!({"name": "a", "max_iterations": 0}),
            "/max_iterations",
            "at least 1",
        ),
        (
            "agent-pattern",
            "a",
            json!({"name": "a", "max_iterations": "many"}),
            "/max_iterations",
            "not of type",
        ),
        (
            "agent-task-type",
            "t",
            json!({"name": "t", "valid_patterns": "react"}),
            "/valid_patterns",
            "not of type",
        ),
        (
            "agent-task-type",
            "t",
            json!({"name": "t", "join": {"at-least": 0}}),
            "/join",
            "at least 1",
        ),
        (
            "agent-task-type",
            "t",
            json!({"name": "t", "framing": "a", "framing_prompt": "b"}),
            "/framing",
            "keep one",
        ),
        (
            "prompt",
            "p",
            json!({"prompt": " "}),
            "/prompt",
            "must not be empty",
        ),
        (
            "prompt",
            "p",
            json!({"prompt": "a\n{% endfor %}"}),
            "/prompt",
            "line 2",
        ),
        (
            "prompt",
            "agent-react",
            json!({"prompt": "x", "system": "{{ qestion }}"}),
            "/system",
            "no variable `qestion`",
        ),
        (
            "prompt",
            "p",
            json!({"prompt": "x", "response-type": "xml"}),
            "/response-type",
            "available: `text`, `json`",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "serch"}),
            "/type",
            "unknown value `serch`",
        ),
        (
            "tool",
            "a b",
            json!({"name": "a b", "type": "http", "url": "http://x"}),
            "/name",
            "letters",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "http"}),
            "/url",
            "must have an address",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "http", "url": "file:///etc"}),
            "/url",
            "https",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "http", "url": "https://x", "method": "BREW"}),
            "/method",
            "BREW",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "http", "url": "https://x", "approval": {"timeout-ms": 0}}),
            "/approval/timeout-ms",
            "at least 1",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "http", "url": "https://x", "approval": {"default": "maybe"}}),
            "/approval/default",
            "maybe",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "prompt"}),
            "/template",
            "must name a prompt",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "prompt", "template": "p", "arguments": [{"name": "a"}, {"name": "a"}]}),
            "/arguments/1/name",
            "of its own",
        ),
        (
            "tool",
            "t",
            json!({"name": "t", "type": "prompt", "template": "p", "arguments": [{"name": "a", "type": "date"}]}),
            "/arguments/0/type",
            "`integer`",
        ),
        (
            "model-profile",
            "p",
            json!({"input-price": -1}),
            "/input-price",
            "from 0 to 1000000",
        ),
        (
            "model-profile",
            "p",
            json!({"temperature": 3}),
            "/temperature",
            "0 to 2",
        ),
        (
            "tool",
            "",
            json!({"name": "", "type": "http", "url": "http://x"}),
            "",
            "1 to 200",
        ),
        (" x", "k", json!(1), "", "1 to 200"),
    ];
    for (item_type, key, value, field, reason) in table {
        let problems = found(item_type, key, value.clone());
        assert!(
            problems
                .iter()
                .any(|(at, why)| at == field && why.contains(reason)),
            "{item_type} {value}: {problems:?}"
        );
    }
}

#[test]
fn a_type_or_field_that_nothing_reads_is_refused_with_the_nearest() {
    let argument = json!({"name": "a", "requird": true});
    for (item_type, value, field, reason) in [
        (
            "promt",
            json!({"prompt": "x"}),
            "",
            "did you mean `prompt`?",
        ),
        (
            "foo",
            json!(1),
            "",
            "unknown type `foo` (available: `agent-pattern`",
        ),
        (
            "prompt",
            json!({"prompt": "x", "sytem": "y"}),
            "/sytem",
            "unknown field `sytem`: did you mean `system`?",
        ),
        (
            "agent-pattern",
            json!({"name": "k", "zzz": 1}),
            "/zzz",
            "unknown field `zzz` (available: `name`",
        ),
        (
            "tool",
            json!({"name": "k", "type": "http", "url": "https://x/", "arguments": [argument]}),
            "/arguments/0/requird",
            "did you mean `required`?",
        ),
    ] {
        let problems = found(item_type, "k", value);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].0, field);
        assert!(problems[0].1.contains(reason), "{problems:?}");
    }
}

#[test]
fn the_same_item_twice_in_one_put_is_refused() {
    let item = Item {
        item_type: "prompt".to_owned(),
        key: "k".to_owned(),
        value: json!({"prompt": "x"}),
    };
    let problems = items(&[item.clone(), item]);
    assert_eq!(problems.len(), 1);
    assert!(
        problems
            .iter()
            .all(|problem| problem.to_string() == "`prompt` item `k`: it is there twice")
    );
}

#[test]
fn a_long_value_is_not_quoted_whole() {
    let problems = found("agent-pattern", "a", json!("x".repeat(5000)));
    assert!(
        problems.iter().all(|(_, reason)| reason.len() < 300),
        "{problems:?}"
    );
}

#[test]
fn a_profile_whose_name_is_nearly_that_of_an_operation_is_refused() {
    let with = |key: &str| {
        let mut set = Snapshot::default();
        set.prompts.insert("own".into(), PromptItem::default());
        set.profiles.insert(key.into(), ModelProfile::default());
        together(&set)
    };
    for key in [
        "default",
        "agent-react",
        "question",
        "own",
        "cheap",
        "agent-fast",
    ] {
        assert_eq!(with(key), [], "{key}");
    }
    let [problem] = &with("agent-reakt")[..] else {
        panic!("{:?}", with("agent-reakt"))
    };
    assert_eq!(problem.item_type, "model-profile");
    for part in ["`agent-reakt`", "did you mean `agent-react`"] {
        assert!(problem.reason.contains(part), "{part}: {}", problem.reason);
    }
}

#[test]
fn two_tools_that_models_would_know_by_one_name_are_refused() {
    let mut set = Snapshot::default();
    for name in ["blog.list", "blog.list_posts"] {
        set.tools.insert(name.into(), ToolItem::default());
    }
    assert_eq!(together(&set), []);
    set.tools.insert("blog_list".into(), ToolItem::default());
    let [problem] = &together(&set)[..] else {
        panic!("{:?}", together(&set))
    };
    let says = "models know `blog_list` and `blog.list` by one name: rename one";
    assert_eq!(
        (problem.key.as_str(), &*problem.reason),
        ("blog_list", says)
    );
}

#[test]
fn a_tool_service_has_two_topics_of_its_own() {
    let (request, response) = ("request:tg:sums", "response:tg:sums");
    let with = |request: &str, response: &str, more: Value| {
        let mut value = json!({"id": "sums", "request-queue": request, "response-queue": response});
        for (name, field) in more.as_object().into_iter().flatten() {
            value[name] = field.clone();
        }
        value
    };
    for (value, field, reason) in [
        (
            json!({"request-queue": request}),
            "",
            "\"response-queue\" is a required property",
        ),
        (
            with("sums", response, Value::Null),
            "/request-queue",
            "it is `sums`",
        ),
        (
            with(
                request,
                "persistent://public/default/agent-response",
                Value::Null,
            ),
            "/response-queue",
            "a topic of the fleet itself",
        ),
        (
            with("request:tg:agent-request-delayed", response, Value::Null),
            "/request-queue",
            "of the fleet",
        ),
        (
            with(request, "non-persistent://tg/request/sums", Value::Null),
            "/response-queue",
            "another topic",
        ),
        (
            with(request, response, json!({"id": "sum"})),
            "/id",
            "must equal the key `sums`",
        ),
        (
            with(request, response, json!({"request-queu": ""})),
            "/request-queu",
            "did you mean `request-queue`",
        ),
        (
            with(
                request,
                response,
                json!({"config-params": ["a", {"name": "a"}]}),
            ),
            "/config-params/1",
            "a name of its own",
        ),
        (
            with(
                request,
                response,
                json!({"config-params": [{"name": "a", "need": true}]}),
            ),
            "/config-params/0",
            "not valid under any",
        ),
    ] {
        let problems = found("tool-service", "sums", value.clone());
        let fits = |(at, says): &(String, String)| at == field && says.contains(reason);
        assert!(problems.iter().any(fits), "{value}: {problems:?}");
    }
    let bare = found(
        "tool",
        "add",
        json!({"name": "add", "type": "tool-service"}),
    );
    assert_eq!(bare[0].0, "/service");
}

#[test]
fn a_tool_gives_its_service_what_that_asks_for_and_nothing_else() {
    let mut set = Snapshot::default();
    let service = json!({"request-queue": "request:tg:sums", "response-queue": "response:tg:sums",
                         "config-params": ["style", {"name": "precision", "required": true}, "limit"]});
    let service = serde_json::from_value(service).unwrap();
    set.tool_services.insert("sums".into(), service);
    for (service, more, field, reason) in [
        (
            "sums",
            json!({"precision": 2, "style": "dry", "limit": 3}),
            "",
            "",
        ),
        (
            "sums",
            json!({"style": "dry"}),
            "/precision",
            "service `sums` needs it",
        ),
        (
            "sums",
            json!({"precision": 2, "stile": "dry"}),
            "/stile",
            "did you mean `style`?",
        ),
        (
            "sum",
            json!({"precision": 2}),
            "/service",
            "unknown service `sum` (available: `sums`)",
        ),
    ] {
        let mut tool = json!({"name": "add", "type": "tool-service", "service": service});
        for (name, value) in more.as_object().unwrap() {
            tool[name] = value.clone();
        }
        let tool = serde_json::from_value(tool).unwrap();
        set.tools.insert("add".into(), tool);
        let found = together(&set);
        match &found[..] {
            [] => assert_eq!(field, ""),
            [problem] => {
                assert_eq!(problem.field, field);
                assert!(problem.reason.contains(reason), "{problem:?}");
            }
            _ => panic!("{found:?}"),
        }
    }
}
