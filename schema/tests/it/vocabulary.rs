//! The vocabulary in code, the ontology and the shapes say the same: a term is declared once in
//! each, and nothing is carried that nobody declared.

use crate::rdf::{Graph, OWL, RDF, RDFS, SH, SKOS, short};
use crate::shapes;
use agentfleet_schema::records::{CompletionStatus, DecidedBy, JoinCause, Termination};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg};
use std::collections::BTreeSet;

const ONTOLOGY: &str = include_str!("../../ontology/agentfleet.ttl");
const SHAPES: &str = include_str!("../../shapes/agentfleet.ttl");

fn ontology() -> Graph {
    Graph::parse(ONTOLOGY).unwrap()
}

fn shapes_graph() -> Graph {
    Graph::parse(SHAPES).unwrap()
}

fn in_code() -> Vec<&'static str> {
    [tg::SPEC, tg::PEER, tg::OURS].concat()
}

fn declared(graph: &Graph, kinds: &[&str]) -> BTreeSet<String> {
    kinds
        .iter()
        .flat_map(|kind| graph.subjects(&format!("{RDF}type"), &format!("{OWL}{kind}")))
        .filter(|iri| iri.starts_with(tg::NS))
        .map(str::to_owned)
        .collect()
}

/// Local names after `prefix:` wherever they occur, queries included.
fn mentioned(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let local: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        if !local.is_empty() {
            found.insert(local);
        }
    }
    found
}

#[test]
fn code_and_ontology_declare_the_same_terms() {
    let code = in_code();
    let unique: BTreeSet<String> = code.iter().map(|term| (*term).to_owned()).collect();
    assert_eq!(unique.len(), code.len(), "a term is declared twice in code");
    let ontology = declared(
        &ontology(),
        &["Class", "ObjectProperty", "DatatypeProperty"],
    );
    assert_eq!(
        unique, ontology,
        "left: schema/src/vocabulary.rs, right: the ontology"
    );
}

#[test]
fn every_term_is_explained_and_aligned() {
    let graph = ontology();
    let classes = declared(&graph, &["Class"]);
    let objects = declared(&graph, &["ObjectProperty"]);
    let data = declared(&graph, &["DatatypeProperty"]);
    assert!(objects.is_disjoint(&data) && classes.is_disjoint(&objects));
    for term in classes.iter().chain(&objects).chain(&data) {
        for annotation in ["label", "comment"] {
            let texts = graph.all(term, &format!("{RDFS}{annotation}"));
            assert_eq!(texts.len(), 1, "{term} has one {annotation}");
            assert!(!texts[0].trim().is_empty());
        }
    }
    for class in &classes {
        let mut at = class.clone();
        while !at.starts_with(prov::NS) {
            let above = graph.one(&at, &format!("{RDFS}subClassOf"));
            at = above
                .unwrap_or_else(|| panic!("{class} is aligned to no class of PROV-O"))
                .into();
        }
        assert!(
            prov::ALL.contains(&at.as_str()),
            "{class}: PROV-O has no {at}"
        );
    }
    let xsd = "http://www.w3.org/2001/XMLSchema#";
    for (properties, literal) in [(&objects, false), (&data, true)] {
        for property in properties {
            for range in graph.all(property, &format!("{RDFS}range")) {
                assert_eq!(
                    range.starts_with(xsd),
                    literal,
                    "{property} has the range {range}"
                );
            }
            for end in ["domain", "range"] {
                for class in graph.all(property, &format!("{RDFS}{end}")) {
                    let known = class.starts_with(xsd)
                        || classes.contains(class)
                        || prov::ALL.contains(&class);
                    assert!(known, "{property}: unknown {end} {class}");
                }
            }
        }
    }
}

#[test]
fn shapes_speak_of_declared_terms_only() {
    let code: BTreeSet<String> = in_code().iter().map(|t| t.replace(tg::NS, "")).collect();
    let prov: BTreeSet<String> = prov::ALL.iter().map(|t| t.replace(prov::NS, "")).collect();
    for (text, name) in [(SHAPES, "shapes"), (ONTOLOGY, "ontology")] {
        let unknown: Vec<_> = mentioned(text, "tg:").difference(&code).cloned().collect();
        assert!(unknown.is_empty(), "the {name} mention {unknown:?}");
        let unknown: Vec<_> = mentioned(text, "prov:")
            .difference(&prov)
            .cloned()
            .collect();
        assert!(
            unknown.is_empty(),
            "the {name} mention {unknown:?} of PROV-O"
        );
    }
}

#[test]
fn every_property_is_carried_by_a_node_or_said_not_to_be_written() {
    let (graph, shapes) = (ontology(), shapes::read(&shapes_graph()));
    let carried: BTreeSet<&str> = shapes
        .iter()
        .flat_map(|s| &s.properties)
        .map(|p| p.path.as_str())
        .collect();
    for property in declared(&graph, &["ObjectProperty", "DatatypeProperty"]) {
        let note = graph.one(&property, &format!("{SKOS}scopeNote"));
        assert_eq!(
            carried.contains(property.as_str()),
            note.is_none(),
            "`{}` needs a shape, or a skos:scopeNote that says why it is not written",
            short(&property)
        );
    }
    let shaped: BTreeSet<String> = shapes_graph()
        .subjects(&format!("{RDF}type"), &format!("{SH}NodeShape"))
        .iter()
        .flat_map(|shape| {
            let graph = shapes_graph();
            let targets = graph.all(shape, &format!("{SH}targetClass"));
            targets.into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    for class in declared(&graph, &["Class"]) {
        assert!(
            shaped.contains(&class),
            "no shape is about {}",
            short(&class)
        );
    }
}

#[test]
fn shapes_and_ontology_agree_on_datatypes() {
    let graph = ontology();
    for shape in shapes::read(&shapes_graph()) {
        for property in shape
            .properties
            .iter()
            .filter(|p| p.path.starts_with(tg::NS))
        {
            let range = graph.one(&property.path, &format!("{RDFS}range"));
            let is_data = graph.all(&property.path, RDF_TYPE)[0].ends_with("DatatypeProperty");
            let told = property.datatype.is_some() || !property.values.is_empty();
            assert_eq!(is_data, told, "{} of {}", property.path, shape.label);
            if let Some(datatype) = &property.datatype {
                assert_eq!(
                    range,
                    Some(datatype.as_str()),
                    "{} of {}",
                    property.path,
                    shape.label
                );
            }
        }
    }
}

/// The shapes say twice what a node may carry: as properties, and in the query that refuses others.
#[test]
fn what_a_shape_refuses_is_what_it_does_not_list() {
    let graph = shapes_graph();
    let sh = |local: &str| format!("{SH}{local}");
    let own = |shape: &str| -> BTreeSet<String> {
        graph
            .all(shape, &sh("property"))
            .iter()
            .filter(|part| graph.one(part, &sh("order")).is_some())
            .filter_map(|part| graph.one(part, &sh("path")))
            .filter_map(|path| path.strip_prefix(tg::NS))
            .map(str::to_owned)
            .collect()
    };
    let node = "urn:agentfleet:shape:Node";
    let of_step = graph.all(node, &sh("targetClass"));
    let mut checked = 0;
    let mut all = BTreeSet::new();
    for shape in graph.subjects(RDF_TYPE, &sh("NodeShape")) {
        let mut expected = own(shape);
        all.extend(expected.clone());
        if shape != node
            && graph
                .all(shape, &sh("targetClass"))
                .iter()
                .any(|c| of_step.contains(c))
        {
            expected.extend(own(node));
        }
        for query in graph.all(shape, &sh("sparql")) {
            let message = graph.one(query, &sh("message")).unwrap_or_default();
            if message.contains(" carries no ") {
                let select = graph.one(query, &sh("select")).unwrap();
                assert_eq!(mentioned(select, "tg:"), expected, "{shape}");
                checked += 1;
            }
        }
    }
    assert_eq!(
        checked, 18,
        "every described node but the common one and the sources is closed"
    );
    let carrier = graph.all("urn:agentfleet:shape:Carrier", &sh("targetSubjectsOf"));
    let targets: BTreeSet<String> = carrier.iter().map(|iri| iri.replace(tg::NS, "")).collect();
    assert_eq!(
        targets, all,
        "af:Carrier is about every property of the trace"
    );
}

#[test]
fn closed_lists_are_those_of_the_records() {
    // Each match is exhaustive: a new value does not compile until it is listed.
    fn decided_by(value: DecidedBy) -> &'static str {
        match value {
            DecidedBy::Model
            | DecidedBy::OnlyOption
            | DecidedBy::Fallback
            | DecidedBy::Caller
            | DecidedBy::Person => value.as_str(),
        }
    }
    fn join_cause(value: JoinCause) -> &'static str {
        match value {
            JoinCause::Complete | JoinCause::Enough | JoinCause::Deadline => value.as_str(),
        }
    }
    fn status(value: CompletionStatus) -> &'static str {
        match value {
            CompletionStatus::Answered
            | CompletionStatus::Error
            | CompletionStatus::Timeout
            | CompletionStatus::Cancelled
            | CompletionStatus::DeadLettered => value.as_str(),
        }
    }
    fn termination(value: Termination) -> &'static str {
        match value {
            Termination::FinalAnswer
            | Termination::SubagentsComplete
            | Termination::PlanComplete
            | Termination::MaxIterations
            | Termination::MaxReplans
            | Termination::BudgetExhausted
            | Termination::RepeatedAction
            | Termination::ReplyCut
            | Termination::NeedsClarification
            | Termination::Error
            | Termination::Cancelled
            | Termination::Timeout
            | Termination::DeadLettered => value.as_str(),
        }
    }
    let lists: [(&str, Vec<&str>); 4] = [
        (
            tg::DECIDED_BY,
            [
                DecidedBy::Model,
                DecidedBy::OnlyOption,
                DecidedBy::Fallback,
                DecidedBy::Caller,
                DecidedBy::Person,
            ]
            .map(decided_by)
            .to_vec(),
        ),
        (
            tg::JOIN_CAUSE,
            [JoinCause::Complete, JoinCause::Enough, JoinCause::Deadline]
                .map(join_cause)
                .to_vec(),
        ),
        (
            tg::STATUS,
            [
                CompletionStatus::Answered,
                CompletionStatus::Error,
                CompletionStatus::Timeout,
                CompletionStatus::Cancelled,
                CompletionStatus::DeadLettered,
            ]
            .map(status)
            .to_vec(),
        ),
        (
            tg::TERMINATION_REASON,
            [
                Termination::FinalAnswer,
                Termination::SubagentsComplete,
                Termination::PlanComplete,
                Termination::MaxIterations,
                Termination::MaxReplans,
                Termination::BudgetExhausted,
                Termination::RepeatedAction,
                Termination::ReplyCut,
                Termination::NeedsClarification,
                Termination::Error,
                Termination::Cancelled,
                Termination::Timeout,
                Termination::DeadLettered,
            ]
            .map(termination)
            .to_vec(),
        ),
    ];
    let shapes = shapes::read(&shapes_graph());
    for (path, values) in lists {
        let listed: Vec<_> = shapes
            .iter()
            .flat_map(|shape| &shape.properties)
            .filter(|property| property.path == path)
            .collect();
        assert_eq!(listed.len(), 1, "{path}");
        assert_eq!(listed[0].values, values, "{path}");
    }
}

#[test]
fn every_described_node_has_its_form_and_an_example() {
    let shapes = shapes::read(&shapes_graph());
    assert_eq!(shapes.len(), 22);
    for shape in shapes {
        for text in [&shape.label, &shape.comment, &shape.notation] {
            assert!(!text.is_empty(), "{}", shape.label);
        }
        assert!(
            !shape.examples.is_empty(),
            "{} has no example query",
            shape.label
        );
        assert!(shape.properties.iter().any(|p| p.path == RDFS_LABEL) || shape.of_step);
    }
}
