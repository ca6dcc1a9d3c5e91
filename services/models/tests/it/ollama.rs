//! Ollama, by its OpenAI protocol. CONSTRUCTED traffic.

use super::openai;
use super::server::{Answer, Server};
use super::*;

#[tokio::test]
async fn text_is_streamed_and_usage_counted() {
    let stream = openai::text_stream(&["Twelve ", "metres."]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let provider = provider(ProviderKind::Ollama, &server);
    let mut request = request();
    request.schema = Some(schema());
    let (pieces, reply) = ask(&provider, request).await;
    let reply = reply.unwrap();
    assert_eq!(pieces, ["Twelve ", "metres."]);
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (20, 9)
    );

    let sent = server.only();
    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/v1/chat/completions")
    );
    assert_eq!(sent.header("authorization"), "");
    assert_eq!(sent.body["model"], "model-1");
    assert_eq!(sent.body["max_tokens"], 300);
    assert_eq!(sent.body["temperature"], 0.25);
    assert_eq!(
        sent.body["response_format"]["json_schema"]["schema"],
        schema()
    );
}

#[tokio::test]
async fn a_model_without_tools_is_known_for_it() {
    let refusal = json!({"error": {"message": "registry.ollama.ai/library/model-1 does not support tools", "type": "invalid_request_error"}});
    let server = Server::answering([Answer::error(400, &refusal)]).await;
    let provider = provider(ProviderKind::Ollama, &server);
    let error = ask(&provider, tool_request()).await.1.unwrap_err();
    assert!(error.to_string().contains("takes no tools"), "{error}");
    assert!(!provider.capabilities().native_tools);
}

#[tokio::test]
async fn a_missing_model_is_named() {
    let missing = json!({"error": {"message": "model 'model-1' not found"}});
    let server = Server::answering([Answer::error(404, &missing)]).await;
    let error = ask(&provider(ProviderKind::Ollama, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(error.to_string().contains("`model-1`"), "{error}");
    assert_eq!(error.retry(), None);
}
