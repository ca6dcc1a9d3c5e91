//! A whole run over a dossier of many documents: decompose, search, answer, synthesise.
//!
//! The search here is a stand-in for the real one: passages that share a word with the query, those
//! that share most first, in the format of the search tool.

use super::super::Offline;
use super::super::terms::stems;
use super::request;
use agentfleet_schema::Operation;
use serde_json::{Value, json};

/// Title, URI, text.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "Tarn Valley Dairy: balance sheet 2031",
        "file:///dossier/balance.md",
        "# Financial position\n\nTarn Valley Dairy ended 2031 with equity of 9.4 million. Bank debt stood at \
      14.1 million, of which 6 million falls due within twelve months.\n\n## Liquidity\n\nThe current \
      ratio was 0.9. Management calls this \"tight but under control\".",
    ),
    (
        "Bank letter to Tarn Valley Dairy",
        "file:///dossier/bank.txt",
        "Dear board of Tarn Valley Dairy, we confirm the financial covenant of the loan: net debt may not \
      exceed four times earnings. It was breached in the third quarter and waived once.",
    ),
    (
        "Court register extract",
        "file:///dossier/court.md",
        "Two legal proceedings concern Tarn Valley Dairy: a dispute over milk prices with 31 farmers, and a \
      labour case. The first is before the appeal court. No judgment is expected this year.",
    ),
    (
        "Food authority decision 77/2031",
        "file:///dossier/authority.html",
        "The authority closed its legal review of Tarn Valley Dairy without a fine. A follow-up inspection \
      is set for May.",
    ),
    (
        "Regional newspaper, 3 June",
        "file:///dossier/paper.md",
        "Readers voted Tarn Valley Dairy the best-liked brand of the valley. Its reputation suffered briefly \
      in spring, when a batch of yoghurt was recalled. The weather stays fine.",
    ),
    (
        "Consumer forum digest",
        "file:///dossier/forum.csv",
        "topic,posts\nTarn Valley Dairy reputation after the recall,412\nHolidays,98",
    ),
    (
        "Plant report",
        "file:///dossier/plant.md",
        "- Operational availability at Tarn Valley Dairy was 91 percent.\n- The second bottling line is 24 \
      years old.\n- Power failed twice.\n\nSpare parts come from a single supplier.",
    ),
    (
        "Logistics review",
        "file:///dossier/logistics.md",
        "Tarn Valley Dairy delivers to 214 shops. Operations depend on one cold store near the station. A \
      second one is planned.",
    ),
    (
        "Hill Creamery: annual report",
        "file:///other/hill.md",
        "Hill Creamery has a sound financial position, no legal disputes and an excellent reputation. \
      Operational availability was 99 percent.",
    ),
    (
        "Cheese recipes",
        "file:///other/recipes.md",
        "Warm the milk slowly. Add rennet.",
    ),
];

const QUESTION: &str = "Assess the risk profile of Tarn Valley Dairy as a potential partner";
const FRAMING: &str = "Analyse across financial, reputational, legal and operational dimensions using \
     structured analytic techniques.";

fn search(query: &str) -> String {
    let asked = stems(query);
    let mut hits: Vec<(usize, usize)> = DOCUMENTS
        .iter()
        .enumerate()
        .map(|(at, (title, _, text))| {
            let own = stems(&format!("{title} {text}"));
            (asked.iter().filter(|stem| own.contains(stem)).count(), at)
        })
        .filter(|(shared, _)| *shared > 0)
        .collect();
    hits.sort_by_key(|(shared, at)| (std::cmp::Reverse(*shared), *at));
    let passages: Vec<String> = hits
        .iter()
        .take(8)
        .enumerate()
        .map(|(number, (_, at))| {
            let (title, uri, text) = DOCUMENTS[*at];
            format!("[{}] {title} ({uri})\n{text}\n", number + 1)
        })
        .collect();
    if passages.is_empty() {
        format!("No passages for \"{query}\".")
    } else {
        passages.join("\n")
    }
}

fn ask(operation: Operation, inputs: Value) -> String {
    Offline::reply(&request(operation, inputs))
}

/// Runs one agent to its final answer.
fn agent(goal: &str) -> String {
    let tools: Value = serde_json::from_str(super::TOOLS).unwrap();
    let mut history = Vec::new();
    for left in (1..=6).rev() {
        let reply = ask(
            Operation::React,
            json!({"question": goal, "goal": goal, "tools": tools, "history": history,
                   "iterations_left": left, "last": left == 1}),
        );
        if let Some(answer) = reply.split("Final Answer: ").nth(1) {
            return answer.to_owned();
        }
        let field = |name: &str| {
            let start = reply.split(name).nth(1).unwrap();
            start.lines().next().unwrap().trim().to_owned()
        };
        let arguments: Value = serde_json::from_str(&field("Args:")).unwrap();
        let observation = match field("Action:").as_str() {
            "document-search" => search(arguments["query"].as_str().unwrap()),
            _ => "No facts.".to_owned(),
        };
        history.push(json!({"thought": "", "action": field("Action:"),
            "arguments": arguments, "observation": observation}));
    }
    panic!("no answer for {goal}");
}

fn run(question: &str, framing: &str) -> String {
    let plan: Value = serde_json::from_str(&ask(
        Operation::Decompose,
        json!({"question": question, "framing": framing, "max_subagents": 8, "patterns": ["react"]}),
    ))
    .unwrap();
    let results: Vec<Value> = plan["goals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|goal| goal["goal"].as_str().unwrap())
        .map(|goal| json!({"goal": goal, "status": "answered", "text": agent(goal)}))
        .collect();
    ask(
        Operation::Synthesise,
        json!({"question": question, "results": results, "missing": []}),
    )
}

#[test]
fn every_dimension_is_answered_from_its_own_documents() {
    let text = run(QUESTION, FRAMING);
    println!(
        "{}\n\n{text}",
        agent("Financial dimension: Assess the risk profile of Tarn Valley Dairy")
    );
    let section = |title: &str| {
        let start = text.split(&format!("## {title}\n")).nth(1).unwrap();
        start.split("\n## ").next().unwrap().to_owned()
    };
    for (title, expected, foreign) in [
        (
            "Financial",
            ["14.1 million", "four times earnings"],
            ["yoghurt", "bottling"],
        ),
        (
            "Reputational",
            ["best-liked brand", "a batch of yoghurt"],
            ["14.1 million", "bottling"],
        ),
        (
            "Legal",
            ["31 farmers", "without a fine"],
            ["yoghurt", "14.1 million"],
        ),
        (
            "Operational",
            ["91 percent", "one cold store"],
            ["yoghurt", "covenant"],
        ),
    ] {
        let section = section(title);
        for words in expected {
            assert!(section.contains(words), "{title} lacks {words}: {section}");
        }
        for words in foreign {
            assert!(!section.contains(words), "{title} has {words}: {section}");
        }
    }
    for other in ["Hill Creamery", "rennet", "weather", "Holidays"] {
        assert!(!text.contains(other), "{other} was quoted");
    }
    assert!(
        text.split("## Sources").nth(1).unwrap().contains("8. "),
        "{text}"
    );
}

#[test]
fn every_quotation_stands_in_the_dossier() {
    let given: String = DOCUMENTS
        .iter()
        .map(|(_, _, text)| text.replace('\n', " "))
        .collect();
    let text = run(QUESTION, FRAMING);
    let quoted: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .filter(|line| !line.starts_with("Source:"))
        .collect();
    assert!(quoted.len() >= 8, "{text}");
    for quote in quoted {
        assert!(given.contains(quote), "not in the dossier: {quote}");
    }
}

#[test]
fn another_question_gets_other_parts_and_other_sentences() {
    let text = run(
        "What do spare parts and deliveries of Tarn Valley Dairy depend on?",
        "",
    );
    println!("{text}");
    assert!(
        text.contains("Spare parts come from a single supplier."),
        "{text}"
    );
    assert!(!text.contains("covenant"), "{text}");
    let text = run("Compare Tarn Valley Dairy and Hill Creamery", FRAMING);
    assert!(
        text.contains("## Hill Creamery") && text.contains("## Tarn Valley Dairy"),
        "{text}"
    );
    assert!(text.contains("no legal disputes"), "{text}");
}
