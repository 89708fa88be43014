"""Run the programs of this folder with starlark-go, another implementation, and report where it disagrees.

Needs the package `starlark-go`. The exit code is 1 if a result differs, else 0; the last line is the count.
"""

import pathlib
import re
import sys

import starlark_go

# The binding has no loader, but later code sees the frozen globals of earlier code. Loaded files are therefore executed
# first, and a `load` is replaced by assignments.
LOAD = re.compile(r'^load\("[^"]*", (.*)\)$', re.MULTILINE)
RENAMED = re.compile(r'(\w+) = "(\w+)"')


def programs(path):
    """Title, loaded files, main file and expected outcomes of each program of a file."""
    for block in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, body = block.split("\n", 1)
        source, *outcomes = re.split(r"^--\n", body, flags=re.MULTILINE)
        files = re.split(r"^(?:file \S+|main)\n", source, flags=re.MULTILINE)
        yield title, files[:-1], files[-1], [outcome.strip("\n") for outcome in outcomes]


def loaded(source):
    """The source with its loads replaced by assignments."""
    return LOAD.sub(lambda load: "; ".join(f"{a} = {b}" for a, b in RENAMED.findall(load[1])), source)


def outcome(files, source):
    """The result of a program in starlark-go: the `repr` of `result`, or the error."""
    star = starlark_go.Starlark(print=lambda text: None)
    try:
        for part in files + [source]:
            star.exec(loaded(part) if files else part)
        return star.eval("repr(result)")
    except starlark_go.StarlarkError as error:
        return f"error: {error}"


def agrees(actual, expected):
    """Error messages differ between implementations; only the fact of an error is compared."""
    return actual.startswith("error:") if expected.startswith("error:") else actual == expected


def main():
    count, wrong = 0, 0
    for path in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        for title, files, source, outcomes in programs(path):
            actual = outcome(files, source)
            count += 1
            if not agrees(actual, outcomes[-1]):
                wrong += 1
                print(f"{path.name}: {title}\n  expected {outcomes[-1]}\n  got      {actual}")
    print(f"starlark-go agrees with {count - wrong} of {count} programs")
    return 1 if wrong else 0


sys.exit(main())
