"""What systems tell in different ways, on Linux and where Linux' calls are missing."""

import os

import pytest

from tff_drift import system


@pytest.fixture
def elsewhere(monkeypatch):
    """Takes away what macOS does not have."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "fdatasync", raising=False)
    names = {k: v for k, v in os.sysconf_names.items() if k != "SC_AVPHYS_PAGES"}
    monkeypatch.setattr(os, "sysconf_names", names)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"),
    reason="The system cannot limit a process to some processors",
)
def test_a_process_that_may_use_one_processor_has_one():
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        assert system.processors() == 1
    finally:
        os.sched_setaffinity(0, mine)
    assert system.processors() == len(mine)


def test_elsewhere_a_process_has_all_processors(elsewhere):
    assert system.processors() == os.cpu_count()


def test_free_memory_is_a_part_of_the_machines():
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < system.free_memory() < whole


def test_elsewhere_half_of_the_memory_counts_as_free(elsewhere):
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert system.free_memory() == whole // 2


def test_elsewhere_files_are_written_through_with_their_times(
    elsewhere, monkeypatch, tmp_path
):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with open(tmp_path / "file", "wb") as file:
        system.write_through(file.fileno())
        assert synced == [file.fileno()]
