//! The data dictionary: the ontology and the shapes as analysts read them.

use crate::rdf::{Graph, OWL, RDF, RDFS, SKOS, short};
use crate::shapes::{self, Property, Shape};
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::{prov, tg};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

/// The prefixes that every example query takes for granted.
pub(crate) const PREFIXES: [(&str, &str); 4] = [
    ("prov", prov::NS),
    ("rdfs", RDFS),
    ("tg", tg::NS),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// The whole document.
pub(crate) fn written(ontology: &str, shapes: &str) -> Result<String, Box<dyn Error>> {
    let ontology = Graph::parse(ontology)?;
    let shapes = shapes::read(&Graph::parse(shapes)?);
    let mut out = String::new();
    introduction(&mut out)?;
    overview(&mut out, &shapes)?;
    for shape in &shapes {
        node(&mut out, shape, &ontology)?;
    }
    index(&mut out, &shapes, &ontology)?;
    unwritten(&mut out, &ontology)?;
    Ok(out)
}

fn introduction(out: &mut String) -> Result<(), Box<dyn Error>> {
    out.push_str(
        "# Data dictionary of execution traces\n\n\
         <!-- Generated from schema/ontology/agentfleet.ttl and schema/shapes/agentfleet.ttl.\n     \
         Change those, then run: cargo run -p agentfleet-schema --example generate -->\n\n\
         Every run leaves a trace: what was asked, which choices were taken from which options and \
         why, what was done, and what came of it. A trace is RDF in the terms of \
         [PROV-O](https://www.w3.org/TR/prov-o/) and of the vocabulary below.\n\n",
    );
    write!(
        out,
        "- **Where.** All statements lie in the named graph `<{RETRIEVAL_GRAPH}>`, and nothing else does. The \
         query endpoints of Agentfleet read the union of all graphs, what people loaded included: \
         `FROM <{RETRIEVAL_GRAPH}>` reads what the fleet wrote down itself, and nothing that only looks \
         like it.\n\
         - **How to ask.** `agentfleet query 'SELECT ...'` takes a query from an argument or a file. \
         Each example below works as it stands, after these prefixes:\n\n```sparql\n",
    )?;
    for (prefix, namespace) in PREFIXES {
        writeln!(out, "PREFIX {prefix}: <{namespace}>")?;
    }
    out.push_str(
        "```\n\n\
         - **How to follow.** `prov:wasDerivedFrom` leads from every node back to the question. From \
         an answer: conclusion, (synthesis, the subagents' conclusions, their goals, fan-out,) \
         observation, iteration, routing decision, decisions, question.\n\
         - **How many.** \"1\" is exactly one, \"0..1\" at most one, \"1..n\" at least one, \"0..n\" any \
         number.\n\
         - **Texts.** Answers, observations, thoughts, goals and rationales are documents of the \
         librarian; nodes carry their IRIs. `agentfleet document IRI` prints one.\n\
         - **Whether it is right.** `tests/validators/validate.py FILE...` checks a trace against \
         the ontology and the shapes with independent software.\n\n",
    );
    Ok(())
}

fn overview(out: &mut String, shapes: &[Shape]) -> Result<(), Box<dyn Error>> {
    out.push_str("## Nodes\n\n| node | classes | IRI |\n|---|---|---|\n");
    for shape in shapes {
        let iris: Vec<String> = shape.notation.split(", ").map(code_if_iri).collect();
        writeln!(
            out,
            "| [{}](#{}) | {} | {} |",
            shape.label,
            anchor(&shape.label),
            classes(shape),
            iris.join(", "),
        )?;
    }
    out.push('\n');
    Ok(())
}

fn node(out: &mut String, shape: &Shape, ontology: &Graph) -> Result<(), Box<dyn Error>> {
    write!(out, "## {}\n\n{}\n\n", shape.label, shape.comment)?;
    let classes = shape.classes.iter().chain(&shape.one_of);
    for class in classes.filter(|class| class.starts_with(tg::NS)) {
        let above = ontology.all(class, &format!("{RDFS}subClassOf"));
        let above: Vec<String> = above.into_iter().map(code).collect();
        let comment = ontology
            .one(class, &format!("{RDFS}comment"))
            .unwrap_or_default();
        writeln!(
            out,
            "- {}, a kind of {}: {comment}",
            code(class),
            above.join(" and ")
        )?;
    }
    if shape.classes.iter().any(|class| class.starts_with(tg::NS)) {
        out.push('\n');
    }
    out.push_str("| property | value | how many | |\n|---|---|---|---|\n");
    for property in &shape.properties {
        let meaning = property
            .description
            .as_deref()
            .or_else(|| ontology.one(&property.path, &format!("{RDFS}comment")))
            .unwrap_or_default();
        writeln!(
            out,
            "| {} | {} | {} | {meaning} |",
            code(&property.path),
            value(property),
            count(property),
        )?;
    }
    if shape.of_step {
        out.push_str("\nIt carries what every [node of a step](#node-of-a-step) carries, too.\n");
    }
    if !shape.rules.is_empty() {
        out.push_str("\nWhat the validators say of one that is wrong:\n\n");
        for rule in &shape.rules {
            writeln!(out, "- {}", without_variables(rule))?;
        }
    }
    for example in &shape.examples {
        write!(out, "\n```sparql\n{}\n```\n", example.trim())?;
    }
    out.push('\n');
    Ok(())
}

fn index(out: &mut String, shapes: &[Shape], ontology: &Graph) -> Result<(), Box<dyn Error>> {
    out.push_str(
        "## Properties\n\n| property | from | to | carried by | in PROV-O |\n|---|---|---|---|---|\n",
    );
    let mut carriers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for shape in shapes {
        for property in &shape.properties {
            carriers
                .entry(&property.path)
                .or_default()
                .push(&shape.label);
        }
    }
    for (property, labels) in carriers.iter().filter(|(path, _)| path.starts_with(tg::NS)) {
        let nodes: Vec<String> = labels
            .iter()
            .map(|label| format!("[{label}](#{})", anchor(label)))
            .collect();
        let of = |relation: &str| {
            let values = ontology.all(property, &format!("{RDFS}{relation}"));
            values.into_iter().map(code).collect::<Vec<_>>().join(", ")
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            code(property),
            of("domain"),
            of("range"),
            nodes.join(", "),
            of("subPropertyOf"),
        )?;
    }
    out.push('\n');
    Ok(())
}

fn unwritten(out: &mut String, ontology: &Graph) -> Result<(), Box<dyn Error>> {
    out.push_str(
        "## Declared, and not written\n\nTerms that are read in traces of peers, or kept for later.\n\n\
         | property | meaning | |\n|---|---|---|\n",
    );
    for property in properties(ontology) {
        if let Some(note) = ontology.one(property, &format!("{SKOS}scopeNote")) {
            let comment = ontology
                .one(property, &format!("{RDFS}comment"))
                .unwrap_or_default();
            writeln!(out, "| {} | {comment} | {note} |", code(property))?;
        }
    }
    Ok(())
}

/// The `tg:` properties that the ontology declares.
pub(crate) fn properties(ontology: &Graph) -> Vec<&str> {
    let mut found: Vec<&str> = ["ObjectProperty", "DatatypeProperty"]
        .iter()
        .flat_map(|kind| ontology.subjects(&format!("{RDF}type"), &format!("{OWL}{kind}")))
        .filter(|iri| iri.starts_with(tg::NS))
        .collect();
    found.sort_unstable();
    found
}

fn value(property: &Property) -> String {
    let list = |values: &[String]| -> String {
        values
            .iter()
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !property.values.is_empty() {
        return list(&property.values);
    }
    if let Some(datatype) = &property.datatype {
        return code(datatype);
    }
    if let Some(class) = &property.class {
        return format!("a {}", code(class));
    }
    match property
        .pattern
        .as_deref()
        .and_then(|p| p.strip_prefix('^'))
    {
        Some(start) if start.ends_with(':') => format!("an IRI, `{start}...`"),
        Some(_) | None => "an IRI".to_owned(),
    }
}

fn count(property: &Property) -> String {
    match (property.min, property.max) {
        (1, Some(1)) => "1".to_owned(),
        (min, Some(max)) => format!("{min}..{max}"),
        (min, None) => format!("{min}..n"),
    }
}

fn classes(shape: &Shape) -> String {
    let codes = |classes: &[String]| classes.iter().map(|class| code(class)).collect::<Vec<_>>();
    let all = codes(&shape.classes).join(" ");
    match codes(&shape.one_of).join(" or ") {
        none if none.is_empty() => all,
        one => format!("{all} with {one}"),
    }
}

fn code(iri: &str) -> String {
    format!("`{}`", short(iri))
}

fn code_if_iri(notation: &str) -> String {
    if notation.starts_with("urn:") {
        format!("`{notation}`")
    } else {
        notation.to_owned()
    }
}

fn anchor(label: &str) -> String {
    label.to_lowercase().replace(' ', "-")
}

/// A message of the shapes with its variables made into an ellipsis.
fn without_variables(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once("{?") {
        out.push_str(before);
        out.push_str("...");
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out + rest
}
