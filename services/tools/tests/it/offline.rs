//! The offline model with the real tools: what it quotes stands in what was loaded, and what nothing
//! mentions it does not claim to have found.

use crate::place::{Place, tool};
use agentfleet_models::{ChatModel as _, Discard, Message, ModelRequest, Offline};
use agentfleet_schema::Operation;
use serde_json::{Value, json};
use std::time::Duration;

/// An answer and everything the tools said on the way.
struct Asked {
    answer: String,
    observations: String,
}

impl Asked {
    /// The lines of each quotation, and its source.
    fn quotations(&self) -> Vec<(Vec<String>, String)> {
        let mut all = Vec::new();
        let mut lines: Vec<String> = Vec::new();
        for line in self.answer.lines() {
            let Some(quoted) = line.strip_prefix('>') else {
                lines.clear();
                continue;
            };
            let quoted = quoted.strip_prefix(' ').unwrap_or(quoted);
            if let Some(source) = quoted.strip_prefix("Source: ") {
                all.push((std::mem::take(&mut lines), source.to_owned()));
            } else if !quoted.is_empty() {
                lines.push(quoted.to_owned());
            }
        }
        all
    }
}

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

/// Runs one agent to its answer.
async fn ask(place: &Place, collection: &str, question: &str) -> Asked {
    let tools = json!([
        {"name": "document-search", "description": "Searches the loaded documents",
         "arguments": [{"name": "query", "type": "string", "description": "words", "required": true}]},
        {"name": "knowledge-query", "description": "Looks up facts in the knowledge graph",
         "arguments": [{"name": "question", "type": "string", "description": "names", "required": true}]},
        {"name": "document-fetch", "description": "Reads one document whole",
         "arguments": [{"name": "uri", "type": "string", "description": "its URI", "required": true}]},
    ]);
    let mut history: Vec<Value> = Vec::new();
    for left in (0..6).rev() {
        let inputs = json!({"question": question, "goal": question, "tools": tools,
            "history": history, "iterations_left": left, "last": left == 0});
        let reply = Offline::new()
            .chat(request(Operation::React, inputs), &Discard)
            .await
            .unwrap()
            .text;
        if let Some(answer) = reply.split("Final Answer: ").nth(1) {
            let said = |step: &Value| step["observation"].as_str().unwrap().to_owned();
            return Asked {
                answer: answer.to_owned(),
                observations: history.iter().map(said).collect::<Vec<_>>().join("\n"),
            };
        }
        let field = |name: &str| {
            let rest = reply.split(name).nth(1).unwrap();
            rest.lines().next().unwrap().trim().to_owned()
        };
        let arguments: Value = serde_json::from_str(&field("Args:")).unwrap();
        let given: Vec<(&str, &str)> = arguments
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        let name = field("Action:");
        let observation = place.call(&tool(&name), collection, &given).await.content;
        history.push(
            json!({"thought": "", "action": name, "arguments": arguments,
            "observation": observation}),
        );
    }
    panic!("no answer to {question}")
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The address in `Title (address), under "..."`.
fn address(source: &str) -> &str {
    let start = source.find("(urn:agentfleet:document:").unwrap() + 1;
    let end = source[start..].find(')').unwrap();
    &source[start..start + end]
}

#[tokio::test]
async fn every_quotation_stands_in_the_text_that_was_loaded() {
    let place = Place::new().await;
    place.load_dossier().await;
    let (mut prose, mut rows, mut facts) = (0, 0, 0);
    for question in [
        "Who owns Company X?",
        "What happened at the Eastmere plant?",
        "What was the current ratio at the end of 2025?",
        "Legal dimension: Assess the risk profile of Company X as a potential partner",
        "Financial dimension: Assess the risk profile of Company X as a potential partner",
        "Which customers complained about late delivery?",
    ] {
        let asked = ask(&place, "dossier", question).await;
        for (lines, source) in asked.quotations() {
            let stored = joined(&place.text(address(&source)).await);
            for line in lines {
                let row = line.strip_prefix("- Row: ");
                if let Some(fact) = line.strip_prefix("- ").filter(|line| line.contains(" | ")) {
                    facts += 1;
                    assert!(asked.observations.contains(fact), "{fact}");
                    continue;
                }
                if row.is_some() {
                    rows += 1;
                } else {
                    prose += 1;
                }
                let text = joined(row.unwrap_or(line.trim_matches('*')));
                assert!(
                    stored.contains(&text),
                    "{question}: not in {source}: {text}"
                );
            }
        }
    }
    assert!(
        prose >= 12 && rows >= 3 && facts >= 2,
        "{prose} {rows} {facts}"
    );
}

#[tokio::test]
async fn questions_about_the_dossier_are_answered_by_the_first_quotations() {
    let place = Place::new().await;
    place.load_dossier().await;
    for (question, answer) in [
        ("When is the term loan due?", "falls due in September 2026"),
        (
            "Who owns Company X?",
            "Holding N | owns | Stake of Holding N in Company X",
        ),
        (
            "What was the current ratio at the end of 2025?",
            "ratio was 1.12",
        ),
    ] {
        let asked = ask(&place, "dossier", question).await;
        let quoted: Vec<String> = asked
            .quotations()
            .into_iter()
            .flat_map(|(lines, _)| lines)
            .collect();
        assert!(
            joined(&quoted.join(" ")).contains(answer),
            "{question}: {}",
            asked.answer
        );
    }
}

/// Small documents about two made-up programs.
async fn programs() -> Place {
    let place = Place::new().await;
    place.write(
        "frob-2.1/README.md",
        "# Frob\n\nFrob moves files. Its minimum supported Rust version is 1.70.\n\n## Setup\n\n\
         Prepare the folder first:\n\n```sh\n# configure the frobnicator\nfrob --init\n```\n\n\
         Then the frobnicator works. It lacks look-around and backreferences.\n",
    );
    place.write(
        "frob-2.1/CHANGELOG.md",
        "# 2.1.0\n\nThe minimum supported version of the compiler was raised.\n\n\
         # 2.0.0\n\nA security advisory was fixed.\n",
    );
    place.write(
        "plant.ttl",
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
         @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
         @prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix e: <urn:e:> .
         e:Chiller a owl:Class ; rdfs:label 'Chiller' ; owl:equivalentClass [ owl:unionOf ( e:A e:B ) ] ;
           skos:definition 'A machine that takes heat out of water.' ; rdfs:subClassOf e:Machine .
         e:Loud_Chiller rdfs:subClassOf e:Chiller . e:Still_Chiller rdfs:subClassOf e:Chiller .",
    );
    place.load("c").await;
    place
}

#[tokio::test]
async fn what_no_quotation_has_is_said_first() {
    let place = programs().await;
    let known = ask(
        &place,
        "c",
        "What is the minimum supported Rust version of frob?",
    )
    .await;
    assert!(
        known
            .answer
            .contains("minimum supported Rust version is 1.70"),
        "{}",
        known.answer
    );
    assert!(
        known.answer.contains("have 5 of the 5 words"),
        "{}",
        known.answer
    );
    let unknown = ask(&place, "c", "Which advisories were fixed in grommet?").await;
    assert!(
        unknown
            .answer
            .starts_with("No quotation has \"grommet\", so"),
        "{}",
        unknown.answer
    );
    let nothing = ask(&place, "c", "Where is Atlantis?").await;
    assert_eq!(nothing.quotations(), []);
    assert!(
        nothing.answer.starts_with("Nothing was found"),
        "{}",
        nothing.answer
    );
}

#[tokio::test]
async fn code_is_quoted_as_code_below_what_announces_it() {
    let place = programs().await;
    let asked = ask(&place, "c", "How is the frobnicator set up with frob init?").await;
    let (lines, source) = asked.quotations().remove(0);
    let code = [
        "Prepare the folder first:",
        "```sh",
        "# configure the frobnicator",
        "frob --init",
        "```",
    ];
    assert!(
        lines.windows(code.len()).any(|own| own == code),
        "{lines:?}"
    );
    assert!(
        source.starts_with("Frob (urn:agentfleet:document:c:frob-2.1/README.md)"),
        "{source}"
    );
}

#[tokio::test]
async fn definitions_and_subclasses_come_from_the_graph() {
    let place = programs().await;
    let asked = ask(&place, "c", "What is a chiller?").await;
    let (lines, source) = asked.quotations().remove(0);
    let definition =
        "- Chiller | definition | A machine that takes heat out of water. [urn:e:Chiller]";
    assert_eq!(lines[0], definition);
    assert_eq!(source, "Plant (urn:agentfleet:document:c:plant.ttl)");
    let asked = ask(&place, "c", "Which subclasses does Chiller have?").await;
    for kind in ["Loud Chiller", "Still Chiller"] {
        let line = format!("{kind} | sub class of | Chiller").to_lowercase();
        assert!(
            asked.answer.to_lowercase().contains(&line),
            "{}",
            asked.answer
        );
    }
}
