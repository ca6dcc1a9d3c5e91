//! Anthropic messages. CONSTRUCTED traffic.

use super::server::{Answer, Server};
use super::*;

pub(crate) fn event(name: &str, data: &Value) -> String {
    let mut data = data.clone();
    data["type"] = json!(name);
    format!("event: {name}\ndata: {data}")
}

pub(crate) fn start() -> String {
    event(
        "message_start",
        &json!({"message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "model-1-20260301",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 4,
                      "cache_read_input_tokens": 6, "output_tokens": 1},
        }}),
    )
}

pub(crate) fn end(reason: &str) -> [String; 2] {
    [
        event(
            "message_delta",
            &json!({
                "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 9},
            }),
        ),
        event("message_stop", &json!({})),
    ]
}

pub(crate) fn block(index: u32, content: &Value, deltas: &[Value]) -> Vec<String> {
    let mut events = vec![event(
        "content_block_start",
        &json!({"index": index, "content_block": content}),
    )];
    events.extend(
        deltas
            .iter()
            .map(|d| event("content_block_delta", &json!({"index": index, "delta": d}))),
    );
    events.push(event("content_block_stop", &json!({"index": index})));
    events
}

fn text_block(index: u32, words: &[&str]) -> Vec<String> {
    let deltas: Vec<Value> = words
        .iter()
        .map(|w| json!({"type": "text_delta", "text": w}))
        .collect();
    block(index, &json!({"type": "text", "text": ""}), &deltas)
}

pub(crate) fn text_stream(words: &[&str]) -> String {
    let mut events = vec![start(), event("ping", &json!({}))];
    events.extend(text_block(0, words));
    events.extend(end("end_turn"));
    sse(&events)
}

#[tokio::test]
async fn text_is_streamed_and_usage_includes_the_cache() {
    let server = Server::answering([Answer::sse(text_stream(&["Twelve ", "metres."]))]).await;
    let mut request = request();
    request.schema = Some(schema());
    let (pieces, reply) = ask(&provider(ProviderKind::Anthropic, &server), request).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Twelve ", "metres."]);
    assert_eq!(reply.text, "Twelve metres.");
    assert_eq!(reply.usage.input_tokens, 20);
    assert!(reply.usage.output_tokens >= 9, "{:?}", reply.usage);
    assert_eq!(reply.model, "model-1-20260301");

    let sent = server.only();
    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/v1/messages")
    );
    assert_eq!(sent.header("x-api-key"), "secret-key");
    assert_eq!(sent.header("anthropic-version"), "2023-06-01");
    assert_eq!(sent.body["model"], "model-1");
    assert_eq!(sent.body["stream"], true);
    assert_eq!(sent.body["max_tokens"], 300);
    assert_eq!(sent.body["temperature"], 0.25);
    assert_eq!(
        sent.body["messages"],
        json!([{"role": "user", "content": "How deep is it?"}])
    );
    assert!(sent.body["system"].to_string().contains("Be brief."));
    assert_eq!(sent.body["output_config"]["format"]["type"], "json_schema");
    assert_eq!(
        sent.body["output_config"]["format"]["schema"]["properties"]["choice"]["enum"],
        json!(["a", "b"])
    );
}

#[tokio::test]
async fn tool_calls_arrive_in_pieces_and_the_conversation_goes_out_whole() {
    let part = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "search", "input": {}});
    let mut events = vec![start()];
    events.extend(text_block(0, &["One more look."]));
    events.extend(block(
        1,
        &tool("toolu_a"),
        &[part("{\"query\":"), part(" \"tides\"}")],
    ));
    events.extend(block(2, &tool("toolu_b"), &[]));
    events.extend(end("tool_use"));
    let server = Server::answering([Answer::sse(sse(&events))]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::Anthropic, &server), tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["One more look."]);
    let calls: Vec<(&str, &Value)> = reply
        .tool_calls
        .iter()
        .map(|c| (c.id.as_str(), &c.arguments))
        .collect();
    assert_eq!(
        calls,
        [
            ("toolu_a", &json!({"query": "tides"})),
            ("toolu_b", &json!({}))
        ]
    );

    let sent = server.only().body;
    assert_eq!(sent["tools"][0]["name"], "search");
    assert_eq!(sent["tools"][0]["input_schema"], search_tool().parameters);
    assert_eq!(
        sent["tool_choice"],
        json!({"type": "auto", "disable_parallel_tool_use": true})
    );
    let messages = sent["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["user", "assistant", "user"],
        "results of one turn are one message"
    );
    let kinds = |message: &Value| {
        let parts = message["content"].as_array().unwrap();
        parts
            .iter()
            .map(|p| p["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&messages[1]), ["text", "tool_use", "tool_use"]);
    assert_eq!(kinds(&messages[2]), ["tool_result", "tool_result"]);
    let id = messages[1]["content"][1]["id"].as_str().unwrap();
    assert_eq!(messages[2]["content"][0]["tool_use_id"], id);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    assert!(
        id.chars().all(allowed),
        "the service refuses other characters: {id}"
    );
}

#[tokio::test]
async fn with_tools_a_model_that_thinks_by_default_is_asked_not_to() {
    let stream = || Answer::sse(text_stream(&["ok"]));
    let server = Server::answering([stream(), stream()]).await;
    let mut options = options(ProviderKind::Anthropic, &server);
    options.model = ProviderKind::Anthropic.default_model().unwrap().into();
    let provider = Provider::new(options, client()).unwrap();
    ask(&provider, tool_request()).await.1.unwrap();
    ask(&provider, request()).await.1.unwrap();
    let received = server.received();
    assert_eq!(received[0].body["thinking"], json!({"type": "disabled"}));
    assert!(
        received[1].body.get("thinking").is_none(),
        "{}",
        received[1].body
    );
}

#[tokio::test]
async fn thinking_is_not_part_of_the_reply() {
    let mut events = vec![start()];
    events.extend(block(
        0,
        &json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            json!({"type": "thinking_delta", "thinking": "hmm"}),
            json!({"type": "signature_delta", "signature": "c2ln"}),
        ],
    ));
    events.extend(text_block(1, &["Twelve."]));
    events.extend(end("end_turn"));
    let server = Server::answering([Answer::sse(sse(&events))]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::Anthropic, &server), request()).await;
    assert_eq!(pieces, ["Twelve."]);
    assert_eq!(reply.unwrap().text, "Twelve.");
}

#[tokio::test]
async fn a_reply_in_one_piece_is_taken_too() {
    let body = json!({
        "id": "msg_2", "type": "message", "role": "assistant", "model": "model-1-20260301",
        "content": [
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_a", "name": "search", "input": {"query": "tides"}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 5, "output_tokens": 2},
    });
    let server = Server::answering([Answer::json(&body)]).await;
    let mut options = options(ProviderKind::Anthropic, &server);
    options.streaming = false;
    let (pieces, reply) = ask(&Provider::new(options, client()).unwrap(), tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Looking."]);
    assert_eq!(reply.tool_calls[0].arguments, json!({"query": "tides"}));
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (5, 2)
    );
}

#[tokio::test]
async fn an_overload_within_the_reply_can_be_tried_again() {
    let mut events = vec![start()];
    events.extend(text_block(0, &["Twel"]));
    events.push(event(
        "error",
        &json!({"error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ));
    let server = Server::answering([Answer::sse(sse(&events))]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::Anthropic, &server), request()).await;
    assert_eq!(pieces, ["Twel"]);
    let error = reply.unwrap_err();
    assert!(error.retry().is_some(), "{error}");
    assert!(error.to_string().contains("Overloaded"), "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_as_such() {
    let mut events = vec![start()];
    events.extend(end("refusal"));
    let server = Server::answering([Answer::sse(sse(&events))]).await;
    let error = ask(&provider(ProviderKind::Anthropic, &server), request())
        .await
        .1
        .unwrap_err();
    assert_eq!(error.retry(), None, "{error}");
}

#[tokio::test]
async fn a_stream_that_ends_early_is_no_reply() {
    let mut events = vec![start()];
    events.extend(text_block(0, &["Twel"]));
    let server = Server::answering([Answer::sse(sse(&events))]).await;
    let error = ask(&provider(ProviderKind::Anthropic, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(error.to_string().contains("broke off"), "{error}");
}
