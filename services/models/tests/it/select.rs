//! Choosing a model, with servers to find.

use super::server::{Answer, Server};
use super::*;
use agentfleet_models::{Choice, ModelOptions, select};
use std::collections::BTreeMap;

fn choosing(environment: &[(&str, &str)], local_ollama: &str) -> ModelOptions {
    ModelOptions {
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        local_ollama: Some(local_ollama.to_owned()),
        http: Some(client()),
        ..ModelOptions::default()
    }
}

/// An address where nobody listens.
const NOBODY: &str = "http://127.0.0.1:1";

async fn chosen(options: &ModelOptions) -> Choice {
    select(options).await.unwrap()
}

/// Variables; the model chosen; words of the reason.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

#[tokio::test]
async fn the_environment_decides_in_a_set_order() {
    let openai = ("OPENAI_API_KEY", "k1");
    let anthropic = ("ANTHROPIC_API_KEY", "k2");
    let gemini = ("GEMINI_API_KEY", "k3");
    let google = ("GOOGLE_API_KEY", "k4");
    let cases: &[Case<'_>] = &[
        (
            &[openai, anthropic, gemini],
            "openai gpt-5.4-mini",
            "`OPENAI_API_KEY` is set",
        ),
        (
            &[("OPENAI_MODEL", "gpt-x"), openai],
            "openai gpt-x",
            "`OPENAI_API_KEY` is set",
        ),
        (
            &[("OPENAI_API_KEY", " "), anthropic, gemini],
            "anthropic claude-sonnet-5",
            "`ANTHROPIC_API_KEY`",
        ),
        (
            &[anthropic, ("ANTHROPIC_MODEL", "claude-x")],
            "anthropic claude-x",
            "`ANTHROPIC_API_KEY`",
        ),
        (
            &[gemini, google],
            "gemini gemini-3.8-flash",
            "`GEMINI_API_KEY` is set",
        ),
        (
            &[google],
            "gemini gemini-3.8-flash",
            "`GOOGLE_API_KEY` is set",
        ),
        (
            &[
                ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
                ("OPENAI_MODEL", "local"),
                anthropic,
            ],
            "openai local",
            "`OPENAI_BASE_URL` is set",
        ),
        (&[], "offline", "no key is set"),
        (
            &[("OLLAMA_HOST", NOBODY)],
            "offline",
            "no Ollama answers at http://127.0.0.1:1",
        ),
        (&[("OLLAMA_HOST", "http://[")], "offline", "cannot be used"),
    ];
    for (environment, expected, reason) in cases {
        let choice = chosen(&choosing(environment, NOBODY)).await;
        assert_eq!(choice.model.describe(), *expected, "{environment:?}");
        assert!(
            choice.reason.contains(reason),
            "{environment:?}: {}",
            choice.reason
        );
        assert!(choice.reason.ends_with('.'), "{}", choice.reason);
        assert!(!format!("{choice:?}").contains("k1"), "{choice:?}");
    }
}

#[tokio::test]
async fn an_option_goes_before_the_environment() {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), r#"{"rules": [{"text": "hi"}]}"#).unwrap();
    let scripted = format!("scripted:{}", script.path().display());
    let cases = [
        ("offline", "offline", "offline"),
        (scripted.as_str(), "scripted", "scripted"),
        ("anthropic:claude-x", "anthropic claude-x", "anthropic"),
        ("anthropic", "anthropic claude-sonnet-5", "anthropic"),
        ("OpenAI: gpt-x", "openai gpt-x", "openai"),
        ("gemini:g", "gemini g", "gemini"),
        ("ollama:qwen3:8b", "ollama qwen3:8b", "ollama"),
    ];
    for (given, expected, provider) in cases {
        let mut options = choosing(
            &[
                ("OPENAI_API_KEY", "k"),
                ("ANTHROPIC_API_KEY", "k"),
                ("GEMINI_API_KEY", "k"),
                ("OLLAMA_HOST", NOBODY),
            ],
            NOBODY,
        );
        options.model = Some(given.to_owned());
        let choice = chosen(&options).await;
        assert_eq!(choice.model.describe(), expected, "{given}");
        assert_eq!(choice.provider, provider);
        assert!(
            choice.reason.contains("it was asked for"),
            "{}",
            choice.reason
        );
    }
}

#[tokio::test]
async fn what_cannot_be_chosen_says_what_would_be_right() {
    for (given, environment, words) in [
        ("gpt-5", vec![], "`openai:MODEL`"),
        ("mistral:large", vec![], "unknown model `mistral:large`"),
        ("anthropic:claude-x", vec![], "set `ANTHROPIC_API_KEY`"),
        ("gemini", vec![], "set `GEMINI_API_KEY` or `GOOGLE_API_KEY`"),
        ("scripted:/nowhere.json", vec![], "/nowhere.json"),
        (
            "ollama",
            vec![("OLLAMA_HOST", NOBODY)],
            "start the server there",
        ),
        (
            "openai:x",
            vec![("OPENAI_BASE_URL", "localhost:8000")],
            "no scheme",
        ),
    ] {
        let mut options = choosing(&environment, NOBODY);
        options.model = Some(given.to_owned());
        let error = select(&options).await.unwrap_err();
        assert!(error.to_string().contains(words), "{given}: {error}");
        assert_eq!(error.retry(), None, "{given}");
    }
}

fn tags(names: &[&str]) -> Answer {
    let models: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "size": 1}))
        .collect();
    Answer::json(&json!({ "models": models }))
}

#[tokio::test]
async fn a_local_ollama_is_found_and_asked_for_its_models() {
    for (capabilities, native) in [
        (json!(["completion", "tools"]), true),
        (json!(["completion"]), false),
    ] {
        let listed = ["nomic-embed-text:latest", "qwen3:8b", "llama3.2:3b"];
        let server = Server::answering([
            tags(&listed),
            tags(&listed),
            Answer::json(&json!({"capabilities": capabilities})),
        ])
        .await;
        let choice = chosen(&choosing(&[], &server.url())).await;
        assert_eq!(choice.model.describe(), "ollama qwen3:8b");
        assert_eq!(choice.model.capabilities().native_tools, native);
        assert!(choice.reason.contains(&server.url()), "{}", choice.reason);
        let received = server.received();
        let paths: Vec<&str> = received.iter().map(|r| r.path.as_str()).collect();
        assert_eq!(paths, ["/api/tags", "/api/tags", "/api/show"]);
        assert_eq!(received[2].body, json!({"model": "qwen3:8b"}));
    }
}

#[tokio::test]
async fn an_ollama_without_chat_models_is_passed_over() {
    let server = Server::answering([tags(&["nomic-embed-text"])]).await;
    let choice = chosen(&choosing(&[], &server.url())).await;
    assert_eq!(choice.model.describe(), "offline");
    assert!(
        choice.reason.contains("has no chat model"),
        "{}",
        choice.reason
    );
}

#[tokio::test]
async fn a_base_url_alone_means_a_compatible_server_which_is_asked_for_its_models() {
    let listing = json!({"object": "list", "data": [{"id": "local-model", "object": "model"}]});
    let server = Server::answering([Answer::json(&listing)]).await;
    let mut options = choosing(&[("ANTHROPIC_API_KEY", "k")], NOBODY);
    options.base_url = Some(server.url());
    let choice = chosen(&options).await;
    assert_eq!(choice.model.describe(), "openai local-model");
    assert!(
        choice
            .reason
            .contains(&format!("at {}/v1: the base URL is set", server.url())),
        "{}",
        choice.reason
    );
    assert_eq!(server.only().path, "/v1/models");
}

#[tokio::test]
async fn a_compatible_server_without_a_list_of_models_serves_the_one_that_is_named() {
    let server = Server::answering([Answer::error(404, &json!({"detail": "Not Found"}))]).await;
    let mut options = choosing(&[], NOBODY);
    options.base_url = Some(server.url());
    let error = select(&options).await.unwrap_err().to_string();
    for words in [&server.url(), "HTTP 404", "`--model openai:NAME`"] {
        assert!(error.contains(words), "{words} is not in: {error}");
    }
    assert!(!error.contains("does not answer"), "{error}");
    options.model = Some("openai:local".to_owned());
    assert_eq!(chosen(&options).await.model.describe(), "openai local");
    assert_eq!(server.received().len(), 1, "a named model is not looked up");
}

/// llama.cpp takes tools even where the template of its model has no place for them.
#[tokio::test]
async fn a_template_without_a_place_for_tools_means_the_text_format() {
    for (told, native) in [
        (
            json!({"chat_template_caps": {"supports_tools": false}}),
            false,
        ),
        (
            json!({"chat_template_caps": {"supports_tools": true}}),
            true,
        ),
        (json!({"chat_template_caps": {}}), true),
        (json!({"detail": "Not Found"}), true),
    ] {
        let server = Server::answering([Answer::json(&told)]).await;
        let mut options = choosing(&[], NOBODY);
        options.base_url = Some(format!("{}/v1", server.url()));
        options.model = Some("openai:local".to_owned());
        let choice = chosen(&options).await;
        assert_eq!(choice.model.capabilities().native_tools, native, "{told}");
        // Whoever starts it is told.
        let is_told = choice.reason.contains("no place for tools (`/props`)");
        assert_eq!(is_told, !native, "{}", choice.reason);
        assert_eq!(server.only().path, "/props");
    }
    let mut options = choosing(&[("OPENAI_API_KEY", "k")], NOBODY);
    options.base_url = Some("http://127.0.0.1:1/v1".to_owned());
    options.model = Some("openai:local".to_owned());
    let choice = chosen(&options).await;
    assert!(choice.model.capabilities().native_tools, "nobody answers");
}

#[tokio::test]
async fn native_tools_can_be_switched_off() {
    let mut options = choosing(&[("OPENAI_API_KEY", "k")], NOBODY);
    assert!(chosen(&options).await.model.capabilities().native_tools);
    options.native_tools = Some(false);
    assert!(!chosen(&options).await.model.capabilities().native_tools);
}
