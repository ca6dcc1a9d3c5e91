//! Tools that are services over the queue: what is asked, and what becomes of each answer.

use crate::place::{Place, tool};
use agentfleet_broker::{Broker, Consumer, Durability, Outgoing, Properties, Subscription};
use agentfleet_schema::config::{ConfigParam, NamedParam, ToolArgument, ToolItem, ToolService};
use agentfleet_schema::records::Trouble;
use agentfleet_schema::topics::Topic;
use agentfleet_tools::ToolResult;
use serde_json::{Value, json};
use std::time::Duration;

const REQUESTS: &str = "non-persistent://tg/request/sums";
const ANSWERS: &str = "non-persistent://tg/response/sums";

async fn place() -> Place {
    let mut place = Place::new().await;
    let service = ToolService {
        request_queue: "request:tg:sums".into(),
        response_queue: ANSWERS.into(),
        config_params: vec![
            NamedParam::Name("style".into()),
            NamedParam::Param(ConfigParam {
                name: "collection".into(),
                required: true,
            }),
        ],
        ..ToolService::default()
    };
    place.config.tool_services = [("sums".to_owned(), service)].into();
    place
}

fn add() -> ToolItem {
    let argument = |name: &str| ToolArgument {
        name: name.into(),
        kind: "integer".into(),
        required: true,
        ..ToolArgument::default()
    };
    ToolItem {
        service: Some("sums".into()),
        arguments: vec![argument("a"), argument("b")],
        collection: Some("plant".into()),
        extra: [("style".to_owned(), json!({"digits": 2}))].into(),
        timeout_ms: Some(20_000),
        ..tool("tool-service")
    }
}

async fn requests(place: &Place) -> Box<dyn Consumer> {
    let subscription = Subscription {
        topic: Topic::named(REQUESTS),
        name: "sums-request".into(),
        only: None,
        lease: Duration::from_secs(60),
        max_deliveries: None,
    };
    place.broker.subscribe(subscription).await.unwrap()
}

/// The next request: what it says, and beside that.
async fn next(place: &Place, requests: &mut Box<dyn Consumer>) -> (Value, Properties) {
    let [delivery] = &requests.receive(1).await.unwrap()[..] else {
        panic!("one request is wanted");
    };
    place.broker.ack(delivery).await.unwrap();
    let said = serde_json::from_slice(&delivery.payload).unwrap();
    (said, delivery.properties.clone())
}

async fn answer(place: &Place, id: &str, payload: &str) {
    let answer = Outgoing {
        topic: Topic::named(ANSWERS),
        payload: payload.into(),
        properties: [("id".to_owned(), id.to_owned())].into(),
        deliver_at: None,
        durability: Durability::Process,
    };
    place.broker.publish(vec![answer]).await.unwrap();
}

async fn call(place: &Place, tool: &ToolItem) -> ToolResult {
    place.call(tool, "c", &[("a", "40"), ("b", "2")]).await
}

/// A call that is answered so.
async fn answered(place: &Place, payloads: &[&str]) -> ToolResult {
    let mut requests = requests(place).await;
    let (add, served) = (add(), async {
        let (_, properties) = next(place, &mut requests).await;
        for payload in payloads {
            answer(place, &properties["id"], payload).await;
        }
    });
    tokio::join!(call(place, &add), served).0
}

fn part(text: &str, is_end: bool) -> String {
    json!({"error": null, "response": text, "end_of_stream": is_end}).to_string()
}

#[tokio::test]
async fn a_service_is_told_all_of_a_call_and_its_answer_is_the_result() {
    let mut place = place().await;
    place.tenant = "acme".into();
    let mut requests = requests(&place).await;
    let (add, served) = (add(), async {
        let (said, properties) = next(&place, &mut requests).await;
        answer(&place, "of somebody else", &part("41", true)).await;
        answer(&place, &properties["id"], &part("42", true)).await;
        (said, properties)
    });
    let (result, (said, properties)) = tokio::join!(call(&place, &add), served);
    assert_eq!((result.content.as_str(), result.is_error), ("42", false));
    let inner = |field: &str| {
        let text = said[field].as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()
    };
    assert_eq!(inner("arguments"), json!({"a": 40, "b": 2}));
    let config = json!({"collection": "plant", "style": {"digits": 2}});
    assert_eq!(inner("config"), config);
    assert_eq!(said.as_object().unwrap().len(), 2, "{said}");
    for (name, value) in [
        ("idempotency-key", "key-1"),
        ("session", "s"),
        ("root", "s"),
        ("tenant", "acme"),
    ] {
        assert_eq!(properties[name], value);
    }
    assert!(properties["expires"].parse::<i64>().unwrap() > 0);
}

#[tokio::test]
async fn an_answer_in_parts_is_put_together_up_to_a_limit() {
    let place = place().await;
    let parts = [part("4", false), part("2", false), part("", true)];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert_eq!(answered(&place, &parts).await.content, "42");
    let long = part(&"x".repeat(700_000), false);
    let much = answered(&place, &[&long, &long]).await;
    assert!(!much.is_error);
    let cut = "\n\n[the answer was cut after 1048576 bytes]";
    assert_eq!(much.content.len(), 1_048_576 + cut.len());
    assert!(much.content.ends_with(cut));
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_with_its_topic_and_what_is_wrong() {
    let place = place().await;
    for (payload, says) in [
        (
            "pong",
            "is not JSON (expected value at line 1 column 1): pong",
        ),
        ("[1]", "is not a JSON object: [1]"),
        (r#"{"text": "42"}"#, "has neither `response` nor `error`"),
        (
            r#"{"response": 42}"#,
            "`response` (text) and `end_of_stream`: invalid type: integer `42`",
        ),
        (
            r#"{"error": "none"}"#,
            "must have `error` (null, or `type` and `message`)",
        ),
    ] {
        let result = answered(&place, &[payload]).await;
        assert!(result.is_error && result.trouble.is_none(), "{result:?}");
        let begin = format!("the answer on `{ANSWERS}` ");
        assert!(result.content.starts_with(&begin), "{result:?}");
        assert!(result.content.contains(says), "{says}: {result:?}");
    }
    let error =
        r#"{"error": {"type": "tool-service-error", "message": "no such sum"}, "response": ""}"#;
    let failed = answered(&place, &[error]).await;
    let says = "the service failed (tool-service-error): no such sum";
    assert_eq!((failed.content.as_str(), failed.is_error), (says, true));
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_a_late_answer_is_dropped() {
    let place = place().await;
    let mut requests = requests(&place).await;
    let hurried = ToolItem {
        timeout_ms: Some(200),
        ..add()
    };
    let late = call(&place, &hurried).await;
    assert_eq!(late.trouble, Some(Trouble::Timeout), "{late:?}");
    for told in ["service `sums`", REQUESTS, ANSWERS, "180ms", "`timeout-ms`"] {
        assert!(late.content.contains(told), "{told}: {late:?}");
    }
    let (_, first) = next(&place, &mut requests).await;
    let (add, served) = (add(), async {
        let (_, second) = next(&place, &mut requests).await;
        answer(&place, &first["id"], &part("late", true)).await;
        answer(&place, &second["id"], &part("in time", true)).await;
        answer(&place, &second["id"], &part("once more", true)).await;
    });
    assert_eq!(
        tokio::join!(call(&place, &add), served).0.content,
        "in time"
    );
}

#[tokio::test]
async fn calls_share_one_listener_and_each_gets_its_own_answer() {
    const CALLS: usize = 20;
    let place = place().await;
    let mut requests = requests(&place).await;
    let served = async {
        let mut asked = Vec::new();
        for _ in 0..CALLS {
            asked.push(next(&place, &mut requests).await);
        }
        let listeners = place.broker.reach(&Topic::named(ANSWERS)).await.unwrap();
        for (said, properties) in asked.iter().rev() {
            let arguments = said["arguments"].as_str().unwrap();
            answer(&place, &properties["id"], &part(arguments, true)).await;
        }
        listeners
    };
    let calls = (0..CALLS).map(async |number| {
        let a = number.to_string();
        let add = add();
        let result = place.call(&add, "c", &[("a", &a), ("b", "2")]).await;
        let arguments: Value = serde_json::from_str(&result.content).unwrap();
        assert_eq!(arguments["a"], number, "{result:?}");
    });
    let (_, listeners) = tokio::join!(futures::future::join_all(calls), served);
    assert_eq!(listeners, Some(1));
}

#[tokio::test]
async fn a_service_is_looked_at_and_not_asked() {
    let mut place = place().await;
    let add = add();
    let look = async |place: &Place, tool: &ToolItem| {
        let mut looked = place.toolbox.look([tool], &place.config).await;
        looked.remove(0).1
    };
    let nobody = look(&place, &add).await.unwrap_err();
    assert_eq!(nobody, format!("nobody takes requests from `{REQUESTS}`"));
    let mut requests = requests(&place).await;
    let found = look(&place, &add).await.unwrap();
    assert_eq!(found, format!("`{REQUESTS}` has who takes requests"));
    let nothing =
        tokio::time::timeout(Duration::from_millis(100), next(&place, &mut requests)).await;
    assert!(nothing.is_err(), "{nothing:?}");

    let mut bare = add.clone();
    bare.collection = None;
    let needed = "has no `collection`, which service `sums` needs";
    assert!(look(&place, &bare).await.unwrap_err().ends_with(needed));
    assert!(call(&place, &bare).await.content.ends_with(needed));
    // Whatever became of the config, the fleet's own topics are not to be had.
    let service = place.config.tool_services.get_mut("sums").unwrap();
    service.response_queue = "persistent://public/default/agent-response".into();
    let own = call(&place, &add).await;
    assert!(
        own.content.ends_with("is a topic of the fleet itself"),
        "{own:?}"
    );
    place.config.tool_services.clear();
    let gone = call(&place, &add).await;
    assert!(
        gone.content.contains("service `sums`, which is no item"),
        "{gone:?}"
    );
}
