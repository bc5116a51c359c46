"""What a run has left, bit for bit."""

import contextlib
import io
import json
import sqlite3
import zipfile

import h5py

from tests.soak import program
from tff_drift import client_states
from tff_drift.execution.on_ray import shards
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
    if (folder / program.EXPORT).exists():
        found.update(_exported(folder / program.EXPORT))
    if program.tracked(folder).exists():
        found.update(_tracked(folder))
    return found


def _exported(path):
    """The weights of a file of Keras; a file has the time at which it was made."""
    with zipfile.ZipFile(path) as archive:
        content = io.BytesIO(archive.read("model.weights.h5"))
    found = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[f"export/{name}"] = item[()].tobytes()

    with h5py.File(content) as file:
        file.visititems(keep)
    if not found:
        raise ValueError(f"{path} holds no weights.")
    return found


def _tracked(folder):
    """What MLflow has of the run that the folder names; each value once, no times."""
    tracker = json.loads((folder / "trackers.json").read_text())["mlflow"]
    with contextlib.closing(sqlite3.connect(program.tracked(folder))) as database:
        values = database.execute(
            "select distinct key, step, value from metrics where run_uuid = ?"
            " order by key, step, value",
            [tracker["run_id"]],
        ).fetchall()
        [[status]] = database.execute(
            "select status from runs where run_uuid = ?", [tracker["run_id"]]
        )
    if status != "FINISHED":
        raise ValueError(f"A run that has ended is {status} in MLflow.")
    kept = [value for value in values if without_timing({value[0]: 0.0})]
    return {"mlflow": json.dumps(kept).encode()}


def _states_on_disk(folder, initial_client_state):
    path = folder / program.CLIENT_STATES
    if (path / shards.MANIFEST_FILE).exists():
        return _states_in_shards(path, initial_client_state)
    with client_states.DiskClientStates(path, initial_client_state) as store:
        return _states(store, store.versions[-1])


def _states_in_shards(path, initial_client_state):
    """The states that actors on Ray have left, those of the last checkpoint."""
    manifest = json.loads((path / shards.MANIFEST_FILE).read_text())
    checkpoint = manifest["versions"][max(manifest["versions"], key=int)]
    store = shards.Store(manifest["key"], str(path), initial_client_state)
    found = {}
    for number, version in enumerate(checkpoint):
        # It waits for the end of the actor that had the shard.
        with shards._open(store, number) as shard:
            found.update(_states(shard, version))
    return found


def _states(store, version):
    store.restore(version)
    ids = store.client_ids()
    return {
        f"client_states/{client_id}/{name}": leaf.tobytes()
        for client_id, state in zip(ids, store.gather(ids), strict=True)
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
