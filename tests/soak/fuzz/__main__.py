"""Compares random computations in every mode of the local context, hour after hour.

    python -m tests.soak.fuzz RESULTS.jsonl --seconds=3600

Cases are drawn in chunks, each in a process of its own, so that neither a crash nor a
hang ends the campaign. What is known is in the file of results: another start goes on
with the next chunk. Chunks are of learning processes, of pipelines of datasets and of
runs, which are compared with TFF's native context, and of single computations and of
lookups in tables, which are compared with TensorFlow alone. Exits with 1 if there are
differences in the file.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tests.soak import results

_COUNTS = {"steps": 20, "processes": 10, "pipelines": 30, "rows": 20, "runs": 5}
_WITH_NATIVE = frozenset({"processes", "pipelines", "runs"})
_SUMMED = ("compared", "vectorized", "refused", "ill_conditioned")
_COUNTED = ("cases", "not built", *_SUMMED, "differ")
# Of one case; in most of it functions are built.
_SECONDS_OF_A_CASE = 300


def _chunks(known):
    done = {each["chunk"] for each in known if each["what"] == "chunk"}
    number = 0
    while True:
        for family in _COUNTS:
            if f"{family}-{number}" not in done:
                yield family, number
        number += 1


def _run_chunk(path, family, number, known, left):
    """Runs one chunk; returns its lines, and how it ended."""
    name = f"{family}-{number}"
    names = [each["case"] for each in known if each["what"] == "case"]
    limit = min(left, _SECONDS_OF_A_CASE * _COUNTS[family])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(names))
        file.flush()
        command = [sys.executable, "-m", "tests.soak.fuzz.chunk", family, str(number)]
        command += [str(_COUNTS[family]), f"--known={file.name}"]
        command += ["--native"] if family in _WITH_NATIVE else []
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            threading.Thread(target=_end_group_with, args=[process]).start()
            timer = threading.Timer(limit, process.kill)
            timer.start()
            begun = _read(path, name, process.stdout)
            ended = process.wait()
            out_of_time = not timer.is_alive()
            timer.cancel()
            errors.seek(0)
            told = errors.read()[-1000:]
    if out_of_time and limit == left:
        return
    if ended != 0:
        how = "hung" if out_of_time else f"ended with {ended}"
        results.append(
            path,
            {
                "what": "case",
                "chunk": name,
                "case": begun["started"] if begun else name,
                "repr": begun["case"] if begun else "",
                "differences": [["", 0, f"{how}: {told}"]],
            },
        )
    # Where a case ended the process, those after it are drawn again, without it.
    if ended == 0 or begun is None:
        results.append(path, {"what": "chunk", "chunk": name})


def _end_group_with(process):
    """Ends what a process has started when it ends, by itself or not.

    TFF's worker lives on where its program crashes, and holds the pipe that is read.
    Where nobody holds it, the process may have been waited for already.
    """
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(process.pid, signal.SIGKILL)


def _read(path, name, lines):
    """Keeps outcomes as they come; returns a case that has begun and not ended."""
    begun = None
    for line in lines:
        if not line.startswith("case "):
            continue
        value = json.loads(line[len("case ") :])
        if "started" in value:
            begun = value
        else:
            text = begun["case"]
            results.append(path, {"what": "case", "chunk": name, "repr": text, **value})
            begun = None
    return begun


def totals(known):
    """Returns what a file of results counts, by family."""
    found = {}
    for family in _COUNTS:
        counts = collections.Counter(dict.fromkeys(_COUNTED, 0))
        for each in known:
            if each["what"] != "case" or not each["chunk"].startswith(family):
                continue
            counts["cases"] += 1
            counts["not built"] += bool(each.get("not_built"))
            counts["differ"] += bool(each["differences"])
            for key in _SUMMED:
                counts[key] += each.get(key, 0)
        found[family] = counts
    return found


def summary(known):
    """Returns what a file of results says, line by line."""
    cases = [each for each in known if each["what"] == "case"]
    lines = [
        f"{family}: {counts['cases']} cases ({counts['not built']} refused by TFF or "
        f"Keras), {counts['compared']} results compared, {counts['vectorized']} of "
        f"them vectorized, {counts['refused']} errors, {counts['ill_conditioned']} "
        f"ill-conditioned; {counts['differ']} cases differ"
        for family, counts in totals(known).items()
    ]
    for each in cases:
        for mode, cohort, text in each["differences"]:
            lines.append(f"\n{each['repr']}\n  {mode}, cohort {cohort}: {text}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--family", choices=list(_COUNTS), help="only these cases")
    parser.add_argument(
        "--note", type=pathlib.Path, help="a file of results to add the totals to"
    )
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    if not args.results.exists():
        results.append(args.results, results.environment())
    for family, number in _chunks(results.read(args.results)):
        left = end - time.monotonic()
        if left < 1:
            break
        if args.family in (None, family):
            known = results.read(args.results)
            _run_chunk(args.results, family, number, known, left)
    known = results.read(args.results)
    for family, counts in totals(known).items():
        if args.note:
            line = {"what": "fuzz", "family": family, "totals": dict(counts)}
            results.append(args.note, line)
    print("\n".join(summary(known)))
    sys.exit(any(each.get("differences") for each in known))


if __name__ == "__main__":
    main()
