//! The offline model at work on a dossier: what it says must come from what it was given.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::{Discard, Message, ToolSpec};
use serde_json::Value;
use std::sync::Mutex;
use std::time::Duration;

pub(super) fn request(operation: Operation, inputs: Value) -> ModelRequest {
    ModelRequest {
        operation,
        messages: vec![Message::User("(rendered prompt)".into())],
        tools: Vec::new(),
        schema: None,
        inputs,
        model: String::new(),
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

fn task_types() -> Value {
    json!([
        {"name": "general", "description": "No particular domain", "when_to_use": "Nothing else fits"},
        {"name": "research", "description": "Open-ended investigation",
         "when_to_use": "A subject is to be explored from many documents"},
        {"name": "risk-assessment", "description": "Due diligence and risk assessment",
         "when_to_use": "A partner, supplier or plan is judged on several dimensions"},
        {"name": "summarisation", "description": "Condense information",
         "when_to_use": "A long text has to become a short one"},
    ])
}

fn patterns() -> Value {
    json!([
        {"name": "one-by-one", "description": "Interleaved reasoning and action",
         "when_to_use": "Adaptive, good for open-ended tasks"},
        {"name": "plan-first", "description": "Structured plan, then its steps",
         "when_to_use": "Ordered steps that depend on each other; predictable and auditable"},
        {"name": "many-hands", "description": "Decomposition, fan-out to subagents, synthesis",
         "when_to_use": "Several independent dimensions that can be worked on in parallel"},
    ])
}

#[test]
fn the_task_type_follows_the_words_of_the_question() {
    for (question, expected, signal) in [
        (
            "Assess the risks of the mill as a supplier",
            "risk-assessment",
            "`risks`",
        ),
        (
            "Summarise the minutes of the meeting",
            "summarisation",
            "`summarise`",
        ),
        (
            "Explore the history of the canal in the documents we have",
            "research",
            "`explore`",
        ),
        ("How tall is the tower?", "general", "no telling word"),
        // One word of the fine print, or a word of a name, is no sign.
        ("Where does the plan hang?", "general", "no telling word"),
        ("How tall is Risk Tower?", "general", "no telling word"),
        ("", "general", "no telling word"),
    ] {
        let inputs = json!({"question": question, "task_types": task_types()});
        let reply = json_of(Operation::ClassifyTaskType, inputs);
        assert_eq!(reply["choice"], expected, "{question}: {reply}");
        assert!(
            reply["signal"].as_str().unwrap().contains(signal),
            "{question}: {reply}"
        );
    }
    let renamed =
        json!({"question": "How tall is it?", "task_types": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(json_of(Operation::ClassifyTaskType, renamed)["choice"], "a");
}

#[test]
fn the_pattern_follows_what_can_be_counted_and_what_each_one_promises() {
    let framing = "Look at it across technical, commercial and legal dimensions.";
    for (question, framing, expected, signal) in [
        (
            "Assess the mill as a supplier",
            framing,
            "many-hands",
            "names 3 parts",
        ),
        ("How tall is the tower?", "", "one-by-one", "short"),
        (
            "First collect the tide tables, then compute the means, and finally list the steps that \
             led there",
            "",
            "plan-first",
            "sets an order",
        ),
        ("Urgent: is the lock gate open?", "", "one-by-one", "urgent"),
    ] {
        let inputs = json!({
            "question": question, "framing": framing, "task_type": "t", "patterns": patterns()
        });
        let reply = json_of(Operation::SelectPattern, inputs);
        assert_eq!(reply["choice"], expected, "{question}: {reply}");
        assert!(
            reply["signal"].as_str().unwrap().contains(signal),
            "{question}: {reply}"
        );
        assert!(
            reply["rationale"]
                .as_str()
                .unwrap()
                .contains("without a language model")
        );
    }
}

fn goals(question: &str, framing: &str, most: u32) -> Vec<(String, String)> {
    let reply = json_of(
        Operation::Decompose,
        json!({
            "question": question, "framing": framing, "max_subagents": most,
            "patterns": [{"name": "supervisor"}, {"name": "react"}], "tools": [], "groups": [],
        }),
    );
    assert!(!reply["thought"].as_str().unwrap().is_empty());
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    reply["goals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| (text(&g["goal"]), text(&g["pattern"])))
        .collect()
}

#[test]
fn one_goal_for_each_part_that_is_written_down() {
    let question = "Assess the mill as a supplier";
    let framing = "Analyse across financial, technical and legal dimensions.";
    let expected: Vec<(String, String)> = ["Financial", "Technical", "Legal"]
        .iter()
        .map(|d| (format!("{d} dimension: {question}"), "react".to_owned()))
        .collect();
    assert_eq!(goals(question, framing, 8), expected);
    // Another framing, other goals; no enumeration, one goal.
    assert_eq!(goals(question, "Mind noise and dust aspects.", 8).len(), 2);
    assert_eq!(
        goals(question, "Be thorough.", 8),
        [(question.to_owned(), "react".to_owned())]
    );
    assert_eq!(goals(question, framing, 1).len(), 1);
    let two: Vec<String> = goals(question, framing, 2)
        .into_iter()
        .map(|g| g.0)
        .collect();
    assert_eq!(
        two,
        [
            format!("Financial dimension: {question}"),
            format!("Technical and legal dimension: {question}")
        ]
    );
    let compared: Vec<String> = goals("Compare Kiel, Emden and Wismar as ports", "", 8)
        .into_iter()
        .map(|g| g.0)
        .collect();
    assert_eq!(
        compared,
        [
            "Kiel: Compare Kiel as ports",
            "Emden: Compare Emden as ports",
            "Wismar: Compare Wismar as ports"
        ]
    );
}

const TOOLS: &str = r#"[
    {"name": "text-completion", "description": "Ask the language model to write something",
     "arguments": [{"name": "question", "type": "string", "description": "What to write", "required": true}]},
    {"name": "knowledge-query", "description": "Query the knowledge graph for facts about a thing",
     "arguments": [{"name": "query", "type": "string", "description": "Words of the thing", "required": true}]},
    {"name": "document-search", "description": "Full-text search over the loaded documents",
     "arguments": [{"name": "query", "type": "string", "description": "What to search for", "required": true},
                   {"name": "limit", "type": "integer", "description": "Most passages", "required": false}]},
    {"name": "document-fetch", "description": "Read a whole document",
     "arguments": [{"name": "uri", "type": "string", "description": "Its URI", "required": true}]}
]"#;

/// Passages as the search tool returns them: on the goal, beside it, and about somebody else.
const SEARCHED: &str = "\
[1] Brennholm Ferries: annual accounts (doc:accounts)
Brennholm Ferries closed the year with revenue of 41 million euros, 12 percent below the year before. \
Its financial debt rose to 58 million euros. The auditors signed without reservation.

[2] Regional press review, March (doc:press-march)
Passengers praised the punctuality of Brennholm Ferries. A regional bank confirmed that it had \
extended the line's financial guarantee until June. The harbour café has a new owner.

[3] Ostsee Lines: interim report (doc:ostsee)
Ostsee Lines has a strong financial position and no debt.

[4] Brennholm Ferries: fleet (doc:fleet)
The fleet counts seven vessels. Two of them are older than thirty years.
";

const FACTS: &str = "\
- Brennholm Ferries | financial auditor | Hansen & Partners [urn:fact:12]
- Ostsee Lines | financial auditor | Nobody [urn:fact:13]
";

/// The words searched for first, and those searched for when they find little.
const NARROW: &str = "Financial Brennholm Ferries";
const WIDE: &str = "Financial Brennholm Ferries risk profile partner";

const GOAL: &str = "Financial dimension: Assess the risk profile of Brennholm Ferries as a partner";

fn react(history: &Value, extra: &[(&str, Value)]) -> String {
    let mut inputs = json!({
        "question": GOAL, "goal": GOAL, "framing": "", "parent_context": "",
        "tools": serde_json::from_str::<Value>(TOOLS).unwrap(),
        "history": history, "iterations_left": 8, "native": false, "last": false,
    });
    for (name, value) in extra {
        inputs[*name] = value.clone();
    }
    says(Operation::React, inputs)
}

fn step(tool: &str, value: &str, observation: &str) -> Value {
    let name = if tool == "document-fetch" {
        "uri"
    } else {
        "query"
    };
    json!({"thought": "t", "action": tool, "arguments": {name: value}, "observation": observation})
}

#[test]
fn a_turn_searches_first_with_the_words_of_the_goal() {
    let reply = react(&json!([]), &[]);
    assert!(reply.starts_with("Thought: "), "{reply}");
    assert!(reply.contains("\nAction: document-search\n"), "{reply}");
    let args: Value = serde_json::from_str(reply.split("Args: ").nth(1).unwrap()).unwrap();
    assert_eq!(args, json!({"query": "Financial Brennholm Ferries"}));
}

#[test]
fn a_turn_looks_further_while_little_was_found() {
    for little in [
        "No results.",
        "error: the index is locked",
        "[1] A (doc:a)\nNothing of use.",
    ] {
        // Another tool first, then wider words.
        let mut history = vec![step("document-search", NARROW, little)];
        let reply = react(&json!(history), &[]);
        assert!(
            reply.contains("\nAction: knowledge-query\n"),
            "{little}: {reply}"
        );
        assert!(
            reply.contains(&format!("{{\"query\":\"{NARROW}\"}}")),
            "{little}: {reply}"
        );
        history.push(step("knowledge-query", NARROW, "No facts."));
        let reply = react(&json!(history), &[]);
        assert!(
            reply.contains("\nAction: document-search\n"),
            "{little}: {reply}"
        );
        assert!(
            reply.contains(&format!("{{\"query\":\"{WIDE}\"}}")),
            "{little}: {reply}"
        );
        history.push(step("document-search", WIDE, little));
        assert!(
            react(&json!(history), &[]).contains("Final Answer:"),
            "{little}"
        );
    }
    let enough = json!([
        step("document-search", NARROW, SEARCHED),
        step("knowledge-query", NARROW, FACTS)
    ]);
    assert!(react(&enough, &[]).contains("Final Answer:"));
}

#[test]
fn steps_that_called_no_tool_are_not_taken_for_findings() {
    let planned = json!({"thought": "t", "action": "decompose", "arguments": {},
        "observation": "No fan-out: the financial matter of Brennholm Ferries is one goal."});
    let reply = react(&json!([planned]), &[]);
    assert!(reply.contains("\nAction: document-search\n"), "{reply}");
    let reply = react(&json!([planned]), &[("last", json!(true))]);
    assert!(reply.contains("Nothing was found"), "{reply}");
}

#[test]
fn a_turn_reads_in_full_what_it_has_only_an_excerpt_of() {
    let excerpt = "[1] Accounts of Brennholm Ferries (doc:accounts)\n\
                   … financial debt of Brennholm Ferries rose …\n";
    let mut history = vec![
        step("document-search", NARROW, excerpt),
        step("knowledge-query", NARROW, FACTS),
        step("document-search", WIDE, "No results."),
    ];
    let reply = react(&json!(history), &[]);
    assert!(
        reply.contains("Action: document-fetch\nArgs: {\"uri\":\"doc:accounts\"}"),
        "{reply}"
    );
    let whole = "Accounts of Brennholm Ferries (doc:accounts)\n\n\
                 The financial debt of Brennholm Ferries rose to 58 million.";
    history.push(step("document-fetch", "doc:accounts", whole));
    let reply = react(&json!(history), &[]);
    assert!(
        reply.contains("> The financial debt of Brennholm Ferries rose to 58 million."),
        "{reply}"
    );
}

#[test]
fn a_document_on_the_topic_is_read_in_full_where_little_else_was_found() {
    let found = "[1] Brennholm Ferries: review (doc:review)\n\
                 A review of financial matters at Brennholm Ferries.\n";
    let mut history = vec![
        step("document-search", NARROW, found),
        step("knowledge-query", NARROW, "No facts."),
        step("document-search", WIDE, found),
    ];
    let reply = react(&json!(history), &[]);
    assert!(reply.contains("Args: {\"uri\":\"doc:review\"}"), "{reply}");
    let whole = "Brennholm Ferries: review (doc:review)\n\n\
                 A review of financial matters at Brennholm Ferries.\n\n\
                 ## Loans\nTwo loans end in May. Neither has been extended.\n\n\
                 ## Fares\nFares rose by 3 percent.\n";
    history.push(step("document-fetch", "doc:review", whole));
    let reply = react(&json!(history), &[]);
    // The document says what it is about; its sections need not say so again.
    for expected in [
        "> Two loans end in May. Neither has been extended.",
        "> Fares rose by 3 percent.",
        "under \"Loans\"",
    ] {
        assert!(reply.contains(expected), "{expected} is missing: {reply}");
    }
}

#[test]
fn an_answer_quotes_what_is_about_the_goal_with_its_source_and_nothing_else() {
    let history = json!([
        step("document-search", "money", SEARCHED),
        step("knowledge-query", "money", FACTS)
    ]);
    let reply = react(&history, &[("last", json!(true))]);
    println!("{reply}\n");
    let answer = reply.split("Final Answer: ").nth(1).unwrap();
    let given = format!("{SEARCHED}\n{FACTS}").replace('\n', " ");
    let quoted: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .filter(|line| !line.starts_with("Source:"))
        .collect();
    assert!(quoted.len() >= 3, "{answer}");
    for line in &quoted {
        assert!(given.contains(line), "not in the observations: {line}");
    }
    let all = quoted.join("\n");
    for expected in [
        "debt rose to 58 million",
        "financial guarantee",
        "Hansen & Partners",
    ] {
        assert!(all.contains(expected), "{expected} is missing: {answer}");
    }
    for foreign in ["Ostsee", "café", "seven vessels", "Nobody"] {
        assert!(!all.contains(foreign), "{foreign} was quoted: {answer}");
    }
    // A sentence that begins with "Its" brings along what it refers to.
    assert!(
        all.contains("the year before. Its financial debt"),
        "{answer}"
    );
    assert_eq!(answer.matches("> Source: ").count(), quoted.len());
    assert!(
        answer.contains("Source: Brennholm Ferries: annual accounts (doc:accounts)"),
        "{answer}"
    );
    assert!(
        answer.contains("Left out: 2 passages that do not name \"Brennholm Ferries\""),
        "{answer}"
    );
    assert!(answer.contains("Confidence: 0."), "{answer}");
    assert!(answer.contains("coverage, not judgement"), "{answer}");
    assert!(answer.contains("no language model"), "{answer}");
}

#[test]
fn the_answer_changes_with_the_dossier_and_with_the_goal() {
    let history = |text: &str| {
        json!([
            step("document-search", "q", text),
            step("knowledge-query", "q", "")
        ])
    };
    let first = react(&history(SEARCHED), &[("last", json!(true))]);
    let changed = SEARCHED.replace("58 million", "19 million");
    let second = react(&history(&changed), &[("last", json!(true))]);
    assert!(first.contains("58 million") && !first.contains("19 million"));
    assert!(second.contains("19 million") && !second.contains("58 million"));
    let fleet = "Fleet dimension: Assess the risk profile of Brennholm Ferries as a partner";
    let third = react(
        &history(SEARCHED),
        &[
            ("goal", json!(fleet)),
            ("question", json!(fleet)),
            ("last", json!(true)),
        ],
    );
    assert!(third.contains("The fleet counts seven vessels."), "{third}");
    assert!(!third.contains("58 million"), "{third}");
}

#[test]
fn where_nothing_is_found_it_says_so_and_where_it_looked() {
    let weather = "[1] Weather (doc:w)\nIt rained.\n";
    let history = json!([
        step("document-search", "money", weather),
        step("knowledge-query", "money", "")
    ]);
    let reply = react(&history, &[("last", json!(true))]);
    println!("{reply}\n");
    assert!(
        reply.contains("Nothing was found on \"Financial\""),
        "{reply}"
    );
    assert!(
        reply.contains("`document-search` for \"money\": 1 passage"),
        "{reply}"
    );
    assert!(
        reply.contains("`knowledge-query` for \"money\": nothing"),
        "{reply}"
    );
    assert!(
        reply.contains("Confidence: 0.00 (0 quotations from 0 sources, 0 of"),
        "{reply}"
    );
    assert!(!reply.contains("rained"), "{reply}");
    let reply = react(&json!([]), &[("tools", json!([]))]);
    assert!(reply.contains("No tool is on offer"), "{reply}");
}

#[test]
fn what_only_touches_the_goal_is_offered_as_such() {
    let near =
        "[1] Brennholm Ferries: safety file (doc:s)\nThe risk of fire on board was called low.\n";
    let history = json!([
        step("document-search", "q", near),
        step("knowledge-query", "q", "")
    ]);
    let reply = react(&history, &[("last", json!(true))]);
    assert!(
        reply.contains("Nothing that was found mentions \"Financial\" itself"),
        "{reply}"
    );
    assert!(reply.contains("> The risk of fire"), "{reply}");
}

#[test]
fn the_last_turn_answers_with_what_there_is() {
    for extra in [("last", json!(true)), ("iterations_left", json!(0))] {
        let reply = react(
            &json!([step("document-search", "q", "No results.")]),
            &[extra],
        );
        assert!(reply.contains("Final Answer: Nothing was found"), "{reply}");
    }
}

#[test]
fn native_messages_serve_as_history_too() {
    let mut request = request(
        Operation::React,
        json!({"question": "Where is the lock gate?"}),
    );
    request.tools = vec![ToolSpec {
        name: "search".into(),
        description: "Search the documents".into(),
        parameters: json!({"type": "object", "required": ["query"],
            "properties": {"query": {"type": "string"}}}),
    }];
    assert!(Offline::reply(&request).contains("Action: search\nArgs: {\"query\":\"lock gate\"}"));
    request.messages.push(Message::ToolCall {
        id: "c1".into(),
        name: "search".into(),
        arguments: json!({"query": "lock gate"}),
        thought: String::new(),
    });
    request.messages.push(Message::ToolResult {
        id: "c1".into(),
        name: "search".into(),
        content: "[1] Plan (doc:plan)\nThe lock gate is at the north end.\n".into(),
    });
    let reply = Offline::reply(&request);
    assert!(
        reply.contains("> The lock gate is at the north end.\n>\n> Source: Plan (doc:plan)"),
        "{reply}"
    );
}

fn results() -> Value {
    let answer = |goal: &str| {
        let history = json!([
            step("document-search", "q", SEARCHED),
            step("knowledge-query", "q", FACTS)
        ]);
        let reply = react(
            &history,
            &[
                ("goal", json!(goal)),
                ("question", json!(goal)),
                ("last", json!(true)),
            ],
        );
        reply.split("Final Answer: ").nth(1).unwrap().to_owned()
    };
    let goal = |d: &str| format!("{d} dimension: Assess the risk profile of Brennholm Ferries");
    json!([
        {"goal": goal("Financial"), "status": "answered", "text": answer(&goal("Financial"))},
        {"goal": goal("Fleet"), "status": "answered", "text": answer(&goal("Fleet"))},
        {"goal": goal("Weather"), "status": "answered", "text": answer(&goal("Weather"))},
        {"goal": goal("Legal"), "status": "error", "text": "the tool failed"},
    ])
}

#[test]
fn a_synthesis_has_a_section_for_each_result_and_names_what_is_missing() {
    let text = says(
        Operation::Synthesise,
        json!({
            "question": "Assess the risk profile of Brennholm Ferries", "framing": "",
            "results": results(),
            "missing": [{"goal": "Crew dimension: Assess it", "reason": "deadline passed"}],
        }),
    );
    println!("{text}\n");
    assert!(
        text.starts_with("# Assess the risk profile of Brennholm Ferries\n"),
        "{text}"
    );
    assert!(
        text.contains("Assembled without a language model"),
        "{text}"
    );
    let headings: Vec<&str> = text.lines().filter(|l| l.starts_with("## ")).collect();
    assert_eq!(
        headings,
        [
            "## Financial",
            "## Fleet",
            "## Weather",
            "## Not covered",
            "## Sources"
        ]
    );
    assert!(text.contains("\n- Crew: deadline passed"), "{text}");
    assert!(text.contains("\n- Legal: error: the tool failed"), "{text}");
    let financial = text.split("## Fleet").next().unwrap();
    assert!(
        financial.contains("58 million") && financial.contains("Confidence: 0."),
        "{financial}"
    );
    let list = text.split("## Sources").nth(1).unwrap();
    assert_eq!(list.matches("(doc:accounts)").count(), 1, "{list}");
    for line in text
        .lines()
        .filter(|l| l.starts_with("> ") && !l.starts_with("> Source"))
    {
        let given = format!("{SEARCHED}{FACTS}").replace('\n', " ");
        assert!(
            given.contains(&line[2..]),
            "not in the observations: {line}"
        );
    }
}

#[test]
fn a_synthesis_of_prose_quotes_the_prose() {
    let text = says(
        Operation::Synthesise,
        json!({
            "question": "Is the bridge safe?",
            "results": [{"goal": "Corrosion: Is the bridge safe?", "status": "answered",
                "text": "Corrosion has reached the third pier. Repairs are planned. Confidence: high"}],
            "missing": [],
        }),
    );
    assert!(
        text.contains("> Corrosion has reached the third pier."),
        "{text}"
    );
    assert!(text.contains("Source: result for \"Corrosion\""), "{text}");
    assert!(!text.contains("Not covered"), "{text}");
}

#[test]
fn a_synthesis_of_nothing_claims_nothing() {
    let text = says(
        Operation::Synthesise,
        json!({"question": "Why?", "results": [], "missing": []}),
    );
    assert!(text.contains("nothing was found to quote"), "{text}");
    assert!(!text.contains("## Sources"), "{text}");
}

#[test]
fn a_review_never_asks_for_more() {
    let reply = json_of(
        Operation::Review,
        json!({"question": "q", "results": [], "rounds_left": 3}),
    );
    assert_eq!(reply["decision"], "answer");
    assert!(
        reply["signal"]
            .as_str()
            .unwrap()
            .contains("no language model")
    );
}

#[test]
fn free_text_is_quoted_from_or_declined() {
    let asked = says(
        Operation::Complete,
        json!({"question": "Write a poem about locks"}),
    );
    assert!(asked.contains("No language model is configured"), "{asked}");
    assert!(asked.contains("No text was given"), "{asked}");
    let given = json!({
        "question": "When does the lock open?",
        "page": "The lock opens at seven. Dogs are welcome. Bring bread for the ducks.",
    });
    let quoted = says(Operation::Prompt, given);
    assert!(quoted.contains("> The lock opens at seven."), "{quoted}");
    assert!(!quoted.contains("ducks"), "{quoted}");
}

#[tokio::test]
async fn it_speaks_word_by_word_and_says_the_same_each_time() {
    struct Pieces(Mutex<Vec<String>>);
    impl TextSink for Pieces {
        fn text(&self, piece: &str) {
            self.0.lock().unwrap().push(piece.to_owned());
        }
    }
    let inputs = json!({"question": "Assess it", "results": results(), "missing": []});
    let sink = Pieces(Mutex::new(Vec::new()));
    let reply = Offline
        .chat(request(Operation::Synthesise, inputs.clone()), &sink)
        .await
        .unwrap();
    let pieces = sink.0.into_inner().unwrap();
    assert!(pieces.len() > 100);
    assert_eq!(pieces.concat(), reply.text);
    let again = Offline
        .chat(request(Operation::Synthesise, inputs), &Discard)
        .await
        .unwrap();
    assert_eq!(again, reply);
    assert_eq!(reply.model, "offline");
    assert!(!Offline.capabilities().reasons);
}

/// A larger dossier: several documents for each side of the matter, and some about other things.
mod dossier;
