"""What a diagnosis says of runs that are kept, beside what these found.

    python benchmarks/diagnoses.py --cache_dir=~/.tff [--rounds=2]

For every kept comparison of FedAvg with SCAFFOLD, FedDyn or AdaBest whose data is
there, FedAvg's clients are diagnosed with its settings, and a row tells the errors of a
round and what the others gained. `experiments/results/diagnosis/known.csv` holds the
rows; what it has is not measured again. `--correlate` prints rank correlations of that
file alone, `--cost` what a diagnosis takes beside rounds of FedAvg on `dense_mixed`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import pandas as pd

from experiments.flags import declarations, settings
from experiments.flags.errors import UserError
from experiments.flags.flag import TASK, TRAIN

RESULTS = pathlib.Path(__file__).parent.parent / "experiments" / "results"
KNOWN = RESULTS / "diagnosis" / "known.csv"
# Minutes for each, and one kind of runs after other kinds of the same.
_LEFT_OUT = ("shakespeare", "cifar", "adabest_cost", "adabest_sensitivity")
_HETEROGENEITY = r"_(0\.03|0\.3|iid)$"
ANSWERS = ("scaffold", "fed_dyn", "adabest")
ERRORS = ("bias", "cohort_noise", "minibatch_noise")
MEASURED = 30


def kept() -> Iterator[tuple[str, str, Mapping[str, Any], pd.DataFrame]]:
    """Yields a place, a suffix of labels, FedAvg's settings, and the table."""
    for path in sorted(RESULTS.glob("*/*/config.json")):
        content = json.loads(path.read_text("utf-8"))
        place = path.parent.relative_to(RESULTS).as_posix()
        table = path.parent / "table.csv"
        if not table.exists() or any(each in place for each in _LEFT_OUT):
            continue
        rows = pd.read_csv(table, index_col="algorithm")
        for run in content.get("runs", ()):
            label, seed = run["folder"].split("/")[-2:]
            suffix = label.removeprefix("fed_avg")
            others = [each + suffix for each in ANSWERS]
            is_first = seed in ("seed_1", "seed_0") and run["algorithm"] == "fed_avg"
            known = label in rows.index and any(each in rows.index for each in others)
            if is_first and label == "fed_avg" + suffix and known:
                yield place, suffix, run, rows


def gains(rows: pd.DataFrame, suffix: str) -> dict[str, float]:
    """Returns what the others gained over FedAvg, in shares of its errors."""
    base = rows["accuracy"]["fed_avg" + suffix]
    found = {
        each: (rows["accuracy"][each + suffix] - base) / (1 - base)
        for each in ANSWERS
        if each + suffix in rows.index
    }
    return {**found, "best": max(found.values())}


def main() -> None:
    """Diagnoses what is kept, or correlates what was diagnosed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache_dir")
    parser.add_argument("--rounds", default="2")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=pathlib.Path, default=KNOWN)
    parser.add_argument("--correlate", action="store_true")
    parser.add_argument("--cost", action="store_true")
    options = parser.parse_args()
    if options.cost:
        cost()
        return
    if not options.correlate:
        _diagnose(options)
    correlate(pd.read_csv(options.output))


def _diagnose(options: argparse.Namespace) -> None:
    from experiments.training import diagnosis

    # What is there already is not measured again.
    is_begun = options.output.exists()
    found = pd.read_csv(options.output).to_dict("records") if is_begun else []
    known = declarations.flags_of(TRAIN)
    for place, suffix, configuration, rows in kept():
        runs = place + suffix
        is_wanted = any(each in runs for each in options.only.split(","))
        if "accuracy" not in rows or not is_wanted:
            continue
        given = {
            name: value
            for name, value in configuration.items()
            if name in known
            # None has a meaning in options of tasks alone, such as IID for alpha.
            and (value not in (None, known[name].value) or known[name].of == TASK)
        }
        run = settings.resolve({**given, "cache_dir": options.cache_dir})
        for rounds in map(int, options.rounds.split(",")):
            if any((each["runs"], each["rounds"]) == (runs, rounds) for each in found):
                continue
            start = time.process_time()
            try:
                report = diagnosis.measure(run, rounds, MEASURED)
            except UserError as error:
                print(f"{runs}: {error}")
                break
            row = {
                "runs": runs,
                "rounds": rounds,
                "clients": report.clients,
                "cohort_size": report.cohort_size,
                "b2": report.b2(rounds).value,
                "noise_share": report.differences[rounds]["noise_share"].value,
                "variates_share": report.as_trained["variates_share"].value,
                **{each: report.as_trained[each].value for each in ERRORS},
                **{f"{each}_low": report.as_trained[each].low for each in ERRORS},
                **{f"{each}_high": report.as_trained[each].high for each in ERRORS},
                "finding": report.finding,
                "seconds": time.process_time() - start,
                **{f"gain_{name}": each for name, each in gains(rows, suffix).items()},
            }
            found.append(row)
            print(
                {name: row[name] for name in ("runs", *ERRORS, "finding", "gain_best")}
            )
            options.output.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(found).to_csv(options.output, index=False, float_format="%.4g")


def cost() -> None:
    """Prints the processor seconds of diagnoses and of five rounds, in turns.

    A diagnosis builds its model and computations anew, and TensorFlow and the context
    build of them what runs. Without building it has those of an earlier one.
    """
    import models
    import populations

    from tff_drift import algorithms, client_works, execution, simulation
    from tff_drift.simulation.cohorts import Cohort, run_round
    from tff_drift.simulation.data.sampling import build_uniform_sampling
    from tff_drift.simulation.diagnosis import diagnose, passes

    execution.set_local_execution_context()
    work = populations.WORKS["dense_mixed"]
    clients = {f"{i}": each for i, each in enumerate(populations.examples(work))}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=work.batch_size)
    model_fn, cohort = models._model_fn(work, ours=True), work.cohort_size
    sampling = build_uniform_sampling(train.client_ids, cohort)
    process = algorithms.build_fed_avg(model_fn, populations.RATE)
    state = process.initialize()

    def five_rounds() -> None:
        for number in range(5):
            run_round(process, state, Cohort(number, sampling(number), train))

    def diagnosis() -> None:
        simulation.diagnose(
            model_fn, train, client_optimizer_fn=populations.RATE, cohort_size=cohort
        )

    def seconds(function: Callable[[], None]) -> float:
        gc.collect()  # What others left is not this one's work.
        before = time.process_time()
        function()
        return time.process_time() - before

    spec = client_works.build_model_spec(model_fn)
    built: dict[type, Any] = {}

    def build_once(_: Any, work: Any) -> Any:
        if type(work) not in built:
            built[type(work)] = passes.Pass(spec, work)
        return built[type(work)]

    def measuring_alone() -> None:
        with (
            mock.patch.object(client_works, "build_model_spec", return_value=spec),
            mock.patch.object(diagnose, "Pass", build_once),
        ):
            diagnosis()

    print(f"the first diagnosis of a program {seconds(diagnosis):.2f} s")
    five_rounds()
    measuring_alone()
    for _ in range(8):
        times = map(seconds, (five_rounds, diagnosis, measuring_alone))
        rounds, whole, measuring = times
        print(
            f"five rounds {rounds:.2f} s, a diagnosis {whole:.2f} s, {measuring:.2f} s "
            f"without building: {5 * measuring / rounds:.1f} rounds"
        )


def correlate(table: pd.DataFrame) -> None:
    """Prints the rank correlations of predictors and gains."""
    predictors = ["b2", *ERRORS, "variates_share"]
    gained = [name for name in table if name.startswith("gain_")]
    for rounds, part in table.groupby("rounds"):
        ranks = part[predictors + gained].rank()
        print(f"\nafter {rounds} rounds, {len(part)} settings:")
        print(ranks.corr().loc[predictors, gained].round(2).to_string())
        # Of one task and cohort, at two of Dirichlet 0.03, 0.3 and IID.
        groups = part.groupby(part["runs"].str.replace(_HETEROGENEITY, "", regex=True))
        for name in predictors:
            pairs = [
                (first[name] - second[name]) * (first.gain_best - second.gain_best)
                for _, each in groups
                for first, second in itertools.combinations(
                    [row for _, row in each.iterrows()], 2
                )
            ]
            right = sum(pair > 0 for pair in pairs)
            print(f"{name}: {right} of {sum(pair != 0 for pair in pairs)} pairs")


if __name__ == "__main__":
    main()
