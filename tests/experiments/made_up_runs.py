"""Finished runs made up by hand, in the files that training leaves."""

import json

import pandas as pd

from experiments.analysis.studies import METRICS_FILE

PERCENTS = (5, 25, 50, 75, 95)


def write(
    folder,
    accuracies,
    losses=None,
    *,
    rounds=None,
    failures=(),
    rejected=(),
    norms=None,
    cosine=None,
    **settings,
):
    """Writes a run that evaluates after every round, the initial model included.

    A round processes 100 examples, sends 1,000 bytes and takes 2 seconds.

    Args:
      folder: The run's folder.
      accuracies: The test accuracies, from round 0 on. A training cohort's is 0.1
        more. Of the test clients the 5th percentile is 0.05 times as much, and so on.
      losses: The test losses, by default 1 − accuracy.
      rounds: The rounds asked for, by default those there are.
      failures: Rounds in which training broke down.
      rejected: Rounds in which all four clients were rejected.
      norms: Norms ‖Δ‖ of the rounds, from the first one on.
      cosine: The mean pairwise cosine of every round.
      **settings: Of the configuration.
    """
    rows = []
    for number, accuracy in enumerate(accuracies):
        row = {
            "round": number,
            "test_accuracy": accuracy,
            "test_loss": losses[number] if losses else 1 - accuracy,
            "test_num_examples": 360,
        }
        row.update({f"test_accuracy_client_p{p}": accuracy * p / 100 for p in PERCENTS})
        if number:
            row.update(
                train_accuracy=accuracy + 0.1,
                cohort_size=4,
                seconds=2.0,
                total_examples=100 * number,
                total_bytes=1000 * number,
                catastrophic_failure=int(number in failures),
                non_finite=0,
            )
            if rejected:
                row["client_work/rejected_clients"] = 4 if number in rejected else 3
            if norms:
                row["finalizer/pseudo_gradient_norm"] = norms[number - 1]
                row["model_norm"] = 10.0 + number
            if cosine is not None:
                row["aggregator/mean_pairwise_cosine"] = cosine
        rows.append(row)
    rounds = len(accuracies) - 1 if rounds is None else rounds
    configuration = {
        "task": "digits",
        "algorithm": "fed_avg",
        "rounds": rounds,
        "clients_per_round": 4,
        "seed": 1,
        **settings,
    }
    folder.mkdir(parents=True)
    config = {"format": "tff_drift run", "configuration": configuration}
    (folder / "config.json").write_text(json.dumps(config))
    pd.DataFrame(rows).to_csv(folder / "metrics.csv", index=False)
    summary = {
        "format": "tff_drift summary",
        "rounds": len(accuracies) - 1,
        "clients": 50,
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def write_study(folder, runs, part="part", **columns):
    """Writes the files of a study, in which every round is evaluated.

    Args:
      folder: The study's folder.
      runs: Tuples of a label, the settings, and the test accuracies from round 0 on,
        the initial model's. A round processes 100 examples.
      part: The part of the preset.
      **columns: More columns: functions of a round's number and the settings.
    """
    rows, settings = [], []
    for label, given, accuracies in runs:
        values = {
            "task": "digits",
            "algorithm": label,
            "rounds": len(accuracies) - 1,
            "clients_per_round": 4,
            "seed": 1,
            **given,
        }
        settings.append({"folder": f"{label}/seed_{values['seed']}", **values})
        rows += [
            {
                "method": label,
                "seed": values["seed"],
                "round": number,
                "test_accuracy": accuracy,
                "test_loss": 1 - accuracy,
                "test_num_examples": 360,
                "cohort_size": values["clients_per_round"] if number else None,
                "total_examples": 100 * number,
                "catastrophic_failure": 0,
                "non_finite": 0,
                **{name: of(number, values) for name, of in columns.items()},
            }
            for number, accuracy in enumerate(accuracies)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    seeds = sorted({each["seed"] for each in settings})
    config = {"flags": {"part": part, "seeds": seeds}, "runs": settings}
    (folder / "config.json").write_text(json.dumps(config))
    summary = {"task": "digits", "clients": 50}
    (folder / "summary.json").write_text(json.dumps(summary))
    pd.DataFrame(rows).to_csv(folder / METRICS_FILE, index=False)
