//! Opening what answers and traces name.

use crate::place::{Place, tool};

const TRIPLES: &str =
    "@prefix e: <urn:e:> . e:mill <http://schema.org/name> 'Mill' ; e:part [ e:name 'wheel' ] .";

#[tokio::test]
async fn every_source_a_tool_names_can_be_opened() {
    let place = Place::new().await;
    place.write(
        "notes.md",
        "# Notes\n\nThe mill burned.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    );
    place.write("k.ttl", TRIPLES);
    place.load("c").await;
    let mut sources = Vec::new();
    for (kind, argument) in [
        ("document-search", "query"),
        ("knowledge-query", "question"),
    ] {
        let result = place
            .call(&tool(kind), "c", &[(argument, "mill wheel")])
            .await;
        sources.extend(result.sources);
    }
    let uris: Vec<&str> = sources.iter().map(|source| source.uri.as_str()).collect();
    assert!(uris.contains(&"urn:e:mill") && uris.len() >= 3, "{uris:?}");
    for uri in uris {
        let opened = place.library.open_source(None, uri).await.unwrap().unwrap();
        assert!(
            opened.text.to_lowercase().contains("mill"),
            "{uri}: {}",
            opened.text
        );
    }
    let notes = "urn:agentfleet:document:c:notes.md";
    let opened = place
        .library
        .open_source(None, notes)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(opened.title, "Notes");
    assert_eq!(opened.text, "The mill burned.\nrow: a = 1; b = 2");
    assert_eq!(
        (opened.documents.len(), opened.documents[0].0.as_str()),
        (1, "c")
    );
    let part = place
        .library
        .open_source(None, &format!("{notes}#part"))
        .await
        .unwrap();
    assert_eq!(part.unwrap().text, opened.text);
    let mill = place
        .library
        .open_source(None, "urn:e:mill")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(mill.title, "Mill");
    assert_eq!(mill.documents[0].1.uri, "urn:agentfleet:document:c:k.ttl");
    for (collection, uri) in [
        (Some("other"), notes),
        (Some("other"), "urn:e:mill"),
        (None, "urn:agentfleet:document:c:nothing.md"),
        (None, ""),
    ] {
        let collection = collection.map(Into::into);
        let opened = place.library.open_source(collection.as_ref(), uri).await;
        assert_eq!(opened.unwrap(), None, "{uri}");
    }
}
