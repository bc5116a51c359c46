"""What is read of a CSV table's bytes: line ends, quotes, marks, what is no text."""

import gzip

import numpy as np
import pytest

import tasks
from tasks.own import user_files

_TABLE = 'owner,x,label\n007,1.5,"two\nlines"\nünal,-2e-1,"a ""b"", c"\n"",3,\x85'


def _read(path):
    return user_files.read_table(
        path, "data", written=user_files.WrittenLabels("label"), texts=["owner"]
    )


@pytest.mark.parametrize("name", ["all.csv", "all.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_a_table_is_the_same_whatever_ends_its_lines(tmp_path, name, end, mark, last):
    data = mark + (_TABLE + last).replace("\n", end).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    table = _read(path)
    assert list(table.columns) == ["owner", "x", "label"]
    assert table["owner"].tolist()[:2] == ["007", "ünal"]
    assert np.isnan(table["owner"][2])  # An empty text is none.
    assert table["x"].tolist() == [1.5, -0.2, 3.0]
    assert table["label"].tolist() == [f"two{end}lines", 'a "b", c', "\x85"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_beyond_what_is_read_at_once_are_whole(tmp_path, end):
    numbers = np.arange(60_000) / 7
    path = tmp_path / "all.csv"
    lines = ["owner,x,label", *(f"é{x!r},{x!r},{x!r}" for x in numbers.tolist())]
    path.write_text(end.join(lines), "utf-8", newline="")
    table = _read(path)
    assert table["owner"].tolist() == [f"é{x!r}" for x in numbers.tolist()]
    for name in ("x", "label"):
        np.testing.assert_array_equal(table[name], numbers)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_no_utf_8_is_named_with_field_and_line(tmp_path, mark):
    path = tmp_path / "all.csv"
    path.write_bytes(mark + b"owner,x,label\nann,1,no\nb\xe9,2,yes\n")
    with pytest.raises(
        tasks.DataError, match=r"^data, field 'owner', line 3: .* byte 0xe9 in position"
    ):
        _read(path)
    path.write_bytes(mark + b"owner,x,label\nann,1,n\0\n")
    with pytest.raises(tasks.DataError, match=r"^data: the text is UTF-16, or none"):
        _read(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_another_separator_is_named_below_empty_lines(tmp_path, end):
    path = tmp_path / "all.csv"
    text = end.join([" ", "\xa0", "owner;x;label", "ann;1,5;0"])
    path.write_text(text, "utf-8", newline="")
    with pytest.raises(tasks.DataError, match=r"by ';', .* sep=';', decimal=','\)"):
        _read(path)
