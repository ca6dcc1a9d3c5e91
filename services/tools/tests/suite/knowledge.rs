//! `knowledge-query`: entities by their words, statements with labels.

use crate::place::{Place, tool};
use agentfleet_schema::config::ToolItem;

const TURTLE: &str = r#"
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix schema: <https://schema.org/> .
    @prefix x: <urn:x:> .
    schema:parentOrganization rdfs:label "belongs to" .
    x:acme schema:name "Acme works"@en, "Acme-Werke"@de ; a schema:Corporation ;
        schema:parentOrganization x:hold ; schema:employee [ a schema:Role ; schema:roleName "director" ] .
    x:hold schema:name "Holding" .
    x:far schema:name "Far away" ; schema:parentOrganization x:farther .
    x:member schema:memberOf x:acme .
"#;

async fn lines(place: &Place, collection: &str, question: &str) -> Vec<String> {
    let result = place
        .call(
            &tool("knowledge-query"),
            collection,
            &[("question", question)],
        )
        .await;
    assert!(!result.is_error, "{}", result.content);
    result.content.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn statements_about_what_the_question_names_come_in_labels() {
    let place = Place::new().await;
    place.write("k.ttl", TURTLE);
    place.load("c").await;
    let mut found = lines(&place, "c", "Who owns the Acme works?").await;
    found.sort();
    assert_eq!(
        found,
        [
            "- Acme works | belongs to | Holding [urn:x:acme]",
            "- Acme works | employee | role (role name: director) [urn:x:acme]",
            "- Acme works | type | corporation [urn:x:acme]",
            "- member | member of | Acme works [urn:x:member]",
        ]
    );
    let question = [("question", "acme")];
    let result = place.call(&tool("knowledge-query"), "c", &question).await;
    let sources: Vec<_> = result
        .sources
        .iter()
        .map(|s| (s.uri.as_str(), s.title.as_str()))
        .collect();
    assert_eq!(
        sources,
        [
            ("urn:agentfleet:document:c:k.ttl", "K"),
            ("urn:x:acme", "Acme works"),
            ("urn:x:member", "member")
        ]
    );
    let one = ToolItem {
        limit: Some(1),
        ..tool("knowledge-query")
    };
    assert_eq!(
        place
            .call(&one, "c", &question)
            .await
            .content
            .lines()
            .count(),
        1
    );
}

#[tokio::test]
async fn statements_that_speak_of_the_question_come_first() {
    let place = Place::new().await;
    let mut text =
        String::from("@prefix e: <urn:e:> . e:plant <http://schema.org/name> 'Plant' .\n");
    for n in 0..80 {
        text.push_str(&format!("e:plant e:property{n} 'value {n}' .\n"));
    }
    text.push_str("e:plant e:safetyRating 'poor' .\n");
    place.write("k.ttl", text);
    place.load("c").await;
    let found = lines(&place, "c", "How is the plant rated for safety?").await;
    assert_eq!(found[0], "- Plant | safety rating | poor [urn:e:plant]");
    assert_eq!(found.len(), 30);
}

#[tokio::test]
async fn names_without_spaces_are_found_by_their_words() {
    let place = Place::new().await;
    let mut text =
        String::from("<urn:e:OrganizationalUnit> <urn:p> 1 . <urn:e:hasUnit> <urn:p> 2 .");
    for n in 0..30 {
        text.push_str(&format!(
            "<urn:e:organization{n}> <urn:p> 'An organization with units' .\n"
        ));
    }
    place.write("k.ttl", text);
    place.load("c").await;
    let found = lines(&place, "c", "What is an organizational unit?").await;
    assert_eq!(
        found[0],
        "- organizational unit | p | 1 [urn:e:OrganizationalUnit]"
    );
    let found = lines(&place, "c", "hasUnit").await;
    assert_eq!(found[0], "- has unit | p | 2 [urn:e:hasUnit]");
}

#[tokio::test]
async fn the_graph_of_another_collection_is_never_read() {
    let place = Place::new().await;
    place.write(
        "k.ttl",
        "<urn:s> <http://schema.org/name> 'Shared' ; <urn:secret> 'theirs' .",
    );
    place.load("theirs").await;
    place.write(
        "k.ttl",
        "<urn:s> <http://schema.org/name> 'Shared' ; <urn:secret> 'mine' .",
    );
    place.load("mine").await;
    assert_eq!(
        lines(&place, "mine", "shared").await,
        ["- Shared | secret | mine [urn:s]"]
    );
    assert_eq!(
        lines(&place, "theirs", "shared").await,
        ["- Shared | secret | theirs [urn:s]"]
    );
}

#[tokio::test]
async fn no_question_can_break_the_query() {
    let place = Place::new().await;
    let odd = "<urn:s> <http://schema.org/name> \"a } UNION { ?s ?p ?o # \\\" '\" ; <urn:p> 1 .";
    place.write("k.ttl", odd);
    place.load("c").await;
    for question in ["a } UNION { ?s ?p ?o", "\" ' # <urn:s>", "union"] {
        assert_eq!(lines(&place, "c", question).await.len(), 1, "{question}");
    }
}
