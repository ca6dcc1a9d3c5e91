//! `text-completion` and `prompt`: what the model is asked, and what comes of its answers.

use crate::place::{Place, tool};
use agentfleet_models::{Message, Operation, Rule, Script, Scripted};
use agentfleet_schema::config::{ModelProfile, PromptItem, ToolArgument, ToolItem};
use agentfleet_schema::records::Trouble;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn prompt(user: &str, system: &str, response_type: &str) -> PromptItem {
    PromptItem {
        prompt: user.into(),
        system: system.into(),
        response_type: response_type.into(),
    }
}

fn argument(name: &str, kind: &str, required: bool) -> ToolArgument {
    ToolArgument {
        name: name.into(),
        kind: kind.into(),
        description: String::new(),
        required,
    }
}

#[tokio::test]
async fn a_question_is_asked_through_its_prompt_where_there_is_one() {
    let script = Script::new()
        .recording()
        .rule(Rule::any().text(" Blue.\n").costing(1_000_000, 500_000));
    let model = Arc::new(Scripted::new(script));
    let mut place = Place::with_model(model.clone()).await;
    let completion = tool("text-completion");
    let bare = place
        .call(&completion, "c", &[("question", "Which colour?")])
        .await;
    assert_eq!(bare.content, "Blue.");
    assert_eq!(
        (bare.usage.input_tokens, bare.usage.output_tokens),
        (1_000_000, 500_000)
    );
    place.config.prompts.insert(
        "question".into(),
        prompt("Q: {{ question }}", "Be brief.", ""),
    );
    place.config.profiles.insert(
        "question".into(),
        ModelProfile {
            model: "small".into(),
            input_price: Some(2.0),
            output_price: Some(4.0),
            ..ModelProfile::default()
        },
    );
    let framed = place
        .call(&completion, "c", &[("question", "Which colour?")])
        .await;
    assert!(
        (framed.usage.cost - 4.0).abs() < 1e-9,
        "{}",
        framed.usage.cost
    );
    let requests = model.requests();
    assert_eq!(
        requests[0].messages,
        [Message::User("Which colour?".into())]
    );
    assert_eq!(requests[0].model, "");
    assert_eq!(
        requests[1].messages,
        [
            Message::System("Be brief.".into()),
            Message::User("Q: Which colour?".into())
        ]
    );
    assert_eq!(requests[1].model, "small");
    assert_eq!(requests[1].operation, Operation::Complete);
    assert_eq!(requests[1].inputs, json!({ "question": "Which colour?" }));
    assert_eq!(requests[1].timeout, Duration::from_mins(1));
}

#[tokio::test]
async fn a_prompt_tool_fills_its_template_from_its_arguments() {
    let script = Script::new()
        .recording()
        .rule(Rule::any().text("```json\n{\"a\": 1}\n```"));
    let model = Arc::new(Scripted::new(script));
    let mut place = Place::with_model(model.clone()).await;
    place.config.prompts.insert(
        "extract".into(),
        prompt("{{ text }} {{ most }} {{ note }}", "", "json"),
    );
    let extract = ToolItem {
        template: Some("extract".into()),
        arguments: vec![
            argument("text", "string", true),
            argument("most", "integer", true),
            argument("note", "string", false),
        ],
        ..tool("prompt")
    };
    let result = place
        .call(&extract, "c", &[("text", "words"), ("most", "3")])
        .await;
    assert_eq!(result.content, "{\"a\": 1}");
    let requests = model.requests();
    assert_eq!(requests[0].operation, Operation::Prompt);
    assert_eq!(requests[0].messages, [Message::User("words 3 null".into())]);
    assert_eq!(
        requests[0].inputs,
        json!({ "text": "words", "most": 3, "note": null })
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_prompt_tool_is_named() {
    let model = Arc::new(Scripted::new(
        Script::new().rule(Rule::any().text("no json")),
    ));
    let mut place = Place::with_model(model).await;
    place
        .config
        .prompts
        .insert("json".into(), prompt("x", "", "json"));
    place
        .config
        .prompts
        .insert("hole".into(), prompt("{{ absent }}", "", ""));
    for (template, expected) in [
        (
            None,
            "tool `the prompt` names no prompt (its `template` must be the key of a `prompt` item)",
        ),
        (
            Some("none"),
            "unknown prompt `none` (available: `hole`, `json`)",
        ),
        (
            Some("hole"),
            "prompt `hole`, prompt: `absent` is not given (given: none)",
        ),
        (
            Some("json"),
            "prompt `json` asks for JSON and the model answered: no json",
        ),
    ] {
        let item = ToolItem {
            template: template.map(Into::into),
            ..tool("prompt")
        };
        let result = place.call(&item, "c", &[]).await;
        assert!(result.is_error);
        assert_eq!(result.content, expected);
    }
}

#[tokio::test]
async fn a_failure_that_may_pass_is_trouble_around_the_tool_and_any_other_is_its_own() {
    let rules = Script::new()
        .rule(
            Rule::any()
                .containing("soon")
                .fail("busy", Some(Duration::from_secs(9))),
        )
        .rule(Rule::any().fail("refused", None));
    let place = Place::with_model(Arc::new(Scripted::new(rules))).await;
    let completion = tool("text-completion");
    let result = place.call(&completion, "c", &[("question", "never")]).await;
    assert!(result.is_error);
    assert_eq!((&*result.content, result.trouble), ("refused", None));
    let result = place.call(&completion, "c", &[("question", "soon")]).await;
    assert_eq!(result.trouble, Some(Trouble::Unavailable));
}
