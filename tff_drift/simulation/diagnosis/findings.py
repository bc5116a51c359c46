"""What follows from the numbers of a diagnosis: a finding, methods, five sentences.

No sentence is more certain than its numbers: where intervals overlap, it says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tff_drift.simulation.diagnosis.measurements import Measurements

# What is less, relative to the update, slows no training down.
_NEGLIGIBLE = 0.01
# Clients that take part in as many rounds keep estimates that are not stale.
_OFTEN, _NEARLY_ALL = 0.05, 0.5
# Labels that are so many times as far from everyone's as chance would put them.
_SKEWED = 1.5
ERRORS = {
    "bias": "bias of drift",
    "cohort_noise": "noise of the cohort",
    "minibatch_noise": "noise of minibatches",
}
# What removes which errors, at most; "variates" needs clients that return.
REMEDIES = {
    "all clients in every round": ("cohort_noise", "minibatch_noise"),
    "control variates": ("bias", "cohort_noise"),
    "one local step, or a far smaller rate": ("bias",),
    "far larger batches": ("minibatch_noise",),
}


class Finding(NamedTuple):
    """What limits training.

    Attributes:
      name: "noise", "contradiction", "no_drift", "drift", "unequal_work", "cohort",
        "minibatches" or "unclear".
      methods: The methods that answer it, besides FedAvg.
      advice: What follows, a sentence without its numbers.
    """

    name: str
    methods: tuple[str, ...]
    advice: str


def find(report: Measurements) -> Finding:
    """Returns what the numbers of a report say."""
    if all(
        each["mean_squared_length"].low <= 0 for each in report.differences.values()
    ):
        return Finding(
            "noise",
            (),
            "the clients' gradients cannot be told from the noise of their few "
            "examples: drift is not your problem, more examples would help",
        )
    if _contradict(report):
        return Finding(
            "contradiction",
            (),
            "one client's gradient says nothing of another's, from the start, though "
            "their labels are alike: unless the model is trained already, they want "
            "different ones, and no method for a common model helps. Train one for "
            "each client, or for each group",
        )
    trained = report.as_trained
    if max(trained[name].value for name in ERRORS) < _NEGLIGIBLE:
        return Finding(
            "no_drift", (), "drift is not your problem: take FedAvg, and tune its rates"
        )
    ranked = sorted(ERRORS, key=lambda name: -trained[f"{name}_share"].value)
    first, second = (trained[f"{name}_share"] for name in ranked[:2])
    if first.low <= second.high:
        names = " and ".join(ERRORS[name] for name in ranked[:2])
        is_sample = len(report.sizes) < report.clients
        more = "measure more clients, or " if is_sample else ""
        return Finding(
            "unclear",
            ("fed_adam", *_variates(report)),
            f"{names} cannot be told apart: {more}race the methods",
        )
    no_bias = ""
    if trained["bias"].low <= 0:
        no_bias = "drift is not your problem, as no bias of it can be seen: "
    if ranked[0] == "minibatch_noise":
        return Finding(
            "minibatches",
            ("fed_adam",),
            f"{no_bias}minibatches limit a round most: larger ones or a smaller rate "
            "come before another method",
        )
    if ranked[0] == "cohort_noise":
        return Finding(
            "cohort",
            ("fed_adam", *_variates(report)),
            f"{no_bias}the draw of its cohort limits a round most: a larger one or an "
            "adaptive server (FedAdam) helps, and so do control variates, which take "
            f"this noise away too ({_named(report)})",
        )
    unequal = trained["bias_of_unequal_work"]
    if unequal.low > 0 and unequal.value > trained["bias"].value / 2:
        return Finding(
            "unequal_work",
            ("fed_nova", *_variates(report)[:1]),
            "most of the bias comes from unequal numbers of local steps: FedNova "
            "weighs it away, and local_steps makes them equal",
        )
    return Finding(
        "drift",
        (*_variates(report), "mime_lite"),
        f"drift limits a round most: take control variates ({_named(report)}); "
        "without a state at clients MimeLite, fewer local steps or a smaller rate",
    )


def _contradict(report: Measurements) -> bool:
    """Whether clients have nothing in common, and other labels are not the reason.

    Clients with a class each have orthogonal gradients at the start as well, and yet a
    common model.
    """
    if report.labels is not None:
        distance, chance = (each.mean() for each in report.labels)
        if distance > _SKEWED * chance:
            return False
    found = report.differences.values()
    return all(each["agreement_of_others"].low <= 0 for each in found)


def _variates(report: Measurements) -> tuple[str, ...]:
    """Returns the methods with control variates that suit how often clients return."""
    share = report.cohort_size / report.clients
    if share >= _NEARLY_ALL:
        return "scaffold", "fed_dyn", "adabest"
    return ("scaffold", "adabest") if share >= _OFTEN else ("adabest",)


def _named(report: Measurements) -> str:
    names = {"scaffold": "SCAFFOLD", "fed_dyn": "FedDyn", "adabest": "AdaBest"}
    return " or ".join(names[each] for each in _variates(report))


def sentences(report: Measurements) -> list[str]:
    """Returns what a report says: differences, labels, drift, cost, what follows."""
    number = max(report.differences)
    last, trained = report.differences[number], report.as_trained
    dissimilarity, share = report.b2(number), last["noise_share"].value
    where = f"after {number} rounds" if number else "at the start"
    differ = "differ" if last["g2"].low > 0 else "cannot be told from alike"
    first = (
        f"Clients' gradients {differ} {where}: B², 1 for clients that are alike, is "
        f"{dissimilarity}, and {np.clip(share, 0, 1):.0%} of the plain G² was noise of "
        "few examples."
    )
    second = "Labels are not a number for each example, and were not compared."
    if report.labels is not None:
        distances, chance = (
            np.average(each, weights=report.sizes) for each in report.labels
        )
        second = (
            f"A client's labels are {distances:.2f} from everyone's (total variation); "
            f"chance would put clients of these sizes at {chance:.2f}."
        )
    third = (
        f"After {np.mean(report.steps):.0f} local steps clients are "
        f"{trained['drift_over_mean'].value:.1f} times as far from the model as the "
        f"mean update is long, at a cosine of {trained['cosine'].value:.2f} with the "
        f"others; their mean is {_angle(trained['bias'].value):.0f}° off as many steps "
        "on everyone's examples."
    )
    parts = ", ".join(f"{name} {trained[key]}" for key, name in ERRORS.items())
    fourth = f"Errors of a round, relative to its step: {parts}."
    noise = trained["cohort_noise"].value + trained["minibatch_noise"].value
    bias = trained["bias"]
    if bias.low > 0 and noise > bias.value:
        fourth += (
            " Noise averages out over rounds and bias stays: it outweighs the noise "
            f"after {noise / bias.value:.0f} rounds."
        )
    finding = find(report)
    fifth = finding.advice[0].upper() + finding.advice[1:] + "."
    return [first, second, third, fourth, fifth]


def gains(report: Measurements) -> dict[str, float]:
    """Returns the share of a round's squared error that remedies remove at most."""
    return {
        remedy: sum(report.as_trained[f"{name}_share"].value for name in names)
        for remedy, names in REMEDIES.items()
    }


def _angle(squared_tangent: float) -> float:
    return float(np.degrees(np.arctan(np.sqrt(max(0.0, squared_tangent)))))
