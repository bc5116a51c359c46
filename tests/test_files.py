"""How files are opened: what is not a file, and links, lead nowhere."""

import ast
import os
import pathlib
import re

import pytest

from tff_drift import files

REPOSITORY = pathlib.Path(__file__).parents[1]
PACKAGES = ("tff_drift", "tasks", "experiments")

# Calls that write, or make names, by their last word.
WRITING = {
    *("write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to"),
    *("to_csv", "to_json", "to_pickle", "to_parquet", "to_excel", "to_hdf", "to_html"),
    *("to_markdown", "to_feather", "savefig", "tofile", "savetxt", "save_weights"),
    *("extractall", "imsave", "write_file", "urlretrieve", "export", "save_model"),
}
WRITING_BY_MODULE = {
    "os": {
        *("replace", "rename", "renames", "link", "symlink", "truncate", "makedirs"),
        *("mkdir", "mknod", "mkfifo", "mkdir"),
    },
    "shutil": {
        *("copy", "copy2", "copyfile", "copyfileobj", "copymode", "copystat"),
        *("copytree", "move", "unpack_archive", "make_archive"),
    },
    "np": {"save", "savez", "savez_compressed", "savetxt", "memmap"},
    "json": {"dump"},
    "pickle": {"dump"},
    "sqlite3": {"connect"},
    "gzip": {"open"},
    "journal": {"JournalFileBackend"},
}
# Modules of the library's with such names: what they call is seen there.
OUR_OWN = ("writing", "configurations")
# Where else something is opened to write, and why it goes nowhere but where it should.
ELSEWHERE = {
    # To files that `files.create` opened.
    ("tff_drift/simulation/records/checkpoint.py", "archive.open"),
    ("tasks/sources/writers_letters.py", "np.savez_compressed"),
    # Into RAM.
    ("experiments/analysis/style.py", "figure.savefig"),
    ("tff_drift/simulation/diagnosis/report.py", "figure.savefig"),
    # Of a path that `files.create` or `files.check_in_place` has seen.
    ("tff_drift/client_states/state_index.py", "sqlite3.connect"),
    ("tff_drift/client_states/on_disk.py", "os.replace"),
    ("experiments/training/search.py", "journal.JournalFileBackend"),
    # To read, or in RAM.
    ("tff_drift/models/value_files.py", "np.memmap"),
    ("tasks/sources/sqlite_access.py", "sqlite3.connect"),
    # Of files, and in folders, that `tempfile` made with names of their own, here or on
    # another machine.
    ("tff_drift/models/value_files.py", "path.parent.mkdir"),
    ("tasks/sources/row_index.py", "sqlite3.connect"),
    ("tasks/sources/row_index.py", "os.replace"),
    ("tasks/sources/row_index.py", "shutil.copymode"),
    ("tasks/sources/sqlite_writer.py", "sqlite3.connect"),
    ("tasks/sources/sqlite_writer.py", "os.replace"),
    ("tasks/sources/sqlite_files.py", "os.replace"),
    ("tff_drift/simulation/loop/callbacks/tracker.py", "figure.savefig"),
    # In a folder of W&B's.
    ("tff_drift/simulation/loop/callbacks/wandb_tracker.py", "shutil.copyfile"),
    # In the Python environment.
    ("tff_drift/install/__init__.py", "shutil.copytree"),
    ("tff_drift/install/__init__.py", "record.write_text"),
    ("tff_drift/install/__init__.py", "(folder / _WORKER).write_bytes"),
    # To /dev/null.
    ("experiments/terminal.py", "os.open"),
}

_WRITTEN = re.compile("[rbt]*[wax+][bt+]*")


def modes(call):
    """The modes in which a call opens a file, as far as they are written there."""
    given = [*call.args[-1:], *(each.value for each in call.keywords)]
    return [each.value for each in given if isinstance(each, ast.Constant)]


def writes(call):
    """Whether a call opens a file to write to it, or makes one."""
    function, name = ast.unparse(call.func), ast.unparse(call.func).rpartition(".")[2]
    above = function.rpartition(".")[0]
    if name in WRITING_BY_MODULE.get(above, ()):
        return True
    if function == "os.open":
        return ast.unparse(call.args[1]).partition(" ")[0] != "os.O_RDONLY"
    if name == "open":
        return any(_WRITTEN.fullmatch(str(each)) for each in modes(call))
    if name in WRITING and above not in ("", *OUR_OWN):
        # Without a path, pandas returns what it would write.
        return not name.startswith("to_") or bool(call.args)
    return False


def test_all_that_writes_goes_through_one_module():
    found = set()
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            where = str(path.relative_to(REPOSITORY))
            if where == "tff_drift/files.py":
                continue
            found |= {
                (where, ast.unparse(each.func))
                for each in ast.walk(ast.parse(path.read_text()))
                if isinstance(each, ast.Call) and writes(each)
            }
    # What is missing on the left is opened past `tff_drift.files`; what is missing on
    # the right need not be named any more.
    assert found == ELSEWHERE


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("open(path, 'w')", True),
        ("path.open(mode='ab')", True),
        ("open(path, 'r+b')", True),
        ("open(path)", False),
        ("open(path, 'rb')", False),
        ("os.open(path, os.O_RDWR)", True),
        ("os.open(path, os.O_RDONLY | os.O_CLOEXEC)", False),
        ("table.to_csv(path)", True),
        ("table.to_csv(index=False)", False),
        ("writing.write_text(path, text)", False),
        ("path.write_text(text)", True),
        ("text.replace('a', 'b')", False),
    ],
)
def test_what_counts_as_writing(code, expected):
    assert writes(ast.parse(code).body[0].value) == expected


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "elsewhere" / "precious"
    path.parent.mkdir()
    path.write_text("precious")
    return path


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def test_a_link_leads_no_write_out_of_its_folder(folder, precious):
    for name in ("to a file", "dangling"):
        target = precious if name == "to a file" else precious.with_name("none")
        for link in (folder / name, files.temporary_path(folder / name)):
            link.symlink_to(target)
        files.replace_file(folder / name, lambda file: file.write(b"new"))
        assert not (folder / name).is_symlink()
        assert (folder / name).read_bytes() == b"new"
    assert sorted(os.listdir(folder)) == ["dangling", "to a file"]
    assert os.listdir(precious.parent) == ["precious"]
    assert precious.read_text() == "precious"


def test_what_is_written_in_place_is_a_file(folder, precious):
    (folder / "link").symlink_to(precious)
    (folder / "dangling").symlink_to(precious.with_name("none"))
    os.mkfifo(folder / "pipe")
    (folder / "subfolder").mkdir()
    (folder / "device").symlink_to("/dev/null")
    for name in os.listdir(folder):
        with pytest.raises(OSError, match="not a regular file"):
            files.open_in_place(folder / name, os.O_WRONLY)
    with pytest.raises(FileNotFoundError):
        files.open_in_place(folder / "none", os.O_WRONLY)
    assert os.listdir(precious.parent) == ["precious"]


def test_folders_lie_where_they_are_named(folder, precious):
    (folder / "link").symlink_to(precious.parent)
    (folder / "dangling").symlink_to(precious.parent / "none")
    for path in (folder / "link", folder / "link" / "deep", folder / "dangling"):
        with pytest.raises(OSError, match="link leads out of"):
            files.make_folder(path, inside=folder)
    # Links within the folder, and those that lead to it, are the user's own affair.
    (folder / "own").symlink_to(folder / "subfolder")
    files.make_folder(folder / "subfolder" / "deep", inside=folder)
    files.make_folder(folder / "own" / "deeper", inside=folder)
    (folder.parent / "named").symlink_to(folder)
    files.make_folder(folder.parent / "named" / "x", inside=folder.parent / "named")
    assert sorted(os.listdir(folder / "subfolder")) == ["deep", "deeper"]
    assert os.listdir(precious.parent) == ["precious"]


def test_what_is_read_is_a_file_of_some_size(folder, precious):
    (folder / "link").symlink_to(precious)
    assert files.read_bytes(folder / "link", 8) == b"precious"
    with pytest.raises(OSError, match="more than 7 bytes"):
        files.read_bytes(precious, 7)
    with pytest.raises(OSError, match="not a regular file"):
        files.read_bytes(folder / "link", 8, follow_links=False)
    os.mkfifo(folder / "pipe")
    (folder / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="not a regular file"):
            files.read_bytes(folder / name, 8)
        assert not files.is_file(folder / name)
    (folder / "hole").touch()
    os.truncate(folder / "hole", 2**40)
    with pytest.raises(OSError, match="more than 16,777,216 bytes"):
        files.read_json(folder / "hole")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\xff", b'{"a": ' * 10_000, b"\0" * 9]
)
def test_json_that_is_none_is_an_error(folder, content):
    (folder / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"brackets|Expecting|codec|column"):
        files.read_json(folder / "x.json")
