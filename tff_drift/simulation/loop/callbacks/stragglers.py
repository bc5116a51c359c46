"""Simulated times of rounds whose clients train at once, some of them slowly.

The model of Lee et al. (2017), Speeding Up Distributed Machine Learning Using Codes,
https://arxiv.org/abs/1512.02673, as Charles et al. (2021), On Large-Cohort Training for
Federated Learning, appendix B.5, have it: https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

import fractions
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_drift import checks
from tff_drift.simulation.data import batching
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import Sampling
from tff_drift.simulation.loop.callbacks.base import Callback

COLUMN = "simulated_seconds"


class StragglerClock(Callback):
    """Simulates how long clients train, and records it in every round.

    Client k, which trains on N_k examples in a round, needs the time

    ```
    X_k = α N_k + Exp(mean λ N_k),
    ```

    drawn anew in every round, and a round lasts as long as its slowest client:
    `simulated_seconds` = max X_k over the cohort, 0 if nobody is in it. The time of
    the server and of communication is left out. With λ = 0 all clients are alike
    except for their examples.

    To train on the fastest of more clients than are needed (over-selection), as real
    systems do, let the clock choose among the sampled clients:

        clock = StragglerClock(train, sampling, delay=10.0, left_out=0.2)
        run_training(process, train, sampling=clock.cohort, callbacks=[clock], ...)

    What is drawn is a pure function of the seed, the round and the client.

    | paper | argument | unit |
    |---|---|---|
    | α | `seconds_per_example` | seconds |
    | λ | `delay` | seconds per example |

    Args:
      train: The clients.
      sampling: The sampling of the run.
      delay: λ, at least 0.
      seconds_per_example: α, at least 0.
      left_out: The share of the sampled clients, below 1, that a round does not wait
        for: the slowest ones, rounded down to a whole number of clients.
      seed: The seed of the times.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range.
    """

    def __init__(
        self,
        train: ClientDatasets,
        sampling: Sampling,
        *,
        delay: float = 1.0,
        seconds_per_example: float = 1.0,
        left_out: float = 0.0,
        seed: int = 0,
    ) -> None:
        checks.check_instance("train", train, ClientDatasets)
        checks.check_callable("sampling", sampling, "a function of a round number")
        checks.check_non_negative("delay", delay)
        checks.check_non_negative("seconds_per_example", seconds_per_example)
        checks.check_decay("left_out", left_out)
        checks.check_integer("seed", seed, at_least=0)
        self._train = train
        self._sampling = sampling
        self._delay = _plain(delay)
        self._seconds_per_example = _plain(seconds_per_example)
        self._settings_left_out = _plain(left_out)
        # The share as it is written: 0.29 times 100 is below 29 in floats.
        self._left_out = fractions.Fraction(str(left_out))
        self._seed = int(seed)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings on which the times and the cohorts depend."""
        return {
            "straggler_clock": {
                "delay": self._delay,
                "seconds_per_example": self._seconds_per_example,
                "left_out": self._settings_left_out,
                "seed": self._seed,
            }
        }

    def client_seconds(self, client_id: str, round_number: int) -> float:
        """Returns X_k, the time of a client in a round.

        Args:
          client_id: The client.
          round_number: The round, from 0.
        """
        examples = self._train.num_examples_per_round(client_id)
        # A name that no client has, so that no client's shuffles are drawn from.
        draw = batching.generator(self._seed, round_number, f"{client_id}\0clock")
        shifted = self._seconds_per_example + self._delay * draw.exponential()
        return float(examples * shifted)

    def cohort(self, round_number: int) -> list[str]:
        """Returns the clients whose updates the server waits for.

        Args:
          round_number: The round, from 0.

        Returns:
          The sampled clients in their order, without the slowest ones.
        """
        sampled = self._sampling(round_number)
        count = len(sampled) - int(self._left_out * len(sampled))
        by_time = sorted(
            range(len(sampled)),
            key=lambda place: self.client_seconds(sampled[place], round_number),
        )
        return [sampled[place] for place in sorted(by_time[:count])]

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> dict[str, float]:
        """Returns the time of the round."""
        del state, row
        number = round_number - 1  # Sampling counts rounds from 0.
        times = (self.client_seconds(each, number) for each in self.cohort(number))
        return {COLUMN: max(times, default=0.0)}


def _plain(number: Any) -> Any:
    """Returns a number of NumPy as Python's, which JSON has, and any other as it is."""
    return number.item() if isinstance(number, np.generic) else number
