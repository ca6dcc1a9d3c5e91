//! The offline model at work: what it says must come from what it was given.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Discard, Message};
use serde_json::Value;
use std::sync::Mutex;
use std::time::Duration;

fn request(operation: Operation, inputs: Value) -> ModelRequest {
    ModelRequest {
        operation,
        messages: vec![Message::User("(rendered prompt)".into())],
        tools: Vec::new(),
        schema: None,
        inputs,
        model: String::new(),
        fallbacks: Vec::new(),
        temperature: None,
        max_tokens: None,
        timeout: Duration::from_secs(5),
    }
}

fn says(operation: Operation, inputs: Value) -> String {
    Offline::reply(&request(operation, inputs))
}

fn json_of(operation: Operation, inputs: Value) -> Value {
    serde_json::from_str(&says(operation, inputs)).unwrap()
}

const FRAMING: &str = "Analyse across financial, reputational, legal and operational dimensions.";

#[test]
fn the_simplest_is_chosen_unless_the_question_asks_for_more() {
    let types = json!([
        {"name": "general"}, {"name": "research"}, {"name": "risk-assessment"}, {"name": "summarisation"},
    ]);
    for (question, expected) in [
        ("When is the term loan due?", "general"),
        ("What is the risk of VACUUM FULL?", "general"),
        ("Which plan did the company assess last?", "general"),
        (
            "Assess the risk profile of Company X as a partner",
            "risk-assessment",
        ),
        ("Summarise the minutes of the meeting", "summarisation"),
        ("Research the history of the canal", "research"),
        ("", "general"),
    ] {
        let inputs = json!({"question": question, "task_types": types});
        let reply = json_of(Operation::ClassifyTaskType, inputs);
        assert_eq!(reply["choice"], expected, "{question}");
    }
    let patterns = json!([
        {"name": "debate", "description": "Several reasoners, until they agree"},
        {"name": "supervisor", "description": "Fan-out: subagents work at the same time"},
        {"name": "plan-then-execute", "description": "A plan first, then its steps"},
        {"name": "react", "description": "Reasoning and acting in turns"},
    ]);
    for (question, framing, expected) in [
        ("When is the term loan due?", "", "react"),
        ("Assess the risk of the mill", FRAMING, "supervisor"),
        (
            "Compare cost, speed and safety of the ferries",
            "",
            "supervisor",
        ),
        (
            "First collect the tables, then compute the means",
            "",
            "plan-then-execute",
        ),
        ("Debate whether the lock should stay open", "", "debate"),
    ] {
        let inputs = json!({"question": question, "framing": framing, "patterns": patterns});
        let reply = json_of(Operation::SelectPattern, inputs);
        assert_eq!(reply["choice"], expected, "{question}");
        let rationale = reply["rationale"].as_str().unwrap();
        assert!(rationale.contains("no language model"), "{rationale}");
        // Of those on offer, which it could not work.
        assert!(
            rationale.ends_with(
                "to work as they are meant: `debate` (arguing, and weighing what others argue)"
            ),
            "{rationale}"
        );
    }
    let named = json!({"question": "How tall is it?", "task_types": ["a", "b"]});
    assert_eq!(
        json_of(Operation::ClassifyTaskType, named)["choice"],
        "general"
    );
}

#[test]
fn there_is_one_goal_for_each_part_that_is_written_down() {
    let goals = |question: &str, framing: &str, most: u32| -> Vec<String> {
        let inputs = json!({"question": question, "framing": framing, "max_subagents": most,
            "patterns": ["supervisor", "react"]});
        let reply = json_of(Operation::Decompose, inputs);
        let goals = reply["goals"].as_array().unwrap();
        assert!(goals.iter().all(|goal| goal["pattern"] == "react"));
        // The reason is about the choice, not about what is to be found out.
        let reason = "every goal is worked by `react`, the simplest pattern on offer";
        let has_reason = |goal: &Value| goal["rationale"].as_str().unwrap().contains(reason);
        assert!(goals.iter().all(has_reason));
        goals
            .iter()
            .map(|goal| goal["goal"].as_str().unwrap().to_owned())
            .collect()
    };
    let question = "Assess the mill as a supplier";
    assert_eq!(
        goals(question, FRAMING, 3),
        [
            format!("Financial dimension: {question}"),
            format!("Reputational dimension: {question}"),
            format!("Legal and operational dimension: {question}"),
        ]
    );
    assert_eq!(goals(question, FRAMING, 8).len(), 4);
    assert_eq!(goals(question, "Be thorough.", 8), [question]);
    assert_eq!(goals(question, FRAMING, 1), [question]);
    assert_eq!(
        goals("Compare cost, speed and safety of the ferries", "", 8),
        [
            "Cost: Compare cost of the ferries",
            "Speed: Compare speed of the ferries",
            "Safety: Compare safety of the ferries",
        ]
    );
}

fn tools() -> Value {
    let argument = |name: &str| json!([{"name": name, "type": "string", "required": true}]);
    json!([
        {"name": "text-completion", "description": "Query the language model", "arguments": argument("question")},
        {"name": "message-send", "description": "Sends what was found", "arguments": argument("text")},
        {"name": "document-fetch", "description": "Reads a document", "arguments": argument("uri")},
        {"name": "document-search", "description": "Searches the documents", "arguments": argument("query")},
        {"name": "knowledge-query", "description": "Looks up facts", "arguments": argument("question")},
    ])
}

const GOAL: &str = "Financial dimension: Assess the risk profile of Brennholm Ferries as a partner";
const SEARCHED: &str = "\
[1] Accounts > Debt (doc:accounts)
The financial debt of Brennholm Ferries rose to 58 million:
```
58,000,000
```

[2] Press (doc:press)
A bank extended the financial guarantee of Brennholm Ferries.

[3] Café (doc:cafe)
The café has a new owner.";
const FACTS: &str = "\
[1] Register (doc:register)
- Brennholm Ferries | financial auditor | Hansen & Partners [urn:b]
- Ostsee Lines | owner | Nobody [urn:o]";

fn react(goal: &str, history: &Value) -> String {
    let inputs = json!({"question": "q", "goal": goal, "tools": tools(), "history": history, "iterations_left": 8});
    says(Operation::React, inputs)
}

fn step(tool: &str, observation: &str) -> Value {
    json!({"thought": "", "action": tool, "arguments": {"query": "x"}, "observation": observation})
}

#[test]
fn each_tool_that_searches_is_asked_once_and_the_first_passages_are_quoted() {
    let first = react(GOAL, &json!([]));
    let asked = "Action: document-search\nArgs: {\"query\":\"Financial Brennholm Ferries\"}";
    assert!(first.ends_with(asked), "{first}");
    let second = react(GOAL, &json!([step("document-search", SEARCHED)]));
    assert!(second.contains("Action: knowledge-query\n"), "{second}");
    let both = json!([
        step("document-search", SEARCHED),
        step("knowledge-query", FACTS)
    ]);
    let answer = react(GOAL, &both);
    // A statement with all of the words comes first.
    let quoted = "> - Brennholm Ferries | financial auditor | Hansen & Partners [urn:b]\n>\n> Source: Register (doc:register)\n\n\
                  > The financial debt of Brennholm Ferries rose to 58 million:\n>\n> ```\n> 58,000,000\n> ```\n>\n\
                  > Source: Accounts (doc:accounts), under \"Debt\"\n\n\
                  > A bank extended the financial guarantee of Brennholm Ferries.\n>\n> Source: Press (doc:press)\n";
    assert!(answer.contains(quoted), "{answer}");
    assert!(
        !answer.contains("café") && !answer.contains("Ostsee"),
        "{answer}"
    );
    assert!(
        answer.contains("have 3 of the 3 words searched for."),
        "{answer}"
    );
    // A question in words of its own is searched for as it is, and the last step searches no more.
    let colon = react(
        "A question for you: when does the ferry sail?",
        &json!([step("document-search", "No passages.")]),
    );
    let whole = "\"A question for you: when does the ferry sail?\"";
    assert!(colon.contains(whole), "{colon}");
    let plain = react("When does the ferry sail?", &json!([]));
    assert!(
        plain.contains("{\"query\":\"When does the ferry sail?\"}"),
        "{plain}"
    );
    let last = json!({"goal": GOAL, "tools": tools(), "history": [], "last": true});
    let last = says(Operation::React, last);
    assert!(
        last.contains(
            "Final Answer: Nothing was searched on \"Financial\": no step is left for it."
        ),
        "{last}"
    );
}

#[test]
fn who_was_given_no_tool_says_that_nothing_was_searched() {
    let dispatched = "Dispatched to general: no other specialist has a tool here";
    let inputs = json!({"question": "How do refunds work?", "tools": [], "dispatched": dispatched});
    let said = says(Operation::React, inputs);
    for part in [
        "Nothing was searched on \"How do refunds work?\": no tool that searches is open here.",
        dispatched,
        "another pattern, such as `react`",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("Nothing was found"), "{said}");
}

#[test]
fn words_that_no_quotation_has_are_said_before_all_else() {
    let history = json!([
        step("document-search", SEARCHED),
        step("knowledge-query", "No facts.")
    ]);
    let answer = react("Which grommets do Brennholm Ferries use?", &history);
    let said = answer.split("Final Answer: ").nth(1).unwrap();
    assert!(
        said.starts_with("No quotation has \"grommets\" or \"use\", so"),
        "{answer}"
    );
    assert!(
        said.contains("have 2 of the 4 words searched for, not \"grommets\", \"use\"."),
        "{answer}"
    );
    // A word in another form or in capitals is there.
    let found = "[1] SQL (doc:sql)\nVACUUM FULL rewrites the indexes of a table.";
    let answer = react(
        "Does vacuum full rewrite an index?",
        &json!([
            step("document-search", found),
            step("knowledge-query", "No facts.")
        ]),
    );
    assert!(answer.contains("have 4 of the 4 words"), "{answer}");
}

#[test]
fn a_synthesis_shows_each_part_what_is_missing_and_each_source_once() {
    let body = "> It floats.\n>\n> Source: Fleet (doc:fleet), under \"A\"\n\n# More\n\n> Twice.\n>\n> Source: Fleet (doc:fleet)";
    let text = says(
        Operation::Synthesise,
        json!({
            "question": "Assess Brennholm",
            "results": [
                {"goal": "Technical dimension: Assess it", "status": "answered", "text": body},
                {"goal": "Legal dimension: Assess it", "status": "answered", "text": body},
                {"goal": "Crew dimension: Assess it", "status": "error", "text": "the tool failed\nbadly"},
            ],
            "missing": [{"goal": "Tax dimension: Assess it", "reason": "deadline passed"}],
        }),
    );
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        headings,
        [
            "# Assess Brennholm",
            "## Technical",
            "### More",
            "## Legal",
            "### More",
            "## Not covered",
            "## Sources",
        ]
    );
    assert!(
        text.contains("Assembled without a language model"),
        "{text}"
    );
    assert!(
        text.contains("- Crew: error: the tool failed\n- Tax: deadline passed"),
        "{text}"
    );
    assert!(
        text.ends_with("1. Fleet (doc:fleet), quoted under: Technical, Legal"),
        "{text}"
    );
    let none = says(
        Operation::Synthesise,
        json!({"question": "Why?", "results": [], "missing": []}),
    );
    assert!(!none.contains("## Sources"), "{none}");
}

#[test]
fn what_takes_a_judgement_is_declined() {
    let reply = json_of(
        Operation::Review,
        json!({"question": "q", "results": [], "rounds_left": 3}),
    );
    assert_eq!(reply["decision"], "answer");
    for operation in [Operation::Complete, Operation::Prompt] {
        let said = says(operation, json!({"question": "Write a poem"}));
        assert!(
            said.starts_with("No language model is configured"),
            "{said}"
        );
    }
    let message = json!({"message": "Write an analytics report",
        "intents": ["general_chat", "analytics_reporting"], "specialists": ["general", "tax"]});
    let intent = json_of(Operation::ClassifyIntent, message);
    assert_eq!(
        (&intent["intent"], &intent["specialist"]),
        (&json!("analytics_reporting"), &json!("general"))
    );
}

#[tokio::test]
async fn it_speaks_word_by_word_and_says_the_same_each_time() {
    struct Pieces(Mutex<Vec<String>>);
    impl TextSink for Pieces {
        fn text(&self, piece: &str) {
            self.0.lock().unwrap().push(piece.to_owned());
        }
    }
    let inputs = json!({"question": "Assess it", "results": [], "missing": []});
    let sink = Pieces(Mutex::new(Vec::new()));
    let asked = request(Operation::Synthesise, inputs.clone());
    let reply = Offline.chat(asked, &sink).await.unwrap();
    let pieces = sink.0.into_inner().unwrap();
    assert!(pieces.len() > 10);
    assert_eq!(pieces.concat(), reply.text);
    let again = Offline
        .chat(request(Operation::Synthesise, inputs), &Discard)
        .await
        .unwrap();
    assert_eq!(again, reply);
    assert_eq!(reply.model, "offline");
    assert!(!Offline.capabilities().reasons);
}
