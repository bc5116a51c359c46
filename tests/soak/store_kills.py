"""Thousands of kills of a program that uses the store, which needs no TensorFlow.

python -m tests.soak.store_kills RESULTS.jsonl --kills=2000
"""

import argparse
import pathlib
import secrets
import subprocess
import sys
import tempfile

from tests.soak import results

PROGRAM = pathlib.Path(__file__).with_name("killed_store.py")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=2000)
    arguments = parser.parse_args()
    counted = sum(
        result["kills"]
        for result in results.read(arguments.results)
        if result["what"] == "store kills"
    )
    while counted < arguments.kills:
        for how in ("before_each_line", "at_random_times"):
            seed = secrets.randbits(32)
            with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
                found = subprocess.run(
                    [sys.executable, PROGRAM, folder, how, str(seed)],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
            report = results.parse(found.stdout)
            result = {"what": "store kills", "how": how, "seed": seed, **report}
            results.append(arguments.results, result)
            counted += report["kills"]


if __name__ == "__main__":
    main()
