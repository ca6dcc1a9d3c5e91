//! The graph that is validated: what was given, with the ontology.
//!
//! It is held twice, as constraints of Core look up single nodes by the thousand and need no query,
//! and queries need the engine. The engine's copy is made when the first query is asked.

use crate::error::Error;
use crate::shape::{Path, Target};
use crate::terms::{rdf, subject};
use oxigraph::model::{
    Graph, GraphName, NamedNode, NamedNodeRef, Quad, Term, TermRef, Triple, TripleRef,
};
use oxigraph::store::Store;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

pub(crate) struct Data {
    graph: Graph,
    /// Each class with those below it, itself included.
    below: HashMap<NamedNode, HashSet<NamedNode>>,
    store: OnceCell<Store>,
}

impl Data {
    pub(crate) fn new(triples: impl IntoIterator<Item = Triple>) -> Result<Self, Error> {
        let mut graph = Graph::new();
        for triple in triples {
            graph.insert(&triple);
        }
        Ok(Self {
            below: subclasses(&graph),
            graph,
            store: OnceCell::new(),
        })
    }

    /// The same triples for SPARQL. Written here once and only read afterwards.
    pub(crate) fn store(&self) -> Result<&Store, Error> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let store = Store::new()?;
        let quad = |triple: TripleRef<'_>| -> Quad {
            triple.into_owned().in_graph(GraphName::DefaultGraph)
        };
        store.extend(self.graph.iter().map(quad))?;
        Ok(self.store.get_or_init(|| store))
    }

    pub(crate) fn objects<'a>(
        &'a self,
        node: &Term,
        predicate: NamedNodeRef<'_>,
    ) -> impl Iterator<Item = TermRef<'a>> + use<'a> {
        let objects: Vec<TermRef<'a>> = match subject(node) {
            Some(node) => {
                let objects = self.graph.objects_for_subject_predicate(node, predicate);
                objects.collect()
            }
            None => Vec::new(),
        };
        objects.into_iter()
    }

    /// Whether a node is an instance of a class or of one below it.
    pub(crate) fn is_a(&self, node: &Term, class: &NamedNode) -> bool {
        let below = self.below.get(class);
        self.objects(node, rdf::TYPE).any(|kind| match kind {
            TermRef::NamedNode(kind) => {
                kind == class.as_ref()
                    || below.is_some_and(|below| below.contains(&kind.into_owned()))
            }
            TermRef::BlankNode(_) | TermRef::Literal(_) | TermRef::Triple(_) => false,
        })
    }

    /// The nodes that targets name, each once.
    pub(crate) fn targeted(&self, targets: &[Target]) -> Vec<Term> {
        once(targets.iter().flat_map(|target| self.named_by(target)))
    }

    fn named_by(&self, target: &Target) -> Vec<Term> {
        match target {
            Target::Class(class) => {
                let itself = HashSet::from([class.clone()]);
                let classes = self.below.get(class).unwrap_or(&itself);
                let nodes = classes
                    .iter()
                    .flat_map(|class| self.graph.subjects_for_predicate_object(rdf::TYPE, class));
                nodes.map(Term::from).collect()
            }
            Target::SubjectsOf(predicate) => {
                let triples = self.graph.triples_for_predicate(predicate);
                triples.map(|triple| triple.subject.into()).collect()
            }
            Target::ObjectsOf(predicate) => {
                let triples = self.graph.triples_for_predicate(predicate);
                triples.map(|triple| triple.object.into_owned()).collect()
            }
        }
    }

    /// The values a path leads to, each once.
    pub(crate) fn values(&self, node: &Term, path: &Path) -> Vec<Term> {
        match path {
            Path::Predicate(predicate) => self
                .objects(node, predicate.as_ref())
                .map(TermRef::into_owned)
                .collect(),
            Path::Inverse(path) => self.sources(node, path),
            Path::Sequence(parts) => parts.iter().fold(vec![node.clone()], |nodes, part| {
                once(nodes.iter().flat_map(|node| self.values(node, part)))
            }),
        }
    }

    /// The nodes from which a path leads to this one, each once.
    fn sources(&self, node: &Term, path: &Path) -> Vec<Term> {
        match path {
            Path::Predicate(predicate) => self
                .graph
                .subjects_for_predicate_object(predicate, node)
                .map(Term::from)
                .collect(),
            Path::Inverse(path) => self.values(node, path),
            Path::Sequence(parts) => parts.iter().rev().fold(vec![node.clone()], |nodes, part| {
                once(nodes.iter().flat_map(|node| self.sources(node, part)))
            }),
        }
    }
}

/// Terms in the order in which they came, each once.
fn once(terms: impl IntoIterator<Item = Term>) -> Vec<Term> {
    let mut seen = HashSet::new();
    let is_new = |term: &Term| seen.insert(term.clone());
    terms.into_iter().filter(is_new).collect()
}

fn subclasses(graph: &Graph) -> HashMap<NamedNode, HashSet<NamedNode>> {
    let stated: Vec<(NamedNode, NamedNode)> = graph
        .triples_for_predicate(rdf::SUBCLASS)
        .filter_map(|triple| {
            let lower = Term::from(triple.subject);
            let (Term::NamedNode(lower), TermRef::NamedNode(upper)) = (lower, triple.object) else {
                return None;
            };
            Some((upper.into_owned(), lower))
        })
        .collect();
    let uppers: HashSet<&NamedNode> = stated.iter().map(|(upper, _)| upper).collect();
    uppers
        .into_iter()
        .map(|top| {
            let mut found = HashSet::from([top.clone()]);
            let mut open = vec![top];
            while let Some(class) = open.pop() {
                for (upper, lower) in &stated {
                    if upper == class && found.insert(lower.clone()) {
                        open.push(lower);
                    }
                }
            }
            (top.clone(), found)
        })
        .collect()
}
