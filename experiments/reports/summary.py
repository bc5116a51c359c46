"""Summarizes a run in a few lines."""

from __future__ import annotations

from experiments.reports import texts
from experiments.reports.results import Result
from tff_drift.simulation.evaluation.client_evaluation import PERCENTILES


def describe(result: Result) -> str:
    """Returns how a run ended, in a few lines."""
    settings, summary = result.settings, result.summary
    final, best, totals = summary["final"], summary["best"], summary["totals"]
    metric = result.headline.removeprefix("test_")
    lines = [
        f"\n{settings.algorithm} on {settings.task}, seed {settings.seed}: "
        f"{settings.rounds} rounds, {summary['clients_per_round']} of "
        f"{summary['clients']} clients per round"
    ]

    def add(label: str, text: str) -> None:
        lines.append(f"  {label:22}{text}")

    stop_reason = summary.get("stop_reason")
    if stop_reason:
        add("stopped", f"after round {final['round']}: {stop_reason}")
    for name in (metric, "loss"):
        text = texts.metric(name, final[f"test_{name}"])
        if f"test_{name}" in best:
            at = best[f"test_{name}"]
            text += f" (best {texts.metric(name, at['value'])} in round {at['round']})"
        add(f"test {name}", text)
    percentiles = []
    for percent in PERCENTILES:
        value = final[f"{result.headline}_client_p{percent}"]
        percentiles.append(f"{percent} %: {texts.metric(metric, value)}")
    add("clients' percentiles", "   ".join(percentiles))
    add("examples processed", f"{totals['examples']:,}")
    add(
        "traffic",
        f"{texts.size(totals['bytes_down'])} to clients, "
        f"{texts.size(totals['bytes_up'])} from clients",
    )
    add(
        "time",
        f"{texts.duration(totals['seconds'])} training, "
        f"{texts.duration(totals['seconds_evaluation'])} evaluation",
    )
    # A run of an earlier version has none.
    work = summary.get("arithmetic")
    if work is not None:
        add(
            "work beyond SGD",
            f"{texts.units(sum(work['client'].values()))} operations of a client per "
            "round, n being the trainable weights",
        )
    failures = summary["failures"]
    if failures:
        rounds = ", ".join(str(failure["round"]) for failure in failures[:10])
        add("breakdowns", f"{len(failures)}, in rounds {rounds}")
    return "\n".join(lines)
