import collections
import os
import random

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import files
from tff_drift.simulation.records import checkpoint
from tff_drift.simulation.records.checkpoint import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)


def _nan_with_payload():
    return np.frombuffer(np.uint32(0x7FC12345).tobytes(), np.float32)[0]


def _state():
    """A server state with the leaves that TFF computations return."""
    return tff.learning.templates.LearningAlgorithmState(
        global_model_weights=tff.learning.models.ModelWeights(
            trainable=[
                np.array([[1.5, _nan_with_payload()], [-0.0, np.inf]], np.float32),
                np.zeros((0, 3), np.float32),
            ],
            non_trainable=(np.array([2**62 + 1], np.int64),),
        ),
        distributor=(),
        client_work=np.int32(7),
        aggregator=collections.OrderedDict(
            b=np.float64(0.1),
            a=np.bool_(True),
            c=np.array([1e-45], np.float32),
            # What `tf.string` becomes; NumPy's own texts would lose the NULs.
            event=b"GaussianDpEvent\0",
            names=np.array([[b"", b"\0"], [b"\xff", b"a" * 9]], object),
        ),
        finalizer=(np.float16(0.5), np.uint8(255)),
    )


def _fine_tuned():
    """A server state of many small weights beside large ones that are frozen."""
    random = np.random.default_rng(1)
    adapters = [random.normal(size=[4, 9]).astype(np.float32) for _ in range(6)]
    weights = tff.learning.models.ModelWeights(adapters, [np.zeros(2**18, np.float32)])
    return collections.OrderedDict(global_model_weights=weights, aggregator=[])


def _bits(structure):
    return [
        (type(leaf), array.dtype, array.shape, array.tolist())
        if array.dtype.kind in "SO"
        else (array.dtype, array.shape, array.tobytes())
        for leaf in tf.nest.flatten(structure)
        for array in [np.asarray(leaf)]
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.npz"


def test_everything_comes_back_bit_for_bit(path):
    description = {"configuration": {"name": "ä", "rates": [0.1, None, True]}}
    save_checkpoint(path, 12, description, {"server_state": _state()})
    loaded = load_checkpoint(path)
    assert loaded.rounds_completed == 12
    assert loaded.description == description
    restored = loaded.restore("server_state", _state())
    assert _bits(restored) == _bits(_state())
    tf.nest.assert_same_structure(restored, _state())
    assert type(restored.client_work) is np.int32


def test_named_structures_live_side_by_side(path):
    structures = {
        "server_state": [np.float32(1)],
        "client_states": {"ann": np.arange(3), "bob": np.arange(4)},
    }
    save_checkpoint(path, 0, {}, structures)
    loaded = load_checkpoint(path)
    for name, structure in structures.items():
        assert _bits(loaded.restore(name, structure)) == _bits(structure)
    with pytest.raises(CheckpointError, match="'0' of other has no value in the che"):
        loaded.restore("other", [0])


def test_small_arrays_beside_frozen_weights_are_compressed(path):
    state = _fine_tuned()
    state["aggregator"] = [np.zeros(1000), np.zeros(2**15)]
    save_checkpoint(path, 1, {}, {"server_state": state})
    assert state["aggregator"][1].nbytes < path.stat().st_size < 2**18 + 8000
    loaded = load_checkpoint(path)
    assert _bits(loaded.restore("server_state", state)) == _bits(state)


def test_a_checkpoint_beside_frozen_weights_is_read_uncompressed_too(path):
    """As versions before 0.2 wrote it."""
    save_checkpoint(path, 1, {}, {"server_state": _fine_tuned()})
    with np.load(path) as archive:
        np.savez(path.with_name("stored.npz"), **archive)
    path.with_name("stored.npz").replace(path)
    restored = load_checkpoint(path).restore("server_state", _fine_tuned())
    assert _bits(restored) == _bits(_fine_tuned())


def test_the_names_of_structures_are_read_without_the_arrays(path, monkeypatch):
    state = [np.arange(1000)]
    save_checkpoint(path, 1, {}, {"server_state": state, "client_states": state})
    sizes = []
    read = np.lib.format.read_array

    def noting(*arguments, **options):
        sizes.append(len(found := read(*arguments, **options)))
        return found

    monkeypatch.setattr(np.lib.format, "read_array", noting)
    assert checkpoint.saved_names(path) == ["server_state", "client_states"]
    assert len(sizes) == 1
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is not a whole checkpoint"):
        checkpoint.saved_names(path)


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace", "fsync_folder"])
def test_failure_at_any_step_leaves_the_old_or_the_new(path, monkeypatch, step):
    save_checkpoint(path, 1, {}, {"server_state": [np.arange(1000)]})
    calls = collections.Counter()

    def fail(*args, **kwargs):
        raise OSError(f"failed at {step}")

    def fail_second(function):
        def wrapped(*args, **kwargs):
            calls[function] += 1
            return fail() if calls[function] == 2 else function(*args, **kwargs)

        return wrapped

    if step == "open":
        monkeypatch.setattr(files.os, "open", fail)
    elif step == "write":
        monkeypatch.setattr(checkpoint, "_write_arrays", fail)
    elif step == "fsync":
        monkeypatch.setattr(files.os, "fsync", fail)
    elif step == "replace":
        monkeypatch.setattr(files.os, "replace", fail)
    else:
        monkeypatch.setattr(files.os, "fsync", fail_second(os.fsync))
    with pytest.raises(OSError, match=f"failed at {step}"):
        save_checkpoint(path, 2, {}, {"server_state": [np.arange(1000) + 1]})
    monkeypatch.undo()

    loaded = load_checkpoint(path)
    expected = 2 if step == "fsync_folder" else 1
    assert loaded.rounds_completed == expected
    assert loaded.leaves["server_state"]["0"][0] == expected - 1
    assert os.listdir(path.parent) == [path.name]


def test_kill_while_writing_leaves_the_old(path, monkeypatch):
    save_checkpoint(path, 1, {}, {"server_state": [np.arange(10)]})

    # What a kill leaves: half of the temporary file, and no clean-up.
    def killed_half_way(file, *_):
        file.write(b"half")
        file.flush()
        os._exit(0)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(checkpoint, "_write_arrays", killed_half_way)
            save_checkpoint(path, 2, {}, {"server_state": [np.arange(10)]})
        finally:
            os._exit(1)  # Never on with the parent's tests.
    assert os.waitpid(child, 0) == (child, 0)
    assert files.temporary_path(path).read_bytes() == b"half"
    assert load_checkpoint(path).rounds_completed == 1
    save_checkpoint(path, 3, {}, {"server_state": [np.arange(10)]})
    assert os.listdir(path.parent) == [path.name]
    assert load_checkpoint(path).rounds_completed == 3


def test_truncated_file_is_refused_at_every_length(path):
    save_checkpoint(path, 1, {"a": 1}, {"server_state": _state()})
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="is not a whole checkpoint"):
            load_checkpoint(path)
        assert path.read_bytes() == whole[:length]


@pytest.mark.parametrize("state", [_state, _fine_tuned])
def test_a_flipped_bit_is_refused_or_harmless(path, state):
    save_checkpoint(path, 1, {"a": 1}, {"server_state": state()})
    whole = path.read_bytes()
    refused = 0
    for position in random.Random(0).sample(range(len(whole)), 400):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(bytes(damaged))
        try:
            restored = load_checkpoint(path).restore("server_state", state())
        except CheckpointError:
            refused += 1
        else:
            # Dates and the like do not matter.
            assert _bits(restored) == _bits(state())
    assert refused > 200


@pytest.mark.parametrize(
    "content", [b"", b"notes of mine\n", b"PK\x03\x04", "npz", "npy"]
)
def test_foreign_file_is_refused(path, content):
    if content == "npz":
        np.savez(path, weights=np.arange(3))
    elif content == "npy":
        with open(path, "wb") as file:
            np.save(file, np.arange(3))
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"not a whole checkpoint of tff_drift"):
        load_checkpoint(path)
    assert path.read_bytes() == before


def test_missing_file_is_told_apart(path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(path)


def test_newer_format_is_refused(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 3)
    save_checkpoint(path, 1, {}, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"format 3; .* reads formats 1 and 2"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            {"w": np.zeros((2, 3), np.float32)},
            r"'w' of server_state has shape \(2, 2\) .* and shape \(2, 3\)",
        ),
        (
            {"w": np.zeros((2, 2), np.float64)},
            "'w' of server_state has .* dtype float32 in .* dtype float64",
        ),
        (
            {"w": np.zeros((2, 2), np.float32), "m": np.float32(0)},
            r"'m' of server_state has no value in the checkpoint and shape \(\) and",
        ),
        ({}, "'w' of server_state has shape .* and no value in the process"),
    ],
)
def test_state_that_does_not_fit_is_refused(path, like, message):
    save_checkpoint(path, 1, {}, {"server_state": {"w": np.zeros((2, 2), np.float32)}})
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path).restore("server_state", like)


@pytest.mark.parametrize(
    "leaf", ["ann", np.array(["ann"]), object(), np.array([b"ann", 1], object)]
)
def test_leaf_that_is_no_number_is_refused_before_writing(path, leaf):
    with pytest.raises(CheckpointError, match="'names/0' of server_state has dtype"):
        save_checkpoint(path, 1, {}, {"server_state": {"names": [leaf]}})
    assert not path.exists()


def test_texts_may_have_another_length_in_the_process(path):
    save_checkpoint(path, 1, {}, {"server_state": {"event": b"ComposedDpEvent"}})
    restored = load_checkpoint(path).restore("server_state", {"event": b"NoOp"})
    assert restored == {"event": b"ComposedDpEvent"}


@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")],
)
def test_a_file_that_cannot_be_read_is_not_called_damaged(path, monkeypatch, error):
    checkpoint.save_checkpoint(path, 1, {}, {"state": {"a": np.zeros(3)}})

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(type(error), match=error.strerror):
        checkpoint.load_checkpoint(path)


def test_too_little_ram_is_not_called_damage(path, monkeypatch):
    checkpoint.save_checkpoint(path, 1, {}, {"state": {"a": np.zeros(3)}})

    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(checkpoint.CheckpointError, match="too little RAM to read"):
        checkpoint.load_checkpoint(path)
