//! Whatever statements a graph holds, reading and showing them ends, and what comes out is well-formed.

use crate::trace_formats::{elements, shown};
use agentfleet_console::trace::{Format, Trace};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg, xsd};
use agentfleet_schema::{Term, TermType, Triple};
use proptest::prelude::*;
use proptest::sample::select;

/// Few names, so that they meet.
fn name() -> impl Strategy<Value = String> {
    select(vec![
        "urn:trustgraph:agent:a",
        "urn:trustgraph:agent:b",
        "urn:trustgraph:agent:c",
        "urn:trustgraph:agent:a/i1",
        "urn:trustgraph:agent:a/i2",
        "urn:trustgraph:agent:b/answer",
        "urn:trustgraph:agent:c/completion",
        "urn:trustgraph:agent:a/fanout/f",
        "urn:trustgraph:agent:a/fanout/f/goal/0",
        "urn:trustgraph:agent:a/fanout/f/goal/99999999999",
        "urn:trustgraph:agent:a/routing",
        "https://example.org/x y",
        "no scheme",
        "",
    ])
    .prop_map(str::to_owned)
}

fn predicate() -> impl Strategy<Value = String> {
    select(vec![
        RDF_TYPE,
        RDF_TYPE,
        RDF_TYPE,
        RDFS_LABEL,
        prov::WAS_GENERATED_BY,
        prov::WAS_GENERATED_BY,
        prov::WAS_DERIVED_FROM,
        prov::WAS_DERIVED_FROM,
        prov::USED,
        prov::WAS_INFORMED_BY,
        prov::WAS_ASSOCIATED_WITH,
        prov::ACTED_ON_BEHALF_OF,
        prov::WAS_ATTRIBUTED_TO,
        prov::STARTED_AT_TIME,
        prov::ENDED_AT_TIME,
        prov::GENERATED_AT_TIME,
        prov::VALUE,
        prov::HAD_PRIMARY_SOURCE,
        tg::ROOT_SESSION_ID,
        tg::PARENT_SESSION_ID,
        tg::PARENT_SESSION_ID,
        tg::PARENT_CORRELATION_ID,
        tg::SIBLING_INDEX,
        tg::CORRELATION_ID,
        tg::SUBAGENT_GOALS,
        tg::MISSING,
        tg::SOURCE,
        tg::OBSERVATION,
        tg::THOUGHT,
        tg::DOCUMENT,
        tg::IN_TOKEN,
        tg::OUT_TOKEN,
        tg::COST,
        tg::CONFIDENCE,
        tg::OPTION,
        tg::SELECTED,
        tg::ARGUMENTS,
        tg::ACTION,
        tg::STEP_NUMBER,
        tg::QUERY,
        tg::STATUS,
        tg::LATE,
        tg::EXPECTED_SIBLINGS,
        "junk",
    ])
    .prop_map(str::to_owned)
}

fn class() -> impl Strategy<Value = Term> {
    select(vec![
        tg::AGENT_QUESTION,
        tg::ROUTING_DECISION,
        tg::DECISION,
        tg::ANALYSIS,
        tg::FAN_OUT,
        tg::SYNTHESIS,
        tg::CONCLUSION,
        tg::SUBAGENT_COMPLETION,
        tg::ERROR,
        prov::ENTITY,
        prov::ACTIVITY,
        prov::AGENT,
    ])
    .prop_map(Term::iri)
}

fn literal() -> impl Strategy<Value = Term> {
    let value = prop_oneof![
        select(vec![
            "a",
            "b",
            "f",
            "0",
            "1",
            "18446744073709551615",
            "-1",
            "NaN",
            "1e400",
            "true",
            "2026-11-21T09:00:00Z",
            "-9999999-01-01T00:00:00Z",
            "Part: 0.5",
            "{\"q\":[1]}",
            "{",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let datatype = select(vec!["", "", xsd::INTEGER, xsd::DATE_TIME, "no scheme"]);
    let language = select(vec!["", "", "", "en", "not a language"]);
    (value, datatype, language).prop_map(|(value, datatype, language)| Term {
        language: language.to_owned(),
        ..Term::typed(value, datatype)
    })
}

fn object() -> impl Strategy<Value = Term> {
    let blank = any::<String>().prop_map(|id| Term {
        kind: TermType::Blank,
        id,
        ..Term::default()
    });
    let quoted = (name(), predicate(), any::<bool>()).prop_map(|(s, p, whole)| Term {
        kind: TermType::Triple,
        triple: whole.then(|| Box::new(Triple::new(&s, &p, Term::text("x")))),
        ..Term::default()
    });
    prop_oneof![4 => name().prop_map(Term::iri), 4 => class(), 4 => literal(), 1 => blank, 1 => quoted]
}

fn triples() -> impl Strategy<Value = Vec<Triple>> {
    let subject = prop_oneof![20 => name().prop_map(Term::iri), 1 => object()];
    let triple = (subject, predicate(), object()).prop_map(|(s, p, o)| Triple {
        s,
        p: Term::iri(p),
        o,
        g: None,
    });
    proptest::collection::vec(triple, 0..60)
}

proptest! {
    #[test]
    fn no_graph_breaks_a_renderer(triples in triples()) {
        let trace = Trace::from_triples(&triples);
        let mut ids: Vec<_> = trace.sessions.iter().map(|s| s.id.clone()).collect();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), trace.sessions.len(), "each session once");

        let tree = shown(&triples, Format::Tree);
        prop_assert!(tree.chars().all(|c| c == '\n' || !c.is_control()), "{tree:?}");
        elements(&shown(&triples, Format::Svg));
        let mermaid = shown(&triples, Format::Mermaid);
        prop_assert!(mermaid.starts_with("flowchart TD\n"));
        let _: serde_json::Value = serde_json::from_str(&shown(&triples, Format::Json)).unwrap();
        let _: serde_json::Value =
            serde_json::from_str(&shown(&triples, Format::ProvJson)).unwrap();
    }

    #[test]
    fn any_order_of_statements_tells_the_same(triples in triples(), seed in any::<u64>()) {
        let mut shuffled = triples.clone();
        let mut state = seed;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let one = Trace::from_triples(&triples);
        let other = Trace::from_triples(&shuffled);
        prop_assert_eq!(format!("{:?}", one.sessions), format!("{:?}", other.sessions));
    }
}
