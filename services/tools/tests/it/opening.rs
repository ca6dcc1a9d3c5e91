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
        let text = place.text(uri).await;
        assert!(text.to_lowercase().contains("mill"), "{uri}: {text}");
    }
    let notes = "urn:agentfleet:document:c:notes.md";
    assert_eq!(
        place.text(notes).await,
        "The mill burned.\nrow: a = 1; b = 2"
    );
    let mill = vec!["urn:e:mill".to_owned()];
    let described = place.library.descriptions(&"c".into(), mill.clone()).await;
    assert_eq!(
        described.unwrap()[0].document,
        "urn:agentfleet:document:c:k.ttl"
    );
    let other = "other".into();
    assert_eq!(place.library.descriptions(&other, mill).await.unwrap(), []);
    let fetched = place.library.fetch(&other, notes, 0, usize::MAX).await;
    assert_eq!(fetched.unwrap(), None);
}
