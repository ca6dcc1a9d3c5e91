//! `document-search` and `document-fetch` as an agent meets them.

use crate::place::{Place, tool};
use agentfleet_schema::config::ToolItem;
use agentfleet_tools::Tools as _;
use serde_json::json;

#[tokio::test]
async fn passages_come_numbered_with_title_heading_and_address() {
    let place = Place::new().await;
    let filler = "word ".repeat(60);
    place.write(
        "a.md",
        format!("# Report\n\n## Money\n\nThe till is empty.\n\n{filler}"),
    );
    place.write("b.txt", "Just notes\n\nThe till was full.\n");
    place.load("c").await;
    let result = place
        .call(&tool("document-search"), "c", &[("query", "till")])
        .await;
    assert!(!result.is_error);
    let passages: Vec<&str> = result.content.split("\n\n").collect();
    assert_eq!(passages.len(), 2);
    assert_eq!(
        passages[0],
        "[1] Just notes (urn:agentfleet:document:c:b.txt)\nJust notes\nThe till was full."
    );
    assert!(passages[1].starts_with(
        "[2] Report > Money (urn:agentfleet:document:c:a.md)\nThe till is empty.\nword"
    ));
    let sources: Vec<_> = result
        .sources
        .iter()
        .map(|s| (s.uri.as_str(), s.title.as_str()))
        .collect();
    assert_eq!(
        sources,
        [
            ("urn:agentfleet:document:c:b.txt", "Just notes"),
            ("urn:agentfleet:document:c:a.md", "Report")
        ]
    );
    let one = ToolItem {
        limit: Some(1),
        ..tool("document-search")
    };
    let result = place.call(&one, "c", &[("query", "till")]).await;
    assert_eq!(result.content.split("\n\n").count(), 1);
}

#[tokio::test]
async fn endings_and_names_of_several_words_are_matched() {
    let place = Place::new().await;
    place.write(
        "a.md",
        "# A\n\nThe supplier was late, and the work on its memory went on.",
    );
    place.write("b.md", "# B\n\nSet work_mem to four megabytes.");
    place.load("c").await;
    assert_eq!(place.titles("c", "supply").await, ["A"]);
    assert_eq!(place.titles("c", "Résumé of work_mem!").await[0], "B");
    let again = place.titles("c", "WORK-MEM").await;
    assert_eq!(again[0], "B");
}

#[tokio::test]
async fn finding_nothing_is_said_plainly() {
    let place = Place::new().await;
    for kind in ["document-search", "knowledge-query"] {
        let argument = if kind == "document-search" {
            "query"
        } else {
            "question"
        };
        let result = place.call(&tool(kind), "c", &[(argument, "x")]).await;
        assert!(!result.is_error);
        assert_eq!(
            result.content,
            "No documents have been loaded into collection `c`."
        );
    }
    place.write("a.md", "# A\n\nword");
    place.load("c").await;
    let search = tool("document-search");
    let result = place.call(&search, "c", &[("query", "unicorn")]).await;
    assert_eq!(
        result.content,
        "No passages of collection `c` match `unicorn`. It holds 1 document."
    );
    let result = place.call(&search, "d", &[("query", "word")]).await;
    assert_eq!(
        result.content,
        "No documents have been loaded into collection `d`."
    );
    let result = place
        .call(&tool("knowledge-query"), "c", &[("question", "word")])
        .await;
    assert_eq!(
        result.content,
        "No facts of collection `c` match `word`. It holds 1 document."
    );
    assert!(result.sources.is_empty());
}

#[tokio::test]
async fn a_long_document_is_fetched_in_parts_without_loss() {
    let place = Place::new().await;
    let mut text = String::from("# Long\n");
    for n in 0..400 {
        text.push_str(&format!(
            "\n## Part {n}\n\n{}\n",
            format!("word{n} ").repeat(60)
        ));
    }
    place.write("long.md", text);
    place.load("c").await;
    let uri = "urn:agentfleet:document:c:long.md";
    let fetch = tool("document-fetch");
    let first = place.call(&fetch, "c", &[("uri", uri)]).await;
    assert!(
        first
            .content
            .starts_with(&format!("Long ({uri})\n\n## Part 0\nword0 word0"))
    );
    let note = first.content.rsplit("\n\n").next().unwrap();
    assert!(
        note.starts_with('[')
            && note.contains("more characters were cut; call again with `from` 32000"),
        "{note}"
    );
    let mut seen = String::new();
    let mut from = 0;
    loop {
        let part = place
            .library
            .fetch(&"c".into(), uri, from, 10_000)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(part.before, from);
        from += part.text.chars().count();
        seen.push_str(&part.text);
        if part.after == 0 {
            break;
        }
    }
    for n in 0..400 {
        let word = format!("word{n}");
        assert_eq!(
            seen.split_whitespace()
                .filter(|found| *found == word)
                .count(),
            60,
            "{n}"
        );
    }
    let rest = place
        .call(&fetch, "c", &[("uri", uri), ("from", &format!("{from}"))])
        .await;
    assert!(
        rest.content.ends_with("\n\n"),
        "nothing is left: {}",
        rest.content
    );
}

#[tokio::test]
async fn a_wrong_address_names_the_nearest_documents() {
    let place = Place::new().await;
    place.write("annual-report.md", "# Annual report\n\nword");
    place.load("c").await;
    let fetch = tool("document-fetch");
    for (given, expected) in [
        ("(urn:agentfleet:document:c:annual-report.md)", None),
        (
            "annual report",
            Some("nearest: `urn:agentfleet:document:c:annual-report.md`"),
        ),
        (
            "urn:agentfleet:document:c:nothing.md",
            Some("search for it first"),
        ),
        (
            "urn:agentfleet:document:other:annual-report.md",
            Some("nearest: `urn:agentfleet:document:c:annual-report.md`"),
        ),
    ] {
        let result = place.call(&fetch, "c", &[("uri", given)]).await;
        assert_eq!(result.is_error, expected.is_some(), "{}", result.content);
        assert!(
            result.content.contains(expected.unwrap_or("word")),
            "{}",
            result.content
        );
    }
}

#[tokio::test]
async fn wrong_arguments_are_told_with_the_right_ones() {
    let place = Place::new().await;
    for (kind, arguments, expected) in [
        (
            "document-search",
            &[("qery", "x")][..],
            "unknown argument `qery` (expected: `query`); missing argument `query` (text: words to look for in the loaded documents)",
        ),
        (
            "document-fetch",
            &[("uri", "x"), ("from", "start")],
            "argument `from` must be a whole number, not `start`",
        ),
        (
            "knowledge-query",
            &[],
            "missing argument `question` (text: a question that names the things to look up)",
        ),
        (
            "telepathy",
            &[("x", "y")],
            "tool `the telepathy` has the unknown type `telepathy` (available: `agent`, `document-fetch`, `document-search`, `http`, `knowledge-query`, `mcp`, `memory-delete`, `memory-get`, `memory-list`, `memory-set`, `prompt`, `read-back`, `sparql-select`, `text-completion`, `tool-service`)",
        ),
    ] {
        let result = place.call(&tool(kind), "c", arguments).await;
        assert!(result.is_error);
        assert_eq!(result.content, expected);
    }
}

#[tokio::test]
async fn parameters_are_those_the_call_is_checked_by() {
    let place = Place::new().await;
    let schema = place.toolbox.parameters(&tool("document-search"));
    assert_eq!(schema["required"], json!(["query"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    let schema = place.toolbox.parameters(&tool("document-fetch"));
    assert_eq!(schema["properties"]["from"]["type"], json!("integer"));
    assert_eq!(schema["required"], json!(["uri"]));
    let own: ToolItem = serde_json::from_value(json!({
        "name": "rate", "type": "http",
        "arguments": [{ "name": "amount", "type": "number", "description": "in euros" }],
    }))
    .unwrap();
    let schema = place.toolbox.parameters(&own);
    assert_eq!(
        schema["properties"]["amount"],
        json!({ "type": "number", "description": "in euros" })
    );
}
