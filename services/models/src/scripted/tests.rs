#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::{Discard, Operation};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Default)]
struct Pieces(Mutex<Vec<String>>);

impl TextSink for Pieces {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(piece.to_owned());
    }
}

impl Pieces {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn request(operation: Operation, prompt: &str) -> ModelRequest {
    with_inputs(operation, prompt, Value::Null)
}

fn with_inputs(operation: Operation, prompt: &str, inputs: Value) -> ModelRequest {
    ModelRequest {
        operation,
        messages: vec![
            Message::System("be brief".into()),
            Message::User(prompt.into()),
        ],
        tools: Vec::new(),
        schema: None,
        inputs,
        model: String::new(),
        fallbacks: Vec::new(),
        temperature: None,
        max_tokens: None,
        timeout: Duration::ZERO,
    }
}

async fn says(model: &Scripted, request: ModelRequest) -> Result<String, Error> {
    model.chat(request, &Discard).await.map(|reply| reply.text)
}

#[tokio::test]
async fn the_first_rule_that_matches_answers() {
    let model = Scripted::new(
        Script::new()
            .rule(Rule::on(Operation::Decompose).text("goals"))
            .rule(Rule::on(Operation::React).after_steps(2).text("third step"))
            .rule(
                Rule::on(Operation::React)
                    .containing("cost")
                    .containing("speed")
                    .text("both"),
            )
            .rule(
                Rule::any()
                    .matching(regex::Regex::new("(?i)SAFE(TY)?").unwrap())
                    .text("pattern"),
            ),
    );
    let two_steps = json!({"history": [{"action": "a"}, {"action": "b"}]});
    let cases = [
        (request(Operation::Decompose, "anything"), "goals"),
        (
            with_inputs(Operation::React, "cost and speed", two_steps),
            "third step",
        ),
        (request(Operation::React, "cost and speed"), "both"),
        (request(Operation::React, "cost and safety"), "pattern"),
        (request(Operation::Review, "is it safe?"), "pattern"),
    ];
    for (request, expected) in cases {
        assert_eq!(says(&model, request).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_request_without_a_rule_names_its_operation_and_prompt() {
    let model = Scripted::new(Script::new().rule(Rule::on(Operation::Review).text("x")));
    let error = says(&model, request(Operation::React, "Assess the bridge"))
        .await
        .unwrap_err();
    assert_eq!(error.retry(), None);
    let told = error.to_string();
    assert!(
        told.contains("agent-react") && told.contains("Assess the bridge"),
        "{told}"
    );
}

#[tokio::test]
async fn a_failure_can_pass_after_some_tries() {
    let model = Scripted::new(
        Script::new()
            .rule(
                Rule::any()
                    .times(2)
                    .fail("overloaded", Some(Duration::from_millis(30))),
            )
            .rule(Rule::any().text("fine")),
    );
    for _ in 0..2 {
        let error = says(&model, request(Operation::React, "q"))
            .await
            .unwrap_err();
        assert_eq!(error.retry(), Some(Duration::from_millis(30)));
    }
    assert_eq!(
        says(&model, request(Operation::React, "q")).await.unwrap(),
        "fine"
    );
}

#[tokio::test]
async fn pieces_arrive_in_order_and_make_up_the_reply() {
    let model = Scripted::new(
        Script::new()
            .rule(
                Rule::on(Operation::React)
                    .text("one two\nthree")
                    .word_by_word(),
            )
            .rule(Rule::on(Operation::Review).in_pieces(["ab", "c"]))
            .rule(Rule::any().text("whole thing").costing(7, 2)),
    );
    for (operation, expected) in [
        (Operation::React, vec!["one ", "two\n", "three"]),
        (Operation::Review, vec!["ab", "c"]),
        (Operation::Complete, vec!["whole thing"]),
    ] {
        let sink = Pieces::default();
        let reply = model.chat(request(operation, "q"), &sink).await.unwrap();
        assert_eq!(sink.all(), expected);
        assert_eq!(sink.all().concat(), reply.text);
    }
    let reply = model
        .chat(request(Operation::Prompt, "q"), &Discard)
        .await
        .unwrap();
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (7, 2)
    );
}

#[tokio::test]
async fn a_gate_holds_a_reply_after_its_first_piece_until_released() {
    let gate = Gate::new();
    let model: Arc<Scripted> = Script::new()
        .rule(
            Rule::any()
                .in_pieces(["first ", "second"])
                .held_at(&gate, 1),
        )
        .into();
    let sink = Arc::new(Pieces::default());
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let (model, sink) = (Arc::clone(&model), Arc::clone(&sink));
            tokio::spawn(async move {
                model
                    .chat(request(Operation::React, "q"), sink.as_ref())
                    .await
                    .map(|r| r.text)
            })
        })
        .collect();
    gate.arrived(2).await;
    assert_eq!(sink.all(), ["first ", "first "]);
    gate.release();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "first second");
    }
    assert_eq!(sink.all().len(), 4);
}

#[tokio::test]
async fn a_dropped_call_leaves_the_gate() {
    let gate = Gate::new();
    let model: Arc<Scripted> = Script::new()
        .rule(Rule::any().text("x").held_at(&gate, 0))
        .into();
    let held = {
        let model = Arc::clone(&model);
        tokio::spawn(async move { model.chat(request(Operation::React, "q"), &Discard).await })
    };
    gate.arrived(1).await;
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    let again = {
        let model = Arc::clone(&model);
        tokio::spawn(async move { model.chat(request(Operation::React, "q"), &Discard).await })
    };
    gate.arrived(1).await;
    gate.release();
    assert_eq!(again.await.unwrap().unwrap().text, "x");
}

#[tokio::test]
async fn a_script_file_says_the_same_as_the_builder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        r#"{"native-tools": true, "rules": [
            {"operation": "agent-react", "steps": 0, "text": "look", "words": true,
             "tool-calls": [{"id": "c1", "name": "search", "arguments": {"query": "q"}},
                            {"id": "c2", "name": "note", "arguments": {}}],
             "usage": {"input_tokens": 5}, "cut": true},
            {"contains": "bridge", "times": 1, "fail": "busy", "retry-after-ms": 9},
            {"matches": "br.dge", "pieces": ["a ", "b"]}
        ]}"#,
    )
    .unwrap();
    let model = Scripted::new(Script::from_file(file.path()).unwrap().recording());
    assert!(model.capabilities().native_tools);
    let reply = model
        .chat(request(Operation::React, "q"), &Discard)
        .await
        .unwrap();
    let called: Vec<&str> = reply.tool_calls.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(called, ["search", "note"]);
    assert_eq!(reply.usage.input_tokens, 5);
    assert!(reply.cut);
    let error = says(&model, request(Operation::Review, "a bridge"))
        .await
        .unwrap_err();
    assert_eq!(error.retry(), Some(Duration::from_millis(9)));
    assert_eq!(
        says(&model, request(Operation::Review, "a bridge"))
            .await
            .unwrap(),
        "a b"
    );
    assert_eq!(model.requests().len(), 3);
}

#[test]
fn a_wrong_script_says_what_is_wrong() {
    for (text, expected) in [
        ("{", "EOF"),
        (r#"{"rules": [{"contians": "x"}]}"#, "contians"),
        (
            r#"{"rules": [{}, {"operation": "think"}]}"#,
            "rule 2: unknown operation `think`",
        ),
        (r#"{"rules": [{"matches": "("}]}"#, "rule 1: `matches`"),
        (
            r#"{"rules": [{"fail": "x", "text": "y"}]}"#,
            "both fails and replies",
        ),
        (
            r#"{"rules": [{"text": "y", "retry-after-ms": 1}]}"#,
            "belongs to `fail`",
        ),
        (
            r#"{"rules": [{"text": "y", "pieces": []}]}"#,
            "either `text` or `pieces`",
        ),
    ] {
        let error = file::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let missing = Script::from_file(Path::new("/nowhere/script.json"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nowhere/script.json"), "{missing}");
}
