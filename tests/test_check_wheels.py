"""The check of the pinned environment's wheels finds what a platform lacks."""

import importlib.util
import pathlib

import pytest

# The check runs on the Pythons that it looks wheels up for.
pytest.importorskip("tomllib")

# As uv writes it.
LOCK = """
[[package]]
name = "fast-numbers"
version = "1.2"
wheels = [{wheels}]

[[package]]
name = "words"
version = "3"
wheels = [{{ url = "https://index/words-3-py3-none-any.whl", hash = "sha256:dd" }}]
"""
WHEEL = """
{{ url = "https://index/fast_numbers-1.2-cp313-cp313-{}.whl", hash = "sha256:{}" }}"""
REQUIREMENTS = """
# A comment.
-r another.txt
fast-numbers==1.2 ; sys_platform != 'win32' \\
    --hash=sha256:aa \\
    --hash=sha256:bb \\
    --hash=sha256:cc
words==3 \\
    --hash=sha256:dd
no-mac==1 ; sys_platform == 'win32' \\
    --hash=sha256:ee
"""


@pytest.fixture
def check(tmp_path):
    path = pathlib.Path(__file__).parents[1] / "tools" / "check_wheels.py"
    spec = importlib.util.spec_from_file_location("check_wheels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(macos="12_0", requirements=REQUIREMENTS, pythons=("3.13",)):
        lock, listed = tmp_path / "uv.lock", tmp_path / "requirements.txt"
        platforms = ["manylinux_2_28_x86_64", "manylinux_2_28_aarch64"]
        tagged = zip(
            [*platforms, f"macosx_{macos}_arm64"], ["aa", "bb", "cc"], strict=True
        )
        wheels = ",".join(WHEEL.format(*each) for each in tagged)
        lock.write_text(LOCK.format(wheels=wheels))
        listed.write_text(requirements)
        return module.main(str(lock), str(listed), *pythons)

    return run


def test_all_platforms_have_wheels(check, capsys):
    assert check() == 0
    assert capsys.readouterr().out.splitlines() == [
        "linux x86_64, Python 3.13: 2 packages, all have wheels",
        "linux aarch64, Python 3.13: 2 packages, all have wheels",
        "darwin arm64, Python 3.13: 2 packages, all have wheels",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"macos": "26_0"},
        {"requirements": REQUIREMENTS.replace(":cc", ":00")},
        {"pythons": ("3.12",)},
    ],
    ids=["for a newer system", "another hash", "for another Python"],
)
def test_a_missing_wheel_is_found(change, check, capsys):
    assert check(**change) == 1
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith("no wheel of fast-numbers 1.2")
    )
