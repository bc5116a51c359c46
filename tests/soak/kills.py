"""Trainings that are killed again and again, and what they end with.

    python -m tests.soak.kills RESULTS.jsonl --kills=550

A run is a training that is started until it comes to its end, and killed at random
moments on the way. Its end is compared bit for bit with that of a training which
nobody disturbed. Every run adds a line to the results, and a campaign goes on from the
lines that are there: so the campaign itself may be killed.
"""

import argparse
import collections
import pathlib
import random
import secrets
import subprocess
import sys
import tempfile
import time

from tests.soak import endings, program, results, zygote

CONFIGURATIONS = [
    *(
        (method, store)
        for method in program.WITH_CLIENT_STATES
        for store in ("ram", "disk")
    ),
    *((method, "ram") for method in program.WITHOUT),
    ("scaffold", "evaluation"),
    ("fed_adam", "evaluation"),
]
# Where MLflow, an extra, is installed.
TRACKED = [("scaffold", "mlflow"), ("fed_adam", "mlflow")]


class Campaign:
    """Runs of some configurations, each against an undisturbed one.

    Attributes:
      zygote: What forks the trainings.
    """

    def __init__(self, configurations, folder):
        """Builds the processes.

        Args:
          configurations: Pairs of a method and what its runs keep.
          folder: Where the runs are kept.
        """
        methods, stores = map(set, zip(*configurations, strict=True))
        self.zygote = zygote.Zygote(sorted(methods), stores)
        self._folder = pathlib.Path(folder)
        self._expected = {}
        self._pace = {}

    def _initial_client_state(self, method, store):
        process = self.zygote.processes[method]
        return process.initial_client_state if store == "disk" else None

    def end(self, method, store, folder):
        """Returns what a run in a folder has left."""
        return endings.read(folder, self._initial_client_state(method, store))

    def whole(self, method, store):
        """Returns the folder of an undisturbed run, which `expected` makes."""
        return self._folder / f"{method}_{store}"

    def differences(self, method, store, folder):
        """Returns the names of what differs from an undisturbed run."""
        found = self.end(method, store, folder)
        return endings.differences(found, self.expected(method, store))

    def expected(self, method, store):
        """Returns what an undisturbed run leaves."""
        if (method, store) not in self._expected:
            folder = self.whole(method, store)
            zygote.empty(folder)
            self._pace[method, store] = zygote.measure_pace(
                self.zygote, method, store, folder
            )
            self._expected[method, store] = self.end(method, store, folder)
        return self._expected[method, store]

    def compare_with_a_fresh_program(self, method, store):
        """Compares a forked training with a program that is started by itself."""
        folder = self._folder / "fresh"
        zygote.empty(folder)
        words = [sys.executable, "-m", program.__name__, folder, method, store]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        found = self.end(method, store, folder)
        return {
            "what": "fresh program",
            "method": method,
            "store": store,
            "differs": endings.differences(found, self.expected(method, store)),
            "values": len(found),
        }

    def run(self, method, store, seed):
        """Kills a run until it has come to its end.

        Args:
          method: The method.
          store: One of `program.STORES`.
          seed: Of the moments.

        Returns:
          A mapping in JSON values. `kills` counts the trainings that a signal ended,
          by moment and signal; `differs` names what differs from an undisturbed run.
        """
        values = len(self.expected(method, store))
        choose = random.Random(seed)
        folder = self._folder / "killed"
        zygote.empty(folder)
        start = time.monotonic()
        kills, failed = collections.Counter(), []
        while True:
            moment = zygote.draw_moment(choose, self._pace[method, store])
            attempt = self.zygote.train(method, store, folder, moment)
            if attempt.ended_by == "":
                break
            if not attempt.ended_by.startswith("SIG"):
                failed.append(f"{attempt.ended_by}: {attempt.message}")
                break
            kills[f"{moment.where} {attempt.ended_by}"] += 1
        differs = [] if failed else self.differences(method, store, folder)
        return {
            "what": "kills",
            "method": method,
            "store": store,
            "seed": seed,
            "kills": dict(kills),
            "failed": failed,
            "differs": differs,
            "values": values,
            "seconds": round(time.monotonic() - start, 1),
        }


def kills_in(result):
    return sum(result["kills"].values())


def kill(path, wanted, configurations):
    """Kills trainings until the results count enough of them."""
    counts = collections.Counter(dict.fromkeys(configurations, 0))
    total, fresh = 0, set()
    for result in results.read(path):
        if result["what"] == "kills":
            total += kills_in(result)
            if (result["method"], result["store"]) in counts:
                counts[result["method"], result["store"]] += kills_in(result)
        elif result["what"] == "fresh program":
            fresh.add((result["method"], result["store"]))
    with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
        campaign = Campaign(configurations, folder)
        results.append(path, results.environment())
        while total < wanted:
            method, store = min(configurations, key=counts.__getitem__)
            result = campaign.run(method, store, secrets.randbits(32))
            results.append(path, result)
            counts[method, store] += kills_in(result)
            total += kills_in(result)
        for configuration in configurations:
            if configuration not in fresh:
                results.append(
                    path, campaign.compare_with_a_fresh_program(*configuration)
                )


def once(method, store, seed):
    """Kills one run until it has come to its end; returns the result."""
    with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
        return Campaign([(method, store)], folder).run(method, store, seed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument(
        "--mlflow", action="store_true", help="kills of runs that MLflow tracks"
    )
    parser.add_argument("--once", metavar="METHOD,STORE,SEED")
    arguments = parser.parse_args()
    if arguments.once:
        method, store, seed = arguments.once.split(",")
        results.append(arguments.results, once(method, store, int(seed)))
    else:
        wanted = TRACKED if arguments.mlflow else CONFIGURATIONS
        kill(arguments.results, arguments.kills, wanted)


if __name__ == "__main__":
    main()
