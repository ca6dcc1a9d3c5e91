//! Ollama's own protocol, and its OpenAI one where a schema is wanted. CONSTRUCTED traffic.

use super::openai;
use super::server::{Answer, Server};
use super::*;

fn line(message: &Value) -> String {
    json!({"model": "model-1:8b", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false})
        .to_string()
}

fn last() -> String {
    json!({
        "model": "model-1:8b", "created_at": "2026-01-01T00:00:01Z",
        "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
        "total_duration": 1, "prompt_eval_count": 20, "eval_count": 9,
    })
    .to_string()
}

fn ndjson(lines: &[String]) -> Answer {
    Answer::new(200, "application/x-ndjson", lines.join("\n") + "\n")
}

fn says(words: &str) -> String {
    line(&json!({"role": "assistant", "content": words}))
}

pub(crate) fn text_stream(words: &[&str]) -> Answer {
    let mut lines: Vec<String> = words.iter().map(|word| says(word)).collect();
    lines.push(last());
    ndjson(&lines)
}

#[tokio::test]
async fn text_is_streamed_and_usage_counted() {
    let server = Server::answering([ndjson(&[says("Twelve "), says("metres."), last()])]).await;
    let provider = provider(ProviderKind::Ollama, &server);
    let (pieces, reply) = ask(&provider, request()).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Twelve ", "metres."]);
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (20, 9)
    );
    assert_eq!(reply.model, "model-1:8b");

    let sent = server.only();
    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/api/chat")
    );
    assert_eq!(sent.header("authorization"), "");
    assert_eq!(
        sent.body,
        json!({
            "model": "model-1", "stream": true,
            "options": {"temperature": 0.25, "num_predict": 300},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How deep is it?"},
            ],
        })
    );
}

#[tokio::test]
async fn tool_calls_are_taken_and_each_result_is_its_own_message() {
    let call = json!({"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "search", "arguments": {"query": "tides"}}},
    ]});
    let server = Server::answering([ndjson(&[line(&call), last()])]).await;
    let (_, reply) = ask(&provider(ProviderKind::Ollama, &server), tool_request()).await;
    let reply = reply.unwrap();
    assert_eq!(reply.tool_calls[0].name, "search");
    assert_eq!(reply.tool_calls[0].arguments, json!({"query": "tides"}));

    let sent = server.only().body;
    assert_eq!(
        sent["tools"][0]["function"]["parameters"],
        search_tool().parameters
    );
    let messages = sent["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(
        messages[2]["tool_calls"][0]["function"]["arguments"],
        json!({"query": "depth"})
    );
    assert_eq!(messages[3]["content"], "12 m");
    assert_eq!(messages[4]["content"], "not run");
}

#[tokio::test]
async fn a_schema_goes_by_the_servers_openai_protocol() {
    let server =
        Server::answering([Answer::sse(openai::text_stream(&["{\"choice\":\"a\"}"]))]).await;
    let mut request = request();
    request.schema = Some(schema());
    let reply = ask(&provider(ProviderKind::Ollama, &server), request)
        .await
        .1
        .unwrap();
    assert_eq!(reply.text, "{\"choice\":\"a\"}");
    let sent = server.only();
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(
        sent.body["response_format"]["json_schema"]["schema"],
        schema()
    );
}

#[tokio::test]
async fn a_reply_in_one_piece_is_taken_too() {
    let body = json!({
        "model": "model-1:8b", "message": {"role": "assistant", "content": "Twelve."},
        "done": true, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2,
    });
    let server = Server::answering([Answer::json(&body)]).await;
    let mut options = options(ProviderKind::Ollama, &server);
    options.streaming = false;
    let (pieces, reply) = ask(&Provider::new(options, client()).unwrap(), request()).await;
    assert_eq!(pieces, ["Twelve."]);
    assert_eq!(reply.unwrap().usage.output_tokens, 2);
}

#[tokio::test]
async fn a_stream_that_ends_early_is_no_reply() {
    let server = Server::answering([ndjson(&[says("Twel")])]).await;
    let error = ask(&provider(ProviderKind::Ollama, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
}

#[tokio::test]
async fn a_model_without_tools_is_known_for_it() {
    let refusal = json!({"error": "registry.ollama.ai/library/model-1 does not support tools"});
    let server = Server::answering([Answer::error(400, &refusal)]).await;
    let provider = provider(ProviderKind::Ollama, &server);
    let error = ask(&provider, tool_request()).await.1.unwrap_err();
    assert!(matches!(error, Error::ToolsRefused { .. }), "{error}");
    assert!(!provider.capabilities().native_tools);
}

#[tokio::test]
async fn a_missing_model_is_named() {
    let missing = json!({"error": "model 'model-1' not found"});
    let server = Server::answering([Answer::error(404, &missing)]).await;
    let error = ask(&provider(ProviderKind::Ollama, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(error.to_string().contains("`model-1`"), "{error}");
    assert_eq!(error.retry(), agentfleet_models::Retry::No);
}
