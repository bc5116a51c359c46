"""Bazel's targets have every module and every test."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "BUILD").exists(), reason="Bazel's own tree of files has no BUILD"
)


def glob(patterns, exclude=()):
    found = {path for each in patterns for path in ROOT.glob(each) if path.is_file()}
    left_out = {path for each in exclude for path in ROOT.glob(each)}
    return [str(path.relative_to(ROOT)) for path in sorted(found - left_out)]


@pytest.fixture(scope="module")
def rules():
    """The arguments of the rules by the targets' names.

    BUILD is run as Python, which its language is a part of.
    """
    made = {}

    def rule(name, **arguments):
        made[name] = arguments

    names = dict.fromkeys(("py_binary", "py_library", "py_test"), rule)
    others = ("exports_files", "licenses", "load", "package")
    names |= dict.fromkeys(others, lambda *_, **__: None)
    exec((ROOT / "BUILD").read_text(), names | {"glob": glob})
    return made


@pytest.mark.parametrize("package", ["tff_drift", "tasks", "experiments"])
def test_a_package_has_all_its_modules(rules, package):
    modules = {f"{path.relative_to(ROOT)}" for path in (ROOT / package).rglob("*.py")}
    assert modules <= set(rules[package]["srcs"])


def test_every_file_of_tests_is_a_target(rules):
    files = {f"{path.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("*.py")}
    assert files <= set(rules["tests"]["srcs"])
    tests = {file for file in files if file.rpartition("/")[2].startswith("test_")}
    assert len(tests) > 100
    assert {file.removesuffix(".py") for file in tests} <= set(rules)


def test_the_module_has_what_build_loads():
    assert (ROOT / "BUILD").read_text().count('load("@') == 1
    text = (ROOT / "MODULE.bazel").read_text()
    assert 'environment_python(name = "environment_python")' in text
    assert 'name = "rules_python"' in text
