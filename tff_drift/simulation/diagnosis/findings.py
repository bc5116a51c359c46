"""The conclusions of a diagnosis: a finding, methods, five sentences.

No sentence is more certain than its numbers: where intervals overlap, it says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_drift.simulation.diagnosis.statistics import Estimate

Estimates = Mapping[str, Estimate]

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
# The finding where one of them is the largest.
_LIMITS = {"bias": "drift", "cohort_noise": "cohort", "minibatch_noise": "minibatches"}
_VARIATES = {"scaffold": "SCAFFOLD", "fed_dyn": "FedDyn", "adabest": "AdaBest"}
# The methods to race, those with control variates where these remove something.
_METHODS: Mapping[str, tuple[str, ...]] = {
    "unclear": ("fed_adam", *_VARIATES),
    "minibatches": ("fed_adam",),
    "cohort": ("fed_adam", *_VARIATES),
    "unequal_work": ("fed_nova", *_VARIATES),
    "drift": (*_VARIATES, "mime_lite"),
}
# What follows from each finding, with gaps for what is said of control variates.
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


@dataclasses.dataclass
class Findings:
    """The measurements of `diagnose`, and the conclusions.

    Attributes:
      clients: N, the number of all clients.
      cohort_size: M, the clients per round.
      sizes: The examples of each measured client.
      steps: The local steps of each, in a round.
      labels: For each the total variation between its labels and everyone's, and what
        chance gives clients of its size; None where labels are no numbers.
      differences: By rounds completed, estimates of how different gradients are:
        `mean_squared_length`, `squared_length_of_mean`, `g2`, `agreement`, which is
        1 / B², `agreement_of_others`, of pairs of clients, `g2_naive`, without halves,
        and `noise_share`.
      drift: By local steps K, the same for all clients and up to half of those in a
        round, estimates of what they lead to:
        `drift`, the mean ‖y_i − x‖; `drift_over_mean`, over the length of the mean
        update; `cosine`, of a client's update and the others' mean; `shrinkage`, by how
        much the mean update's part along that with control variates differs from it;
        `bias`, the squared length of the rest, relative to that of this part; and what
        follows.
      as_trained: The same for the steps that clients take in a round; relative to the
        same part the `cohort_noise` and `minibatch_noise`; the three errors' shares of
        their sum, and `variates_share`, what control variates take away of it at most;
        `bias_of_unequal_work`, what FedNova's weights would remove, and `noise_scale`,
        the cohort whose noise is as large as the update.
      race: The table of a race, if there was one.
    """

    clients: int
    cohort_size: int
    sizes: np.ndarray
    steps: np.ndarray
    labels: tuple[np.ndarray, np.ndarray] | None
    differences: Mapping[int, Estimates]
    drift: Mapping[int, Estimates]
    as_trained: Estimates
    race: Any = None

    def b2(self, number: int) -> Estimate:
        """Returns B² after some rounds, infinite where the mean may be zero.

        It is NaN where gradients cannot be told from noise.

        Args:
          number: The rounds completed, of `differences`.
        """
        found = self.differences[number]
        if found["mean_squared_length"].low <= 0:
            return Estimate(np.nan, np.nan, np.nan)
        value, high, low = (1 / x if x > 0 else np.inf for x in found["agreement"])
        return Estimate(value, low, high)

    @property
    def finding(self) -> str:
        """The word for what limits training: see `docs/diagnosis.md`."""
        differences, trained = self.differences.values(), self.as_trained
        if all(each["mean_squared_length"].low <= 0 for each in differences):
            # Without halves too, where few clients have far longer gradients.
            is_noise = all(each["g2_naive"].low > 0 for each in differences)
            return "noise" if is_noise else "unclear"
        # Clients with a class each have orthogonal gradients at the start as well as
        # those that contradict each other, and yet a common model.
        far, chance = self._mean_label_distances() or (np.inf, 0.0)
        if far <= _SKEWED * chance and all(
            each["agreement_of_others"].low <= 0 for each in differences
        ):
            differ = all(each["g2"].low > 0 for each in differences)
            return "contradiction" if differ else "unclear"
        if max(trained[name].value for name in ERRORS) < _NEGLIGIBLE:
            return "no_drift"
        _, second, first = sorted((trained[f"{each}_share"], each) for each in ERRORS)
        # Of numbers that are not to be told nothing is larger.
        if not first[0].low > second[0].high:
            return "unclear"
        of_unequal_work = trained["bias_of_unequal_work"].value
        if first[1] == "bias" and of_unequal_work > trained["bias"].value / 2:
            return "unequal_work"
        return _LIMITS[first[1]]

    def _mean_label_distances(self) -> list[float] | None:
        """Returns the means over examples of both distances, if there are any."""
        return self.labels and [
            float(np.average(each, weights=self.sizes)) for each in self.labels
        ]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that answer it, besides FedAvg."""
        no_use = _VARIATES.keys() - self._variates()
        found = _METHODS.get(self.finding, ())
        return tuple(each for each in found if each not in no_use)

    @property
    def gains(self) -> dict[str, float]:
        """The share of a round's squared error that remedies remove at most."""
        bias, of_cohort, of_batches, by_variates = (
            max(0.0, self.as_trained[f"{name}_share"].value)
            for name in (*ERRORS, "variates")
        )
        # Batches are drawn by all clients then, whose noise averages out among them.
        fewer = 1 - self.cohort_size / self.clients
        return {
            "all clients in every round": of_cohort + fewer * of_batches,
            "control variates": by_variates,
            "one local step, or a far smaller rate": bias,
            "far larger batches": of_batches,
        }

    @property
    def sentences(self) -> list[str]:
        """Differences, labels, drift, cost and what follows, a sentence each."""
        number, trained = max(self.differences), self.as_trained
        last, bias = self.differences[number], trained["bias"]
        differ = "differ" if last["g2"].low > 0 else "cannot be told from alike"
        of_noise = _share(last["noise_share"].value)
        labels = "Labels are not a number for each example, and were not compared."
        if distances := self._mean_label_distances():
            far, chance = distances
            labels = (
                f"A client's labels are {far:.2f} from everyone's (total variation); "
                f"chance would put clients of these sizes at {chance:.2f}."
            )
        angle = np.degrees(np.arctan(np.sqrt(max(0.0, bias.value))))
        costs = ", ".join(f"{name} {trained[key]}" for key, name in ERRORS.items())
        noise = trained["cohort_noise"].value + trained["minibatch_noise"].value
        # By its share, as the finding: what this calls the largest is there.
        is_there = trained["bias_share"].low > 0
        if not is_there and bias.high >= _NEGLIGIBLE:
            costs += ". Whether there is a bias cannot be told"
        elif is_there and noise > bias.value:
            costs += (
                ". Noise averages out over rounds and bias stays: it outweighs the "
                f"noise after {noise / bias.value:.0f} rounds"
            )
        is_noise = self.finding in ("cohort", "minibatches")
        relief = is_noise and bias.high < _NEGLIGIBLE
        return [
            f"Clients' gradients {differ} after {number} rounds: B², 1 for clients "
            f"that are alike, is {self.b2(number)}, and {of_noise} of the plain G² was "
            "noise of few examples.",
            labels,
            self._on_drift(trained, angle),
            f"Errors of a round, relative to its step: {costs}.",
            "Drift is not your problem. " * relief
            + _ADVICE[self.finding].format(self._on_variates()),
        ]

    def _on_drift(self, trained: Estimates, angle: float) -> str:
        after = f"After {np.mean(self.steps):.0f} local steps"
        if np.isnan(trained["drift_over_mean"].value):
            return f"{after} clients' updates have no mean: none is left of them."
        return (
            f"{after} clients are {trained['drift_over_mean'].value:.1f} times as far "
            "from the model as the mean update is long, at a cosine of "
            f"{trained['cosine'].value:.2f} with the others; their mean is "
            f"{angle:.0f}° off where control variates lead."
        )

    def _variates(self) -> list[str]:
        """Returns methods with control variates, none if these remove nothing."""
        if self.as_trained["variates_share"].value <= 0:
            return []
        has_most = self.cohort_size >= _NEARLY_ALL * self.clients
        return [each for each in _VARIATES if has_most or each != "fed_dyn"]

    def _on_variates(self) -> str:
        """Returns what control variates remove, and how often clients return."""
        named = " or ".join(_VARIATES[each] for each in self._variates())
        share = self.as_trained["variates_share"].value
        text = f"; control variates ({named}) remove at most {share:.0%} of the error"
        if self.cohort_size < _OFTEN * self.clients:
            rounds = self.clients / self.cohort_size
            text += (
                f", but a client returns after {rounds:.0f} rounds: only a race tells"
            )
        return text if named else ""


def _share(value: float) -> str:
    """Returns a share in percent, or that there is nothing to have a share of."""
    return "nothing" if np.isnan(value) else f"{np.clip(value, 0, 1):.0%}"
