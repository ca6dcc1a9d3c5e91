//! Gemini generateContent. CONSTRUCTED traffic.

use super::server::{Answer, Server};
use super::*;

pub(crate) fn chunk(parts: &Value, finish: Option<&str>) -> String {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    let body = json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 4,
            "totalTokenCount": 29, "cachedContentTokenCount": 8,
        },
        "modelVersion": "model-1-002", "responseId": "r1",
    });
    format!("data: {body}")
}

fn text(words: &str) -> Value {
    json!([{"text": words}])
}

pub(crate) fn text_stream(words: &[&str]) -> String {
    let last = words.len() - 1;
    let events: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(at, word)| chunk(&text(word), (at == last).then_some("STOP")))
        .collect();
    sse(&events)
}

#[tokio::test]
async fn text_is_streamed_and_usage_includes_thinking() {
    let stream = sse(&[
        chunk(&json!([{"text": "hmm", "thought": true}]), None),
        chunk(&text("Twelve "), None),
        chunk(&text("metres."), Some("STOP")),
    ]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let mut request = request();
    request.schema = Some(schema());
    let (pieces, reply) = ask(&provider(ProviderKind::Gemini, &server), request).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Twelve ", "metres."]);
    assert_eq!(reply.text, "Twelve metres.");
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (20, 9)
    );
    assert_eq!(reply.model, "model-1-002");

    let sent = server.only();
    assert_eq!(sent.method, "POST");
    assert_eq!(
        sent.path,
        "/v1beta/models/model-1:streamGenerateContent?alt=sse"
    );
    assert_eq!(sent.header("x-goog-api-key"), "secret-key");
    assert_eq!(
        sent.body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "How deep is it?"}]}],
            "generationConfig": {
                "temperature": 0.25, "maxOutputTokens": 300,
                "responseMimeType": "application/json", "responseJsonSchema": schema(),
            },
        })
    );
}

#[tokio::test]
async fn tool_calls_keep_apart_and_the_conversation_goes_out_whole() {
    let call =
        |query: &str| json!([{"functionCall": {"name": "search", "args": {"query": query}}}]);
    // Two calls of one tool in two chunks: the service gives them no ids.
    let stream = sse(&[
        chunk(&call("tides"), None),
        chunk(&call("wind"), Some("STOP")),
    ]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let (_, reply) = ask(&provider(ProviderKind::Gemini, &server), tool_request()).await;
    let reply = reply.unwrap();
    let queries: Vec<&Value> = reply
        .tool_calls
        .iter()
        .map(|c| &c.arguments["query"])
        .collect();
    assert_eq!(queries, [&json!("tides"), &json!("wind")]);
    assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id);

    let sent = server.only().body;
    let declared = &sent["tools"][0]["functionDeclarations"][0];
    assert_eq!(declared["name"], "search");
    assert_eq!(declared["parametersJsonSchema"], search_tool().parameters);
    let contents = sent["contents"].as_array().unwrap();
    let roles: Vec<&str> = contents
        .iter()
        .map(|c| c["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "model", "user"]);
    let calls = contents[1]["parts"].to_string();
    assert!(
        calls.contains("I look it up.") && calls.contains("\"depth\""),
        "{calls}"
    );
    let results = contents[2]["parts"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(results[0]["functionResponse"]["name"], "search");
    assert!(results[0].to_string().contains("12 m"));
}

#[tokio::test]
async fn a_reply_in_one_piece_is_taken_too() {
    let body = json!({
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "Looking."},
            {"functionCall": {"id": "f1", "name": "search", "args": {"query": "tides"}}},
        ]}}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
        "modelVersion": "model-1-002",
    });
    let server = Server::answering([Answer::json(&body)]).await;
    let mut options = options(ProviderKind::Gemini, &server);
    options.streaming = false;
    let (pieces, reply) = ask(&Provider::new(options, client()).unwrap(), tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Looking."]);
    assert_eq!(reply.tool_calls[0].arguments, json!({"query": "tides"}));
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (5, 2)
    );
    assert_eq!(server.only().path, "/v1beta/models/model-1:generateContent");
}

#[tokio::test]
async fn a_stream_that_ends_early_is_no_reply() {
    let server = Server::answering([Answer::sse(sse(&[chunk(&text("Twel"), None)]))]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::Gemini, &server), request()).await;
    assert_eq!(pieces, ["Twel"]);
    let error = reply.unwrap_err();
    assert!(error.to_string().contains("broke off"), "{error}");
}

#[tokio::test]
async fn a_blocked_answer_is_told_as_such() {
    let blocked =
        json!({"candidates": [{"index": 0, "finishReason": "SAFETY"}], "modelVersion": "m"});
    let server = Server::answering([Answer::sse(format!("data: {blocked}\n\n"))]).await;
    let error = ask(&provider(ProviderKind::Gemini, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(
        error.to_string().contains("declined to answer (SAFETY)"),
        "{error}"
    );
    // A prompt that is blocked has no candidates at all.
    let blocked = json!({"promptFeedback": {"blockReason": "OTHER"}, "modelVersion": "m"});
    let server = Server::answering([Answer::sse(format!("data: {blocked}\n\n"))]).await;
    let error = ask(&provider(ProviderKind::Gemini, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(
        error.to_string().contains("declined to answer (OTHER)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_model_that_a_request_names_does_not_lead_to_another_address() {
    let server = Server::answering([]).await;
    for name in ["../files", "m?key=1", "m#x", "a//b", "..", "m:list"] {
        let mut request = request();
        request.model = name.to_owned();
        let error = ask(&provider(ProviderKind::Gemini, &server), request)
            .await
            .1
            .unwrap_err();
        assert!(
            error.to_string().contains("this call cannot be made"),
            "{name}: {error}"
        );
    }
    assert!(server.received().is_empty());
}
