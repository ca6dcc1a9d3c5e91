//! What servers do not take, do otherwise, or leave out. CONSTRUCTED traffic.

use super::openai::{chunk, done, text_stream};
use super::server::{Answer, Part, Server};
use super::*;
use super::{anthropic, gemini};

fn refusal(message: &str) -> Answer {
    Answer::error(400, &json!({"error": {"message": message}}))
}

#[tokio::test]
async fn what_a_server_does_not_take_is_left_out_from_then_on() {
    let stream = || Answer::sse(text_stream(&["ok"]));
    let server = Server::answering([
        refusal("Unsupported parameter: 'parallel_tool_calls' is not supported with this model."),
        refusal("Unsupported value: 'temperature' does not support 0.25 with this model."),
        refusal("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
        refusal("Unrecognized request argument supplied: stream_options"),
        stream(),
        stream(),
    ])
    .await;
    let provider = provider(ProviderKind::OpenAi, &server);
    for _ in 0..2 {
        ask(&provider, tool_request()).await.1.unwrap();
    }
    let received = server.received();
    assert_eq!(received.len(), 6, "each is learned once");
    let first = &received[0].body;
    let fields = [
        "parallel_tool_calls",
        "temperature",
        "max_tokens",
        "stream_options",
    ];
    for field in fields {
        assert!(first.get(field).is_some(), "{field}");
    }
    for last in &received[4..] {
        for field in fields {
            assert!(last.body.get(field).is_none(), "{field}");
        }
        assert_eq!(last.body["max_completion_tokens"], 300);
        assert!(last.body.get("tools").is_some());
    }
    assert!(provider.capabilities().native_tools);
}

#[tokio::test]
async fn a_server_that_speaks_anthropics_protocol_may_know_no_choice_of_tools() {
    let server = Server::answering([
        refusal("tool_choice.disable_parallel_tool_use: Extra inputs are not permitted"),
        Answer::sse(anthropic::text_stream(&["ok"])),
    ])
    .await;
    let provider = provider(ProviderKind::Anthropic, &server);
    ask(&provider, tool_request()).await.1.unwrap();
    assert!(provider.capabilities().native_tools);
    assert!(server.received()[1].body.get("tool_choice").is_none());
}

#[tokio::test]
async fn openais_models_that_reason_are_told_their_limit_by_its_newer_name() {
    for (model, field) in [
        ("gpt-5.4-mini", "max_completion_tokens"),
        ("o3", "max_completion_tokens"),
        ("gpt-4.1", "max_tokens"),
        ("olmo", "max_tokens"),
    ] {
        let server = Server::answering([Answer::sse(text_stream(&["ok"]))]).await;
        let mut request = request();
        request.model = model.to_owned();
        ask(&provider(ProviderKind::OpenAi, &server), request)
            .await
            .1
            .unwrap();
        assert_eq!(server.only().body[field], 300, "{model}");
    }
}

#[tokio::test]
async fn anthropic_is_told_a_limit_where_the_profile_has_none() {
    let server = Server::answering([Answer::sse(anthropic::text_stream(&["ok"]))]).await;
    let mut request = request();
    request.max_tokens = None;
    ask(&provider(ProviderKind::Anthropic, &server), request)
        .await
        .1
        .unwrap();
    assert!(server.only().body["max_tokens"].as_u64().unwrap() >= 4_096);
}

/// A reply that stopped for this reason.
fn stopped(kind: ProviderKind, reason: &str, words: &str) -> Answer {
    Answer::sse(match kind {
        ProviderKind::OpenAi | ProviderKind::Ollama => {
            sse(&[chunk(&json!({"content": words}), Some(reason)), done()])
        }
        ProviderKind::Anthropic => {
            let delta = json!({"type": "text_delta", "text": words});
            let mut events = vec![anthropic::start()];
            let text = json!({"type": "text", "text": ""});
            events.extend(anthropic::block(0, &text, &[delta]));
            events.extend(anthropic::end(reason));
            sse(&events)
        }
        ProviderKind::Gemini => sse(&[gemini::chunk(&json!([{"text": words}]), Some(reason))]),
    })
}

#[tokio::test]
async fn a_reply_that_was_cut_says_so() {
    for (kind, reason, cut) in [
        (ProviderKind::OpenAi, "length", true),
        (ProviderKind::OpenAi, "stop", false),
        (ProviderKind::Ollama, "length", true),
        (ProviderKind::Anthropic, "max_tokens", true),
        (
            ProviderKind::Anthropic,
            "model_context_window_exceeded",
            true,
        ),
        (ProviderKind::Anthropic, "end_turn", false),
        (ProviderKind::Gemini, "MAX_TOKENS", true),
        (ProviderKind::Gemini, "STOP", false),
    ] {
        let words = [stopped(kind, reason, "Twel"), stopped(kind, reason, "")];
        let server = Server::answering(words).await;
        let provider = provider(kind, &server);
        let reply = ask(&provider, request()).await.1.unwrap();
        assert_eq!((reply.cut, reply.text.as_str()), (cut, "Twel"), "{reason}");
        let error = ask(&provider, request()).await.1.unwrap_err();
        assert_eq!(
            error.to_string().contains("came to its limit of tokens"),
            cut,
            "{kind:?} {reason}: {error}"
        );
    }
}

#[tokio::test]
async fn a_call_that_was_cut_keeps_its_beginning_as_text() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function":
        {"name": "search", "arguments": "{\"query\": \"ti"}}]});
    let stream = sse(&[chunk(&call, Some("length")), done()]);
    let server = Server::answering([Answer::sse(stream)]).await;
    let reply = ask(&provider(ProviderKind::OpenAi, &server), tool_request())
        .await
        .1
        .unwrap();
    assert!(reply.cut);
    assert_eq!(reply.tool_calls[0].arguments, json!("{\"query\": \"ti"));
}

#[tokio::test]
async fn calls_are_told_apart_however_a_server_numbers_them() {
    let call = |index: Value, id: &str, query: &str| {
        let mut call = json!({"id": id, "function": {"name": "search",
            "arguments": json!({"query": query}).to_string()}});
        if !index.is_null() {
            call["index"] = index;
        }
        chunk(&json!({"tool_calls": [call]}), None)
    };
    for numbers in [
        [json!(0), json!(1)],
        [json!(0), json!(0)],
        [json!(7), json!(3)],
        [json!(4_000_000_000_u64), json!(u64::MAX)],
        [json!(-1), json!(1.5)],
        [Value::Null, Value::Null],
    ] {
        let [one, two] = numbers.clone();
        let stream = sse(&[
            call(one, "a", "tides"),
            call(two, "b", "wind"),
            chunk(&json!({}), Some("tool_calls")),
            done(),
        ]);
        let server = Server::answering([Answer::sse(stream)]).await;
        let reply = ask(&provider(ProviderKind::OpenAi, &server), tool_request())
            .await
            .1
            .unwrap();
        let calls: Vec<(&str, &Value)> = reply
            .tool_calls
            .iter()
            .map(|call| (call.id.as_str(), &call.arguments["query"]))
            .collect();
        assert_eq!(
            calls,
            [("a", &json!("tides")), ("b", &json!("wind"))],
            "{numbers:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_understood_when_it_is_asked_to() {
    let body = json!({"model": "m", "choices": [{"message": {"content": "Twelve."}, "finish_reason": "stop"}]});
    let server = Server::answering([Answer::json(&body)]).await;
    let (pieces, reply) = ask(&provider(ProviderKind::OpenAi, &server), request()).await;
    assert_eq!(pieces, ["Twelve."]);
    assert_eq!(reply.unwrap().model, "m");
}

#[tokio::test]
async fn once_the_model_has_stopped_the_reply_is_whole_however_the_connection_ends() {
    let stopped = sse(&[chunk(&json!({"content": "Twelve."}), Some("stop"))]);
    for end in [Part::UntilClosed, Part::Reset] {
        let server = Server::answering([Answer::sse(stopped.clone()).then(end)]).await;
        let mut options = options(ProviderKind::OpenAi, &server);
        options.timeouts.between_chunks = Duration::from_millis(50);
        let provider = Provider::new(options, client()).unwrap();
        assert_eq!(ask(&provider, request()).await.1.unwrap().text, "Twelve.");
    }
}
