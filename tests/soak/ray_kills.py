"""Trainings on Ray whose actors, nodes and programs are killed, and what they end with.

    python -m tests.soak.ray_kills RESULTS.jsonl --kills=200

A run is a training on two actors that is started until it comes to its end, on a
cluster of several nodes that is simulated on this machine. On the way the process of an
actor, all of a node, or the program is killed at random instants: while actors start,
in rounds, and while actors are started anew. A lost node is replaced by another one.
The end is compared bit for bit with that of a training which nobody disturbed, the
client states in the actors' shards too. Every run adds a line to the results.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time

from tests.soak import endings, program, results
from tff_drift.execution.on_ray import cluster as ray_cluster

METHODS = ("scaffold", "fed_avg", "fed_dyn", "adabest")
ROUNDS = 300
ACTORS = 2
# One more than there are actors, for an actor whose node is lost.
NODES = ACTORS + 1
VICTIMS = {"actor": 8, "driver": 4, "node": 2}
# Half of the kills come within the seconds that a start may take, counted from that of
# the program or from the last kill; the others some lines later, in a round.
START_SECONDS, ROUND_SECONDS = 25.0, 1.0
MOST_LINES = 20
# A program that says nothing for as long hangs.
PATIENCE = 600.0
STORE_BYTES = 80 * 2**20


def _parent_and_title(pid):
    """Returns the parent and the title of a process; None if it has ended."""
    folder = pathlib.Path("/proc", str(pid))
    try:
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        return parent, (folder / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None


class Cluster:
    """Nodes of Ray on this machine, which can be killed.

    Attributes:
      address: The cluster's.
    """

    def __init__(self):
        ray_cluster.set_environment(None)
        # Ray waits for half a minute, which is too little on a busy machine.
        os.environ.setdefault("RAY_raylet_start_wait_time_s", str(int(PATIENCE)))
        from ray.cluster_utils import Cluster as Simulated

        head = {**self._options(), "num_cpus": 0}
        self._simulated = Simulated(initialize_head=True, head_node_args=head)
        self._nodes = [self._add() for _ in range(NODES)]
        self.address = self._simulated.address

    def _options(self):
        return {"object_store_memory": STORE_BYTES, "include_dashboard": False}

    def _add(self):
        return self._simulated.add_node(**self._options(), num_cpus=1)

    def kill_node(self, choose):
        """Kills a node that is not the head, with all that runs there."""
        lost = self._nodes.pop(choose.randrange(len(self._nodes)))
        self._simulated.remove_node(lost, allow_graceful=False)
        self._nodes.append(self._add())
        return True

    def kill_actor(self, choose):
        """Kills the process of an actor, if there is one."""
        raylets = {
            info.process.pid
            for node in self._nodes
            for info in node.all_processes.get("raylet", [])
        }
        actors = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            found = _parent_and_title(name)
            if found and found[0] in raylets and found[1].startswith("ray::Actor"):
                actors.append(int(name))
        if not actors:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(choose.choice(sorted(actors)), signal.SIGKILL)
        return True

    def close(self):
        """Ends all nodes."""
        self._simulated.shutdown()


class Training:
    """A program that trains, or goes on, and what it says."""

    def __init__(self, address, method, folder):
        words = [sys.executable, "-m", program.__name__, folder, method, "ram"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*map(str, words), f"--rounds={ROUNDS}", f"--ray={address}"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def says(self, lines):
        """Waits until it has said some lines; returns whether it did before its end."""
        while lines > 0:
            said = self._listen(PATIENCE)
            if said is None:
                raise TimeoutError(f"silent for {PATIENCE} seconds")
            if not said:
                return False
            lines -= said.count(b"\n")
        return True

    def lasts(self, seconds):
        """Waits for some seconds; returns whether it has not ended then."""
        end = time.monotonic() + seconds
        while True:
            said = self._listen(max(0.0, end - time.monotonic()))
            if said is None or said == b"":
                return said is None

    def _listen(self, seconds):
        """Returns what it says within some seconds, `b""` at its end, else None."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return os.read(self._process.stdout.fileno(), 2**16) if ready else None

    def kill(self):
        self._process.kill()

    def end(self):
        """Waits for the end; returns its status and the last of its errors."""
        self._process.wait()
        self._process.stdout.close()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self._errors.close()
        return self._process.returncode, text[-2000:]


class Campaign:
    """Runs on one cluster, each against an undisturbed one."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        self._cluster = Cluster()
        self._expected = {}

    def close(self):
        self._cluster.close()

    def _end(self, method, folder):
        stateful = method in program.WITH_CLIENT_STATES
        state = program.build(method).initial_client_state if stateful else None
        return endings.read(folder, state)

    def expected(self, method):
        """Returns what an undisturbed run leaves."""
        if method not in self._expected:
            folder = self._folder / method
            self._train(method, folder, None, collections.Counter())
            self._expected[method] = self._end(method, folder)
        return self._expected[method]

    def run(self, method, seed):
        """Kills what a run needs until it has come to its end; returns the result."""
        expected = self.expected(method)
        start, kills = time.monotonic(), collections.Counter()
        choose = random.Random(seed)
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = pathlib.Path(name) / "run"
            starts, failed = 1, []
            while True:
                before = sum(kills.values())
                status, errors = self._train(method, folder, choose, kills)
                if not status:
                    break
                if sum(kills.values()) == before:
                    failed.append(errors)
                    break
                starts += 1
            differs = []
            if not failed:
                differs = endings.differences(self._end(method, folder), expected)
        return {
            "what": "ray kills",
            "method": method,
            "seed": seed,
            "kills": dict(kills),
            "starts": starts,
            "failed": failed,
            "differs": differs,
            "values": len(expected),
            "seconds": round(time.monotonic() - start, 1),
        }

    def _train(self, method, folder, choose, kills):
        """Starts a training and kills on the way; returns its status and errors."""
        training = Training(self._cluster.address, method, folder)
        try:
            lines, seconds = self._next(choose)
            while training.says(lines) and training.lasts(seconds):
                self._kill(choose, training, kills)
                lines, seconds = self._next(choose)
        except TimeoutError as error:
            training.kill()
            return -1, f"{error}: {training.end()}"
        return training.end()

    def _next(self, choose):
        """Returns after how many lines, and seconds from then, the next kill comes."""
        if choose is None:
            return float("inf"), 0.0
        if choose.random() < 0.5:
            return 0, choose.uniform(0.0, START_SECONDS)
        return choose.randint(1, MOST_LINES), choose.uniform(0.0, ROUND_SECONDS)

    def _kill(self, choose, training, kills):
        [victim] = choose.choices(list(VICTIMS), VICTIMS.values())
        if victim == "driver":
            training.kill()
        elif not getattr(self._cluster, f"kill_{victim}")(choose):
            return
        kills[victim] += 1


def kill(path, wanted):
    """Kills until the results count enough of it."""
    counts = collections.Counter(dict.fromkeys(METHODS, 0))
    for result in results.read(path):
        if result["what"] == "ray kills":
            counts[result["method"]] += sum(result["kills"].values())
    with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
        campaign = Campaign(folder)
        try:
            while counts.total() < wanted:
                method = min(METHODS, key=counts.__getitem__)
                result = campaign.run(method, secrets.randbits(32))
                results.append(path, result)
                print(result, flush=True)
                counts[method] += sum(result["kills"].values())
        finally:
            campaign.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    arguments = parser.parse_args()
    kill(arguments.results, arguments.kills)


if __name__ == "__main__":
    main()
