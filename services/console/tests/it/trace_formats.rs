//! Each format is what it claims to be, by an independent reader where there is one.

use crate::sample::{self, Run};
use agentfleet_console::style::Look;
use agentfleet_console::trace::{Format, JSON_FORMAT, Trace};
use agentfleet_schema::{TermType, Triple};
use quick_xml::events::Event;
use std::collections::BTreeSet;

pub(crate) fn shown(triples: &[Triple], format: Format) -> String {
    Trace::from_triples(triples).render(format, Look::plain(100), &|_| Some("a <text>".into()))
}

fn runs() -> [Run; 5] {
    [
        sample::risk(),
        sample::running(),
        sample::single(),
        sample::hostile(),
        sample::failed(),
    ]
}

/// Panics unless the text is one XML document; answers with its element names.
pub(crate) fn elements(xml: &str) -> BTreeSet<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut names = BTreeSet::new();
    let mut open = 0;
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) => {
                open += 1;
                names.insert(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
                for attribute in tag.attributes() {
                    attribute.unwrap().unescape_value().unwrap();
                }
            }
            Event::Empty(tag) => {
                for attribute in tag.attributes() {
                    attribute.unwrap().unescape_value().unwrap();
                }
                names.insert(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            Event::End(_) => open -= 1,
            Event::Text(text) => {
                text.unescape().unwrap();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0);
    names
}

#[test]
fn svg_is_xml_without_scripts_or_links() {
    for run in runs() {
        let names = elements(&shown(&run.triples, Format::Svg));
        for name in &names {
            let known = [
                "svg", "title", "style", "defs", "marker", "path", "rect", "text", "g",
            ];
            assert!(known.contains(&name.as_str()), "<{name}>");
        }
    }
    let wide = shown(&sample::hostile().triples, Format::Svg);
    assert!(
        wide.contains("&lt;script&gt;") && !wide.contains("<script"),
        "escaped"
    );
}

#[test]
fn json_says_its_version_and_has_every_session_once() {
    let run = sample::risk();
    let value: serde_json::Value =
        serde_json::from_str(&shown(&run.triples, Format::Json)).unwrap();
    assert_eq!(value["format"], JSON_FORMAT);
    assert_eq!(value["running"], false);
    assert_eq!(value["roots"], serde_json::json!([run.root]));
    assert_eq!(value["sessions"].as_array().unwrap().len(), 7);
    let steps = &value["sessions"][0]["steps"];
    assert_eq!(steps[0]["kind"], "decision");
    assert_eq!(steps[1]["subject"], "subagent-pattern-1");
    assert_eq!(steps[5]["kind"], "fan-out");
    assert_eq!(
        value["sessions"][0]["started_at"],
        "2026-11-21T09:00:00.000Z"
    );
}

#[test]
fn prov_json_states_what_the_graph_states_and_names_only_what_it_declares() {
    for run in runs() {
        let value: serde_json::Value =
            serde_json::from_str(&shown(&run.triples, Format::ProvJson)).unwrap();
        let section = |name: &str| value[name].as_object().cloned().unwrap_or_default();
        let prefixes = section("prefix");
        let declared: BTreeSet<String> = ["entity", "activity", "agent"]
            .iter()
            .flat_map(|kind| section(kind).into_iter().map(|(name, _)| name))
            .collect();
        let mut relations = 0;
        for name in [
            "used",
            "wasGeneratedBy",
            "wasDerivedFrom",
            "wasAssociatedWith",
            "wasAttributedTo",
            "actedOnBehalfOf",
            "wasInformedBy",
        ] {
            for (_, relation) in section(name) {
                relations += 1;
                for (role, end) in relation.as_object().unwrap() {
                    if ["prov:time", "prov:type"].contains(&role.as_str()) {
                        continue;
                    }
                    let end = end.as_str().unwrap();
                    assert!(declared.contains(end), "{name} {role} {end}");
                    let (prefix, _) = end.split_once(':').unwrap();
                    assert!(prefixes.contains_key(prefix), "{prefix}");
                }
            }
        }
        let prov = agentfleet_schema::vocabulary::prov::NS;
        let stated: BTreeSet<_> = run
            .triples
            .iter()
            .filter(|t| t.p.iri.starts_with(prov) && t.o.kind == TermType::Iri)
            .map(|t| (&t.s.iri, &t.p.iri, &t.o.iri))
            .collect();
        assert_eq!(relations, stated.len());
    }
}

#[test]
fn a_chart_too_large_for_mermaid_is_drawn_with_less_in_it() {
    use agentfleet_schema::vocabulary::tg;
    use agentfleet_schema::{SessionId, Term, uris};
    let mut triples = Vec::new();
    let mut add = |id: &str, predicate: &str, value: &str| {
        triples.push(Triple::new(
            &uris::session(&SessionId::new(id)),
            predicate,
            Term::text(value),
        ));
    };
    add("root", tg::ROOT_SESSION_ID, "root");
    for n in 0..600 {
        add(&format!("c{n}"), tg::ROOT_SESSION_ID, "root");
        add(&format!("c{n}"), tg::PARENT_SESSION_ID, "root");
    }
    let chart = shown(&triples, Format::Mermaid);
    assert!(chart.len() < 50_000, "{}", chart.len());
    assert!(chart.matches(" --> ").count() < 500);
    assert!(chart.contains("and 560 more"), "{chart}");
    // The picture has no such limit, and shows them all: each in one box, between two of the root.
    assert_eq!(
        shown(&triples, Format::Svg).matches("<g>").count(),
        1 + 600 + 1
    );
}

#[test]
fn formats_are_known_by_name() {
    for format in Format::ALL {
        assert_eq!(Format::named(format.as_str()), Some(format));
    }
    assert_eq!(Format::named("dot"), None);
}
