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

/// The statements alone, without the documents they stand under.
async fn lines(place: &Place, collection: &str, question: &str) -> Vec<String> {
    let result = place
        .call(
            &tool("knowledge-query"),
            collection,
            &[("question", question)],
        )
        .await;
    assert!(!result.is_error, "{}", result.content);
    let lines = result.content.lines().filter(|line| line.starts_with("- "));
    lines.map(str::to_owned).collect()
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
        place.call(&one, "c", &question).await.content,
        "[1] K (urn:agentfleet:document:c:k.ttl)\n- Acme works | employee | role (role name: director) [urn:x:acme]"
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
async fn a_relation_that_the_question_names_is_shown_beside_the_thing() {
    let place = Place::new().await;
    let mut text = String::from(
        "@prefix e: <urn:e:> . @prefix s: <http://schema.org/> .
         e:drives s:name 'Drives' ; s:description 'The subject sets the object in motion.' .
         e:motor s:name 'Motor' ; e:drives e:pump .
         e:pump s:name 'Cooling Water Pump' ; s:description 'Moves cold water.' .\n",
    );
    for n in 0..40 {
        text.push_str(&format!("e:pump e:tag{n} 'Pump tag {n}' .\n"));
        text.push_str(&format!(
            "e:pump{n} s:name 'Cooling Water Pump No. {n}' ; e:tag 'cooling water pump' .\n"
        ));
    }
    place.write("k.ttl", text);
    place.load("c").await;
    for question in [
        "What drives a cooling water pump?",
        "Which things drive the cooling water pump?",
    ] {
        let found = lines(&place, "c", question).await;
        assert_eq!(
            found[0],
            "- Motor | Drives | Cooling Water Pump [urn:e:motor]"
        );
        for expected in [
            "- Cooling Water Pump | description | Moves cold water. [urn:e:pump]",
            "- Drives | description | The subject sets the object in motion. [urn:e:drives]",
        ] {
            assert!(found.iter().any(|line| line == expected), "{found:#?}");
        }
    }
}

#[tokio::test]
async fn every_statement_stands_under_the_file_that_makes_it() {
    let place = Place::new().await;
    place.write(
        "first.ttl",
        "<urn:mill> <http://schema.org/name> 'Mill' ; <urn:e:built> '1820' .",
    );
    place.write(
        "second.ttl",
        "<urn:mill> <urn:e:burned> '1901' ; <urn:e:part> [ <urn:e:partOf> <urn:mill> ] .",
    );
    place.load("c").await;
    let question = [("question", "mill")];
    let result = place.call(&tool("knowledge-query"), "c", &question).await;
    let blocks: Vec<&str> = result.content.split("\n\n").collect();
    assert_eq!(blocks.len(), 2, "{}", result.content);
    for (block, own) in [
        ("first.ttl", "| built | 1820"),
        ("second.ttl", "| burned | 1901"),
    ] {
        let address = format!("(urn:agentfleet:document:c:{block})");
        let found = blocks.iter().find(|text| text.contains(own)).unwrap();
        assert!(found.lines().next().unwrap().ends_with(&address), "{found}");
    }
    // A node without a name is in the file that speaks of it, and has no address to show.
    assert!(!result.content.contains("blank"), "{}", result.content);
    assert!(
        blocks
            .iter()
            .any(|b| b.contains("second.ttl") && b.contains("part of"))
    );
}

#[tokio::test]
async fn what_points_at_a_thing_is_told_whole_if_it_is_asked_for() {
    let place = Place::new().await;
    let mut text = String::from(
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix e: <urn:e:> .
         e:Wind_Gauge rdfs:label 'Wind Gauge' ; rdfs:subClassOf e:Gauge . e:Gauge rdfs:label 'Gauge' .\n",
    );
    for n in 0..30 {
        text.push_str(&format!("e:Wind_Gauge e:tag{n} 'wind gauge {n}' .\n"));
    }
    for kind in [
        "Cup", "Vane", "Sonic", "Laser", "Tube", "Hot_Wire", "Plate", "Ball", "Sock", "Bird",
        "Kite", "Flag",
    ] {
        text.push_str(&format!("e:{kind}_Gauge rdfs:subClassOf e:Wind_Gauge .\n"));
    }
    place.write("k.ttl", text);
    place.load("c").await;
    let found = lines(&place, "c", "Which subclasses does Wind Gauge have?").await;
    let subclasses = found
        .iter()
        .filter(|line| line.contains("| sub class of | Wind Gauge"));
    assert_eq!(subclasses.count(), 12, "{found:#?}");
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
        let asked = [("question", question)];
        let result = place.call(&tool("knowledge-query"), "c", &asked).await;
        assert!(!result.is_error, "{question}: {}", result.content);
        let told = result.content.lines().filter(|line| line.starts_with("- "));
        let found = told.count() == 1 || result.content.starts_with("No facts");
        assert!(found, "{question}: {}", result.content);
    }
}
