//! What the samples' model, tools and config say, and what befalls their messages.

use crate::fleet::Fate;
use agentfleet_core::approval::Verdict;
use agentfleet_core::{ToolOutcome, ToolUse};
use agentfleet_schema::config::{AgentPattern, AgentTaskType, Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::{PauseRecord, Source};
use agentfleet_schema::{AgentRequest, Operation};
use serde_json::json;

/// One sample's world. What a sample does not say of its own is said here.
pub(crate) trait Script {
    /// The model's reply; `None` is a model that fails for good.
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String>;

    fn tool(&self, tool_use: &ToolUse) -> ToolOutcome {
        let query = tool_use
            .arguments
            .get("query")
            .map(String::as_str)
            .unwrap_or_default();
        if query.contains("offline") {
            return ToolOutcome {
                content: "Error: the index\ncannot be \"reached\"".into(),
                is_error: true,
                ..ToolOutcome::default()
            };
        }
        ToolOutcome {
            content: format!("Three passages about {query}."),
            sources: vec![
                Source {
                    uri: format!("file:///dossier/{query}.md"),
                    title: "Dossier: X".into(),
                },
                Source {
                    uri: "urn:dossier:annual-report".into(),
                    title: String::new(),
                },
                // Not an IRI, so it cannot be a node.
                Source {
                    uri: "a note on a desk".into(),
                    title: "Note".into(),
                },
            ],
            ..ToolOutcome::default()
        }
    }

    fn fate(&self, _request: &AgentRequest) -> Fate {
        Fate::Work
    }

    /// Which try at the request's step comes to its end.
    fn attempt(&self, _request: &AgentRequest) -> u32 {
        1
    }

    /// What a person says about a call that waits; `None` if nobody ever answers.
    fn answer(&self, _pause: &PauseRecord) -> Option<Verdict> {
        None
    }

    fn snapshot(&self) -> Snapshot {
        config()
    }
}

impl<F: Fn(Operation, &AgentRequest) -> Option<String>> Script for F {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        self(operation, request)
    }
}

pub(crate) fn config() -> Snapshot {
    let mut config = Snapshot {
        version: 7,
        ..Snapshot::default()
    };
    for name in [
        "react",
        "plan-then-execute",
        "reflexion",
        "supervisor",
        "debate",
        "router",
    ] {
        let pattern = AgentPattern {
            name: name.into(),
            description: format!("works as {name} does"),
            ..AgentPattern::default()
        };
        config.patterns.insert(name.into(), pattern);
    }
    for (name, framing, valid) in [
        ("general", "", &[][..]),
        (
            "risk-assessment",
            "Analyse by dimension.",
            &["supervisor", "plan-then-execute", "react"],
        ),
        ("summarisation", "", &["react"]),
    ] {
        config.task_types.insert(
            name.into(),
            AgentTaskType {
                name: name.into(),
                framing_prompt: framing.into(),
                valid_patterns: valid.iter().map(|name| (*name).to_owned()).collect(),
                ..AgentTaskType::default()
            },
        );
    }
    config.tools.insert(
        "search".into(),
        ToolItem {
            name: "search".into(),
            kind: "document-search".into(),
            arguments: vec![ToolArgument {
                name: "query".into(),
                kind: "string".into(),
                description: String::new(),
                required: true,
            }],
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        },
    );
    config
}

/// A choice as the routing prompts ask for it.
pub(crate) fn choice(choice: &str, signal: &str) -> String {
    json!({"choice": choice, "signal": signal, "rationale": format!("Because of {signal}.")})
        .to_string()
}

/// Goals as the decomposition prompt asks for them.
pub(crate) fn goals(thought: &str, goals: &[&str]) -> String {
    let goals: Vec<_> = goals
        .iter()
        .map(|goal| json!({"goal": goal, "pattern": "react", "context": ""}))
        .collect();
    json!({"thought": thought, "goals": goals}).to_string()
}

/// The review of a synthesis: answer, or investigate these goals.
pub(crate) fn review(decision: &str, goals: &[&str]) -> String {
    let goals: Vec<_> = goals
        .iter()
        .map(|goal| json!({"goal": goal, "pattern": "react", "context": ""}))
        .collect();
    json!({
        "decision": decision, "signal": "one gap", "rationale": "The legal side is thin.",
        "goals": goals,
    })
    .to_string()
}

/// A tool call in the ReACT text format.
pub(crate) fn act(thought: &str, tool: &str, query: &str) -> String {
    format!(
        "Thought: {thought}\nAction: {tool}\nArgs: {}",
        json!({"query": query})
    )
}

/// How many iterations a request has behind it.
pub(crate) fn done(request: &AgentRequest) -> usize {
    request
        .history
        .iter()
        .filter(|step| step.step_type == "react")
        .count()
}
