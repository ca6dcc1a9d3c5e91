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
    fn confidence(&self) -> f64 {
        let rest = self.answer.split("Confidence: ").nth(1).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }

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
        "Reputational dimension: Assess the risk profile of Company X as a potential partner",
        "Financial dimension: Assess the risk profile of Company X as a potential partner",
        "Operational dimension: Assess the risk profile of Company X as a potential partner",
        "Which customers complained about late delivery?",
        "Is there a second source for control boards?",
    ] {
        let asked = ask(&place, "dossier", question).await;
        for (lines, source) in asked.quotations() {
            let uri = address(&source);
            let opened = place.library.open_source(None, uri).await.unwrap().unwrap();
            let stored = joined(&opened.text);
            let shown = lines.join("\n");
            if shown.contains(" | ") {
                facts += 1;
                for line in &lines {
                    let line = line.strip_prefix("- ").unwrap_or(line);
                    assert!(asked.observations.contains(&format!("- {line}")), "{line}");
                }
                continue;
            }
            let mut text = joined(&shown);
            if let Some((_, row)) = text
                .strip_prefix("Row of \"")
                .and_then(|t| t.split_once("\": "))
            {
                rows += 1;
                text = format!("row: {row}");
            } else {
                prose += 1;
            }
            let whole = text.strip_suffix(" …").unwrap_or(&text);
            assert!(stored.contains(whole), "{question}: not in {uri}: {whole}");
            // Where the file itself is plain, its very words are quoted.
            let document = &opened.documents[0].1;
            if document.media_type == "text/markdown" && !whole.starts_with("row: ") {
                let files = agentfleet_tools::dossier::files().iter();
                let mut own = files.filter(|(path, _)| *path == document.path);
                let bytes = String::from_utf8_lossy(own.next().unwrap().1);
                assert!(
                    joined(&bytes).contains(whole),
                    "{question}: not in the file: {whole}"
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
async fn what_the_graph_alone_knows_is_answered_from_it() {
    let place = Place::new().await;
    place.load_dossier().await;
    let asked = ask(&place, "dossier", "Who owns Company X?").await;
    let all: Vec<String> = asked
        .quotations()
        .into_iter()
        .flat_map(|(lines, _)| lines)
        .collect();
    let all = all.join("\n");
    assert!(
        all.contains("Holding N | owns | Stake of Holding N in Company X"),
        "{all}"
    );
    assert!(
        all.contains("Fund F | owns | Stake of Fund F in Company X"),
        "{all}"
    );
    let (_, source) = asked.quotations().remove(0);
    assert_eq!(
        address(&source),
        "urn:agentfleet:document:dossier:ownership.ttl"
    );
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
async fn what_nothing_mentions_is_said_and_not_counted_as_found() {
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
        !known.answer.contains("Nothing that was found"),
        "{}",
        known.answer
    );
    for (question, missing) in [
        (
            "What is the minimum supported Rust version of grommet?",
            "mentions \"grommet\"",
        ),
        (
            "Which advisories were fixed in grommet?",
            "mentions \"grommet\"",
        ),
        (
            "Which licence was fixed in frob?",
            "mentions \"licence\" together with \"frob\"",
        ),
        ("What is the version of Atlantis?", "mentions \"Atlantis\""),
    ] {
        let asked = ask(&place, "c", question).await;
        assert!(
            asked.answer.contains(missing),
            "{question}: {}",
            asked.answer
        );
        assert!(asked.confidence() <= 0.2, "{question}: {}", asked.answer);
        assert!(asked.confidence() < known.confidence() / 2.0, "{question}");
    }
    let named = ask(&place, "c", "What is the version of Atlantis?").await;
    assert_eq!(named.quotations(), [], "{}", named.answer);
}

#[tokio::test]
async fn code_is_quoted_as_code_and_its_comments_are_no_headings() {
    let place = programs().await;
    let asked = ask(&place, "c", "How is the frobnicator set up with frob init?").await;
    let code = asked
        .quotations()
        .into_iter()
        .find(|(lines, _)| lines[0].starts_with("```"));
    let (lines, source) = code.unwrap();
    assert_eq!(
        lines,
        ["```sh", "# configure the frobnicator", "frob --init", "```"]
    );
    assert!(source.contains("under \"Setup\""), "{source}");
    assert!(
        !asked.answer.contains("under \"configure"),
        "{}",
        asked.answer
    );
    assert!(
        !asked.answer.contains("first: "),
        "prose and code stay apart: {}",
        asked.answer
    );
}

#[tokio::test]
async fn definitions_and_subclasses_come_from_the_graph() {
    let place = programs().await;
    let asked = ask(&place, "c", "What is a chiller?").await;
    let (lines, source) = asked.quotations().remove(0);
    assert_eq!(
        lines,
        ["Chiller | definition | A machine that takes heat out of water."]
    );
    assert_eq!(
        source,
        "Plant (urn:agentfleet:document:c:plant.ttl), about `urn:e:Chiller`"
    );
    assert!(!asked.answer.contains("without a name"), "{}", asked.answer);
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

#[tokio::test]
async fn words_that_hang_together_are_looked_for_as_one() {
    let place = programs().await;
    let asked = ask(
        &place,
        "c",
        "Does frob support look-around and backreferences?",
    )
    .await;
    assert!(
        asked
            .answer
            .contains("It lacks look-around and backreferences."),
        "{}",
        asked.answer
    );
    assert!(
        asked
            .answer
            .contains("\"frob support look-around backreferences\""),
        "{}",
        asked.answer
    );
    assert!(asked.answer.contains("of 4 words"), "{}", asked.answer);
}
