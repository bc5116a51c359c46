"""The tables of docs/reliability.md, from the results of `make soak`.

    python -m tests.soak.report

It writes the tables between their marks.
"""

import argparse
import collections
import pathlib
import re

from tests.soak import results

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reliability.md"
RESULTS = pathlib.Path(__file__).with_name("results.jsonl")
_MOMENTS = ("startup", "round", "write", "ending")
# What no bad value may get: an error that is not ours or does not name it, or none.
_WRONG = ["another", "taken"]


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _of(found, what):
    return [result for result in found if result["what"] == what]


def kills(found):
    """Kills by method, store and moment, and what differed at the end."""
    rows = collections.defaultdict(lambda: collections.defaultdict(int))
    for result in _of(found, "kills"):
        row = rows[result["method"], result["store"]]
        for moment, number in result["kills"].items():
            where, signal = moment.split()
            row[where] += number
            row[signal] += number
        row["runs"] += 1
        row["differs"] += len(result["differs"])
        row["failed"] += len(result["failed"])
    columns = [*_MOMENTS, "SIGKILL", "SIGTERM", "runs", "differs", "failed"]
    body = [
        [method, store, *(row[column] for column in columns)]
        for (method, store), row in sorted(rows.items())
    ]
    total = [sum(row[column] for row in rows.values()) for column in columns]
    header = [
        "method",
        "kept",
        "in startup",
        "in rounds",
        "in writes",
        "in the ending",
        "SIGKILL",
        "SIGTERM",
        "runs ended",
        "values that differ",
        "runs failed",
    ]
    return _table(header, [*body, ["all", "", *total]])


def store_kills(found):
    rows = collections.defaultdict(lambda: [0, 0])
    for result in _of(found, "store kills"):
        rows[result["how"]][0] += result["kills"]
        rows[result["how"]][1] += len(result["different"])
    body = [[how.replace("_", " "), *row] for how, row in sorted(rows.items())]
    return _table(["killed", "kills", "programs that ended otherwise"], body)


def ray_kills(found):
    """Kills of runs on Ray by what was killed, and what differed at the end."""
    rows = collections.defaultdict(collections.Counter)
    for result in _of(found, "ray kills"):
        row = rows[result["method"]]
        row.update(result["kills"])
        row["runs"] += 1
        row["differs"] += len(result["differs"])
        row["failed"] += len(result["failed"])
    columns = ["actor", "node", "driver", "runs", "differs", "failed"]
    body = [
        [method, *(row[column] for column in columns)]
        for method, row in sorted(rows.items())
    ]
    total = [sum(row[column] for row in rows.values()) for column in columns]
    header = [
        "method",
        "actors killed",
        "nodes killed",
        "programs killed",
        "runs ended",
        "values that differ",
        "runs failed",
    ]
    return _table(header, [*body, ["all", *total]])


def faults(found):
    """For each fault and method, how often the outcome was as it should be."""
    tried, held = collections.Counter(), collections.Counter()
    for result in _of(found, "fault"):
        key = result["fault"], f"{result['method']}, {result['store']}"
        tried[key] += 1
        held[key] += result["holds"]
    names = sorted({fault for fault, _ in tried})
    body = [
        [method, *(f"{held[name, method]} of {tried[name, method]}" for name in names)]
        for method in sorted({method for _, method in tried})
    ]
    return _table(["method", *(name.replace("_", " ") for name in names)], body)


def interrupts(found):
    """How soon Ctrl-C ended a program in each phase, and what the run ended with."""
    rows = collections.defaultdict(list)
    for result in _of(found, "interrupt"):
        rows[result["phase"]].append(result)
    body = [
        [
            phase,
            len(tried),
            f"{max(each['seconds'] for each in tried):.1f}",
            sum(len(each["differs"]) for each in tried),
        ]
        for phase, tried in rows.items()
    ]
    header = ["while", "times", "slowest end in seconds", "values that differ"]
    return _table(header, body)


def fuzz(found):
    """What the latest campaign of random cases has shown."""
    latest = {result["family"]: result["totals"] for result in _of(found, "fuzz")}
    columns = ["cases", "not built", "compared", "vectorized", "refused"]
    columns += ["ill_conditioned", "differ"]
    body = [
        [family, *(totals.get(name, 0) for name in columns)]
        for family, totals in latest.items()
    ]
    header = [
        "of",
        "cases",
        "refused by TFF or Keras",
        "results compared",
        "of them vectorized",
        "of them errors on both sides",
        "of them ill-conditioned",
        "cases that differ",
    ]
    return _table(header, body)


def bad_values(found):
    """The latest walk of all arguments by bad values, and what answered."""
    latest = {result["of"]: result for result in _of(found, "bad values")}
    answers = sorted({name for walk in latest.values() for name in walk["answers"]})
    answers = [name for name in answers if name not in _WRONG] + _WRONG
    body = [
        [
            what,
            walk["functions"],
            walk["arguments"],
            sum(walk["answers"].values()),
            *(walk["answers"].get(name, 0) for name in answers),
        ]
        for what, walk in latest.items()
    ]
    total = [sum(row[column] for row in body) for column in range(1, 4 + len(answers))]
    header = ["of", "functions", "arguments", "bad values", *answers]
    return _table(header, [*body, ["all", *total]])


def soak(found):
    """The latest outcome of every other trial."""
    latest = {result["trial"]: result["outcome"] for result in _of(found, "soak")}
    return _table(["trial", "outcome"], [list(each) for each in latest.items()])


TABLES = {
    function.__name__: function
    for function in (
        kills,
        interrupts,
        store_kills,
        ray_kills,
        faults,
        bad_values,
        fuzz,
        soak,
    )
}


def fill(text, found):
    """Returns a document with its tables made anew."""
    for name, make in TABLES.items():
        mark = f"<!-- {name} -->"
        pattern = re.compile(f"{mark}\n.*?{mark}", re.DOTALL)
        table = f"{mark}\n{make(found)}\n{mark}"
        text, number = pattern.subn(lambda match, table=table: table, text)
        if number != 1:
            raise ValueError(f"{DOCUMENT} has {number} places for {name}.")
    return text


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.report",
        description="Writes the tables of docs/reliability.md anew, from the results "
        "of `make soak`. It takes no arguments.",
    )
    parser.parse_args(arguments)
    DOCUMENT.write_text(fill(DOCUMENT.read_text(), results.read(RESULTS)))


if __name__ == "__main__":
    main()
