//! Every prompt of the product, rendered as its operation renders it.

use agentfleet_config::prompts::{self, Rendered};
use agentfleet_config::seed;
use agentfleet_schema::Operation;
use serde_json::{Value, json};

fn rendered(operation: Operation, variables: &Value) -> Rendered {
    let set = seed::embedded_snapshot().unwrap();
    let id = operation.as_str();
    let item = set
        .prompts
        .get(id)
        .unwrap_or_else(|| panic!("there is no prompt `{id}`"));
    let mut variables = variables.clone();
    let before = variables.as_object_mut().unwrap();
    before.entry("conversation").or_insert_with(|| json!([]));
    let rendered = prompts::render(id, item, &variables).unwrap();
    for text in [&rendered.system, &rendered.prompt] {
        assert!(!text.contains("\n\n\n\n"), "{id} has holes:\n{text}");
        assert!(
            !text.contains("{{") && !text.contains("{%"),
            "{id} keeps a tag:\n{text}"
        );
    }
    rendered
}

fn tools() -> Value {
    json!([
        {"name": "document-search", "description": "Searches documents.", "arguments": [
            {"name": "query", "type": "string", "description": "words to look for", "required": true},
            {"name": "limit", "type": "integer", "description": "", "required": false},
        ]},
        {"name": "no-arguments", "description": "Does one thing.", "arguments": []},
    ])
}

fn react() -> Value {
    json!({
        "question": "Is Company X solvent?",
        "framing": "",
        "goal": "",
        "parent_context": "",
        "tools": tools(),
        "history": [],
        "iterations_left": 9,
        "native": false,
        "last": false,
    })
}

fn with(mut variables: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        variables[name] = value.clone();
    }
    variables
}

#[test]
fn every_operation_with_a_prompt_of_its_own_has_one() {
    let set = seed::embedded_snapshot().unwrap();
    for operation in Operation::ALL {
        let expected = prompts::variables(operation).is_some();
        assert_eq!(
            set.prompts.contains_key(operation.as_str()),
            expected,
            "{operation:?}"
        );
    }
}

#[test]
fn every_prompt_declares_how_it_is_answered() {
    let set = seed::embedded_snapshot().unwrap();
    for (id, prompt) in &set.prompts {
        let json = prompt.system.contains("one JSON object and nothing else");
        assert_eq!(
            prompt.response_type,
            if json { "json" } else { "text" },
            "{id}"
        );
    }
}

#[test]
fn classification_shows_every_task_type_and_asks_for_a_choice() {
    let set = seed::embedded_snapshot().unwrap();
    let types: Vec<Value> = set
        .task_types
        .values()
        .map(
            |t| json!({"name": t.name, "description": t.description, "when_to_use": t.when_to_use}),
        )
        .collect();
    let variables = json!({"question": "Assess the risk of Company X", "task_types": types});
    let Rendered { system, prompt } = rendered(Operation::ClassifyTaskType, &variables);
    for name in ["general", "research", "risk-assessment", "summarisation"] {
        assert!(prompt.contains(&format!("- {name}: ")), "{prompt}");
    }
    assert!(prompt.ends_with("Assess the risk of Company X"), "{prompt}");
    for field in ["\"choice\"", "\"signal\"", "\"rationale\""] {
        assert!(system.contains(field), "{system}");
    }
}

#[test]
fn selection_names_the_signals_and_shows_the_criteria_of_every_pattern() {
    let set = seed::embedded_snapshot().unwrap();
    let patterns: Vec<Value> = set
        .patterns
        .values()
        .map(
            |p| json!({"name": p.name, "description": p.description, "when_to_use": p.when_to_use}),
        )
        .collect();
    assert_eq!(patterns.len(), 6);
    let variables = json!({
        "question": "Assess Company X",
        "task_type": "risk-assessment",
        "framing": set.task_types["risk-assessment"].framing_prompt,
        "patterns": patterns,
    });
    let Rendered { system, prompt } = rendered(Operation::SelectPattern, &variables);
    for signal in ["complexity", "number of independent dimensions", "urgency"] {
        assert!(system.contains(signal), "{system}");
        assert_eq!(
            prompt.to_lowercase().matches(signal).count(),
            6,
            "{signal}:\n{prompt}"
        );
    }
    assert!(
        prompt.contains("financial, reputational, legal and operational"),
        "{prompt}"
    );
    let plain = with(variables, &json!({"framing": ""}));
    assert!(
        !rendered(Operation::SelectPattern, &plain)
            .prompt
            .contains("Framing:")
    );
}

#[test]
fn a_first_iteration_shows_the_tools_and_the_text_format() {
    let Rendered { system, prompt } = rendered(Operation::React, &react());
    for marker in ["Thought: <", "Action: <", "Args: <", "Final Answer: <"] {
        assert!(
            system.lines().any(|line| line.starts_with(marker)),
            "{marker}:\n{system}"
        );
    }
    assert!(
        system.contains("- document-search: Searches documents.\n"),
        "{system}"
    );
    assert!(
        system.contains("  - query (string, required): words to look for\n"),
        "{system}"
    );
    assert!(
        system.contains("  - limit (integer, optional)\n"),
        "{system}"
    );
    assert!(
        prompt.starts_with("Task:\nIs Company X solvent?"),
        "{prompt}"
    );
    assert!(prompt.contains("Steps left after this one: 9"), "{prompt}");
    assert!(!prompt.contains("Steps so far"), "{prompt}");
    assert!(!system.contains("How to go about"), "{system}");
}

#[test]
fn a_later_iteration_of_a_subagent_shows_what_it_knows() {
    let variables = with(
        react(),
        &json!({
            "framing": "Look at money first.",
            "goal": "Find its debts",
            "parent_context": "It is a bank in Oslo.",
            "history": [{
                "thought": "look", "action": "document-search",
                "arguments": {"query": "debts \"Company X\""},
                "observation": "Debts: 3 <urn:doc:1>\nmore",
            }],
        }),
    );
    let Rendered { system, prompt } = rendered(Operation::React, &variables);
    assert!(
        system.contains("How to go about this kind of task: Look at money first."),
        "{system}"
    );
    for part in [
        "Your part of it:\nFind its debts",
        "It is a bank in Oslo.",
        "Thought: look\nAction: document-search\nArgs: {\"query\":",
        "Observation: Debts: 3 <urn:doc:1>\nmore",
    ] {
        assert!(prompt.contains(part), "{part}:\n{prompt}");
    }
    // A subagent whose question is its goal is not told twice.
    let same = with(variables, &json!({"goal": "Is Company X solvent?"}));
    assert!(
        !rendered(Operation::React, &same)
            .prompt
            .contains("Your part of it")
    );
}

#[test]
fn with_native_tools_neither_format_nor_history_is_written_out() {
    let variables = with(
        react(),
        &json!({"native": true, "history": [
            {"thought": "t", "action": "a", "arguments": {}, "observation": "seen"},
        ]}),
    );
    let Rendered { system, prompt } = rendered(Operation::React, &variables);
    assert!(
        !system.contains("Action:") && !system.contains("- document-search"),
        "{system}"
    );
    assert!(system.contains("Final Answer: <"), "{system}");
    assert!(!prompt.contains("seen"), "{prompt}");
}

#[test]
fn the_last_iteration_must_answer_and_shows_no_tools() {
    for native in [false, true] {
        let variables = with(
            react(),
            &json!({"last": true, "native": native, "iterations_left": 0}),
        );
        let Rendered { system, prompt } = rendered(Operation::React, &variables);
        assert!(system.contains("This is the last step"), "{system}");
        assert!(system.contains("Final Answer: <"), "{system}");
        assert!(
            !system.contains("Action:") && !system.contains("- document-search"),
            "{system}"
        );
        assert!(!prompt.contains("Steps left"), "{prompt}");
    }
}

#[test]
fn without_tools_an_agent_is_told_so() {
    let Rendered { system, .. } = rendered(Operation::React, &with(react(), &json!({"tools": []})));
    assert!(system.contains("There are no tools"), "{system}");
    assert!(!system.contains("Action:"), "{system}");
}

#[test]
fn sources_are_to_be_kept_as_they_are_given() {
    let react = rendered(Operation::React, &react()).system;
    assert!(
        react.contains("exactly as the observation gives it"),
        "{react}"
    );
    let synthesis = rendered(Operation::Synthesise, &synthesis()).system;
    assert!(
        synthesis.contains("Keep each source exactly as the result gives it"),
        "{synthesis}"
    );
}

#[test]
fn decomposition_names_its_bounds_patterns_tools_and_groups() {
    let variables = json!({
        "question": "Assess Company X",
        "framing": "Analyse across financial and legal dimensions.",
        "max_subagents": 4,
        "tools": tools(),
        "patterns": [{"name": "react", "description": "In turns.", "when_to_use": "Mostly."}],
        "groups": ["default", "finance"],
        "fault": "",
    });
    let Rendered { system, prompt } = rendered(Operation::Decompose, &variables);
    assert!(system.contains("at most 4"), "{system}");
    assert!(system.contains("from: default, finance"), "{system}");
    for part in [
        "- react: In turns. When to use it: Mostly.",
        "- document-search: ",
        "financial and legal",
    ] {
        assert!(prompt.contains(part), "{part}:\n{prompt}");
    }
    let bare = with(
        variables,
        &json!({"framing": "", "tools": [], "patterns": [], "groups": ["default"]}),
    );
    let Rendered { system, prompt } = rendered(Operation::Decompose, &bare);
    assert!(!system.contains("\"group\""), "{system}");
    assert!(
        prompt.contains("have: none") && prompt.contains("work by: react"),
        "{prompt}"
    );
}

fn synthesis() -> Value {
    json!({
        "question": "Assess Company X",
        "framing": "",
        "results": [
            {"goal": "Debts", "status": "answered", "text": "Few <urn:doc:1>.",
             "sources": [{"uri": "urn:doc:1", "title": "Accounts"}]},
            {"goal": "Law", "status": "answered", "text": "Nothing open."},
        ],
        "missing": [{"goal": "Press", "reason": "timeout"}],
    })
}

#[test]
fn review_shows_results_gaps_and_the_rounds_left() {
    let offered = json!({
        "rounds_left": 2,
        "tools": tools(),
        "patterns": [{"name": "react", "description": "In turns.", "when_to_use": ""}],
        "groups": ["default", "finance"],
        "fault": "goal 1 names a pattern that is not open",
    });
    let variables = with(synthesis(), &offered);
    let Rendered { system, prompt } = rendered(Operation::Review, &variables);
    for part in [
        "<result goal=\"Debts\" status=\"answered\">\nFew <urn:doc:1>.\n</result>",
        "- Press (timeout)",
        "left: 2",
        "- react: In turns.",
        "- document-search: ",
    ] {
        assert!(prompt.contains(part), "{part}:\n{prompt}");
    }
    for part in ["from: default, finance", "goal 1 names a pattern"] {
        assert!(system.contains(part), "{part}:\n{system}");
    }
    assert!(system.contains("\"answer\" or \"investigate\""), "{system}");
    let nothing = with(variables, &json!({"results": [], "missing": []}));
    assert!(
        rendered(Operation::Review, &nothing)
            .prompt
            .contains("none")
    );
}

#[test]
fn synthesis_asks_for_sections_with_confidence_and_names_what_is_missing() {
    let Rendered { system, prompt } = rendered(Operation::Synthesise, &synthesis());
    for part in ["`## `", "Confidence: 0.NN (", "`## What is missing`"] {
        assert!(system.contains(part), "{part}:\n{system}");
    }
    assert!(!system.contains("words."), "{system}");
    for part in [
        "- Accounts <urn:doc:1>",
        "Nothing open.",
        "- Press: timeout",
    ] {
        assert!(prompt.contains(part), "{part}:\n{prompt}");
    }
    let short = with(synthesis(), &json!({"max_words": 300}));
    assert!(
        rendered(Operation::Synthesise, &short)
            .system
            .contains("At most 300 words.")
    );
}

#[test]
fn a_plain_question_is_passed_on() {
    let Rendered { system, prompt } = rendered(Operation::Complete, &json!({"question": "2 + 2?"}));
    assert_eq!(prompt, "2 + 2?");
    assert!(!system.is_empty());
}

#[test]
fn what_was_said_before_is_shown_where_the_task_is() {
    let before = json!([{"question": "What is a Rex?", "answer": "A dog."}]);
    for (operation, mut variables) in [
        (
            Operation::ClassifyTaskType,
            json!({"question": "q", "task_types": []}),
        ),
        (
            Operation::PlanSynthesise,
            json!({"question": "q", "framing": "", "steps": [], "missing": []}),
        ),
    ] {
        variables["conversation"] = before.clone();
        let prompt = rendered(operation, &variables).prompt;
        assert!(
            prompt.contains(
                "\n<exchange>\nQuestion: What is a Rex?\nAnswer: A dog.\n</exchange>\n\nTask:\nq"
            ),
            "{prompt}"
        );
    }
}
