//! Streaming, on the embedded engine: a reader holds the first words while the model is still talking.

use agentfleet::engine::Engine;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_models::{Gate, Operation, Rule, Script, Scripted};
use agentfleet_runtime::client::{Event, Follow, submit};
use agentfleet_schema::{AgentRequest, MessageType};
use agentfleet_tools::Toolbox;
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

/// A fleet at work with a scripted model.
struct Running {
    engine: Engine,
    fleet: Fleet,
    _directory: TempDir,
}

async fn running(script: Script) -> Running {
    let directory = TempDir::new().unwrap();
    let flags = Flags {
        data: Some(directory.path().display().to_string()),
        model: Some("offline".into()),
        ..Flags::default()
    };
    let settings = Settings::load(&flags).unwrap();
    let store = Store::open(&settings).await.unwrap();
    store.prepare(&settings).await.unwrap();
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await.unwrap();
    engine.model.model = Arc::new(Scripted::new(script));
    engine.tools = Arc::new(
        Toolbox::new(
            engine.library.clone(),
            Arc::clone(&engine.store.documents),
            Arc::clone(&engine.graph),
            Arc::clone(&engine.model.model),
            settings.tool_timeout,
            agentfleet_tools::Secrets::default(),
            agentfleet_tools::mcp::Servers::new(agentfleet_tools::Secrets::default(), Vec::new())
                .unwrap(),
        )
        .unwrap(),
    );
    let fleet = Fleet::start(&engine, &settings, Roles::All).await.unwrap();
    Running {
        engine,
        fleet,
        _directory: directory,
    }
}

impl Running {
    async fn ask(&self, question: &str, pattern: &str) -> Follow {
        let request = AgentRequest {
            question: question.into(),
            pattern: pattern.into(),
            streaming: true,
            ..AgentRequest::default()
        };
        let broker = self.engine.broker();
        let session = submit(&*broker, request, question, &[]).await.unwrap();
        Follow::new(broker, self.engine.documents(), session, 0)
    }
}

/// Events until one is wanted.
async fn until(follow: &mut Follow, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        for event in follow.next().await.unwrap().events {
            let last = wanted(&event);
            seen.push(event);
            if last {
                return seen;
            }
        }
    }
}

fn is_answer_chunk(event: &Event) -> bool {
    matches!(
        event,
        Event::Chunk {
            kind: MessageType::Answer,
            ..
        }
    )
}

/// What a reader that only joins chunks has, and what the end says.
fn told(seen: &[Event]) -> (String, String) {
    let chunks = seen.iter().filter_map(|event| match event {
        Event::Chunk {
            kind: MessageType::Answer,
            text,
            ..
        } => Some(text.as_str()),
        _ => None,
    });
    let Some(Event::End { text, .. }) = seen.last() else {
        panic!("no end: {seen:?}")
    };
    (chunks.collect(), text.clone())
}

#[tokio::test]
async fn the_first_words_are_there_while_the_model_still_talks() {
    let gate = Gate::new();
    let said = [
        "Thought: hm\nFinal Answer: It is\n\n",
        "twelve ",
        "metres.\n",
    ];
    let rule = Rule::on(Operation::React).in_pieces(said).held_at(&gate, 1);
    let running = running(Script::new().rule(rule)).await;
    let mut follow = running.ask("How long?", "react").await;
    let first = until(&mut follow, is_answer_chunk).await;
    gate.release();
    let mut seen = first;
    seen.extend(until(&mut follow, |event| matches!(event, Event::End { .. })).await);
    let (joined, end) = told(&seen);
    assert_eq!(end, "It is\n\ntwelve metres.");
    assert!(
        end.starts_with(&joined),
        "{joined:?} is no beginning of {end:?}"
    );
    running.fleet.drain().await;
}

#[tokio::test]
async fn a_model_with_tools_of_its_own_streams_its_answer_without_any_marker() {
    let gate = Gate::new();
    let preface = "It is said in the first document that the hall is long, ".repeat(6);
    let code = "\n```\nlength = 12\n```\n";
    let rule = Rule::on(Operation::React)
        .in_pieces([preface.as_str(), code, "That is all."])
        .held_at(&gate, 1);
    let running = running(Script::new().with_native_tools().rule(rule)).await;
    let mut follow = running.ask("How long?", "react").await;
    let mut seen = until(&mut follow, is_answer_chunk).await;
    gate.release();
    seen.extend(until(&mut follow, |event| matches!(event, Event::End { .. })).await);
    let (joined, end) = told(&seen);
    assert_eq!(
        end,
        format!("{preface}{code}That is all."),
        "fences are kept"
    );
    assert!(end.starts_with(&joined));
    running.fleet.drain().await;
}

#[tokio::test]
async fn what_a_model_says_before_it_calls_a_tool_is_its_thought() {
    let call = Rule::on(Operation::React)
        .after_steps(0)
        .times(1)
        .text("I look it up first.")
        .tool_call("1", "document-search", json!({"query": "hall"}));
    let answer = Rule::on(Operation::React).text("Final Answer: Nothing is known of it.");
    let running = running(Script::new().with_native_tools().rule(call).rule(answer)).await;
    let mut follow = running.ask("How long?", "react").await;
    let seen = until(&mut follow, |event| matches!(event, Event::End { .. })).await;
    let thoughts: Vec<&str> = seen
        .iter()
        .filter_map(|event| match event {
            Event::Message { text, response, .. }
                if response.message_type == MessageType::Thought =>
            {
                Some(text.as_str())
            }
            _ => None,
        })
        .collect();
    assert!(thoughts.contains(&"I look it up first."), "{thoughts:?}");
    assert_eq!(told(&seen).1, "Nothing is known of it.");
    running.fleet.drain().await;
}

#[tokio::test]
async fn a_call_is_told_while_it_runs_and_once_it_is_committed() {
    let gate = Gate::new();
    let call = Rule::on(Operation::React).after_steps(0).text(
        "Thought: hm\nAction: text-completion\nArgs: {\"question\": \"how long is a hall?\"}",
    );
    let tool = Rule::on(Operation::Complete)
        .text("Some are long.")
        .held_at(&gate, 0);
    let answer = Rule::on(Operation::React).text("Final Answer: Nothing is known of it.");
    let running = running(Script::new().rule(call).rule(tool).rule(answer)).await;
    let mut follow = running.ask("How long?", "react").await;
    let is_action = |event: &Event| {
        matches!(
            event,
            Event::Chunk {
                kind: MessageType::Action,
                ..
            }
        )
    };
    let mut seen = until(&mut follow, is_action).await;
    let told = "text-completion(question: \"how long is a hall?\")";
    let Some(Event::Chunk {
        text, message_id, ..
    }) = seen.last().cloned()
    else {
        panic!("{seen:?}")
    };
    assert_eq!(text, told);
    gate.release();
    seen.extend(until(&mut follow, |event| matches!(event, Event::End { .. })).await);
    let whole: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            Event::Message { text, response, .. } => {
                Some((response.message_type, text.as_str(), &response.message_id))
            }
            _ => None,
        })
        .filter(|(kind, ..)| matches!(kind, MessageType::Action | MessageType::Observation))
        .collect();
    assert_eq!(whole.len(), 2, "{whole:?}");
    assert_eq!(whole[0], (MessageType::Action, told, &message_id));
    assert_eq!(whole[1].1, "Some are long.");
    running.fleet.drain().await;
}

#[tokio::test]
async fn subagents_and_the_synthesis_stream_too() {
    let gate = Gate::new();
    let script = Script::new()
        .rule(
            Rule::on(Operation::Decompose)
                .text(r#"{"thought": "two", "goals": ["left side", "right side"]}"#),
        )
        .rule(
            Rule::on(Operation::React)
                .containing("left side")
                .in_pieces(["Final Answer: The left ", "is red."])
                .held_at(&gate, 1),
        )
        .rule(Rule::on(Operation::React).text("Final Answer: The right is blue."))
        .rule(Rule::on(Operation::Review).text(r#"{"decision": "answer", "signal": "both"}"#))
        .rule(Rule::on(Operation::Synthesise).in_pieces(["## Both\n", "Red and blue.\n"]));
    let running = running(script).await;
    let mut follow = running.ask("Which colours?", "supervisor").await;
    let mut seen = until(&mut follow, is_answer_chunk).await;
    let Some(Event::Chunk { session, .. }) = seen.last() else {
        panic!("{seen:?}")
    };
    assert!(!session.is_empty(), "a chunk names its session");
    gate.release();
    seen.extend(until(&mut follow, |event| matches!(event, Event::End { .. })).await);
    assert_eq!(told(&seen).1, "## Both\nRed and blue.");
    let ends = seen
        .iter()
        .filter(|event| matches!(event, Event::End { .. }));
    assert_eq!(ends.count(), 1, "subagents end no dialog");
    running.fleet.drain().await;
}
