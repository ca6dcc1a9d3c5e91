//! What goes wrong on the wire, and what is made of it. CONSTRUCTED traffic.

use super::openai::text_stream;
use super::server::{Answer, Part, Server};
use super::*;
use std::sync::Arc;

const KINDS: [ProviderKind; 4] = ProviderKind::ALL;

#[tokio::test]
async fn statuses_keep_their_meaning_with_every_provider() {
    let body = json!({"error": {"type": "t", "message": "told so"}});
    for kind in KINDS {
        for streaming in [true, false] {
            for (status, wait, expected) in [
                (429, Some("7"), Some(Duration::from_secs(7))),
                (529, None, Some(Duration::from_secs(1))),
                (500, None, Some(Duration::from_secs(2))),
                (401, None, None),
                (404, None, None),
            ] {
                let mut answer = Answer::error(status, &body);
                if let Some(wait) = wait {
                    answer = answer.header("retry-after", wait);
                }
                let server = Server::answering([answer]).await;
                let mut options = options(kind, &server);
                options.streaming = streaming;
                let provider = Provider::new(options, client()).unwrap();
                let (pieces, reply) = ask(&provider, request()).await;
                let error = reply.unwrap_err();
                assert_eq!(error.retry(), expected, "{kind:?} {status}: {error}");
                assert!(
                    error.to_string().contains("told so"),
                    "{kind:?} {status}: {error}"
                );
                assert_eq!(pieces, [""; 0]);
            }
        }
    }
}

#[tokio::test]
async fn a_reset_in_the_middle_can_be_tried_again() {
    for kind in KINDS {
        let server = Server::answering([Answer::sse("data: {\"par").then(Part::Reset)]).await;
        let error = ask(&provider(kind, &server), request())
            .await
            .1
            .unwrap_err();
        assert!(error.retry().is_some(), "{kind:?}: {error}");
    }
}

#[tokio::test]
async fn a_stream_that_stalls_runs_into_the_limit_between_chunks() {
    let stalled = || Answer::sse("").then(Part::UntilClosed);
    for kind in KINDS {
        let mut server = Server::answering([stalled()]).await;
        let mut options = options(kind, &server);
        options.timeouts.between_chunks = Duration::from_millis(50);
        let provider = Provider::new(options, client()).unwrap();
        let error = ask(&provider, request()).await.1.unwrap_err();
        assert!(
            error.to_string().contains("no further data within"),
            "{kind:?}: {error}"
        );
        assert!(error.retry().is_some());
        server.client_left().await;
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_runs_into_the_limit_for_the_first_byte() {
    let mut server = Server::answering([Answer::silence()]).await;
    let mut options = options(ProviderKind::OpenAi, &server);
    options.timeouts.first_byte = Duration::from_millis(50);
    let error = ask(&Provider::new(options, client()).unwrap(), request())
        .await
        .1
        .unwrap_err();
    assert!(
        error.to_string().contains("no response headers within"),
        "{error}"
    );
    server.client_left().await;
}

#[tokio::test]
async fn a_call_ends_at_its_own_limit() {
    for streaming in [true, false] {
        let mut server = Server::answering([Answer::sse("").then(Part::UntilClosed)]).await;
        let mut options = options(ProviderKind::OpenAi, &server);
        options.streaming = streaming;
        let mut request = request();
        request.timeout = Duration::from_millis(50);
        let error = ask(&Provider::new(options, client()).unwrap(), request)
            .await
            .1
            .unwrap_err();
        assert!(
            error.to_string().contains("no complete reply within"),
            "{error}"
        );
        server.client_left().await;
    }
}

#[tokio::test]
async fn nobody_there_can_be_tried_again_and_is_named() {
    let gone = Server::answering([]).await;
    // The listener is dropped by the server's task; ask until it is gone.
    let error = loop {
        let asked = ask(&provider(ProviderKind::OpenAi, &gone), request()).await;
        if let Err(error) = asked.1
            && error.to_string().contains("cannot be reached")
        {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(error.retry().is_some(), "{error}");
    assert!(error.to_string().contains(&gone.url()), "{error}");
}

/// Passes pieces on to the test.
struct Tell(tokio::sync::mpsc::UnboundedSender<String>);

impl TextSink for Tell {
    fn text(&self, piece: &str) {
        self.0.send(piece.to_owned()).ok();
    }
}

#[tokio::test]
async fn a_dropped_call_closes_the_connection() {
    let first = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Twel\"}}]}\n\n";
    let mut server = Server::answering([Answer::sse(first).then(Part::UntilClosed)]).await;
    let provider = Arc::new(provider(ProviderKind::OpenAi, &server));
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let call = tokio::spawn(async move { provider.chat(request(), &Tell(told)).await });
    // The first piece is there while the model is still talking.
    assert_eq!(heard.recv().await.unwrap(), "Twel");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    server.client_left().await;
}

#[tokio::test]
async fn what_is_no_reply_is_malformed() {
    let cases = [
        ("data: {\"choices\": [\n\n", "text/event-stream", true),
        ("not json at all", "application/json", false),
        ("<html>A proxy's page</html>", "text/html", false),
    ];
    for (body, content_type, streaming) in cases {
        let server = Server::answering([Answer::new(200, content_type, body)]).await;
        let mut options = options(ProviderKind::OpenAi, &server);
        options.streaming = streaming;
        let error = ask(&Provider::new(options, client()).unwrap(), request())
            .await
            .1
            .unwrap_err();
        assert!(
            error.to_string().contains("is not a reply"),
            "{body}: {error}"
        );
        assert!(error.retry().is_some(), "{error}");
        assert!(!error.to_string().contains("proxy"), "{error}");
    }
}

#[tokio::test]
async fn an_empty_reply_is_an_error_and_missing_usage_is_not() {
    let server = Server::answering([Answer::sse(text_stream(&["", "  "]))]).await;
    let error = ask(&provider(ProviderKind::OpenAi, &server), request())
        .await
        .1
        .unwrap_err();
    assert!(error.to_string().contains("an empty reply"), "{error}");
    // It is paid for all the same.
    let usage = error.usage();
    assert!(
        usage.input_tokens > 0 && usage.unpriced_calls == 0,
        "{usage:?}"
    );

    let no_usage = "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\
                    \"finish_reason\":\"stop\"}],\"usage\":null}\n\ndata: [DONE]\n\n";
    let server = Server::answering([Answer::sse(no_usage)]).await;
    let reply = ask(&provider(ProviderKind::OpenAi, &server), request())
        .await
        .1
        .unwrap();
    assert_eq!(reply.text, "ok");
    // A guess by length, so that bounds hold; what it cost is not known.
    assert!(reply.usage.input_tokens > 0 && reply.usage.output_tokens == 1);
    assert_eq!(reply.usage.unpriced_calls, 1);
}

#[tokio::test]
async fn text_split_within_a_letter_arrives_whole() {
    let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Øst\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = Server::answering([Answer::sse(body)]).await;
    let (pieces, _) = ask(&provider(ProviderKind::OpenAi, &server), request()).await;
    assert_eq!(pieces, ["Øst"]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::answering([Answer::sse(text_stream(&["stolen"]))]).await;
    let answer = Answer::error(307, &json!({})).header("location", &elsewhere.url());
    let server = Server::answering([answer]).await;
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let http = http_client(&Timeouts::default()).unwrap();
    let provider = Provider::new(options(ProviderKind::OpenAi, &server), http).unwrap();
    let error = ask(&provider, request()).await.1.unwrap_err();
    assert!(error.to_string().contains("HTTP 307"), "{error}");
    assert!(elsewhere.received().is_empty(), "the key must not travel");
}
