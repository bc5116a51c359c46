"""`report` and `analyze` on folders that somebody else, or something, has changed.

Whatever their files say, a reader makes of them what can be made, or one line that
names the file. It opens no links, waits for no pipe, and what it writes is escaped.
"""

import copy
import gzip
import json
import os
import shutil
import signal
import stat

import pytest

from experiments import analysis, escape
from experiments.flags import analyses, errors, tuned_settings
from experiments.reports import analysis as tables
from experiments.reports import report, texts, writing
from tests import tiers
from tests.experiments import made_up_runs

RUN = "a/seed_1"
GONE = object()
VALUES = (
    *(GONE, None, [], ["a"], {}, {"a": 1}, "x", "", True, -1, 0, 1.5, 1e308, 10**30),
    *([[1]], "$x_{", "\x1b[31m", "<script>", "=1+1"),
    *(float("nan"), float("-inf"), False, [{}], {"a": {"b": []}}),
    *("../..", "\0", "\ud800", "long " * 5000),
)


def make(folder):
    for name, method in (("a", "fed_avg"), ("b", "fed_adam")):
        made_up_runs.write(folder / name / "seed_1", [0.1, 0.2, 0.3], algorithm=method)
    return folder


@pytest.fixture(autouse=True)
def in_time():
    """Ends a test that hangs."""
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture
def no_figures(monkeypatch):
    # They take most of the time, and a test below draws them.
    monkeypatch.setattr(tables, "figures", lambda *_, **__: iter(()))


def report_or_refuse(folder, out):
    """Whether a page was made; a refusal must be one line."""
    told = ""
    try:
        report.write([folder], out)
    except (errors.UserError, ValueError) as error:
        told = str(error)
    assert "\n" not in told
    assert not told or str(folder) in told or "Unknown task" in told
    return not told


def places(content, above=()):
    """The keys that lead to every value of nested mappings."""
    if above:
        yield above
    for key in content if isinstance(content, dict) else ():
        yield from places(content[key], (*above, key))


def changed(content, keys, value):
    content = copy.deepcopy(content)
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    if value is GONE:
        del inner[keys[-1]]
    return content


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    "name", tiers.first(["summary.json"], ["config.json", "summary.json"])
)
def test_values_of_other_kinds_are_told_or_refused(tmp_path, no_figures, name):
    path = make(tmp_path / "in") / RUN / name
    whole = json.loads(path.read_text())
    made = 0
    for keys in places(whole):
        for value in VALUES:
            path.write_text(json.dumps(changed(whole, keys, value)))
            made += report_or_refuse(tmp_path / "in", tmp_path / "out")
    assert made > 10


def test_a_comparison_that_names_a_run_twice_is_told(tmp_path, no_figures):
    study = tmp_path / "in"
    made_up_runs.write_study(study, [("fed_avg", {}, [0.1, 0.2])])
    path = study / "config.json"
    config = json.loads(path.read_text())
    config["format"] = "tff_drift comparison"
    config["runs"] *= 2
    path.write_text(json.dumps(config))
    assert report_or_refuse(study, tmp_path / "out")


def metrics():
    text = (
        "round,test_accuracy,test_loss,seconds\n0,0.1,0.9,\n1,0.2,0.8,2\n2,0.3,0.7,2\n"
    )
    header, *rows = text.splitlines()
    return {
        "a header alone": f"{header}\n",
        "nothing": "",
        "a text among numbers": text.replace("0.2", "abc"),
        "bytes": "\0\1\2",
        "columns twice": f"{header},{header}\n{rows[0]},{rows[0]}\n",
        "a negative round": text.replace("\n0,", "\n-5,"),
        "a round in words": text.replace("\n0,", "\nzero,"),
        "half a round": text.replace("\n1,", "\n1.5,"),
        "a round twice": f"{text}{rows[-1]}\n",
        "infinity": text.replace("0.2", "inf"),
        "more than infinity": text.replace("0.2", "1e400"),
        "no metrics": "round,seconds\n0,\n1,2\n2,2\n",
        "an open quote": f'"{text}',
        "short rows": f"{header}\n0\n1\n2\n",
        "no finite number": "round,test_num_examples\n0,inf\n1,inf\n2,inf\n",
        "no rounds": text.replace("round", "rnd"),
        "many columns": "round," + ",".join(map(str, range(100_000))) + "\n0\n",
    }


@pytest.mark.parametrize("kind", metrics())
def test_metrics_are_told_or_refused(tmp_path, no_figures, kind):
    path = make(tmp_path / "in") / RUN / "metrics.csv"
    path.write_text(metrics()[kind])
    report_or_refuse(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("kind", ["a header alone", "a text among numbers", "nothing"])
def test_metrics_that_are_none_are_refused(tmp_path, kind):
    path = make(tmp_path / "in") / RUN / "metrics.csv"
    path.write_text(metrics()[kind])
    with pytest.raises(ValueError, match=r"metrics\.csv' is damaged"):
        analysis.read(tmp_path / "in")


def test_a_table_of_other_separators_is_refused_by_what_it_lacks(tmp_path):
    path = make(tmp_path / "in") / RUN / "metrics.csv"
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(ValueError, match="is damaged: there is no column 'round'"):
        analysis.read(tmp_path / "in")


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1), (0, 1, 1, 2)])
def test_rounds_in_another_order_are_refused(tmp_path, order):
    # The last row would count as the last round.
    path = make(tmp_path / "in") / RUN / "metrics.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(rows[k] for k in order)]) + "\n")
    with pytest.raises(ValueError, match="is damaged: its rounds are not in order"):
        analysis.read(tmp_path / "in")


def test_settings_without_end_are_refused(tmp_path):
    path = make(tmp_path / "in") / RUN / "config.json"
    content = json.loads(path.read_text())
    content["configuration"].update({f"flag_{k}": k for k in range(100_000)})
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"config\.json' is damaged: .*length <= 1000"):
        analysis.read(tmp_path / "in")


def test_names_of_settings_steer_no_terminal(tmp_path, no_figures):
    path = make(tmp_path / "in") / RUN / "config.json"
    content = json.loads(path.read_text())
    content["configuration"]["\x1b]0;title\x07"] = 1
    path.write_text(json.dumps(content))
    page = report.write([tmp_path / "in"], tmp_path / "out")
    for written in (page, page.with_suffix(".md")):
        assert "title" in written.read_text()
        assert "\x1b" not in written.read_text()


def test_deep_files_and_bombs_are_refused(tmp_path, monkeypatch):
    path = make(tmp_path / "in") / RUN / "config.json"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match=r"config\.json' is damaged: .*recursion"):
        analysis.read(tmp_path / "in")
    shutil.rmtree(tmp_path / "in")
    run = make(tmp_path / "in") / RUN
    metrics = (run / "metrics.csv").read_bytes()
    (run / "metrics.csv").unlink()
    monkeypatch.setattr("experiments.stored_files._MOST_METRICS", 10_000_000)
    (run / "metrics.csv.gz").write_bytes(gzip.compress(metrics + b"\n" * 20_000_000))
    with pytest.raises(ValueError, match=r"holds more than 9,[0-9,]+ bytes"):
        analysis.read(tmp_path / "in")
    (run / "metrics.csv.gz").write_bytes(gzip.compress(metrics))
    assert len(analysis.read(tmp_path / "in").settings) == 2


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.csv"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link", "folder"])
def test_what_is_no_regular_file_is_not_opened(tmp_path, no_figures, name, kind):
    path = make(tmp_path / "in") / RUN / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/etc/passwd")
    report_or_refuse(tmp_path / "in", tmp_path / "out")


def test_no_file_from_elsewhere_comes_onto_a_page(tmp_path, no_figures):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "summary.json").write_text('{"git_revision": "private"}')
    (secret / "private.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"private" * 9)
    (secret / "private.md").write_text("private\n\n| private |\n| :-- |\n")
    study = tmp_path / "in"
    made_up_runs.write_study(study, [("fed_avg", {}, [0.1, 0.2])])
    config = json.loads((study / "config.json").read_text())
    config["format"] = "tff_drift comparison"
    (study / "config.json").write_text(json.dumps(config))
    for name in ("private.png", "private.md"):
        (study / name).symlink_to(secret / name)
    (study / "fed_avg").symlink_to(tmp_path)
    (tmp_path / "seed_1").symlink_to(secret)
    with pytest.raises(ValueError, match="is not in"):
        report.write([study], tmp_path / "out")
    (study / "fed_avg").unlink()
    page = report.write([study], tmp_path / "out")
    assert "private" not in page.read_text()
    config["runs"][0]["folder"] = "../secret/seed_1"
    (study / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="is not below it"):
        report.write([study], tmp_path / "out")


NAMES = ("\x1b[31mred", "<script>", "$x_{", "=cmd", "a|b", "[red]", "`x`")


def test_names_are_shown_as_they_are_in_every_medium(tmp_path, capsys):
    for name in NAMES:
        made_up_runs.write(
            tmp_path / "in" / name / "seed_1", [0.1, 0.2], algorithm=name
        )
    page = report.write([tmp_path / "in"], tmp_path / "out")
    html, markdown = page.read_text(), page.with_suffix(".md").read_text()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert r"\<script>" in markdown
    assert r"a\|b" in markdown
    texts.print_table(["name"], [[name] for name in NAMES])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[red]" in shown


def test_escaping():
    assert escape.terminal("a\x1b[2J\u202eb\n") == "a\\x1b[2J\\u202eb\n"
    assert escape.markdown("fed_avg | <b> _x_ \n`y`") == (
        r"fed_avg \| \<b> \_x\_ \`y\`"
    )
    assert escape.from_markdown(escape.markdown("> a|b [c]")) == "> a|b [c]"
    assert escape.figure("$x$") == r"\$x\$"
    assert [escape.csv(text) for text in ("=1+1", "@x", "fed_avg")] == [
        "'=1+1",
        "'@x",
        "fed_avg",
    ]


def test_tables_for_spreadsheets_hold_no_formulas(tmp_path):
    frame = analysis.read(make(tmp_path / "in")).settings.assign(label="=1+1")
    writing.write_table(tmp_path / "table.csv", frame)
    assert "'=1+1" in (tmp_path / "table.csv").read_text()
    assert ",=1+1" not in (tmp_path / "table.csv").read_text()


@pytest.mark.parametrize("flag", ["output_dir", "plugin", "callbacks", "cache_dir"])
def test_settings_choose_neither_folders_nor_code(tmp_path, flag):
    path = tmp_path / "best.json"
    content = tuned_settings.content("digits", "fed_avg", {flag: "x"})
    path.write_text(json.dumps(content))
    with pytest.raises(errors.UserError, match=f"sets --{flag}, which only a command"):
        tuned_settings.with_found({"settings": (str(path),)})


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": 3}', "[" * 100_000, '{"flags": []}', "\xff"]
)
def test_settings_that_are_none_are_refused(tmp_path, content):
    path = tmp_path / "best.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(errors.UserError, match=r"is not a file of `tff-drift sweep`"):
        tuned_settings.with_found({"settings": (str(path),)})


def test_links_lead_no_page_out_of_its_folder(tmp_path, no_figures):
    elsewhere, out = tmp_path / "elsewhere", make(tmp_path / "in") / "out"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    out.mkdir()
    for name in ("report.html", "report.md"):
        (out / name).symlink_to(elsewhere / "precious")
        (out / f".{name}.tmp").symlink_to(elsewhere / "precious")
    (out / ".table.csv.tmp").symlink_to(elsewhere / "none")
    page = report.write([tmp_path / "in"], out)
    assert "fed_adam" in page.read_text()
    wanted = analyses.request({"folders": [str(tmp_path / "in")], "output_dir": out})
    tables.write(wanted)
    assert not [path for path in out.iterdir() if path.is_symlink()]
    assert os.listdir(elsewhere) == ["precious"]
    assert (elsewhere / "precious").read_text() == "precious"


@pytest.mark.parametrize("name", ["out", "out/report_figures"])
def test_links_lead_no_folder_out_of_what_is_read(tmp_path, name):
    elsewhere, folder = tmp_path / "elsewhere", make(tmp_path / "in")
    elsewhere.mkdir()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises((ValueError, OSError), match="link leads out of") as caught:
        report.write([folder], folder / "out")
    assert "\n" not in str(caught.value)
    assert os.listdir(elsewhere) == []
    # What is not read may be wherever the user's own links lead.
    (tmp_path / "own").symlink_to(elsewhere)
    assert report.write([folder / "a"], tmp_path / "own").exists()


def as_study(folder):
    made_up_runs.write_study(folder, [("fed_avg", {}, [0.1, 0.2])])
    config = json.loads((folder / "config.json").read_text())
    config["format"] = "tff_drift comparison"
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.conformance
def test_many_pictures_with_holes_are_refused_together(tmp_path, no_figures):
    study = as_study(tmp_path / "in")
    head = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\1" * 2
    for k in range(5):
        (study / f"{k}.png").write_bytes(head)
        # Each alone is small enough.
        os.truncate(study / f"{k}.png", 2**24)
    with pytest.raises(ValueError, match=r"4\.png' is larger than .*all files here"):
        report.write([study], tmp_path / "out")
    (study / "4.png").unlink()
    (study / "3.png").unlink()
    assert report.write([study], tmp_path / "out").exists()


def test_metrics_of_many_runs_are_refused_together(tmp_path, monkeypatch):
    make(tmp_path / "in")
    text = (tmp_path / "in" / RUN / "metrics.csv").read_text()
    monkeypatch.setattr("experiments.stored_files._MOST_METRICS", 4000)
    assert len(analysis.read(tmp_path / "in").settings) == 2
    for name in ("a", "b"):
        path = tmp_path / "in" / name / "seed_1" / "metrics.csv"
        path.write_text(text + "\n" * (1900 - len(text)))
    with pytest.raises(ValueError, match=r"metrics\.csv' is larger than .*all files"):
        analysis.read(tmp_path / "in")
    assert len(analysis.read(tmp_path / "in" / "a").settings) == 1


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("config.json", ("configuration", "seed")),
        ("config.json", ("configuration", "rounds")),
        ("config.json", ("configuration", "client_learning_rate")),
        ("summary.json", ("clients",)),
    ],
)
@pytest.mark.parametrize("digits", [30, 400, 5000])
def test_numbers_without_end_are_refused(tmp_path, name, keys, digits):
    path = make(tmp_path / "in") / RUN / name
    content = changed(json.loads(path.read_text()), keys, "NUMBER")
    text = json.dumps(content).replace('"NUMBER"', "1" + "0" * digits)
    path.write_text(text)
    wanted = analyses.request(
        {"folders": [str(tmp_path / "in")], "output_dir": tmp_path}
    )
    with pytest.raises(ValueError, match=rf"{name}' is damaged"):
        tables.write(wanted)
