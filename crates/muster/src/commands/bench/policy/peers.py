"""Measure other Starlark interpreters: calls per second of the same functions with the same arguments, and the answers.

Reads one JSON object from standard input and writes one to standard output. An interpreter that is not installed is
left out. Times are CPU time of all threads of this process.
"""

import importlib.metadata
import json
import sys
import time


def starlark_go(rule):
    import starlark_go

    engine = starlark_go.Starlark()
    engine.exec(rule["source"])
    expression = rule["function"] + "(a, b)"

    def call_function(a, b):
        engine.set(a=a, b=b)
        return engine.eval(expression)

    return call_function


def starlark_pyo3(rule):
    import starlark

    module = starlark.Module()
    starlark.eval(module, starlark.parse("rule.star", rule["source"]), starlark.Globals.standard())
    frozen = module.freeze()
    return lambda a, b: frozen.call(rule["function"], a, b)


def starlark_engine(rule):
    import starlark_engine

    program = starlark_engine.Program({"rule.gsky": rule["source"]})
    return lambda a, b: program.call(rule["function"], a, b)


PEERS = {"starlark-go": starlark_go, "starlark-pyo3": starlark_pyo3, "muster": starlark_engine}


def per_second(function, calls, seconds):
    made, start, wall_start = 0, time.process_time(), time.monotonic()
    while time.monotonic() - wall_start < seconds:
        for a, b in calls:
            function(a, b)
        made += len(calls)
    return made / (time.process_time() - start)


def measure(make, request):
    measured = {}
    for rule in request["rules"]:
        function = make(rule)
        answers = [function(a, b) for a, b in rule["calls"]]
        rate = per_second(function, rule["calls"], request["seconds"])
        measured[rule["function"]] = {"answers": answers, "per_second": rate}
    return measured


def main():
    request = json.load(sys.stdin)
    found = {}
    for package, make in PEERS.items():
        try:
            found[package] = {"version": importlib.metadata.version(package), "rules": measure(make, request)}
        except (ImportError, importlib.metadata.PackageNotFoundError):
            continue
    json.dump(found, sys.stdout)


main()
