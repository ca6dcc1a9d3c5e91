//! What every model must keep to, whatever is behind it.

use super::openai::text_stream;
use super::server::{Answer, Server};
use super::*;
use agentfleet_models::{Gate, Offline, Rule, Script, Scripted};
use std::sync::Arc;

/// A model that will answer any request once, and what keeps it alive.
struct Case {
    name: String,
    model: Arc<dyn ChatModel>,
    _server: Option<Server>,
}

async fn cases() -> Vec<Case> {
    let scripted = Scripted::new(Script::new().rule(Rule::any().text("One two.").word_by_word()));
    let mut cases = vec![
        Case {
            name: "offline".into(),
            model: Arc::new(Offline::new()),
            _server: None,
        },
        Case {
            name: "scripted".into(),
            model: Arc::new(scripted),
            _server: None,
        },
    ];
    for kind in ProviderKind::ALL {
        let answer = match kind {
            ProviderKind::OpenAi | ProviderKind::Ollama => {
                Answer::sse(text_stream(&["One ", "two."]))
            }
            ProviderKind::Anthropic => {
                Answer::sse(super::anthropic::text_stream(&["One ", "two."]))
            }
            ProviderKind::Gemini => Answer::sse(super::gemini::text_stream(&["One ", "two."])),
        };
        let server = Server::answering([answer]).await;
        cases.push(Case {
            name: kind.as_str().into(),
            model: Arc::new(provider(kind, &server)),
            _server: Some(server),
        });
    }
    cases
}

#[tokio::test]
async fn the_pieces_in_order_are_the_reply_and_the_model_is_named() {
    for case in cases().await {
        let name = &case.name;
        let pieces = Pieces::default();
        let mut request = request();
        request.operation = Operation::React;
        request.inputs = json!({"question": "How deep is it?"});
        let reply = case.model.chat(request, &pieces).await.unwrap();
        let pieces = pieces.all();
        assert!(pieces.len() > 1, "{name} spoke in one breath: {pieces:?}");
        assert_eq!(pieces.concat(), reply.text, "{name}");
        assert!(!reply.text.trim().is_empty(), "{name}");
        assert!(!reply.model.is_empty(), "{name}");
        assert!(case.model.describe().starts_with(name.as_str()), "{name}");
        // No tool was offered.
        assert!(reply.tool_calls.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn nothing_is_said_after_a_call_is_dropped() {
    let gate = Gate::new();
    let rule = Rule::any()
        .in_pieces(["first ", "second"])
        .held_at(&gate, 1);
    let model: Arc<Scripted> = Script::new().rule(rule).into();
    let pieces = Arc::new(Pieces::default());
    let call = tokio::spawn({
        let (model, pieces) = (Arc::clone(&model), Arc::clone(&pieces));
        async move { model.chat(request(), pieces.as_ref()).await }
    });
    gate.arrived(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gate.release();
    assert_eq!(pieces.all(), ["first "]);
}
