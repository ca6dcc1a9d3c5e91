//! OpenAI chat completions, and servers that speak them. CONSTRUCTED traffic.

use super::server::{Answer, Server};
use super::*;

pub(crate) fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000,
        "model": "model-1-2026-03-17",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        "usage": null,
    });
    format!("data: {body}")
}

fn usage() -> String {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "model-1-2026-03-17",
        "choices": [],
        "usage": {
            "prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 16},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
    });
    format!("data: {body}")
}

pub(crate) fn done() -> String {
    "data: [DONE]".to_owned()
}

pub(crate) fn text_stream(words: &[&str]) -> String {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend(
        words
            .iter()
            .map(|word| chunk(&json!({"content": word}), None)),
    );
    events.extend([chunk(&json!({}), Some("stop")), usage(), done()]);
    sse(&events)
}

#[tokio::test]
async fn text_is_streamed_and_usage_counted() {
    let server = Server::answering([Answer::sse(text_stream(&["Twelve ", "metres", "."]))]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    let mut request = request();
    request.schema = Some(schema());
    let (pieces, reply) = ask(&provider, request).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Twelve ", "metres", "."]);
    assert_eq!(reply.text, "Twelve metres.");
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (20, 9)
    );
    assert_eq!(reply.model, "model-1-2026-03-17");
    assert_eq!(provider.describe(), "openai model-1");

    let sent = server.only();
    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/v1/chat/completions")
    );
    assert_eq!(sent.header("authorization"), "Bearer secret-key");
    assert_eq!(
        sent.body,
        json!({
            "model": "model-1", "stream": true, "stream_options": {"include_usage": true},
            "temperature": 0.25, "max_tokens": 300,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How deep is it?"},
            ],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "supervisor-decompose", "strict": true, "schema": schema(),
            }},
        })
    );
}

#[tokio::test]
async fn tool_calls_arrive_in_pieces_and_the_conversation_goes_out_whole() {
    let call = |index: u32, id: &str, name: &str, arguments: &str| {
        let mut call = json!({"index": index, "function": {"arguments": arguments}});
        if !id.is_empty() {
            call["id"] = json!(id);
            call["type"] = json!("function");
            call["function"]["name"] = json!(name);
        }
        chunk(&json!({"tool_calls": [call]}), None)
    };
    let stream = sse(&[
        chunk(
            &json!({"role": "assistant", "content": "One more look."}),
            None,
        ),
        call(0, "call_a", "search", ""),
        call(0, "", "", "{\"query\":"),
        call(0, "", "", " \"tides\"}"),
        call(1, "call_b", "search", "{\"query\": \"wind\"}"),
        chunk(&json!({}), Some("tool_calls")),
        usage(),
        done(),
    ]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::OpenAi, &server), tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["One more look."]);
    let calls: Vec<(&str, &str, &Value)> = reply
        .tool_calls
        .iter()
        .map(|c| (c.id.as_str(), c.name.as_str(), &c.arguments))
        .collect();
    assert_eq!(
        calls,
        [
            ("call_a", "search", &json!({"query": "tides"})),
            ("call_b", "search", &json!({"query": "wind"})),
        ]
    );

    let sent = server.only().body;
    assert_eq!(sent["tools"][0]["type"], "function");
    assert_eq!(sent["tools"][0]["function"]["name"], "search");
    assert_eq!(
        sent["tools"][0]["function"]["parameters"],
        search_tool().parameters
    );
    assert_eq!(sent["parallel_tool_calls"], false);
    let messages = sent["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(messages[2]["content"], "I look it up.");
    let ids: Vec<&Value> = messages[2]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["id"])
        .collect();
    assert_eq!(
        ids,
        [&messages[3]["tool_call_id"], &messages[4]["tool_call_id"]]
    );
    assert_eq!(
        messages[2]["tool_calls"][0]["function"]["arguments"],
        r#"{"query":"depth"}"#
    );
    assert_eq!(messages[3]["content"], "12 m");
}

/// The same whichever provider it is: none takes a dot.
#[tokio::test]
async fn a_name_with_dots_goes_out_without_them_and_comes_back_with_them() {
    let body = json!({
        "id": "chatcmpl-2", "object": "chat.completion", "model": "model-1",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "",
            "tool_calls": [{"id": "call_a", "type": "function",
                "function": {"name": "blog_get_post", "arguments": "{}"}}],
        }}],
    });
    let server = Server::answering([Answer::json(&body)]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    let mut request = tool_request();
    request.tools[0].name = "blog.get_post".into();
    for message in &mut request.messages {
        if let Message::ToolCall { name, .. } | Message::ToolResult { name, .. } = message {
            "blog.get_post".clone_into(name);
        }
    }
    let reply = ask(&provider, request).await.1.unwrap();
    assert_eq!(reply.tool_calls[0].name, "blog.get_post");
    let sent = server.only().body.to_string();
    assert!(
        sent.contains("blog_get_post") && !sent.contains("blog.get_post"),
        "{sent}"
    );
}

#[tokio::test]
async fn a_reply_in_one_piece_is_taken_too() {
    let body = json!({
        "id": "chatcmpl-2", "object": "chat.completion", "model": "model-1-2026-03-17",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Looking.",
            "tool_calls": [{"id": "call_a", "type": "function",
                "function": {"name": "search", "arguments": "{\"query\": \"tides\"}"}}],
        }}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    });
    let server = Server::answering([Answer::json(&body)]).await;
    let mut options = options(ProviderKind::OpenAi, &server);
    options.streaming = false;
    let provider = Provider::new(options, client()).unwrap();
    let (pieces, reply) = ask(&provider, tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Looking."]);
    assert_eq!(reply.tool_calls[0].arguments, json!({"query": "tides"}));
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (5, 2)
    );
    assert_eq!(reply.model, "model-1-2026-03-17");
    assert_eq!(server.only().body["stream"], json!(false));
}

#[tokio::test]
async fn a_model_name_goes_out_as_it_is_and_a_request_may_name_another() {
    let stream = || Answer::sse(text_stream(&["ok"]));
    let server = Server::answering([stream(), stream()]).await;
    let mut options = options(ProviderKind::OpenAi, &server);
    // Endings such as these mean an effort to some clients; here they belong to the name.
    options.model = "qwen-max".into();
    let provider = Provider::new(options, client()).unwrap();
    ask(&provider, request()).await.1.unwrap();
    let mut other = request();
    other.model = "deep-thinker-high".into();
    ask(&provider, other).await.1.unwrap();
    let received = server.received();
    assert_eq!(received[0].body["model"], "qwen-max");
    assert_eq!(received[1].body["model"], "deep-thinker-high");
    assert!(
        received
            .iter()
            .all(|r| r.body.get("reasoning_effort").is_none()),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_compatible_server_needs_no_key() {
    let server = Server::answering([Answer::sse(text_stream(&["ok"]))]).await;
    let mut options = options(ProviderKind::OpenAi, &server);
    options.key = None;
    ask(&Provider::new(options, client()).unwrap(), request())
        .await
        .1
        .unwrap();
    let sent = server.only();
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.header("authorization"), "");
}

#[tokio::test]
async fn the_provider_itself_needs_one() {
    let options = ProviderOptions::new(ProviderKind::OpenAi, "m");
    let error = Provider::new(options, client()).unwrap_err();
    assert_eq!(error.retry(), None);
    assert!(error.to_string().contains("OPENAI_API_KEY"), "{error}");
}

#[tokio::test]
async fn a_server_that_takes_no_schema_is_asked_without_it_from_then_on() {
    let refusal = json!({"error": {"message": "Invalid parameter: response_format json_schema is not supported"}});
    let stream = || Answer::sse(text_stream(&["{}"]));
    let server = Server::answering([Answer::error(400, &refusal), stream(), stream()]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    for _ in 0..2 {
        let mut request = request();
        request.schema = Some(schema());
        assert_eq!(ask(&provider, request).await.1.unwrap().text, "{}");
    }
    let with_schema: Vec<bool> = server
        .received()
        .iter()
        .map(|r| r.body.get("response_format").is_some())
        .collect();
    assert_eq!(with_schema, [true, false, false]);
}

/// What llama.cpp says of a schema that it can make no grammar of.
#[tokio::test]
async fn a_schema_that_a_server_cannot_use_is_left_out_of_that_call_alone() {
    let refusal = json!({"error": {"code": 400, "message": "Unable to generate parser for this template. Automatic parser generation failed: JSON schema error at #: unrecognized type foo", "type": "invalid_request_error"}});
    let stream = || Answer::sse(text_stream(&["{}"]));
    let server = Server::answering([Answer::error(400, &refusal), stream(), stream()]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    for _ in 0..2 {
        let mut request = request();
        request.schema = Some(schema());
        assert_eq!(ask(&provider, request).await.1.unwrap().text, "{}");
    }
    let received = server.received();
    let with_schema = received
        .iter()
        .map(|sent| sent.body.get("response_format").is_some());
    assert_eq!(with_schema.collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn a_server_that_takes_no_tools_is_known_for_it_from_then_on() {
    let refusal = json!({"error": {"message": "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}});
    let server = Server::answering([Answer::error(400, &refusal)]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    assert!(provider.capabilities().native_tools);
    let error = ask(&provider, tool_request()).await.1.unwrap_err();
    assert_eq!(error.retry(), Some(Duration::ZERO), "{error}");
    assert!(!provider.capabilities().native_tools);
}

#[tokio::test]
async fn without_tools_a_tool_conversation_goes_out_as_text() {
    let server = Server::answering([Answer::sse(text_stream(&["ok"]))]).await;
    let mut request = tool_request();
    request.tools.clear();
    ask(&provider(ProviderKind::OpenAi, &server), request)
        .await
        .1
        .unwrap();
    let sent = server.only().body;
    assert!(sent.get("tools").is_none());
    let messages = sent["messages"].to_string();
    assert!(
        !messages.contains("tool_calls") && !messages.contains("\"tool\""),
        "{messages}"
    );
    assert!(messages.contains("Action: search"), "{messages}");
    assert!(
        messages.contains("Observation from `search`: 12 m"),
        "{messages}"
    );
}

#[tokio::test]
async fn a_prompt_that_is_all_system_text_is_asked_by_a_user() {
    let server = Server::answering([Answer::sse(text_stream(&["ok"]))]).await;
    let mut request = request();
    request.messages = vec![Message::System("Name a port.".into())];
    ask(&provider(ProviderKind::OpenAi, &server), request)
        .await
        .1
        .unwrap();
    assert_eq!(
        server.only().body["messages"],
        json!([{"role": "user", "content": "Name a port."}])
    );
}

#[tokio::test]
async fn a_server_that_never_says_done_is_complete_when_it_gave_a_reason_to_stop() {
    let stream = sse(&[
        chunk(&json!({"content": "Twelve."}), None),
        chunk(&json!({}), Some("stop")),
    ]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let reply = ask(&provider(ProviderKind::OpenAi, &server), request())
        .await
        .1
        .unwrap();
    assert_eq!(reply.text, "Twelve.");
}

#[tokio::test]
async fn a_refusal_is_told_as_such() {
    let stream = sse(&[
        chunk(
            &json!({"role": "assistant", "refusal": "I cannot help with that."}),
            None,
        ),
        chunk(&json!({}), Some("stop")),
        done(),
    ]);
    let filtered = sse(&[chunk(&json!({}), Some("content_filter")), done()]);
    let server = Server::answering([Answer::sse(stream), Answer::sse(filtered)]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    for reason in ["refusal", "content_filter"] {
        let error = ask(&provider, request()).await.1.unwrap_err();
        assert_eq!(error.retry(), None);
        assert!(error.to_string().contains(reason), "{error}");
    }
}
