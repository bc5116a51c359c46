"""Actors that are killed or hang, and programs that are: nothing is lost or wrong."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import models
from tests.execution.on_ray.conftest import OPTIONS
from tests.execution.on_ray.test_data import client_arrays, in_ram, train
from tff_drift import execution
from tff_drift.execution.on_ray import actors, cluster
from tff_drift.simulation import ClientDatasets

# How long a test waits for what should take some seconds.
PATIENCE = 120.0
# Little enough to be filled.
LOST_STORE_BYTES = 80 * 2**20


def once(path):
    """Returns whether this is the first call with a path, in any process."""
    try:
        pathlib.Path(path).open("x").close()
    except FileExistsError:
        return False
    return True


def load(path, action, client_id):
    """Loads a client; the first time that it is client 3, something happens."""
    if client_id == "client 3" and action is not None and once(path):
        action()
    return client_arrays()[client_id]


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(10 * PATIENCE)


def datasets(path, action=None):
    return ClientDatasets(
        list(client_arrays()),
        functools.partial(load, path, action),
        batch_size=4,
        cache_bytes=0,  # So that every round loads.
    )


@pytest.mark.parametrize(
    ("action", "options"),
    [(kill_self, {}), (hang, {"part_seconds": 40.0})],
)
def test_an_actor_that_is_lost_changes_no_number(two, tmp_path, action, options):
    expected = train(two, datasets(tmp_path / "never"))
    context = execution.create_ray_execution_context(**OPTIONS, **options)
    try:
        found = train(context, datasets(tmp_path / "once", action))
    finally:
        context.close()
    assert (tmp_path / "once").exists()
    models.assert_bit_equal(
        found.model_weights.trainable, expected.model_weights.trainable
    )


def lose_objects():
    """Removes what Ray has stored: more is stored than fits, and its files removed."""
    ray = cluster.import_ray()
    session = ray._private.worker.global_worker.node.get_session_dir_path()
    more = [ray.put(np.zeros(LOST_STORE_BYTES // 4, np.uint8)) for _ in range(8)]
    end = time.monotonic() + PATIENCE
    while not (files := list(pathlib.Path(session).glob("ray_spilled_*/*"))):
        assert time.monotonic() < end
        time.sleep(0.1)
    del more
    for each in files:
        each.unlink(missing_ok=True)


class Losses:
    """Of the calls that train, before or after which objects are lost."""

    def __init__(self):
        self.lost = []
        self._begin = actors.Actors._begin

    def begin(self, of_actors, calls):
        number = len(self.lost)
        if {call.method for call in calls.values()} != {"run"} or number == 3:
            return self._begin(of_actors, calls)
        self.lost.append(("model", "computation", "aggregate")[number])
        if self.lost[-1] == "aggregate":
            answers = self._begin(of_actors, calls)
            of_actors._ray.wait(
                [answer for (answer,) in answers.values()], num_returns=2
            )
            lose_objects()
            return answers
        lose_objects()
        if self.lost[-1] == "computation":  # And clients' data, which actors keep too.
            for actor in of_actors._actors:
                of_actors._ray.kill(actor, no_restart=False)
        return self._begin(of_actors, calls)


def train_while_objects_are_lost():
    # So that results are stored as well, unlike what an actor is made from.
    os.environ.update(RAY_max_direct_call_object_size="500")
    cluster.connect(None, LOST_STORE_BYTES)
    context = execution.create_ray_execution_context(**OPTIONS, part_seconds=20.0)
    data = in_ram(batch_size=4)
    expected = train(context, data)
    losses = Losses()
    actors.Actors._begin = lambda *arguments: losses.begin(*arguments)
    found = train(context, data)
    models.assert_bit_equal(
        found.model_weights.trainable, expected.model_weights.trainable
    )
    print("equal without", *losses.lost, flush=True)


@pytest.mark.soak
def test_objects_that_ray_loses_change_no_number(instance):
    environment = {
        name: value for name, value in os.environ.items() if "RAY_" not in name
    }
    found = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=pathlib.Path(__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "equal without model computation aggregate" in found.stdout, found.stderr


def test_a_part_that_loses_every_actor_is_an_error(instance, tmp_path):
    context = execution.create_ray_execution_context(**OPTIONS, max_retries=1)

    def load_never(client_id):
        if client_id == "client 3":
            os.kill(os.getpid(), signal.SIGKILL)
        return client_arrays()[client_id]

    deadly = ClientDatasets(list(client_arrays()), load_never, batch_size=4)
    try:
        with pytest.raises(execution.WorkerError, match="lost 2 times"):
            train(context, deadly)
        # The context goes on with what harms no actor.
        train(context, datasets(tmp_path / "never"))
    finally:
        context.close()


def test_a_mistake_of_loading_is_raised_as_it_is(two):
    def load_nothing(client_id):
        raise FileNotFoundError(f"there is no file of {client_id}")

    wrong = ClientDatasets(list(client_arrays()), load_nothing, batch_size=4)
    with pytest.raises(FileNotFoundError, match="there is no file of client"):
        train(two, wrong)


def test_actors_that_find_no_room_are_an_error_that_says_what_is_free(
    instance, monkeypatch
):
    # As in a cluster, which may grow.
    monkeypatch.setattr(cluster, "_local", None)
    with pytest.raises(execution.WorkerError, match="Ask for fewer actors") as error:
        execution.create_ray_execution_context(
            num_actors=1, processors=1000, start_seconds=2.0
        )
    assert "'CPU'" in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"num_actors": 3, "processors": 500},
            "num_actors=3 with processors=500 find",
        ),
        ({"processors": 1000}, "num_actors=1 with processors=1000 find no room .* has"),
        ({"processors": 0.25, "gpus": 64}, "num_actors=1 with gpus=64 find no room on"),
    ],
)
def test_a_local_instance_is_not_waited_for(instance, options, said):
    began = time.monotonic()
    with pytest.raises(execution.WorkerError, match=f"{said}.*Ask for fewer actors"):
        execution.create_ray_execution_context(**options)
    assert time.monotonic() - began < 60


def test_a_second_context_without_room_names_the_first(instance, two):
    # `two` has half a processor.
    processors = int(instance.cluster_resources()["CPU"])
    options = {"num_actors": 1, "processors": processors - 0.5}
    first = execution.create_ray_execution_context(**options)
    said = (
        f"has {processors} processors. Another context of this program holds "
        rf"{processors} of them: end it by its close\(\), or .*set_ray_execution_con"
    )
    with pytest.raises(execution.WorkerError, match=said):
        execution.create_ray_execution_context(**options)
    first.close()
    execution.create_ray_execution_context(**options).close()


def test_another_version_at_an_actor_is_an_error(instance, monkeypatch):
    ours = {**actors.versions(), "TensorFlow": "1.0"}
    monkeypatch.setattr(actors, "versions", lambda: ours)
    with pytest.raises(execution.WorkerError, match=r"this process TensorFlow 1\.0"):
        execution.create_ray_execution_context(num_actors=1, processors=0.25)


PROGRAM = """
import os, time
from tff_drift import execution
context = execution.create_ray_execution_context(
    num_actors=1, processors=0.25, object_store_bytes=100 * 2**20
)
print("actors", *(each["pid"] for each in context._actors.described), flush=True)
time.sleep(1000)
"""


def test_nothing_outlives_a_program_that_is_killed():
    environment = {
        name: value for name, value in os.environ.items() if "RAY_" not in name
    }
    pytest.importorskip("ray", reason="Ray, the optional extra, is not installed")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        lines = iter(program.stdout.readline, "")
        line = next(each for each in lines if each.startswith("actors"))
        (pid,) = map(int, line.split()[1:])
        os.kill(pid, 0)
    finally:
        program.kill()
        program.wait()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.2)
    assert not os.path.exists(f"/proc/{pid}")


def test_actors_do_not_give_way_to_other_programs(two):
    for actor in two.actors:
        actors_niceness = os.getpriority(os.PRIO_PROCESS, actor["pid"])
        assert actors_niceness <= os.getpriority(os.PRIO_PROCESS, 0)


def test_strangers_are_refused(instance):
    program = (
        "import ray\n"
        f"ray.init({cluster.address_of(instance)!r}, logging_level='error')\n"
        "print('in')"
    )
    # Without it, Ray looks at the machine's own address for what is on the loopback.
    on_loopback = {**os.environ, cluster.OTHER_MACHINES: "0"}
    for token, is_in in (("0" * 64, False), (os.environ["RAY_AUTH_TOKEN"], True)):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**on_loopback, "RAY_AUTH_TOKEN": token},
            capture_output=True,
            text=True,
        )
        assert (found.stdout.strip() == "in") is is_in
        assert ("token" in found.stderr) is not is_in


def test_without_ray_there_is_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'tff-drift\[ray\]'"):
        execution.create_ray_execution_context()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("num_actors", 0, ValueError),
        ("num_actors", "two", TypeError),
        ("processors", 0.0, ValueError),
        ("processors", 1e-5, ValueError),
        ("gpus", -1, ValueError),
        ("gpus", 0.12345, ValueError),
        ("gpus", 2.5, ValueError),
        ("max_concurrent_clients", 0, ValueError),
        ("object_store_bytes", 0, ValueError),
        ("start_seconds", 0.0, ValueError),
        ("part_seconds", float("nan"), ValueError),
        ("max_retries", -1, ValueError),
        ("address", 7, TypeError),
    ],
)
def test_bad_options_are_named_before_ray_starts(monkeypatch, name, value, kind):
    monkeypatch.setattr(cluster, "connect", lambda *_: pytest.fail("Ray was started"))
    with pytest.raises(kind, match=name):
        execution.create_ray_execution_context(**{name: value})


def test_an_address_where_nothing_listens_is_told_at_once(monkeypatch):
    monkeypatch.setattr(cluster, "import_ray", lambda: NotConnected)
    with pytest.raises(execution.WorkerError, match=r"at '127\.0\.0\.1:9'") as error:
        execution.create_ray_execution_context(address="127.0.0.1:9")
    assert "ray start --head" in str(error.value)


def test_ray_client_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(cluster, "import_ray", lambda: NotConnected)
    with pytest.raises(execution.WorkerError, match="Ray Client is not supp") as error:
        execution.create_ray_execution_context(address="ray://host:10001")
    assert "'ray://host:10001'" in str(error.value)
    assert "'auto'" in str(error.value)


def test_the_address_of_another_cluster_is_refused(instance):
    with pytest.raises(execution.WorkerError, match=r"ray\.shutdown\(\)") as error:
        execution.create_ray_execution_context(address="203.0.113.9:6379", **OPTIONS)
    assert "'203.0.113.9:6379'" in str(error.value)
    assert cluster.address_of(instance) in str(error.value)


def test_other_spellings_of_the_same_address_are_taken(instance):
    host, _, port = cluster.address_of(instance).rpartition(":")
    assert host == instance.util.get_node_ip_address()
    for address in ("auto", f"{host}:{port}", f"localhost:{port}", f"127.0.0.1:{port}"):
        assert cluster.connect(address, None) is instance
    for address in (f"localhost:{int(port) + 1}", "nonsense", "no.host.invalid:1", ""):
        with pytest.raises(execution.WorkerError, match="is connected to Ray at"):
            cluster.connect(address, None)


class NotConnected:
    """Ray, as it is before `ray.init`."""

    @staticmethod
    def is_initialized():
        return False

    @staticmethod
    def init(**options):
        raise AssertionError(f"Ray would try for ten minutes: {options}")


if __name__ == "__main__":
    train_while_objects_are_lost()
