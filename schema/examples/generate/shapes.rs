//! The SHACL shapes as values: which nodes there are, and what each carries.

use crate::rdf::{Graph, RDF, RDFS, SH, SKOS};

/// The shape of what all nodes of a step have in common.
const NODE: &str = "urn:agentfleet:shape:Node";

/// A node shape that describes a kind of node.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) label: String,
    pub(crate) comment: String,
    /// The form of the nodes' IRIs.
    pub(crate) notation: String,
    pub(crate) classes: Vec<String>,
    /// Further classes, of which such a node has exactly one.
    pub(crate) one_of: Vec<String>,
    /// Whether it is a node of a step, and carries what those have in common.
    pub(crate) of_step: bool,
    pub(crate) properties: Vec<Property>,
    /// What is refused beyond cardinalities and datatypes, in words.
    pub(crate) rules: Vec<String>,
    /// Queries that work.
    pub(crate) examples: Vec<String>,
}

/// A property that such a node carries.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) path: String,
    pub(crate) min: u32,
    pub(crate) max: Option<u32>,
    pub(crate) datatype: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) values: Vec<String>,
    pub(crate) pattern: Option<String>,
    pub(crate) description: Option<String>,
}

/// The described kinds of node, in the order of the dictionary.
pub(crate) fn read(graph: &Graph) -> Vec<Shape> {
    let sh = |local: &str| format!("{SH}{local}");
    let order = |node: &str| -> u32 {
        graph
            .one(node, &sh("order"))
            .and_then(|n| n.parse().ok())
            .unwrap_or(u32::MAX)
    };
    let mut shapes: Vec<&str> = graph
        .subjects(&format!("{RDF}type"), &sh("NodeShape"))
        .into_iter()
        .filter(|shape| graph.one(shape, &sh("order")).is_some())
        .collect();
    shapes.sort_by_key(|shape| order(shape));
    shapes
        .into_iter()
        .map(|shape| {
            let text =
                |property: String| graph.one(shape, &property).unwrap_or_default().to_owned();
            let mut parts = graph.all(shape, &sh("property"));
            parts.sort_by_key(|part| order(part));
            let mut classes: Vec<String> = parts
                .iter()
                .filter(|part| graph.one(part, &sh("path")) == Some(&format!("{RDF}type")))
                .filter_map(|part| graph.one(part, &sh("hasValue")))
                .map(str::to_owned)
                .collect();
            classes.sort();
            let of_step = graph
                .all(NODE, &sh("targetClass"))
                .iter()
                .any(|target| shape != NODE && classes.iter().any(|class| class == target));
            let alternatives = graph.one(shape, &sh("xone")).map(|head| graph.list(head));
            let one_of = alternatives
                .unwrap_or_default()
                .into_iter()
                .filter_map(|part| graph.one(part, &sh("class")))
                .map(str::to_owned)
                .collect();
            let described = parts
                .iter()
                .filter(|part| graph.one(part, &sh("order")).is_some());
            // Paths with messages of their own are rules; so are the queries.
            let relations = parts
                .iter()
                .filter(|part| graph.one(part, &sh("order")).is_none())
                .filter(|part| graph.one(part, &sh("path")) != Some(&format!("{RDF}type")));
            let queries = graph.all(shape, &sh("sparql"));
            let mut rules: Vec<String> = relations
                .chain(&queries)
                .filter_map(|node| graph.one(node, &sh("message")))
                .filter(|message| !message.contains(" carries no "))
                .map(str::to_owned)
                .collect();
            rules.sort();
            Shape {
                label: text(format!("{RDFS}label")),
                comment: text(format!("{RDFS}comment")),
                notation: text(format!("{SKOS}notation")),
                classes,
                one_of,
                of_step,
                properties: described.map(|part| property(graph, part)).collect(),
                rules,
                examples: graph
                    .all(shape, &format!("{SKOS}example"))
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            }
        })
        .collect()
}

fn property(graph: &Graph, part: &str) -> Property {
    let one = |local: &str| graph.one(part, &format!("{SH}{local}"));
    let number = |local: &str| one(local).and_then(|n| n.parse().ok());
    Property {
        path: one("path").unwrap_or_default().to_owned(),
        min: number("minCount").unwrap_or_default(),
        max: number("maxCount"),
        datatype: one("datatype").map(str::to_owned),
        class: one("class").map(str::to_owned),
        values: one("in")
            .map(|head| graph.list(head))
            .unwrap_or_default()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        pattern: one("pattern").map(str::to_owned),
        description: one("description").map(str::to_owned),
    }
}
