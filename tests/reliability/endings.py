"""What a run has left, bit for bit."""

import json

from tests.reliability import program
from tff_drift import client_states
from tff_drift.simulation import read_rows, without_timing
from tff_drift.simulation.records.checkpoint import load_checkpoint


def read(folder, initial_client_state=None):
    """Returns everything that a run keeps, but for its times, as bytes by name.

    Args:
      folder: The run's folder.
      initial_client_state: That of the process, if client states are on disk.
    """
    _, rows = read_rows(folder / "metrics.csv")
    checkpoint = load_checkpoint(folder / "checkpoint.npz")
    found = {
        "rounds_completed": str(checkpoint.rounds_completed).encode(),
        "rows": json.dumps(list(map(without_timing, rows))).encode(),
    }
    for structure, leaves in checkpoint.leaves.items():
        for path, leaf in leaves.items():
            found[f"{structure}/{path}"] = leaf.tobytes()
    if initial_client_state is not None:
        found.update(_states_on_disk(folder, initial_client_state))
    return found


def _states_on_disk(folder, initial_client_state):
    path = folder / program.CLIENT_STATES
    with client_states.DiskClientStates(path, initial_client_state) as store:
        store.restore(store.versions[-1])
        ids = store.client_ids()
        return {
            f"client_states/{client_id}/{name}": leaf.tobytes()
            for client_id, state in zip(ids, store.gather(ids))
            for name, leaf in sorted(_leaves(state))
        }


def _leaves(state, path=""):
    """The arrays of a client state; a state's containers do not matter here."""
    if hasattr(state, "items"):
        for key, value in state.items():
            yield from _leaves(value, f"{path}/{key}")
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from _leaves(value, f"{path}/{index}")
    else:
        yield path, state


def differences(found, expected):
    """Returns the names of what differs in any bit."""
    names = sorted({*found, *expected})
    return [name for name in names if found.get(name) != expected.get(name)]
