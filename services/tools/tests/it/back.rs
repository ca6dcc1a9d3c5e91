//! `read-back` as an agent meets it: parts, words, and the bounds of its tree.

use crate::place::{Place, tool};
use agentfleet_documents::Documents as _;
use agentfleet_schema::Lineage;
use agentfleet_schema::records::{OutcomeKind, StepRecord};
use agentfleet_schema::{SessionId, keys, uris};

async fn text(place: &Place, session: &str, n: u32, text: &str) -> String {
    let uri = uris::document_of(&uris::observation(&SessionId::new(session), n));
    let key = keys::document(&uri);
    place
        .documents
        .create(&key, text.as_bytes().to_vec())
        .await
        .unwrap();
    uri
}

/// A session of the tree of `root`.
async fn session(place: &Place, session: &str, root: &str) {
    let record = StepRecord {
        session: session.into(),
        root: root.into(),
        outcome: OutcomeKind::Continue,
        ..StepRecord::default()
    };
    let key = keys::outcome(&record.session, 0);
    let body = serde_json::to_vec(&record).unwrap();
    place.documents.create(&key, body).await.unwrap();
}

#[tokio::test]
async fn a_long_text_comes_in_parts_that_say_how_to_read_on() {
    let place = Place::new().await;
    let whole: String = (0..30_000)
        .map(|n| char::from(b'a' + (n % 26) as u8))
        .collect();
    let uri = text(&place, "s", 2, &whole).await;
    let back = tool("read-back");
    let first = place.call(&back, "c", &[("which", "2")]).await;
    assert!(
        first
            .content
            .starts_with(&format!("{uri}, characters 0 to 6000 of 30000:\n\nabc"))
    );
    assert!(
        first
            .content
            .ends_with("[24000 more characters; call again with `from` 6000]")
    );
    assert_eq!(first.sources[0].uri, uri);
    // However it is named, and never more than so much.
    for which in [
        "2",
        "step 2",
        &uri,
        &format!("[{uri}]"),
        uri.trim_end_matches("/document"),
    ] {
        let asked = [("which", which), ("from", "1000"), ("limit", "999999")];
        let part = place.call(&back, "c", &asked).await;
        assert!(
            part.content.contains("characters 1000 to 13000 of 30000"),
            "{which}: {part:?}"
        );
    }
    let last = place
        .call(&back, "c", &[("which", "2"), ("from", "29990")])
        .await;
    assert!(last.content.ends_with(&whole[29_990..]));
    let past = place
        .call(&back, "c", &[("which", "2"), ("from", "30000")])
        .await;
    assert!(
        past.is_error
            && past
                .content
                .contains("has 30000 characters: `from` must be less")
    );
}

#[tokio::test]
async fn words_lead_to_the_places_where_most_of_them_stand() {
    let place = Place::new().await;
    let filler = "nothing to see here. ".repeat(200);
    let whole = format!("A Pump.{filler}The VALVE of the pump leaks.{filler}One valve.{filler}");
    text(&place, "s", 1, &whole).await;
    let back = tool("read-back");
    let asked = [("which", "1"), ("words", "valve pump"), ("limit", "700")];
    let found = place.call(&back, "c", &asked).await.content;
    assert!(found.contains("of 3 places"), "{found}");
    assert!(found.contains("The VALVE of the pump leaks."), "{found}");
    assert!(
        found.contains(&format!("[from {}]", 7 + filler.len() + 4 - 200)),
        "{found}"
    );
    let none = place
        .call(&back, "c", &[("which", "1"), ("words", "tap")])
        .await;
    assert!(!none.is_error && none.content.contains("none of these words is in it"));
}

#[tokio::test]
async fn only_texts_of_the_own_tree_are_read() {
    let mut place = Place::new().await;
    place.root = "r".into();
    for (name, root) in [("child", "r"), ("other", "other"), ("before", "origin")] {
        session(&place, name, root).await;
    }
    let mut found = Vec::new();
    for name in ["s", "r", "child", "other", "unheard-of", "before", "origin"] {
        let uri = text(&place, name, 1, name).await;
        found.push((name, uri));
    }
    let back = tool("read-back");
    for forked in [false, true] {
        if forked {
            place.lineage = vec![Lineage {
                session: "before".into(),
                iterations: 4,
            }];
        }
        for (name, uri) in &found {
            let result = place.call(&back, "c", &[("which", uri)]).await;
            let own = matches!(*name, "s" | "r" | "child");
            let before = matches!(*name, "before" | "origin");
            assert_eq!(
                !result.is_error,
                own || (forked && before),
                "{name} {result:?}"
            );
            if result.is_error {
                let told = format!("is of session `{name}`, which is no part of this run");
                assert!(result.content.contains(&told), "{result:?}");
            }
        }
    }
    // A fork's numbers go on from those of the session before.
    let of_before = place.call(&back, "c", &[("which", "1")]).await;
    assert!(
        of_before.content.contains("agent:before/i1/"),
        "{of_before:?}"
    );
    for (which, told) in [
        (
            "9",
            "there is no text at `urn:trustgraph:agent:s/i9/observation/document`",
        ),
        (
            "urn:agentfleet:document:c:a.md",
            "must be the number of a step, or a URI",
        ),
        (
            "urn:trustgraph:agent:s/../other/i1",
            "must be the number of a step, or a URI",
        ),
        ("the first one", "must be the number of a step, or a URI"),
        ("-1", "must be the number of a step, or a URI"),
    ] {
        let result = place.call(&back, "c", &[("which", which)]).await;
        assert!(
            result.is_error && result.content.contains(told),
            "{which}: {result:?}"
        );
    }
    place.lineage = vec![Lineage {
        session: SessionId::default(),
        iterations: 2,
    }];
    let brought = place.call(&back, "c", &[("which", "2")]).await;
    assert!(
        brought.content.contains("was brought along by the caller"),
        "{brought:?}"
    );
}
