"""What follows from the numbers of a diagnosis: a finding, methods, five sentences.

No sentence is more certain than its numbers: where intervals overlap, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# That of `report`, which imports this module.
Diagnosis = Any
# What is less, relative to the update, slows no training down.
_NEGLIGIBLE = 0.01
# Of clients of which fewer take part in a round, estimates are too old to count on.
_OFTEN, _NEARLY_ALL = 0.05, 0.5
# Labels that are so many times as far from everyone's as chance would put them.
_SKEWED = 1.5
ERRORS = {
    "bias": "bias of drift",
    "cohort_noise": "noise of the cohort",
    "minibatch_noise": "noise of minibatches",
}
# What removes which shares of a round's error, at most.
REMEDIES = {
    "all clients in every round": ("cohort_noise_share", "minibatch_noise_share"),
    "control variates": ("variates_share",),
    "one local step, or a far smaller rate": ("bias_share",),
    "far larger batches": ("minibatch_noise_share",),
}
_VARIATES = {"scaffold": "SCAFFOLD", "fed_dyn": "FedDyn", "adabest": "AdaBest"}
# The methods to race, None for those with control variates.
_METHODS: Mapping[str, tuple[str | None, ...]] = {
    "unclear": ("fed_adam", None),
    "minibatches": ("fed_adam",),
    "cohort": ("fed_adam", None),
    "unequal_work": ("fed_nova", None),
    "drift": (None, "mime_lite"),
}
# What follows from each finding; `_on_variates` fills the gaps.
_ADVICE = {
    "noise": "The clients' gradients cannot be told from the noise of their few "
    "examples: drift is not your problem, more examples would help.",
    "contradiction": "One client's gradient says nothing of another's, from the start, "
    "though their labels are alike: unless the model is trained already, they want "
    "different ones, and no method for a common model helps. Train one for each "
    "client, or for each group.",
    "no_drift": "Drift is not your problem: take FedAvg, and tune its rates.",
    "unclear": "It cannot be told which error is the largest: race the methods, or "
    "measure more clients, if there are more.",
    "minibatches": "Minibatches limit a round most: larger ones or a smaller rate come "
    "before another method.",
    "cohort": "The draw of its cohort limits a round most: a larger one or an adaptive "
    "server (FedAdam) may help{}.",
    "unequal_work": "Most of the bias comes from unequal numbers of local steps: "
    "FedNova weighs it away, and local_steps makes them equal.",
    "drift": "Drift limits a round most{}; without a state at clients take MimeLite, "
    "fewer local steps or a smaller rate.",
}


def find(report: Diagnosis) -> str:
    """Returns which finding the numbers of a report call for."""
    differences, trained = report.differences.values(), report.as_trained
    if all(each["mean_squared_length"].low <= 0 for each in differences):
        return "noise"
    if _labels_are_alike(report) and all(
        each["agreement_of_others"].low <= 0 for each in differences
    ):
        return "contradiction"
    if max(trained[name].value for name in ERRORS) < _NEGLIGIBLE:
        return "no_drift"
    shares = {name: trained[f"{name}_share"] for name in ERRORS}
    second, first = sorted(shares, key=lambda name: shares[name].value)[1:]
    if shares[first].low <= shares[second].high:
        return "unclear"
    if first != "bias":
        return "minibatches" if first == "minibatch_noise" else "cohort"
    of_unequal_work = trained["bias_of_unequal_work"].value
    is_most = of_unequal_work > trained["bias"].value / 2
    return "unequal_work" if is_most else "drift"


def methods(report: Diagnosis) -> tuple[str, ...]:
    """Returns the methods that answer a finding, besides FedAvg."""
    found: list[str] = []
    for name in _METHODS.get(report.finding, ()):
        found += _variates(report) if name is None else [name]
    return tuple(found)


def sentences(report: Diagnosis) -> list[str]:
    """Returns what a report says: differences, labels, drift, cost, what follows."""
    number, trained = max(report.differences), report.as_trained
    last, bias = report.differences[number], trained["bias"]
    differ = "differ" if last["g2"].low > 0 else "cannot be told from alike"
    of_noise = np.clip(last["noise_share"].value, 0, 1)
    labels = "Labels are not a number for each example, and were not compared."
    if report.labels is not None:
        far, chance = (np.average(each, weights=report.sizes) for each in report.labels)
        labels = (
            f"A client's labels are {far:.2f} from everyone's (total variation); "
            f"chance would put clients of these sizes at {chance:.2f}."
        )
    angle = np.degrees(np.arctan(np.sqrt(max(0.0, bias.value))))
    costs = ", ".join(f"{name} {trained[key]}" for key, name in ERRORS.items())
    noise = trained["cohort_noise"].value + trained["minibatch_noise"].value
    if bias.low <= 0 and bias.high >= _NEGLIGIBLE:
        costs += ". Whether there is a bias cannot be told"
    elif bias.low > 0 and noise > bias.value:
        costs += (
            ". Noise averages out over rounds and bias stays: it outweighs the noise "
            f"after {noise / bias.value:.0f} rounds"
        )
    return [
        f"Clients' gradients {differ} after {number} rounds: B², 1 for clients that "
        f"are alike, is {report.b2(number)}, and {of_noise:.0%} of the plain G² was "
        "noise of few examples.",
        labels,
        f"After {np.mean(report.steps):.0f} local steps clients are "
        f"{trained['drift_over_mean'].value:.1f} times as far from the model as the "
        f"mean update is long, at a cosine of {trained['cosine'].value:.2f} with the "
        f"others; their mean is {angle:.0f}° off where control variates lead.",
        f"Errors of a round, relative to its step: {costs}.",
        _relief(report) + _ADVICE[report.finding].format(_on_variates(report)),
    ]


def gains(report: Diagnosis) -> dict[str, float]:
    """Returns the share of a round's squared error that remedies remove at most."""
    return {
        remedy: max(0.0, sum(report.as_trained[name].value for name in names))
        for remedy, names in REMEDIES.items()
    }


def _labels_are_alike(report: Diagnosis) -> bool:
    """Whether labels are not what tells clients apart.

    Clients with a class each have orthogonal gradients at the start as well as those
    that contradict each other, and yet a common model.
    """
    if report.labels is None:
        return True
    distance, chance = (each.mean() for each in report.labels)
    return bool(distance <= _SKEWED * chance)


def _variates(report: Diagnosis) -> list[str]:
    """Returns methods with control variates, unless these seem to remove nothing."""
    if report.as_trained["variates_share"].value <= 0:
        return []
    has_most = report.cohort_size >= _NEARLY_ALL * report.clients
    return [each for each in _VARIATES if has_most or each != "fed_dyn"]


def _relief(report: Diagnosis) -> str:
    """Returns what noise that limits a round leaves to be said of drift."""
    is_noise = report.finding in ("cohort", "minibatches")
    is_negligible = report.as_trained["bias"].high < _NEGLIGIBLE
    return "Drift is not your problem. " * (is_noise and is_negligible)


def _on_variates(report: Diagnosis) -> str:
    """Returns what control variates remove, and how often clients return."""
    if not _variates(report):
        return ""
    named = " or ".join(_VARIATES[each] for each in _variates(report))
    share = report.as_trained["variates_share"].value
    text = f"; control variates ({named}) remove at most {share:.0%} of the error"
    if report.cohort_size < _OFTEN * report.clients:
        rounds = report.clients / report.cohort_size
        text += f", but a client returns after {rounds:.0f} rounds: only a race tells"
    return text
