"""Public data for methods that need some.

The command line has no data but the clients': what the public is to have is drawn from
it, see `tff_drift.simulation.sample_examples`.
"""

from __future__ import annotations

from tff_drift import simulation


def share_examples(
    own: simulation.ClientDatasets,
    seed: int,
    *,
    share_fraction: float = 0.01,
    share_split: bool = True,
) -> simulation.ClientDatasets:
    """Adds public examples, drawn from all clients, to every client's own.

    The defaults are those of Yao et al. (2019, https://arxiv.org/abs/1910.08234),
    section 4.2.

    Args:
      own: The clients' own data.
      seed: The seed of the draw.
      share_fraction: The share of all examples to draw.
      share_split: Whether to cut what is drawn up among the clients.

    Returns:
      The data to train on.

    Raises:
      ValueError: If `share_fraction` is out of its range.
    """
    public = simulation.sample_examples(
        own.replace(transform=None), share_fraction, seed
    )
    return simulation.share(own, public, split=share_split)
