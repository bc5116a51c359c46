"""What the Makefile and the tools call is there on macOS, too."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# Programs and options that GNU has and BSD has not.
GNU_ONLY = {
    r"\bnproc\b": "nproc",
    r"\b(readarray|mapfile)\b": "bash 4",
    r"\btimeout ": "timeout",
    r"\bsed (-\w*r|-i )": "sed -r, sed -i without a suffix",
    r"\bgrep -\w*P": "grep -P",
    r"\bdate (-d|--)": "date -d",
    r"\bstat -c": "stat -c",
    r"\bxargs -\w*r": "xargs -r",
    r"\bsort -\w*V": "sort -V",
    r"\breadlink -f\b": "readlink -f",
    r"\b(cp|mv|rm|ls|mktemp|head|tail|du|ln|touch|chmod) (-\w+ )*--\w": "long options",
    r"\bfind .*-(printf|regextype)": "find -printf",
}


def gnu_only(text):
    """The names of what a text calls of GNU alone."""
    return [name for pattern, name in GNU_ONLY.items() if re.search(pattern, text)]


SCRIPTS = ["tools/find_python.sh", "tools/lock.sh"]


@pytest.mark.parametrize("path", ["Makefile", *SCRIPTS])
def test_no_program_of_gnu_alone_is_called(path):
    assert gnu_only((ROOT / path).read_text()) == []


def test_every_script_is_looked_at():
    scripts = (ROOT / "tools").glob("*.sh")
    assert sorted(f"tools/{path.name}" for path in scripts) == SCRIPTS


@pytest.mark.parametrize(
    "line", ["n=$(nproc)", "sed -i s/a/b/ x", "rm --force x", "cp -r --parents a b"]
)
def test_programs_of_gnu_are_found(line):
    assert gnu_only(line)
