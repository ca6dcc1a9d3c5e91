//! `trace --format prov-json`: the PROV-JSON serialisation
//! (<https://www.w3.org/submissions/prov-json/>), for provenance tools.
//!
//! Every resource that PROV knows is there with its types and attributes, and every PROV relation
//! between them. A resource that is only pointed to (a source, the answer of a subagent that still
//! runs) is declared by the role it is pointed to in.

use super::Trace;
use super::facts::Facts;
use super::model::Instant;
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg};
use agentfleet_schema::{Term, TermType};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn render(trace: &Trace) -> String {
    let facts = Facts::new(&trace.triples);
    let mut document = Document {
        facts: &facts,
        names: Names::default(),
        out: BTreeMap::new(),
    };
    document.relations(trace);
    document.resources(trace);
    let mut object = Map::new();
    let prefixes = document.names.prefixes();
    object.insert("prefix".into(), prefixes);
    for (section, entries) in document.out {
        object.insert(section.to_owned(), Value::Object(entries));
    }
    let mut text = serde_json::to_string_pretty(&Value::Object(object)).unwrap_or_default();
    text.push('\n');
    text
}

/// What a resource is to PROV.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Activity,
    Agent,
    Entity,
}

impl Role {
    const ALL: [Self; 3] = [Self::Activity, Self::Agent, Self::Entity];

    fn section(self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::Agent => "agent",
            Self::Entity => "entity",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Activity => prov::ACTIVITY,
            Self::Agent => prov::AGENT,
            Self::Entity => prov::ENTITY,
        }
    }
}

/// A PROV-O property, and what the ends of the PROV-JSON relation are called that it is.
type Relation = (&'static str, &'static str, &'static str);

const RELATIONS: [Relation; 8] = [
    (prov::USED, "activity", "entity"),
    (prov::WAS_GENERATED_BY, "entity", "activity"),
    (prov::WAS_DERIVED_FROM, GENERATED, USED),
    (prov::HAD_PRIMARY_SOURCE, GENERATED, USED),
    (prov::WAS_ASSOCIATED_WITH, "activity", "agent"),
    (prov::WAS_ATTRIBUTED_TO, "entity", "agent"),
    (prov::ACTED_ON_BEHALF_OF, "delegate", "responsible"),
    (prov::WAS_INFORMED_BY, "informed", "informant"),
];

const GENERATED: &str = "generatedEntity";
const USED: &str = "usedEntity";

/// What stands at an end of a relation.
fn role_of(end: &str) -> Role {
    match end {
        "activity" | "informed" | "informant" => Role::Activity,
        "agent" | "delegate" | "responsible" => Role::Agent,
        _ => Role::Entity,
    }
}

struct Document<'a> {
    facts: &'a Facts<'a>,
    names: Names,
    out: BTreeMap<&'static str, Map<String, Value>>,
}

impl Document<'_> {
    fn relations(&mut self, trace: &Trace) {
        for triple in &trace.triples {
            let relation = RELATIONS.iter().find(|(of, ..)| *of == triple.p.iri);
            let Some((predicate, subject_end, object_end)) = relation else {
                continue;
            };
            if triple.s.kind != TermType::Iri || triple.o.kind != TermType::Iri {
                continue;
            }
            let (Some(subject), Some(object)) = (
                self.names.qualified(&triple.s.iri),
                self.names.qualified(&triple.o.iri),
            ) else {
                continue;
            };
            // A primary source is a derivation of that type.
            let section = match *predicate {
                prov::HAD_PRIMARY_SOURCE => "wasDerivedFrom",
                other => other.strip_prefix(prov::NS).unwrap_or(other),
            };
            let mut entry = Map::new();
            entry.insert(format!("prov:{subject_end}"), subject.into());
            entry.insert(format!("prov:{object_end}"), object.into());
            if *predicate == prov::HAD_PRIMARY_SOURCE {
                entry.insert("prov:type".into(), qualified_value("prov:PrimarySource"));
            }
            if *predicate == prov::WAS_GENERATED_BY
                && let Some(at) = self.facts.instant(&triple.s.iri, prov::GENERATED_AT_TIME)
            {
                entry.insert("prov:time".into(), Instant(at).to_string().into());
            }
            let entries = self.out.entry(section).or_default();
            let id = format!("_:{section}{}", entries.len() + 1);
            entries.insert(id, Value::Object(entry));
        }
    }

    fn resources(&mut self, trace: &Trace) {
        let mut roles: BTreeMap<&str, BTreeSet<Role>> = BTreeMap::new();
        for triple in &trace.triples {
            if triple.p.iri == RDF_TYPE {
                let of = |role: &Role| role.class() == triple.o.iri;
                if let Some(role) = Role::ALL.into_iter().find(of) {
                    roles.entry(&triple.s.iri).or_default().insert(role);
                }
            }
        }
        // Said outright comes before what a relation implies.
        let mut implied: BTreeMap<&str, BTreeSet<Role>> = BTreeMap::new();
        for triple in &trace.triples {
            if triple.s.kind != TermType::Iri || triple.o.kind != TermType::Iri {
                continue;
            }
            let relation = RELATIONS.iter().find(|(of, ..)| *of == triple.p.iri);
            if let Some((_, subject, object)) = relation {
                for (end, role) in [
                    (&triple.s.iri, role_of(subject)),
                    (&triple.o.iri, role_of(object)),
                ] {
                    if !roles.contains_key(end.as_str()) {
                        implied.entry(end).or_default().insert(role);
                    }
                }
            }
        }
        roles.extend(implied);
        for (uri, roles) in roles {
            let Some(name) = self.names.qualified(uri) else {
                continue;
            };
            for role in roles {
                let attributes = self.attributes(uri, role);
                self.out
                    .entry(role.section())
                    .or_default()
                    .insert(name.clone(), attributes);
            }
        }
    }

    fn attributes(&mut self, uri: &str, role: Role) -> Value {
        let mut attributes: Map<String, Value> = Map::new();
        if role == Role::Activity {
            let times = [
                ("prov:startTime", prov::STARTED_AT_TIME),
                ("prov:endTime", prov::ENDED_AT_TIME),
            ];
            for (name, predicate) in times {
                if let Some(at) = self.facts.instant(uri, predicate) {
                    attributes.insert(name.to_owned(), Instant(at).to_string().into());
                }
            }
        }
        for (predicate, object) in self.facts.about(uri) {
            let name = match predicate {
                RDF_TYPE if object.iri == role.class() => continue,
                RDF_TYPE => "prov:type".to_owned(),
                RDFS_LABEL => "prov:label".to_owned(),
                prov::VALUE if role == Role::Entity => "prov:value".to_owned(),
                // Told by the relation of the generation.
                prov::GENERATED_AT_TIME => continue,
                _ if predicate.starts_with(tg::NS) => match self.names.qualified(predicate) {
                    Some(name) => name,
                    None => continue,
                },
                _ => continue,
            };
            let Some(value) = self.value(object) else {
                continue;
            };
            match attributes.get_mut(&name) {
                None => {
                    attributes.insert(name, value);
                }
                Some(Value::Array(values)) => values.push(value),
                Some(first) => *first = json!([first.take(), value]),
            }
        }
        Value::Object(attributes)
    }

    fn value(&mut self, term: &Term) -> Option<Value> {
        match term.kind {
            TermType::Iri => {
                let name = self.names.qualified(&term.iri);
                Some(name.map_or_else(
                    || json!({"$": term.iri, "type": "xsd:anyURI"}),
                    |name| qualified_value(&name),
                ))
            }
            TermType::Literal if !term.language.is_empty() => {
                Some(json!({"$": term.value, "lang": term.language}))
            }
            TermType::Literal if term.datatype.is_empty() => Some(term.value.clone().into()),
            TermType::Literal => {
                let datatype = self.names.qualified(&term.datatype)?;
                Some(json!({"$": term.value, "type": datatype}))
            }
            TermType::Blank | TermType::Triple => None,
        }
    }
}

fn qualified_value(name: &str) -> Value {
    json!({"$": name, "type": "prov:QUALIFIED_NAME"})
}

/// Qualified names: PROV-JSON has no other way to name a resource.
#[derive(Default)]
struct Names {
    /// Prefix by name space, for those that were met.
    used: BTreeMap<String, String>,
    invented: usize,
}

const KNOWN: [(&str, &str); 8] = [
    ("prov", prov::NS),
    ("tg", tg::NS),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("agent", "urn:trustgraph:agent:"),
    ("pattern", "urn:trustgraph:agent-pattern:"),
    ("taskType", "urn:trustgraph:agent-task-type:"),
    ("model", "urn:trustgraph:model:"),
    ("tool", "urn:trustgraph:tool:"),
];

impl Names {
    fn qualified(&mut self, iri: &str) -> Option<String> {
        if let Some((prefix, space)) = KNOWN.iter().find(|(_, space)| iri.starts_with(space)) {
            let local = &iri[space.len()..];
            if local.is_empty() {
                return None;
            }
            self.used.insert((*space).to_owned(), (*prefix).to_owned());
            return Some(format!("{prefix}:{local}"));
        }
        // Anywhere else, the name is what follows the last separator that something follows.
        let body = iri.trim_end_matches(['/', '#', ':']);
        let end = body.rfind(['/', '#', ':'])? + 1;
        let (space, local) = iri.split_at(end);
        if local.is_empty() {
            return None;
        }
        if !self.used.contains_key(space) {
            self.invented += 1;
            self.used
                .insert(space.to_owned(), format!("ns{}", self.invented));
        }
        self.used
            .get(space)
            .map(|prefix| format!("{prefix}:{local}"))
    }

    fn prefixes(&self) -> Value {
        let mut prefixes = Map::new();
        for (space, prefix) in &self.used {
            // PROV-JSON declares these two by itself.
            if prefix != "prov" && prefix != "xsd" {
                prefixes.insert(prefix.clone(), space.clone().into());
            }
        }
        Value::Object(prefixes)
    }
}
