"""Run the programs of this folder with starlark-go, the other implementation, and say where it disagrees.

Needs the package `starlark-go`. Exit code 1 where a result differs, 0 otherwise; the last line is the count.
"""

import pathlib
import re
import sys

import starlark_go

# The binding has no loader. What it executed before is frozen, and later code sees it: so a file is executed first,
# and a `load` becomes the assignments that it stands for.
LOAD = re.compile(r'^load\("[^"]*", (.*)\)$', re.MULTILINE)
RENAMED = re.compile(r'(\w+) = "(\w+)"')


def programs(path):
    """Title, files, program and expected outcomes of each program of a file."""
    for block in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, body = block.split("\n", 1)
        source, *outcomes = re.split(r"^--\n", body, flags=re.MULTILINE)
        files = re.split(r"^(?:file \S+|main)\n", source, flags=re.MULTILINE)
        yield title, files[:-1], files[-1], [outcome.strip("\n") for outcome in outcomes]


def loaded(source):
    """The program without its loads."""
    return LOAD.sub(lambda load: "; ".join(f"{a} = {b}" for a, b in RENAMED.findall(load[1])), source)


def outcome(files, source):
    """What starlark-go makes of a program: the text of `result`, or why it fails."""
    star = starlark_go.Starlark(print=lambda text: None)
    try:
        for part in files + [source]:
            star.exec(loaded(part) if files else part)
        return star.eval("repr(result)")
    except starlark_go.StarlarkError as error:
        return f"error: {error}"


def agrees(said, expected):
    """Messages differ between implementations; that there is one does not."""
    return said.startswith("error:") if expected.startswith("error:") else said == expected


def main():
    count, wrong = 0, 0
    for path in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        for title, files, source, outcomes in programs(path):
            said = outcome(files, source)
            count += 1
            if not agrees(said, outcomes[-1]):
                wrong += 1
                print(f"{path.name}: {title}\n  expected {outcomes[-1]}\n  and got  {said}")
    print(f"starlark-go agrees with {count - wrong} of {count} programs")
    return 1 if wrong else 0


sys.exit(main())
