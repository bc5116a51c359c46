"""What docs/reliability.md says is what the committed results say."""

import pytest

from tests.soak import report, results

pytestmark = pytest.mark.documents


def test_the_tables_are_those_of_the_results():
    text = report.DOCUMENT.read_text()
    assert report.fill(text, results.read(report.RESULTS)) == text


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--other", 2)])
def test_arguments_write_nothing(argument, status, tmp_path, monkeypatch, capsys):
    document = tmp_path / "reliability.md"
    document.write_text(report.DOCUMENT.read_text())
    before = document.stat().st_mtime_ns
    monkeypatch.setattr(report, "DOCUMENT", document)
    monkeypatch.setattr("sys.argv", ["report", argument])
    with pytest.raises(SystemExit) as raised:
        report.main()
    assert raised.value.code == status
    assert "usage: python -m tests.soak.report" in "".join(capsys.readouterr())
    assert document.stat().st_mtime_ns == before


def test_nothing_differed_and_nothing_was_let_in():
    found = results.read(report.RESULTS)
    by_kills = [result for result in found if result["what"] == "kills"]
    assert by_kills
    assert [each for each in by_kills if each["differs"] or each["failed"]] == []
    interrupted = [result for result in found if result["what"] == "interrupt"]
    assert [each for each in interrupted if each["differs"]] == []
    assert {each["ended_by"] for each in interrupted} == {"KeyboardInterrupt"}
    assert max(each["seconds"] for each in interrupted) < 2
    random_cases = [result for result in found if result["what"] == "fuzz"]
    assert sum(each["totals"]["differ"] for each in random_cases) == 0
    of_stores = [result for result in found if result["what"] == "store kills"]
    assert [each for each in of_stores if each["different"]] == []
    on_ray = [result for result in found if result["what"] == "ray kills"]
    assert on_ray
    assert [each for each in on_ray if each["differs"] or each["failed"]] == []
    disturbed = [result for result in found if result["what"] == "fault"]
    assert [each for each in disturbed if not each["holds"]] == []
    walks = [result for result in found if result["what"] == "bad values"]
    assert walks
    assert [walk for walk in walks if {"another", "taken"} & set(walk["answers"])] == []
