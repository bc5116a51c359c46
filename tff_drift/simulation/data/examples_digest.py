"""Hashes by which a run that is resumed knows its data again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import tree

from tff_drift.simulation.data.example_store import ExampleStore
from tff_drift.simulation.data.examples import Examples, num_rows

# Of some examples of some clients, which is what earlier versions kept.
SAMPLE = "examples_sha256"
# Of all examples of the clients that are looked at.
CONTENT = "contents_sha256"
# Of all that clients are loaded from, where that was read anyway: see `OfSource`.
SOURCE = "source_sha256"
# Earlier versions did not keep all of them.
HASHES = (SAMPLE, CONTENT, SOURCE)

# Clients of the sample, and those whose examples are read: from a disk it takes a
# while.
_CLIENTS_IN_RAM = 200
_CLIENTS_READ = 16
# Arrays of less bytes are copied quicker than looked at in another dtype.
_SMALL = 2**14


def examples_digests(client_ids: Sequence[str], store: ExampleStore) -> dict[str, str]:
    """Returns hashes of clients' examples.

    Of arrays in RAM, everything counts that is trained on: each value of each example
    of each client, before any transform. Clients that are loaded, from SQLite for
    instance, would take long to be read: of sixteen of them, spread evenly over the
    ids, everything counts, and nothing of the others, unless what loads them says of
    which source they are.

    Args:
      client_ids: The clients.
      store: Their examples.

    Returns:
      The hash of all that is looked at, and that of a sample of it, the one that
      earlier versions kept, by name.
    """
    sample, content = hashlib.sha256(), hashlib.sha256()
    in_ram = store.holds_examples
    if in_ram:
        counts = [num_rows(store.load_client(each)) for each in client_ids]
        sample.update(np.asarray(counts, "<i8").tobytes())
        for client_id in client_ids:
            content.update(client_id.encode())
            examples = store.load_client(client_id)
            _update_with_all(content, examples, store.max_examples)
    count = min(len(client_ids), _CLIENTS_IN_RAM if in_ram else _CLIENTS_READ)
    for index in np.linspace(0, len(client_ids) - 1, count).astype(int):
        client_id = client_ids[index]
        examples = store.examples(client_id)
        sample.update(client_id.encode())
        _update_with_some(sample, examples)
        if not in_ram:
            content.update(client_id.encode())
            _update_with_all(content, examples, None)
    found = {SAMPLE: sample.hexdigest(), CONTENT: content.hexdigest()}
    return found if store.source is None else {**found, SOURCE: store.source}


def chained(before: str, client_id: str, examples: Examples) -> str:
    """Returns the hash of clients, of which one more has been read.

    Args:
      before: The hash of the clients before, empty if there are none.
      client_id: The client.
      examples: All its examples.
    """
    content = hashlib.sha256(f"{before} {client_id}".encode())
    _update_with_all(content, examples, None)
    return content.hexdigest()


def _update_with_some(digest: hashlib._Hash, examples: Examples) -> None:
    """Hashes the structure, and the first, middle and last example."""
    for path, leaf in tree.flatten_with_path(examples):
        digest.update(f"{path} {leaf.dtype} {leaf.shape}".encode())
        for row in (0, len(leaf) // 2, len(leaf) - 1):
            value = np.asarray(leaf[row])
            # Of texts the array has addresses.
            is_text = value.dtype == object
            digest.update(repr(value.tolist()).encode() if is_text else value.tobytes())


def _update_with_all(
    digest: hashlib._Hash, examples: Examples, max_examples: int | None
) -> None:
    """Hashes dtypes, shapes and all values; the sample has the structure."""
    for whole in tree.flatten(examples):
        leaf = whole[:max_examples]
        digest.update(f"{leaf.dtype.str}{leaf.shape}".encode())
        if leaf.dtype == object:
            digest.update(repr(leaf.tolist()).encode())
        elif leaf.nbytes < _SMALL:
            digest.update(leaf.tobytes())
        else:
            # Its own bytes where they lie in order, else a copy of them.
            digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
