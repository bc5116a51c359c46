"""Trainings on disks that fill up, in folders that go, and on files that are damaged.

    python -m tests.soak.faults RESULTS.jsonl

A training is disturbed, and then started again where it can be. It must have ended
with one of our errors, or not at all, and its end must be that of an undisturbed one,
bit for bit. What damages it is chosen by a seed, for every method and store of
`kills.py`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import pickle
import random
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile

from tests.soak import kills, program, results, zygote

# The errors that say what is wrong and what to do.
OURS = ("CheckpointError", "ClientStatesError", "MetricsFileError", "OutputDirError")
_TMPFS_BYTES = 8 * 2**20


def _start_again(campaign, method, store, folder, disturbed):
    """Trains to the end without a fault; returns what a result tells of both."""
    again = campaign.zygote.train(method, store, folder)
    differs = ["not finished"]
    if again.ended_by == "":
        differs = campaign.differences(method, store, folder)
    return {
        "error": disturbed.ended_by,
        "message": disturbed.message[:200],
        "again": again.ended_by,
        "differs": differs,
        "holds": disturbed.ended_by in ("", *OURS) and not differs,
    }


def small_files(campaign, method, store, folder, choose):
    """A limit on the size of files, as quotas set it."""
    largest = max(path.stat().st_size for path in _files(campaign.whole(method, store)))
    limit = choose.randint(1, largest)

    @contextlib.contextmanager
    def fault():
        # Else the signal ends the program, which is what it is for.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        yield

    disturbed = campaign.zygote.train(method, store, folder, fault=fault)
    return _start_again(campaign, method, store, folder, disturbed)


def full_disk(campaign, method, store, folder, choose):
    """A file system that is full from some moment on."""
    with _file_system(folder):
        run, ballast = folder / "run", folder / "ballast"
        # A checkpoint is written beside the last one.
        sizes = [path.stat().st_size for path in _files(campaign.whole(method, store))]
        left = choose.randint(0, sum(sizes))
        ballast.write_bytes(bytes(_TMPFS_BYTES - left))
        disturbed = campaign.zygote.train(method, store, run)
        ballast.unlink()
        return _start_again(campaign, method, store, run, disturbed)


def read_only(campaign, method, store, folder, choose):
    """A file system that becomes read-only between two programs."""
    with _file_system(folder):
        run = folder / "run"
        rows = choose.randint(1, program.ROUNDS - 1)
        campaign.zygote.train(method, store, run, zygote.Moment("round", 0, rows))
        _mount("-o", "remount,ro", str(folder))
        disturbed = campaign.zygote.train(method, store, run)
        _mount("-o", "remount,rw", str(folder))
        return _start_again(campaign, method, store, run, disturbed)


def moved(campaign, method, store, folder, choose):
    """A folder that is moved while a training writes into it."""
    run, elsewhere = folder / "run", folder / "elsewhere"
    rows = choose.randint(1, program.ROUNDS // 2)

    @contextlib.contextmanager
    def fault():
        seen = []
        original = program.CallAfterRows.after_row

        def move(self, row):
            original(self, row)
            seen.append(row)
            if len(seen) == rows:
                run.rename(elsewhere)

        program.CallAfterRows.after_row = move
        yield

    disturbed = campaign.zygote.train(method, store, run, fault=fault)
    elsewhere.rename(run)
    return _start_again(campaign, method, store, run, disturbed)


def shared(campaign, method, store, folder, choose):
    """Two trainings in one folder: the second is refused, the first goes on."""
    found = []

    @contextlib.contextmanager
    def fault():
        rows = choose.randint(1, program.ROUNDS // 2)
        seen = []
        original = program.CallAfterRows.after_row

        def start_another(self, row):
            original(self, row)
            seen.append(row)
            if len(seen) == rows:
                second = campaign.zygote.train(method, store, folder)
                (folder / "second.txt").write_text(json.dumps(second))

        program.CallAfterRows.after_row = start_another
        yield

    first = campaign.zygote.train(method, store, folder, fault=fault)
    found = zygote.Attempt(*json.loads((folder / "second.txt").read_text()))
    result = _start_again(campaign, method, store, folder, found)
    result["holds"] &= first.ended_by == "" and found.ended_by in OURS
    return result


def damaged(campaign, method, store, folder, choose):
    """A file of a run that was cut, changed, or replaced, and a training after it.

    It may end with the bits of an undisturbed one, or be refused; a pickle in the place
    of a file is never run.
    """
    rows = choose.randint(2, program.ROUNDS - 1)
    campaign.zygote.train(method, store, folder, zygote.Moment("round", 0, rows))
    victim, how = choose.choice(_files(folder)), choose.choice(list(_DAMAGES))
    _DAMAGES[how](victim, choose)
    marker = folder / "executed"
    after = campaign.zygote.train(method, store, folder)
    differs = []
    if after.ended_by == "":
        differs = campaign.differences(method, store, folder)
    return {
        "error": after.ended_by,
        "message": after.message[:200],
        "file": victim.name,
        "damage": how,
        "differs": differs,
        "holds": after.ended_by in ("", *OURS) and not differs and not marker.exists(),
    }


def _files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


class _Crafted:
    """What would make a file if anybody unpickled it."""

    def __init__(self, folder):
        self._marker = str(folder / "executed")

    def __reduce__(self):
        return open, (self._marker, "w")


def _cut(path, choose):
    os.truncate(path, choose.randint(0, max(0, path.stat().st_size - 1)))


def _flip(path, choose):
    content = bytearray(path.read_bytes())
    if content:
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    path.write_bytes(content)


def _replace(path, choose):
    path.write_bytes(choose.randbytes(choose.randint(0, 5000)))


def _pickle(path, choose):
    path.write_bytes(pickle.dumps(_Crafted(path.parent)))


def _remove(path, choose):
    path.unlink()


_DAMAGES = {
    "cut": _cut,
    "flipped": _flip,
    "foreign": _replace,
    "pickle": _pickle,
    "removed": _remove,
}
FAULTS = {
    function.__name__: function
    for function in (small_files, full_disk, read_only, moved, shared, damaged)
}


def _mount(*words):
    subprocess.run(["mount", *words], check=True, capture_output=True)


@contextlib.contextmanager
def _file_system(folder):
    """A small file system in RAM, where this program may mount one."""
    _mount("-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def can_mount():
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _file_system(pathlib.Path(folder)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def try_fault(campaign, fault, method, store, seed):
    """Disturbs a training; returns a mapping in JSON values, `holds` among them."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=results.FAST_FOLDER))
    campaign.expected(method, store)
    try:
        result = FAULTS[fault](campaign, method, store, folder, random.Random(seed))
    finally:
        shutil.rmtree(folder)
    return {
        "what": "fault",
        "fault": fault,
        "method": method,
        "store": store,
        "seed": seed,
        **result,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--damages", type=int, default=10, help="of every method")
    parser.add_argument("--only", help="FAULT,METHOD,STORE,SEED")
    arguments = parser.parse_args()
    names = [name for name in FAULTS if can_mount() or name not in _NEED_MOUNT]
    wanted = [
        (fault, method, store)
        for method, store in kills.CONFIGURATIONS
        if store in ("ram", "disk")
        for fault in names
        for _ in range(arguments.damages if fault == "damaged" else 1)
    ]
    if arguments.only:
        fault, method, store, seed = arguments.only.split(",")
        wanted = [(fault, method, store)]
    configurations = sorted({each[1:] for each in wanted})
    for result in results.read(arguments.results):
        done = (result.get("fault"), result.get("method"), result.get("store"))
        if done in wanted:
            wanted.remove(done)
    with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
        campaign = kills.Campaign(configurations, folder)
        for fault, method, store in wanted:
            seed = int(seed) if arguments.only else secrets.randbits(32)
            result = try_fault(campaign, fault, method, store, seed)
            results.append(arguments.results, result)


_NEED_MOUNT = ("full_disk", "read_only")

if __name__ == "__main__":
    main()
