"""Proves that the validators accept good traces and catch every kind of mistake."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import rdflib
from rdflib.namespace import PROV, RDF, XSD

import validate
from broken import BROKEN
from validate import SH, TG

TRACES = validate.ROOT / "schema/fixtures/traces"
PREFIXES = "".join(
    f"PREFIX {prefix}: <{namespace}>\n"
    for prefix, namespace in (
        ("prov", PROV),
        ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
        ("tg", TG),
        ("xsd", XSD),
    )
)


def good(name):
    """A fresh copy of the provenance of a committed trace."""
    return validate.read(TRACES / f"{name}.nq")[0]


def said_of(broken):
    """What is said about a broken sample."""
    name, trace, update, _ = broken
    graph = good(trace)
    before = set(graph)
    graph.update(PREFIXES + update)
    assert set(graph) != before, f"{name}: the update changes nothing"
    return validate.check(graph)[1]


def run(*arguments):
    """The command line: its status and what it says."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = validate.main([str(argument) for argument in arguments])
    return status, said.getvalue()


class GoodTraces(unittest.TestCase):
    def test_every_committed_trace_is_valid(self):
        files = sorted(TRACES.glob("*.nq"))
        self.assertGreater(len(files), 5)
        status, said = run(*files)
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("valid  "), len(files))

    def test_traces_of_one_store_are_valid_together(self):
        status, said = run("--together", TRACES / "react.nq", TRACES / "alone.nq")
        self.assertEqual(status, 0, said)
        self.assertIn("all files together", said)

    def test_annotations_of_others_are_welcome(self):
        graph = good("react")
        answer = next(graph.subjects(RDF.type, TG.Answer))
        dct = rdflib.Namespace("http://purl.org/dc/terms/")
        graph.add((answer, dct.creator, rdflib.Literal("a store")))
        graph.add((answer, RDF.type, rdflib.URIRef("http://example.org/Reviewed")))
        self.assertEqual(validate.check(graph)[1], [])

    def test_what_was_loaded_into_collections_is_left_out(self):
        text = (TRACES / "alone.nq").read_text()
        text += "<urn:x> <https://trustgraph.ai/ns/nonsense> _:b <urn:agentfleet:collection:c> .\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "store.nq")
            path.write_text(text)
            status, said = run(path)
        self.assertEqual(status, 0, said)
        self.assertIn("1 statements of other graphs left out", said)

    def test_every_format_is_read(self):
        graph = good("alone")
        dataset = rdflib.Dataset()
        for triple in graph:
            dataset.graph(validate.GRAPH).add(triple)
        with tempfile.TemporaryDirectory() as folder:
            for name, source in (
                ("t.ttl", graph),
                ("t.nt", graph),
                ("t.trig", dataset),
                ("t.nq", dataset),
                ("t.jsonld", dataset),
            ):
                path = pathlib.Path(folder, name)
                source.serialize(path, format=rdflib.util.guess_format(name))
                status, said = run(path)
                self.assertEqual(status, 0, f"{name}: {said}")
                self.assertIn(f"{len(graph)} statements", said)

    def test_the_prov_library_finds_what_the_rdf_states(self):
        graph = good("supervisor")
        counts, problems = validate.prov(graph)
        self.assertEqual(problems, [])
        self.assertEqual(counts["activities"], 4, "a supervisor and three subagents")
        self.assertEqual(counts["agents"], 5, "an agent for each, and the model")
        self.assertEqual(
            counts["derivations"], len(list(graph.triples((None, PROV.wasDerivedFrom, None))))
        )

    def test_what_the_prov_library_cannot_tell_or_read_is_a_problem(self):
        def untyped(graph, session):
            graph.remove((session, RDF.type, PROV.Activity))

        def two_things(graph, session):
            graph.add((session, RDF.type, PROV.Entity))

        def derived_from_text(graph, session):
            graph.add((next(graph.objects(session, PROV.used)), PROV.wasDerivedFrom, rdflib.Literal("x")))

        for mistake, expected in (
            (untyped, "the PROV library drops something"),
            # The library keeps one of the two, whichever it meets first.
            (two_things, "for the RDF only"),
            (derived_from_text, "the PROV library cannot read the trace"),
        ):
            graph = good("supervisor")
            mistake(graph, next(graph.subjects(PROV.wasInformedBy, None)))
            problems = validate.prov(graph)[1]
            self.assertTrue(any(expected in problem for problem in problems), problems)


class BrokenTraces(unittest.TestCase):
    def test_every_mistake_is_caught_and_told(self):
        missed = []
        for (name, *_, expected), problems in zip(BROKEN, validate.side_by_side(said_of, BROKEN)):
            if not any(expected in problem for problem in problems):
                missed.append(f"{name}: expected «{expected}» in {problems}")
        self.assertEqual(missed, [], "\n".join(missed))

    def test_every_rule_of_the_shapes_is_broken_by_some_sample(self):
        """A rule nobody can break proves nothing."""
        shapes = validate.graph_of(validate.SHAPES)
        rules = set()
        for owner, rule in shapes.subject_objects(SH.sparql):
            rules |= {str(message) for message in shapes.objects(rule, SH.message)}
        for shape in shapes.subjects(RDF.type, SH.NodeShape):
            rules |= {str(message) for message in shapes.objects(shape, SH.message)}
            for part in shapes.objects(shape, SH.property):
                rules |= {str(message) for message in shapes.objects(part, SH.message)}
        broken = "\n".join(expected for *_, expected in BROKEN)
        # Messages are compared up to their first variable.
        unbroken = [rule for rule in rules if rule.split("{?")[0].strip(' "') not in broken]
        self.assertEqual(unbroken, [])

    def test_every_cardinality_datatype_and_list_of_values_is_enforced(self):
        """Breaks each property of each shape in every way the shape forbids."""
        shapes = validate.graph_of(validate.SHAPES)
        base = rdflib.Graph()
        for path in TRACES.glob("*.nq"):
            base += validate.read(path)[0]
        checked, missed = 0, []
        for shape in shapes.subjects(RDF.type, SH.NodeShape):
            for part in shapes.objects(shape, SH.property):
                path = shapes.value(part, SH.path)
                if not isinstance(path, rdflib.URIRef) or path == RDF.type:
                    continue
                focus = next(
                    (n for n in focus_nodes(shapes, shape, base) if (n, path, None) in base), None
                )
                if focus is None:
                    missed.append(f"{shape} {path}: no trace has it")
                    continue
                for way, values in breaches(shapes, part, list(base.objects(focus, path))):
                    graph = neighbourhood(base, focus)
                    graph.remove((focus, path, None))
                    for value in values:
                        graph.add((focus, path, value))
                    problems = list(
                        validate.shacl(graph, use_shapes=[shape], focus_nodes=[focus])
                    )
                    told = f"{validate.short(focus)} {validate.short(path)}:"
                    if not any(problem.startswith(told) for problem in problems):
                        missed.append(f"{shape} {path} {way}: {problems}")
                    checked += 1
        self.assertEqual(missed, [], "\n".join(missed))
        self.assertGreater(checked, 200)

    def test_the_command_fails_readably_on_a_broken_file_and_goes_on(self):
        text = (TRACES / "react.nq").read_text()
        kept = [line for line in text.splitlines() if "/answer> <http://www.w3.org/ns/prov#wasDerived" not in line]
        with tempfile.TemporaryDirectory() as folder:
            broken, empty, garbage = (pathlib.Path(folder, n) for n in ("b.nq", "e.nq", "g.nq"))
            broken.write_text("\n".join(kept) + "\n")
            empty.write_text("")
            garbage.write_text("this is <no RDF\n")
            status, said = run(broken, TRACES / "react.nq")
            self.assertEqual(status, 1)
            self.assertIn("INVALID", said)
            self.assertIn("urn:trustgraph:agent:react-1/answer: PV-1", said)
            self.assertIn("valid  ", said)
            status, said = run(empty)
            self.assertEqual(status, 1, "nothing is no valid trace")
            self.assertIn("not one statement", said)
            status, said = run(garbage)
            self.assertEqual(status, 2)
            self.assertIn("UNREADABLE", said)
            command = [sys.executable, validate.__file__, "--quiet", str(broken)]
            ran = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((ran.returncode, "INVALID" in ran.stdout), (1, True), ran.stderr)

    def test_a_missing_graph_is_not_overlooked(self):
        text = (TRACES / "alone.nq").read_text().replace("urn:graph:retrieval", "urn:graph:other")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "other.nq")
            path.write_text(text)
            status, said = run(path)
        self.assertEqual(status, 1)
        self.assertIn("not one statement in the graph", said)


class ShapesAndOntology(unittest.TestCase):
    def test_the_shapes_are_valid_shacl(self):
        graph = good("alone")
        conforms, _, text = validate.pyshacl.validate(
            graph,
            shacl_graph=validate.graph_of(validate.SHAPES),
            ont_graph=validate.graph_of(validate.ONTOLOGY),
            meta_shacl=True,
        )
        self.assertTrue(conforms, text)

    def test_the_ontology_entails_nothing_false(self):
        """With every consequence of its domains, ranges and subclasses the traces stay valid."""
        for name in ("supervisor", "react", "deadline", "cancelled"):
            conforms, _, text = validate.pyshacl.validate(
                good(name),
                shacl_graph=validate.graph_of(validate.SHAPES),
                ont_graph=validate.graph_of(validate.ONTOLOGY),
                inference="rdfs",
            )
            self.assertTrue(conforms, f"{name}: {text}")

    def test_every_example_query_finds_something(self):
        graph = rdflib.Graph()
        for path in TRACES.glob("*.nq"):
            graph += validate.read(path)[0]
        shapes = validate.graph_of(validate.SHAPES)
        example = rdflib.URIRef("http://www.w3.org/2004/02/skos/core#example")
        seen = 0
        for shape, query in shapes.subject_objects(example):
            self.assertTrue(list(graph.query(PREFIXES + str(query))), f"{shape} finds nothing")
            seen += 1
        self.assertGreater(seen, 10)


def focus_nodes(shapes, shape, graph):
    """The nodes a shape is about, in a stable order."""
    nodes = set()
    for target in shapes.objects(shape, SH.targetClass):
        nodes |= set(graph.subjects(RDF.type, target))
    for target in shapes.objects(shape, SH.targetSubjectsOf):
        nodes |= set(graph.subjects(target, None))
    for target in shapes.objects(shape, SH.targetObjectsOf):
        nodes |= set(graph.objects(None, target))
    return sorted(nodes)


def breaches(shapes, part, values):
    """Every way to break a property shape: a name, and the values that do it."""
    kind = shapes.value(part, SH.datatype)
    if shapes.value(part, SH.minCount):
        yield "removed", []
    if shapes.value(part, SH.maxCount):
        other = rdflib.URIRef("urn:other")
        if kind == XSD.dateTime:
            other = rdflib.Literal("2027-01-01T00:00:00.000Z", datatype=kind)
        elif kind is not None:
            lexical = {XSD.string: "other", XSD.boolean: "false"}.get(kind, "4711")
            other = rdflib.Literal(lexical, datatype=kind)
        yield "doubled", [*values, other]
    if kind is not None:
        yield "of another datatype", [rdflib.Literal("3.5", datatype=XSD.float)]
        yield "an IRI", [rdflib.URIRef("urn:other")]
        if kind != XSD.string:
            yield "ill-formed", [rdflib.Literal("some", datatype=kind)]
    elif shapes.value(part, SH["in"]) is not None:
        yield "not in the list", [rdflib.Literal("astrology")]
    else:
        yield "text instead of a node", [rdflib.Literal("text")]
    least = shapes.value(part, SH.minInclusive)
    if least is not None:
        yield "too small", [rdflib.Literal(str(int(float(least)) - 1), datatype=kind)]


def neighbourhood(graph, focus):
    """A graph small enough to be broken hundreds of times: what surrounds a node."""
    near = rdflib.Graph()
    for triple in graph.triples((focus, None, None)):
        near.add(triple)
    for triple in graph.triples((None, None, focus)):
        near.add(triple)
    for node in set(near.objects()) | set(near.subjects()):
        for kind in graph.objects(node, RDF.type):
            near.add((node, RDF.type, kind))
    return near


if __name__ == "__main__":
    unittest.main()
