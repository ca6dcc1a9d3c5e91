"""Validates execution traces with software that knows nothing of this project.

Usage: validate.py [--together] [--quiet] FILE...

Files are N-Quads, TriG, Turtle, N-Triples or JSON-LD, by their extension. Of files with named
graphs, the provenance graph and the default graph are validated; what was loaded into collections
is left out. Each file is one store on its own unless `--together` is given: a trace is validated
whole, when its run has ended.

1. Vocabulary: every term of the trace's name space is declared in the ontology; no blank nodes.
2. SHACL: pySHACL, with the project's shapes and ontology.
3. PROV: the `prov` library reads the trace, finds the same entities, activities, agents and
   derivations as the RDF states, and writes and reads it as PROV-JSON without loss.

Exit status: 0 valid, 1 not valid, 2 a file cannot be read.
"""

import argparse
import collections
import concurrent.futures
import functools
import logging
import pathlib
import signal
import sys
import warnings

import pyshacl
import rdflib
import rdflib.collection
from prov.model import ProvActivity, ProvAgent, ProvDerivation, ProvDocument, ProvEntity
from rdflib.namespace import PROV, RDF
from rdflib.plugins.sparql import processor

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = ROOT / "schema/shapes/agentfleet.ttl"
ONTOLOGY = ROOT / "schema/ontology/agentfleet.ttl"
GRAPH = rdflib.URIRef("urn:graph:retrieval")
TG = rdflib.Namespace("https://trustgraph.ai/ns/")
SH = rdflib.Namespace("http://www.w3.org/ns/shacl#")

# One line of a trace for a reader: long name spaces are cut down to their usual prefixes.
PREFIXES = {
    str(TG): "tg:",
    str(PROV): "prov:",
    "http://www.w3.org/2000/01/rdf-schema#": "rdfs:",
    str(RDF): "rdf:",
}


def remember_parsed_queries():
    """Lets rdflib parse each query once. pySHACL asks every constraint anew for every node, and
    parsing takes ten times as long as answering."""

    @functools.lru_cache(maxsize=None)
    def prepared(text, base, prefixes):
        return processor.translateQuery(processor.parseQuery(text), base, dict(prefixes))

    original = processor.SPARQLProcessor.query

    def query(self, asked, initBindings=None, initNs=None, base=None, DEBUG=False):
        if isinstance(asked, str):
            asked = prepared(asked, base, tuple(sorted((initNs or {}).items())))
        return original(self, asked, initBindings, initNs, base, DEBUG)

    processor.SPARQLProcessor.query = query


remember_parsed_queries()
# rdflib logs a literal that is no value of its datatype; the shapes report it.
logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)


@functools.lru_cache(maxsize=None)
def graph_of(path):
    """A committed Turtle file, parsed once."""
    return rdflib.Graph().parse(path)


def read(path):
    """The provenance of a file, and how many statements of it are elsewhere."""
    dataset = rdflib.Dataset()
    dataset.parse(path, format=rdflib.util.guess_format(str(path)) or "nquads")
    graph, elsewhere = rdflib.Graph(), 0
    for subject, predicate, value, name in dataset.quads():
        if name in (None, GRAPH, dataset.default_graph.identifier):
            graph.add((subject, predicate, value))
        else:
            elsewhere += 1
    return graph, elsewhere


def short(term):
    """A term as people read it."""
    for namespace, prefix in PREFIXES.items():
        if isinstance(term, rdflib.URIRef) and term.startswith(namespace):
            return prefix + term[len(namespace) :]
    return str(term)


def vocabulary(graph):
    """Terms nobody declared, and nodes nobody can name."""
    declared = {s for s in graph_of(ONTOLOGY).subjects() if str(s).startswith(TG)}
    for subject, predicate, value in graph:
        used = value if predicate == RDF.type else predicate
        if str(used).startswith(TG) and used not in declared:
            kind = "class" if predicate == RDF.type else "property"
            yield f"{short(subject)}: unknown {kind} {short(used)}"
        for node in (subject, value):
            if isinstance(node, rdflib.BNode):
                yield f"{short(subject)}: a blank node, which is another one every time it is read"


def path_text(graph, path):
    """A path in the syntax of SPARQL."""
    if path is None or isinstance(path, rdflib.URIRef):
        return path and str(path)
    inverse = graph.value(path, SH.inversePath)
    if inverse is not None:
        return "^" + path_text(graph, inverse)
    return "/".join(path_text(graph, part) for part in rdflib.collection.Collection(graph, path))


def shacl(graph, **narrowed):
    """What pySHACL finds, in words."""
    conforms, report, _ = pyshacl.validate(
        graph,
        shacl_graph=graph_of(SHAPES),
        ont_graph=graph_of(ONTOLOGY),
        inference="none",
        **narrowed,
    )
    if conforms:
        return
    if isinstance(report, Exception):
        raise report
    for result in report.subjects(RDF.type, SH.ValidationResult):
        if (None, SH.detail, result) in report:
            continue
        focus = short(report.value(result, SH.focusNode))
        path = path_text(report, report.value(result, SH.resultPath))
        value = report.value(result, SH.value)
        messages = sorted(str(message) for message in report.objects(result, SH.resultMessage))
        where = f" {short(rdflib.URIRef(path))}" if path else ""
        told = f" (found: {short(value)})" if value is not None and short(value) != focus else ""
        yield f"{focus}{where}: {'; '.join(messages)}{told}"


def prov(graph):
    """Counts of what a PROV library finds, and where it disagrees with the RDF."""
    counts, problems = collections.Counter(), []
    try:
        with warnings.catch_warnings(record=True) as dropped:
            warnings.simplefilter("always")
            document = ProvDocument.deserialize(
                content=graph.serialize(format="nt", encoding="utf-8"), format="rdf", rdf_format="nt"
            )
    except Exception as error:  # whatever it stumbles over, other PROV tools may too
        return counts, [f"the PROV library cannot read the trace: {type(error).__name__}: {error}"]
    problems += [
        f"the PROV library drops something: {warning.message}"
        for warning in dropped
        if issubclass(warning.category, UserWarning)
    ]
    records = list(document.get_records())
    for name, kind, rdf_class in (
        ("entities", ProvEntity, PROV.Entity),
        ("activities", ProvActivity, PROV.Activity),
        ("agents", ProvAgent, PROV.Agent),
    ):
        found = {record.identifier.uri for record in records if isinstance(record, kind)}
        stated = {str(node) for node in graph.subjects(RDF.type, rdf_class)}
        counts[name] = len(found)
        for uri in sorted(found ^ stated):
            who = "the PROV library" if uri in found else "the RDF"
            problems.append(f"{uri}: among the {name} for {who} only")
    found = sum(isinstance(record, ProvDerivation) for record in records)
    stated = sum(1 for _ in graph.triples((None, PROV.wasDerivedFrom, None)))
    counts["derivations"] = found
    if found != stated:
        problems.append(f"the PROV library finds {found} derivations, the RDF states {stated}")
    written = document.serialize(format="json")
    if ProvDocument.deserialize(content=written, format="json") != document:
        problems.append("the trace changes when it is written and read as PROV-JSON")
    return counts, problems


def check(graph):
    """Everything that is wrong with a trace, and what a PROV library counts in it."""
    if not len(graph):
        return collections.Counter(), [f"there is not one statement in the graph <{GRAPH}>"]
    problems = sorted(set(vocabulary(graph))) + sorted(set(shacl(graph)))
    counts, disagreements = prov(graph)
    return counts, problems + disagreements


def side_by_side(work, items):
    """The results of work on each item, in order, on all processors."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with concurrent.futures.ProcessPoolExecutor() as pool:
        yield from pool.map(work, items)


def main(arguments=None):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--together", action="store_true", help="the files are parts of one store")
    parser.add_argument("--quiet", action="store_true", help="say nothing of what is valid")
    options = parser.parse_args(arguments)

    stores, status = [], 0
    for path in options.files:
        try:
            stores.append((path, *read(path)))
        except Exception as error:  # rdflib's parsers raise whatever they like
            print(f"UNREADABLE  {path}: {error}", file=sys.stderr)
            status = 2
    if options.together and stores:
        whole = rdflib.Graph()
        for _, graph, _ in stores:
            whole += graph
        stores = [("all files together", whole, sum(elsewhere for *_, elsewhere in stores))]

    for (path, graph, elsewhere), (counts, problems) in zip(
        stores, side_by_side(check, [graph for _, graph, _ in stores]), strict=True
    ):
        if problems:
            status = max(status, 1)
            print(f"INVALID  {path}: {len(problems)} problems")
            for problem in problems:
                print(f"    {problem}")
        elif not options.quiet:
            found = ", ".join(f"{count} {name}" for name, count in counts.items())
            beside = f" ({elsewhere} statements of other graphs left out)" if elsewhere else ""
            print(f"valid  {path}: {len(graph)} statements, {found}{beside}")
    return status


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        # `validate.py ... | head` ends quietly.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
