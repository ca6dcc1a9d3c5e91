#![allow(clippy::unwrap_used)]
use super::*;
use crate::order::ToolOutcome;
use agentfleet_schema::Principal;
use agentfleet_schema::config::{Effect, RateLimit};
use agentfleet_schema::records::{FailedTry, Trouble};
use proptest::prelude::*;
use serde_json::json;

fn list_posts() -> ToolItem {
    ToolItem {
        name: "blog.list_posts".into(),
        parameters: Some(json!({
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["draft", "published", "scheduled", "all"]},
                "category": {"type": "string"},
                "limit": {"type": "integer", "default": 10, "maximum": 50},
            },
            "required": ["status"],
            "additionalProperties": false,
        })),
        aliases: BTreeMap::from([("status".into(), vec!["state".into()])]),
        permission: Some("blog.read".into()),
        ..ToolItem::default()
    }
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for tool in [
        list_posts(),
        ToolItem {
            name: "blog.delete_post".into(),
            ..ToolItem::default()
        },
    ] {
        snapshot.tools.insert(tool.name.clone(), tool);
    }
    snapshot
}

fn of(permissions: &[&str]) -> AgentRequest {
    let mut request = AgentRequest::default();
    request.control.principal = Some(Principal {
        name: "ada".into(),
        tenant: "acme".into(),
        permissions: permissions.iter().map(|&one| one.to_owned()).collect(),
    });
    request
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs.map(|(n, v)| ((*n).into(), (*v).into())).collect()
}

/// What came of a call of the one tool that is visible, and what was decided about it.
fn came(
    request: &AgentRequest,
    name: &str,
    arguments: &[(&str, &str)],
) -> (Result<BTreeMap<String, String>, String>, Vec<Decision>) {
    let mut decided = Vec::new();
    let visible = [list_posts()];
    let arguments = given(arguments);
    let came = prepare(
        request,
        &snapshot(),
        &visible,
        name,
        &arguments,
        &mut decided,
    );
    let came = came.map(|(_, arguments)| arguments);
    (came.map_err(|stopped| stopped.text), decided)
}

#[test]
fn what_is_clear_is_healed_and_told() {
    let local = AgentRequest::default();
    let two = [("Status", "all"), ("state", "Draft")];
    let (arguments, decided) = came(&local, "Blog_list-posts", &two);
    // Two values for one argument are no slip: nothing is guessed.
    assert!(
        arguments.unwrap_err().contains("missing argument `status`"),
        "{decided:?}"
    );
    let (arguments, decided) = came(&local, "blog_list_posts", &[("state", "Draft")]);
    assert_eq!(
        arguments.unwrap(),
        given(&[("limit", "10"), ("status", "draft")])
    );
    let told: Vec<(&str, &str)> = decided
        .iter()
        .map(|one| (one.subject.as_str(), one.signal.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("tool-name", "the model called `blog_list_posts`"),
            (
                "tool-arguments",
                "`state` is read as `status`; `status` is read as `draft`; `limit` is `10` by default"
            ),
        ]
    );
    let exact = [("status", "all"), ("limit", "5")];
    assert_eq!(came(&local, "blog.list_posts", &exact).1, []);
}

#[test]
fn what_does_not_fit_is_named() {
    let local = AgentRequest::default();
    for (name, arguments, expected) in [
        (
            "blog.list_posts",
            &[("status", "all"), ("limit", "51")][..],
            "Error: tool `blog.list_posts`: argument `limit`: 51 is greater than the maximum of 50",
        ),
        (
            "blog.list_posts",
            &[("status", "gone")],
            "argument `status`: \"gone\" is not one of",
        ),
        (
            "blog.list_posts",
            &[("status", "all"), ("limit", "ten")],
            "argument `limit` must be a whole number, not `ten`",
        ),
        (
            "blog.list_post",
            &[],
            "unknown tool `blog.list_post`: did you mean `blog.list_posts`?",
        ),
        (
            "blog.delete_post",
            &[],
            "tool `blog.delete_post` is not open to this run in state `undefined`",
        ),
    ] {
        let text = came(&local, name, arguments).0.unwrap_err();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_principal_calls_what_its_permissions_name() {
    let call =
        |permissions: &[&str]| came(&of(permissions), "blog.list_posts", &[("status", "all")]);
    for permissions in [&["blog.read"][..], &["chat.x", "blog.*"], &["*"]] {
        assert!(call(permissions).0.is_ok(), "{permissions:?}");
    }
    for permissions in [&[][..], &["blog.write"], &["log.read"]] {
        let (came, decided) = call(permissions);
        let text = came.unwrap_err();
        assert!(
            text.contains("You don't have permission for that."),
            "{text}"
        );
        assert_eq!(
            (decided[0].subject.as_str(), decided[0].chosen.as_str()),
            ("tool-permission", "deny")
        );
    }
}

#[test]
fn tries_that_failed_are_decisions_and_people_read_other_words() {
    let failed = |why, error: &str| FailedTry {
        of: String::new(),
        why,
        error: error.into(),
    };
    let refused = "Connection refused (os error 111)";
    let outcome = |is_error, tried| ToolOutcome {
        is_error,
        tried,
        ..ToolOutcome::default()
    };
    let chosen = |tool: &ToolItem, outcome: &ToolOutcome| -> Vec<String> {
        let decided = tried(tool, outcome);
        assert!(decided.iter().all(|one| one.signal.contains(refused)));
        decided.into_iter().map(|one| one.chosen).collect()
    };
    let tool = list_posts();
    let once = vec![failed(Trouble::Unavailable, refused)];
    let twice = vec![failed(Trouble::Unavailable, refused); 2];
    assert_eq!(chosen(&tool, &outcome(false, once)), ["again"]);
    assert_eq!(chosen(&tool, &outcome(true, twice)), ["again", "give-up"]);
    let limited = ToolItem {
        rate_limit: Some(RateLimit {
            calls: 3,
            per_ms: 60_000,
        }),
        effect: Some(Effect::NotIdempotent),
        ..tool
    };
    for (why, expected) in [
        (Trouble::RateLimited, "0 of 3 calls in 60 s remain"),
        (
            Trouble::Timeout,
            "Whether the call took effect is not known",
        ),
    ] {
        assert!(words(&limited, why, "").contains(expected));
    }
}

proptest! {
    /// Whatever a model writes: a call without its permission is never prepared, and one that is prepared
    /// has arguments that fit and stays as it is when it comes again.
    #[test]
    fn no_call_gets_around_the_stages(
        name in "(blog[._-]list_posts|BLOG.LIST_POSTS|blog.delete_post|[a-z._]{0,12})",
        arguments in proptest::collection::btree_map(
            "(status|state|Status|limit|_confirmed|permission|[a-z]{1,5})",
            "(draft|Draft|all|10|5.0|true|\\{\\}|[a-z0-9 ]{0,6})", 0..4),
        permitted in any::<bool>(),
    ) {
        let request = of(if permitted { &["blog.read"] } else { &["blog.delete"] });
        let visible = [list_posts()];
        let mut decided = Vec::new();
        let mut go = |name: &str, arguments: &BTreeMap<String, String>| {
            prepare(&request, &snapshot(), &visible, name, arguments, &mut decided)
        };
        if let Ok((tool, healed)) = go(&name, &arguments) {
            prop_assert!(permitted);
            prop_assert_eq!(misused(&tool, &healed), None);
            prop_assert_eq!(go(&tool.name, &healed), Ok((tool.clone(), healed)));
        }
    }
}
