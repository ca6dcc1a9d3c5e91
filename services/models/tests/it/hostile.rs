//! Servers that send too much, or what is no reply. CONSTRUCTED traffic. None of them may fill memory,
//! and each is told by the bound that it ran into.

use super::server::{Answer, Part, Server};
use super::*;
use super::{anthropic, gemini, openai};
use agentfleet_models::{Bound, Kind, ModelOptions, select};

const KINDS: [ProviderKind; 3] = [
    ProviderKind::OpenAi,
    ProviderKind::Anthropic,
    ProviderKind::Gemini,
];

fn long(of: &str) -> String {
    of.repeat(64 * 1024 / of.len())
}

/// What comes of a server that says this again and again.
async fn endless(kind: ProviderKind, begin: &str, again: &str) -> Error {
    let endless = Answer::sse(begin).then(Part::Endless(again.to_owned()));
    let mut server = Server::answering([endless]).await;
    let error = ask(&provider(kind, &server), tool_request())
        .await
        .1
        .unwrap_err();
    // It is left in the middle of its words.
    server.client_left().await;
    error
}

fn is_beyond(error: &Error, expected: Bound) {
    let words = format!("sent more than {expected}, which is more than is read");
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!((error.kind(), error.retry()), (Kind::InvalidReply, None));
}

/// One event that says `text`.
fn text(kind: ProviderKind, text: &str) -> String {
    let event = match kind {
        ProviderKind::OpenAi | ProviderKind::Ollama => {
            openai::chunk(&json!({"content": text}), None)
        }
        ProviderKind::Anthropic => anthropic::event(
            "content_block_delta",
            &json!({"index": 0, "delta": {"type": "text_delta", "text": text}}),
        ),
        ProviderKind::Gemini => gemini::chunk(&json!([{"text": text}]), None),
    };
    sse(&[event])
}

/// One event in which the model thinks.
fn thought(text: &str) -> String {
    sse(&[openai::chunk(&json!({"reasoning_content": text}), None)])
}

#[tokio::test]
async fn endless_text_ends() {
    for kind in KINDS {
        let error = endless(kind, "", &text(kind, &long("word "))).await;
        is_beyond(&error, Bound::Text);
    }
}

#[tokio::test]
async fn endless_thinking_ends() {
    // Much must come first, and what counts it is the same for all.
    let kind = ProviderKind::OpenAi;
    let error = endless(kind, "", &thought(&long("hmm "))).await;
    is_beyond(&error, Bound::Call);
}

#[tokio::test]
async fn endless_comments_end() {
    let comment = format!(": {}\n\n", long("-"));
    is_beyond(
        &endless(ProviderKind::OpenAi, "", &comment).await,
        Bound::Call,
    );
}

#[tokio::test]
async fn an_endless_line_ends() {
    for kind in KINDS {
        is_beyond(&endless(kind, "data: ", &long("x")).await, Bound::Line);
    }
}

#[tokio::test]
async fn an_event_of_endless_lines_ends() {
    let line = format!("data: {}\n", long("x"));
    is_beyond(&endless(ProviderKind::OpenAi, "", &line).await, Bound::Line);
}

#[tokio::test]
async fn an_endless_whole_reply_ends() {
    for kind in KINDS {
        let endless =
            Answer::new(200, "application/json", "{\"choices\": \"").then(Part::Endless(long("x")));
        let mut server = Server::answering([endless]).await;
        let mut options = options(kind, &server);
        options.streaming = false;
        let provider = Provider::new(options, client()).unwrap();
        is_beyond(&ask(&provider, request()).await.1.unwrap_err(), Bound::Call);
        server.client_left().await;
    }
}

#[tokio::test]
async fn an_endless_error_is_what_its_status_says() {
    for (begin, words) in [("", "HTTP 500)"), ("{\"error\": \"", "HTTP 500)")] {
        let endless = Answer::new(500, "application/json", begin)
            .header("retry-after", "9")
            .then(Part::Endless(long("x")));
        let mut server = Server::answering([endless]).await;
        let error = ask(&provider(ProviderKind::OpenAi, &server), request())
            .await
            .1
            .unwrap_err();
        server.client_left().await;
        assert_eq!(error.retry(), Some(Duration::from_secs(9)));
        let shown = error.to_string();
        assert!(shown.contains(words) && shown.len() < 1_000, "{shown}");
    }
}

#[tokio::test]
async fn endless_lists_of_models_end() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let endless =
        || Answer::new(200, "application/json", "{\"data\": [").then(Part::Endless(long("{},")));
    let server = Server::answering([endless(), endless()]).await;
    for model in [None, Some("ollama".to_owned())] {
        let options = ModelOptions {
            model,
            base_url: Some(server.url()),
            http: Some(client()),
            ..ModelOptions::default()
        };
        let error = select(&options).await.unwrap_err().to_string();
        assert!(error.contains(&Bound::Listing.to_string()), "{error}");
    }
}

#[tokio::test]
async fn endless_tool_calls_end() {
    let many = |call: &dyn Fn(usize) -> String| -> String { (0..300).map(call).collect() };
    for kind in KINDS {
        let calls = many(&|n| {
            let event = match kind {
                ProviderKind::OpenAi | ProviderKind::Ollama => openai::chunk(
                    &json!({"tool_calls": [{"index": n, "id": n.to_string(), "function": {"name": "search", "arguments": ""}}]}),
                    None,
                ),
                ProviderKind::Anthropic => anthropic::event(
                    "content_block_start",
                    &json!({"index": n, "content_block": {"type": "tool_use", "id": n.to_string(), "name": "search", "input": {}}}),
                ),
                ProviderKind::Gemini => gemini::chunk(
                    &json!([{"functionCall": {"name": "search", "args": {}}}]),
                    None,
                ),
            };
            sse(&[event])
        });
        is_beyond(&endless(kind, "", &calls).await, Bound::ToolCalls);
    }
    // All in one event.
    let call = json!({"function": {"name": "search", "arguments": "{}"}});
    let calls: Vec<&Value> = std::iter::repeat_n(&call, 10_000).collect();
    let event = sse(&[openai::chunk(&json!({ "tool_calls": calls }), None)]);
    is_beyond(
        &endless(ProviderKind::OpenAi, &event, ": more\n\n").await,
        Bound::ToolCalls,
    );
}

#[tokio::test]
async fn endless_arguments_end() {
    let piece = long("x");
    let begin = sse(&[openai::chunk(
        &json!({"tool_calls": [{"index": 4_000_000_000_u64, "id": "a", "function": {"name": "search", "arguments": "{"}}]}),
        None,
    )]);
    let again = sse(&[openai::chunk(
        &json!({"tool_calls": [{"index": 4_000_000_000_u64, "function": {"arguments": piece}}]}),
        None,
    )]);
    is_beyond(
        &endless(ProviderKind::OpenAi, &begin, &again).await,
        Bound::Arguments,
    );
    let begin = sse(&[anthropic::event(
        "content_block_start",
        &json!({"index": 1, "content_block": {"type": "tool_use", "id": "a", "name": "search", "input": {}}}),
    )]);
    let again = sse(&[anthropic::event(
        "content_block_delta",
        &json!({"index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}),
    )]);
    is_beyond(
        &endless(ProviderKind::Anthropic, &begin, &again).await,
        Bound::Arguments,
    );
    let whole = json!([{"functionCall": {"name": "search", "args": {"query": long("x")}}}]);
    let again = sse(&[gemini::chunk(&whole, None)]);
    is_beyond(
        &endless(ProviderKind::Gemini, "", &again).await,
        Bound::Arguments,
    );
}

#[tokio::test]
async fn json_that_is_small_in_bytes_and_large_in_memory_is_not_parsed() {
    let limit = Bound::Values.limit();
    let bomb = format!("data: {{\"choices\": [{}{{}}]}}\n\n", "{},".repeat(limit));
    is_beyond(
        &endless(ProviderKind::OpenAi, &bomb, ": more\n\n").await,
        Bound::Values,
    );
    // As text within arguments, too.
    let arguments = format!("[{}0]", "0,".repeat(limit));
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "search", "arguments": arguments}}]});
    let stream = sse(&[openai::chunk(&call, Some("tool_calls")), openai::done()]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let error = ask(&provider(ProviderKind::OpenAi, &server), tool_request())
        .await
        .1
        .unwrap_err();
    is_beyond(&error, Bound::Values);
    let deep = format!("data: {}\n\n", "[".repeat(100_000));
    let error = endless(ProviderKind::OpenAi, &deep, ": more\n\n").await;
    assert!(error.to_string().contains("is not a reply"), "{error}");
}

#[tokio::test]
async fn what_a_server_calls_things_is_no_longer_than_a_name() {
    let event = |model: &str| {
        let body = json!({"model": model, "usage": {"prompt_tokens": u64::MAX, "completion_tokens": -4}, "choices": [{
            "delta": {"tool_calls": [{"index": 0, "id": long("i"), "function": {"name": long("ü"), "arguments": "{}"}}]},
            "finish_reason": long("r"),
        }]});
        Answer::sse(format!("data: {body}\n\ndata: [DONE]\n\n"))
    };
    let server = Server::answering([event(&long("m")), event("m\u{1b}[2Jn\nx")]).await;
    let provider = provider(ProviderKind::OpenAi, &server);
    let reply = ask(&provider, tool_request()).await.1.unwrap();
    let call = &reply.tool_calls[0];
    for name in [&call.id, &call.name, &reply.model] {
        assert!((200..=256).contains(&name.len()), "{}", name.len());
    }
    assert!(reply.usage.total() < 1_000_000_000, "{:?}", reply.usage);
    let reply = ask(&provider, tool_request()).await.1.unwrap();
    assert_eq!(
        reply.model, "model-1",
        "what is no name is not taken for one"
    );
}
