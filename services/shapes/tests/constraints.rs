//! Each constraint against values that keep it and values that break it.

#![allow(clippy::unwrap_used, clippy::panic)]

use agentfleet_shapes::{Shapes, Violation};
use oxigraph::io::{RdfFormat, RdfParser};
use oxigraph::model::Triple;

const PREFIXES: &str = "
    @prefix : <urn:t:> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix sh: <http://www.w3.org/ns/shacl#> .
    @prefix tg: <https://trustgraph.ai/ns/> .
    @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
";
const ONTOLOGY: &str = ":Dog rdfs:subClassOf :Mammal . :Mammal rdfs:subClassOf :Animal .";

fn triples(turtle: &str) -> Vec<Triple> {
    let turtle = format!("{PREFIXES}{turtle}");
    RdfParser::from_format(RdfFormat::Turtle)
        .for_slice(&turtle)
        .map(|quad| Triple::from(quad.unwrap()))
        .collect()
}

fn shapes(body: &str) -> Result<Shapes, agentfleet_shapes::Error> {
    // Prefixes that no query refers to would be a mistake.
    let declared = if body.contains("sh:prefixes :prefixes") {
        ":prefixes sh:declare [ sh:prefix 't' ; sh:namespace 'urn:t:' ] ."
    } else {
        ""
    };
    Shapes::parse(
        &format!("{PREFIXES}{declared}{body}"),
        &format!("{PREFIXES}{ONTOLOGY}"),
    )
}

fn violations(body: &str, data: &str) -> Vec<Violation> {
    let shapes = shapes(body).unwrap_or_else(|error| panic!("{body}: {error}"));
    shapes.validate_rdf(triples(data)).unwrap().violations
}

/// A shape for everything of class `:T`, with these parts.
fn shape(parts: &str) -> String {
    format!(":S a sh:NodeShape ; rdfs:label 'Thing' ; sh:targetClass :T ; {parts} .")
}

#[test]
fn each_constraint_accepts_what_is_right_and_names_what_is_wrong() {
    // Constraint, its term, good data, bad data about `:x`, the value found, the sentence.
    let table: &[(&str, &str, &str, &str, Option<&str>, &str)] = &[
        (
            "sh:property [ sh:path tg:p ; sh:class :Animal ]",
            "class",
            ":x tg:p :d . :d a :Dog .",
            ":x tg:p :d . :d a :Stone .",
            Some("urn:t:d"),
            "`urn:t:d` of `tg:p` is no `urn:t:Animal`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:class :Animal ]",
            "class",
            "",
            ":x tg:p 'Dog' .",
            Some("Dog"),
            "`Dog` of `tg:p` is no `urn:t:Animal`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:datatype xsd:integer ]",
            "datatype",
            ":x tg:p 1 , 2 .",
            ":x tg:p 1.5 .",
            Some("1.5"),
            "`1.5` of `tg:p` is no `xsd:integer`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:datatype xsd:integer ]",
            "datatype",
            ":x tg:p '007'^^xsd:integer .",
            ":x tg:p 'some'^^xsd:integer .",
            Some("some"),
            "`some` of `tg:p` is no `xsd:integer`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:datatype xsd:dateTime ]",
            "datatype",
            ":x tg:p '2026-11-21T10:00:00Z'^^xsd:dateTime .",
            ":x tg:p '2026-11-21'^^xsd:dateTime .",
            Some("2026-11-21"),
            "`2026-11-21` of `tg:p` is no `xsd:dateTime`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:datatype xsd:string ]",
            "datatype",
            ":x tg:p 'a' .",
            ":x tg:p 'a'@en .",
            Some("a"),
            "`a` of `tg:p` is no `xsd:string`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:nodeKind sh:IRI ]",
            "nodeKind",
            ":x tg:p :y .",
            ":x tg:p 'y' .",
            Some("y"),
            "`y` of `tg:p` is no IRI",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:nodeKind sh:BlankNodeOrIRI ]",
            "nodeKind",
            ":x tg:p :y , [] .",
            ":x tg:p 'y' .",
            Some("y"),
            "`y` of `tg:p` is no blank node or IRI",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:hasValue :y ]",
            "hasValue",
            ":x tg:p :y , :z .",
            ":x tg:p :z .",
            None,
            "no `tg:p` is `urn:t:y`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:in ( 'a' 'b' ) ]",
            "in",
            ":x tg:p 'a' .",
            ":x tg:p 'c' .",
            Some("c"),
            "`c` of `tg:p` is none of `a`, `b`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:minCount 2 ]",
            "minCount",
            ":x tg:p 1 , 2 .",
            ":x tg:p 1 .",
            None,
            "`tg:p` is there once, and 2 is the least",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:maxCount 1 ]",
            "maxCount",
            ":x tg:p 1 .",
            ":x tg:p 1 , 2 , 3 .",
            None,
            "`tg:p` is there 3 times, and 1 is the most",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:minInclusive 0 ]",
            "minInclusive",
            ":x tg:p 0 , 0.0 , 1e3 .",
            ":x tg:p -0.5 .",
            Some("-0.5"),
            "`-0.5` of `tg:p` is no number of at least 0",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:minInclusive 0 ]",
            "minInclusive",
            "",
            ":x tg:p 'many' .",
            Some("many"),
            "`many` of `tg:p` is no number of at least 0",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:minLength 2 ]",
            "minLength",
            ":x tg:p 'ää' .",
            ":x tg:p 'ä' .",
            Some("ä"),
            "`ä` of `tg:p` is not as long as 2 characters",
        ),
        (
            "sh:pattern '^urn:t:x$'",
            "pattern",
            "",
            ":xx a :T .",
            Some("urn:t:xx"),
            "the node is not of the form `^urn:t:x$`",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:equals tg:q ]",
            "equals",
            ":x tg:p 1 ; tg:q 1 .",
            ":x tg:p 1 , 2 ; tg:q 1 .",
            Some("2"),
            "`2` of `tg:p` is no `tg:q`, and both have the same values",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:equals tg:q ]",
            "equals",
            "",
            ":x tg:q 1 .",
            Some("1"),
            "`1` of `tg:q` is no `tg:p`, and both have the same values",
        ),
        (
            "sh:not [ sh:class :Dog ]",
            "not",
            "",
            ":x a :Dog .",
            Some("urn:t:x"),
            "the node is what it must not be",
        ),
        (
            "sh:or ( [ sh:class :Dog ] [ sh:property [ sh:path tg:p ; sh:minCount 1 ] ] )",
            "or",
            ":x tg:p 1 .",
            "",
            Some("urn:t:x"),
            "the node fits none of 2 shapes",
        ),
        (
            "sh:xone ( [ sh:class :Dog ] [ sh:class :Cat ] )",
            "xone",
            ":x a :Dog .",
            ":x a :Dog , :Cat .",
            Some("urn:t:x"),
            "the node fits none or several of 2 shapes, and fits one where it is right",
        ),
        (
            "sh:property [ sh:path tg:p ; sh:node :Part ] . \
             :Part a sh:NodeShape ; rdfs:label 'Part' ; sh:property [ sh:path tg:q ; sh:minCount 1 ]",
            "node",
            ":x tg:p :y . :y tg:q 1 .",
            ":x tg:p :y .",
            Some("urn:t:y"),
            "`urn:t:y` of `tg:p` does not fit the shape `Part`",
        ),
    ];
    for (parts, constraint, good, bad, value, message) in table {
        let shape = shape(parts);
        if !good.is_empty() {
            let found = violations(&shape, &format!(":x a :T . {good}"));
            assert_eq!(found, [], "{parts}: {good}");
        }
        let kept = if bad.contains(":xx") { "" } else { ":x a :T ." };
        let found = violations(&shape, &format!("{kept} {bad}"));
        let told: Vec<_> = found
            .iter()
            .map(|one| (one.constraint, one.value.as_deref(), one.message.as_str()))
            .collect();
        assert_eq!(told, [(*constraint, *value, *message)], "{parts}: {bad}");
        assert_eq!(found[0].shape, "Thing");
    }
}

#[test]
fn a_violation_is_of_the_innermost_node_and_in_the_words_of_its_own_shape() {
    let shape = shape(
        "sh:message 'the outer' ; sh:class :Dog ;
         sh:property [ sh:path tg:p ; sh:property [ sh:path tg:q ; sh:minCount 1 ; sh:message 'the inner' ] ]",
    );
    let found = violations(&shape, ":x a :T ; tg:p :y .");
    let told: Vec<_> = found
        .iter()
        .map(|one| (one.node.as_str(), one.message.as_str()))
        .collect();
    assert_eq!(told, [("urn:t:x", "the outer"), ("urn:t:y", "the inner")]);
}

#[test]
fn paths_lead_along_against_and_on() {
    for (path, written) in [
        ("tg:p", "https://trustgraph.ai/ns/p"),
        (
            "[ sh:inversePath tg:back ]",
            "^https://trustgraph.ai/ns/back",
        ),
        (
            "( tg:p tg:q )",
            "https://trustgraph.ai/ns/p/https://trustgraph.ai/ns/q",
        ),
        (
            "[ sh:inversePath ( tg:q tg:back ) ]",
            "^(https://trustgraph.ai/ns/q/https://trustgraph.ai/ns/back)",
        ),
    ] {
        let shape = shape(&format!("sh:property [ sh:path {path} ; sh:maxCount 1 ]"));
        let one = ":x a :T ; tg:p :y . :y tg:q :z . :z tg:back :x . :w tg:q :z .";
        let two = format!("{one} :x tg:p :y2 . :y2 tg:q :z2 , :z3 . :z2 tg:back :x .");
        let found = violations(&shape, &two);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].path.as_deref(), Some(written));
        let fewer = if path.contains("( tg:q tg:back )") {
            one.replace(":w tg:q :z .", "")
        } else {
            one.to_owned()
        };
        assert_eq!(violations(&shape, &fewer), [], "{path}");
    }
}

#[test]
fn each_target_names_its_nodes_and_each_node_once() {
    let data = ":a a :Dog ; tg:p :b . :b tg:p 'text' .";
    for (target, nodes) in [
        ("sh:targetClass :Animal", vec!["urn:t:a"]),
        ("sh:targetSubjectsOf tg:p", vec!["urn:t:a", "urn:t:b"]),
        ("sh:targetObjectsOf tg:p", vec!["text", "urn:t:b"]),
        (
            "sh:targetSubjectsOf tg:p ; sh:targetClass :Dog",
            vec!["urn:t:a", "urn:t:b"],
        ),
    ] {
        let body = format!(":S a sh:NodeShape ; {target} ; sh:class :Nothing .");
        let report = shapes(&body).unwrap().validate_rdf(triples(data)).unwrap();
        let found: Vec<&str> = report
            .violations
            .iter()
            .map(|it| it.node.as_str())
            .collect();
        assert_eq!(found, nodes, "{target}");
        assert_eq!(report.checked, nodes.len() as u64, "{target}");
        assert_eq!(report.violations[0].shape, "urn:t:S");
    }
}

#[test]
fn a_query_finds_nodes_with_paths_and_values_in_its_words() {
    let query = |select: &str| {
        shape(&format!(
            "sh:sparql [ sh:message 'no {{?path}}: {{$value}}, {{?other}}' ; sh:prefixes :prefixes ; sh:select '{select}' ]"
        ))
    };
    let data = ":x a :T ; :p 1 . :y :p 1 .";
    for (select, path, value, message) in [
        (
            "SELECT $this ?path ?value WHERE { $this ?path ?value FILTER (?path = t:p) }",
            Some("urn:t:p"),
            "1",
            "no urn:t:p: 1, {?other}",
        ),
        (
            "SELECT $this (COUNT(?v) AS ?other) WHERE { $this t:p ?v } GROUP BY $this HAVING (COUNT(?v) = 1)",
            None,
            "urn:t:x",
            "no {?path}: urn:t:x, 1",
        ),
        // `$this` is bound by nothing but the node that is asked about.
        (
            "SELECT $this WHERE { ?a t:p ?b FILTER EXISTS { $this t:p ?b } FILTER (?a != $this) }",
            None,
            "urn:t:x",
            "no {?path}: urn:t:x, {?other}",
        ),
    ] {
        let found = violations(&query(select), data);
        assert_eq!(found.len(), 1, "{select}: {found:?}");
        let one = &found[0];
        assert_eq!(one.node, "urn:t:x");
        assert_eq!(one.path.as_deref(), path, "{select}");
        assert_eq!(one.value.as_deref(), Some(value), "{select}");
        assert_eq!(one.message, message, "{select}");
    }
    assert_eq!(
        violations(&query("SELECT $this WHERE { $this t:q ?v }"), data),
        []
    );
}

#[test]
fn what_is_not_evaluated_is_refused() {
    for (body, expected) in [
        (
            shape("sh:closed true"),
            "uses `sh:closed`, which is not evaluated",
        ),
        (
            shape("sh:property [ sh:path tg:p ; sh:maxLength 2 ]"),
            "uses `sh:maxLength`",
        ),
        (shape("sh:deactivated true"), "uses `sh:deactivated`"),
        (shape("sh:severity sh:Warning"), "uses `sh:severity`"),
        (shape("sh:targetNode :x"), "uses `sh:targetNode`"),
        (
            shape("sh:property [ sh:path [ sh:oneOrMorePath tg:p ] ]"),
            "the value of `sh:path` must be",
        ),
        (
            shape("sh:property [ sh:minCount 1 ]"),
            "has `sh:path` 0 times",
        ),
        (
            shape("sh:property [ sh:nodeKind sh:IRI ]"),
            "the value of `sh:property` must be a shape with `sh:path`",
        ),
        (
            shape("sh:property [ sh:path tg:p , tg:q ]"),
            "has `sh:path` 2 times",
        ),
        (
            shape("sh:property [ sh:path tg:p ; sh:datatype xsd:duration ]"),
            "a datatype of which it is known",
        ),
        (shape("sh:nodeKind sh:Thing"), "must be a kind of node"),
        (shape("sh:pattern '('"), "no regular expression"),
        (shape("sh:node :S"), "refers to itself"),
        (shape("sh:sparql [ sh:ask 'ASK {}' ]"), "uses `sh:ask`"),
        (
            shape("sh:sparql [ sh:select 'SELECT ?x WHERE {}' ]"),
            "does not select `$this`",
        ),
        (
            ":S sh:targetClass :T ; sh:class :Dog .".to_owned(),
            "is part of no shape",
        ),
        (":S a sh:Rule .".to_owned(), "uses `sh:Rule`"),
        ("this is no Turtle".to_owned(), "are no Turtle"),
    ] {
        let error = shapes(&body).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}: {error}");
    }
    let said = "sh:name 'n' ; sh:description 'd' ; sh:order 1 ; rdfs:comment 'c'";
    shapes(&shape(said)).unwrap();
}
