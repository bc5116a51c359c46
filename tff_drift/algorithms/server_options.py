"""The options of the server's step, which several methods let users choose."""

from __future__ import annotations

from tff_drift.method_specs import Option

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
)


def server_options(*names: str) -> tuple[Option, ...]:
    """Returns options of a method's spec.

    Args:
      *names: Their names, in the order in which they are listed.
    """
    by_name = {option.name: option for option in _OPTIONS}
    return tuple(by_name[name] for name in names)
