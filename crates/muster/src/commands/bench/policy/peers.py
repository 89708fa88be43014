"""Measure other interpreters of Starlark: the same functions, the same arguments, and what each answered.

Reads one JSON object from standard input and writes one to standard output. An interpreter that is not installed is told
as missing. Times are those of the processor, all threads of this process together.
"""

import importlib.metadata
import json
import sys
import time


def starlark_go(rule):
    import starlark_go

    engine = starlark_go.Starlark()
    engine.exec(rule["source"])
    call = rule["function"] + "(a, b)"

    def ask(a, b):
        engine.set(a=a, b=b)
        return engine.eval(call)

    return ask


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


def per_second(ask, calls, seconds):
    asked, began, wall = 0, time.process_time(), time.monotonic()
    while time.monotonic() - wall < seconds:
        for a, b in calls:
            ask(a, b)
        asked += len(calls)
    return asked / (time.process_time() - began)


def measure(make, wish):
    measured = {}
    for rule in wish["rules"]:
        ask = make(rule)
        answers = [ask(a, b) for a, b in rule["calls"]]
        rate = per_second(ask, rule["calls"], wish["seconds"])
        measured[rule["function"]] = {"answers": answers, "per_second": rate}
    return measured


def main():
    wish = json.load(sys.stdin)
    found = {}
    for package, make in PEERS.items():
        try:
            found[package] = {"version": importlib.metadata.version(package), "rules": measure(make, wish)}
        except (ImportError, importlib.metadata.PackageNotFoundError):
            continue
    json.dump(found, sys.stdout)


main()
