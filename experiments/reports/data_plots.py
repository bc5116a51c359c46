"""Pictures of how examples are spread over clients."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
from matplotlib import ticker

from experiments.analysis import style

_INCHES = (10, 4.5)
_MOST_BINS = 30


def draw(
    name: str, num_clients: int, sizes: np.ndarray, shares: np.ndarray | None
) -> matplotlib.figure.Figure:
    """Draws a histogram of clients' sizes, and their shares of classes.

    Args:
      name: The task's name.
      num_clients: The number of training clients of the task.
      sizes: The numbers of examples of the clients that are shown.
      shares: The share of each class (column) in the examples of each client (row);
        `None` if there are no classes.

    Returns:
      The figure.
    """
    panels = 1 if shares is None else 2
    figure = matplotlib.figure.Figure(
        figsize=_INCHES, dpi=style.DOTS_PER_INCH, layout="constrained"
    )
    axes = figure.subplots(1, panels, squeeze=False)[0]
    shown = "all" if len(sizes) == num_clients else f"{len(sizes)} sampled"
    figure.suptitle(f"{name}: {shown} of {num_clients:,} training clients")
    # Bins of whole examples, the same number of them in each.
    width = -(-(sizes.max() - sizes.min() + 1) // _MOST_BINS)
    edges = np.arange(sizes.min(), sizes.max() + width + 1, width) - 0.5
    axes[0].hist(sizes, bins=edges, color=style.colour(1))
    axes[0].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes[0].set_xlabel("examples of a client")
    axes[0].set_ylabel("clients")
    for side in ("top", "right"):
        axes[0].spines[side].set_visible(False)
    if shares is not None:
        # Clients with the same largest class lie together.
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        image = axes[1].imshow(
            shares[order], aspect="auto", interpolation="nearest", cmap="viridis"
        )
        axes[1].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes[1].set_xlabel("class")
        axes[1].set_ylabel("client, by largest class")
        figure.colorbar(image, ax=axes[1], label="share of the client's examples")
    return figure
