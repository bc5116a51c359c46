"""A summary of clients' data, in a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.simulation.data.batching import Batching
from tff_drift.simulation.data.example_store import ExampleStore
from tff_drift.simulation.data.examples import num_rows

_SHOWN_IDS = 3


def summary(
    client_ids: Sequence[str], store: ExampleStore, batching: Batching
) -> tuple[str, dict[str, str]]:
    """Returns a title, and what clients' data are by the names of what is told.

    Nothing is read for it: of what a program has not read yet, it says so.

    Args:
      client_ids: The clients.
      store: Their examples.
      batching: How these become batches.
    """
    fields = {
        "clients": _ids(client_ids),
        "examples": _counts(client_ids, store),
        "batch": _specs(client_ids, store),
        "round": _round(batching),
        "cache": _cache(store),
    }
    return f"ClientDatasets of {len(client_ids):,} clients", fields


def _ids(client_ids: Sequence[str]) -> str:
    shown = list(map(checks.shown, client_ids[:_SHOWN_IDS]))
    if len(client_ids) > _SHOWN_IDS:
        shown[-1:] = ["...", checks.shown(client_ids[-1])]
    return ", ".join(shown)


def _counts(client_ids: Sequence[str], store: ExampleStore) -> str:
    if store.holds_examples:
        counts = _counts_in_ram(client_ids, store)
        of_what = "per client"
    else:
        known = store.known_num_examples
        counts = [known[each] for each in client_ids if each in known]
        of_what = f"per client, for the {len(counts):,} read so far"
    if not counts:
        return "not read yet"
    between = f"{min(counts):,}"
    if min(counts) < max(counts):
        between += f" to {max(counts):,}"
    return f"{sum(counts):,}, {between} {of_what}"


def _counts_in_ram(client_ids: Sequence[str], store: ExampleStore) -> list[int]:
    """Counts each client's examples; checks those that are unlike the first one's."""
    counts = []
    first = _kind(store.load_client(client_ids[0]))
    for client_id in client_ids:
        examples = store.load_client(client_id)
        if _kind(examples) != first:
            store.num_examples(client_ids[0])
            store.num_examples(client_id)
        counts.append(num_rows(examples))
    most = store.max_examples
    return counts if most is None else [min(count, most) for count in counts]


def _kind(examples: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: (leaf.dtype, leaf.shape[1:]), examples)


def _cache(store: ExampleStore) -> str:
    if store.holds_examples and not store.cache_bytes:
        return "none: the arrays are in RAM"
    return f"{store.used_bytes / 1e6:,.1f} of {store.cache_bytes / 1e6:,.1f} MB"


def _specs(client_ids: Sequence[str], store: ExampleStore) -> str:
    # A transform is the user's own code, which a look at the data does not run.
    if store.holds_examples and store.transform is None:
        spec = store.spec(client_ids[0])
    else:
        spec = store.known_spec
    if spec is None:
        return "not read yet"
    return str(tf.nest.map_structure(_Spec, spec))


class _Spec:
    """A tensor, shown as `float32[?,784]`."""

    def __init__(self, spec: tf.TensorSpec) -> None:
        shape = ",".join("?" if size is None else str(size) for size in spec.shape)
        self._text = f"{spec.dtype.name}[{shape}]"

    def __repr__(self) -> str:
        return self._text


def _round(batching: Batching) -> str:
    steps = batching.local_steps
    number, what = (batching.epochs, "epoch") if steps is None else (steps, "step")
    length = f"{number} {what}{'' if number == 1 else 's'}"
    order = f"shuffled by seed {batching.seed}" if batching.shuffle else "in order"
    kind = batching.last_batch
    last = "" if kind == "short" else f", last_batch={kind!r}"
    return f"{length} in batches of {batching.batch_size}, {order}{last}"
