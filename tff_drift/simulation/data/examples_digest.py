"""A hash by which a run that is resumed knows its data again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import tree

from tff_drift.simulation.data.example_store import ExampleStore
from tff_drift.simulation.data.examples import Examples, num_rows

# Clients whose examples are looked at: reading them from a disk takes a while.
_CLIENTS_IN_RAM = 200
_CLIENTS_READ = 16


def examples_digest(client_ids: Sequence[str], store: ExampleStore) -> str:
    """Returns a hash of clients' examples, of some of the clients.

    They are spread evenly over the ids. Of each the number of examples counts, their
    structure, dtypes and shapes, and the first, middle and last example before any
    transform; of arrays in RAM the numbers of examples of all clients.

    Args:
      client_ids: The clients.
      store: Their examples.
    """
    digest = hashlib.sha256()
    if store.holds_examples:
        counts = [num_rows(store.load_client(each)) for each in client_ids]
        digest.update(np.asarray(counts, "<i8").tobytes())
    most = _CLIENTS_IN_RAM if store.holds_examples else _CLIENTS_READ
    count = min(len(client_ids), most)
    for index in np.linspace(0, len(client_ids) - 1, count).astype(int):
        client_id = client_ids[index]
        digest.update(client_id.encode())
        _update(digest, store.examples(client_id))
    return digest.hexdigest()


def _update(digest: hashlib._Hash, examples: Examples) -> None:
    for path, leaf in tree.flatten_with_path(examples):
        digest.update(f"{path} {leaf.dtype} {leaf.shape}".encode())
        for row in (0, len(leaf) // 2, len(leaf) - 1):
            value = np.asarray(leaf[row])
            # Of texts the array has addresses.
            is_text = value.dtype == object
            digest.update(repr(value.tolist()).encode() if is_text else value.tobytes())
