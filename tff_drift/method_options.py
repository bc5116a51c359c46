"""The options that several methods let users choose, each described once.

Without TensorFlow, because the command line reads methods' specs before it is there.
"""

from __future__ import annotations

from tff_drift.value_types import Option

_OPTIONS = (
    Option("beta_1", "rate", "Decay β₁ of the server's first moment."),
    Option("beta_2", "rate", "Decay β₂ of the server's second moment."),
    Option(
        "tau", "positive", "Degree of adaptivity τ: the smaller, the more adaptive."
    ),
    Option(
        "initial_accumulator",
        "non_negative",
        "What the server's second moment starts from.",
    ),
    Option(
        "bias_correction", "flag", "Correct the bias of the server's moments towards 0."
    ),
    Option("momentum", "rate", "Momentum β₁ of the server's step."),
    Option(
        "server_weight_decay", "non_negative", "Weight decay λ of the server's step."
    ),
    Option("epsilon", "non_negative", "Bound ε of a layer's trust ratio."),
    Option(
        "meta_learning_rate",
        "non_negative",
        "Rate η_meta of the server's meta step; none is the clients' rate.",
        may_be_none=True,
    ),
    Option(
        "meta_epochs", "count", "Passes of the server over its own data in a round."
    ),
    Option(
        "meta_batch_size",
        "count",
        "Examples in a minibatch of the server's data; none is all of them.",
        may_be_none=True,
    ),
    Option(
        "meta_rate_decay",
        "fraction",
        "Factor of η_meta per round; none is the clients' schedule.",
        may_be_none=True,
    ),
)


def shared_options(*names: str) -> tuple[Option, ...]:
    """Returns options of a method's spec.

    Args:
      *names: Their names, in the order in which they are listed.
    """
    by_name = {option.name: option for option in _OPTIONS}
    return tuple(by_name[name] for name in names)
