#!/usr/bin/env python3
"""Asks 20 questions without a model, and writes a table of what was quoted.

    tests/answers/answers.py BINARY [BINARY...]      a column for each binary, the older ones first

The corpora are the dossier and two manuals of Debian, which this installs no part of:
`apt-get install postgresql-doc-15 python3.11-doc`. A question counts as answered where the words that
an answer must have stand in a quotation; read the answers (`--keep FOLDER`) before you believe it.
"""

import argparse, json, os, pathlib, re, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).parent
MANUALS = pathlib.Path("/usr/share/doc")
CORPORA = {
    "dossier": [HERE.parent.parent / "seed-config/dossier"],
    "postgresql": [MANUALS / "postgresql-doc-15/html"],
    "python": [MANUALS / "python3.11/html" / part for part in ("library", "tutorial", "reference", "howto", "faq")],
}


def run(binary, data, *arguments):
    env = os.environ | {"AGENTFLEET_DATA": str(data), "AGENTFLEET_MODEL": "offline"}
    ran = subprocess.run([binary, *map(str, arguments)], env=env, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"answers: `{' '.join(map(str, arguments))}` failed: {ran.stderr}")
    return ran.stdout


def quotations(answer):
    """(source, text) of each block quotation."""
    found, lines = [], []
    for line in answer.splitlines():
        if not line.startswith(">"):
            lines = []
        elif line.startswith("> Source: "):
            found.append((line.removeprefix("> Source: "), "\n".join(lines)))
            lines = []
        else:
            lines.append(line.removeprefix(">").strip())
    return found


def judged(question, answer):
    found = quotations(answer)
    document = re.compile(f"[:/](?:{question['document']})".replace(".", r"\."))
    first = bool(found) and bool(document.search(found[0][0]))
    wanted = re.compile(question["answer"])
    at = next((n for n, (_, text) in enumerate(found, 1) if wanted.search(text)), None)
    answered = f"yes, quotation {at}" if at else "no"
    return ("yes" if first else "no"), answered


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the answers and the data")
    options = parser.parse_args()
    keep = options.keep or pathlib.Path(tempfile.mkdtemp())
    questions = json.loads((HERE / "questions.json").read_text())
    rows = [[question["ask"]] for question in questions]
    for number, binary in enumerate(options.binaries):
        place = keep / str(number)
        place.mkdir(parents=True, exist_ok=True)
        for name, paths in CORPORA.items():
            run(binary, place / "data", "load", *paths, "--collection", name)
        for at, question in enumerate(questions):
            answer = run(binary, place / "data", "ask", question["ask"], "--collection", question["of"])
            (place / f"{at + 1:02}.md").write_text(answer)
            rows[at] += judged(question, answer)
    names = ["before", "after"] if len(options.binaries) == 2 else [str(n) for n, _ in enumerate(options.binaries, 1)]
    heads = ["question"] + [f"{what}, {name}" for name in names for what in ("right document first", "answered")]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    for column in range(1, len(heads)):
        count = sum(row[column].startswith("yes") for row in rows)
        print(f"{heads[column]}: {count} of {len(rows)}", file=sys.stderr)


if __name__ == "__main__":
    main()
