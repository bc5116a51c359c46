"""The benchmark of scale, on few clients."""

import csv
import os
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"),
    reason="The benchmark of scale asks Linux for the RAM in use",
)


@pytest.fixture(name="scaling")
def fixture_scaling(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = set(sys.modules)
    import scaling

    yield scaling
    # Names such as `models` are of the benchmarks alone.
    for name in set(sys.modules) - before:
        if BENCHMARKS in pathlib.Path(sys.modules[name].__file__ or "/").parents:
            del sys.modules[name]


@pytest.mark.documents
def test_the_table_of_scale_tells_of_every_part(scaling, tmp_path, capsys):
    output = tmp_path / "scale.csv"
    options = ["--rounds=1", "--cohorts=1,3", "--population=5", f"--folder={tmp_path}"]
    rows = scaling.main([*options, "--parts=cohorts,population", f"--output={output}"])
    assert [(row.part, row.clients) for row in rows] == [
        ("cohorts", 1),
        ("cohorts", 3),
        ("population", 5),
        ("population", 5),
        ("population", 5),
        ("population", 5),
    ]
    assert all(row.seconds > 0 and row.ram_mb >= 0 for row in rows)
    _, _, trained, opened, kept, opened_again = rows
    # A state is a control variate of 784 x 62 weights and 62 biases, in float32.
    assert trained.disk_mb >= 5 * 4 * (784 * 62 + 62) / 1e6
    assert opened.disk_mb == pytest.approx(trained.disk_mb, rel=0.5)
    assert kept.disk_mb >= opened_again.disk_mb >= 5 * 1000 / 1e6
    printed = capsys.readouterr().out.splitlines()
    assert len([line for line in printed if line.startswith("|")]) == 2 + len(rows)
    with output.open() as file:
        assert [line["clients"] for line in csv.DictReader(file)] == list("135555")
