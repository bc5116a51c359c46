"""Bazel's targets are those of the files: every module, every test, every import."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
HOUSES = ("tff_drift", "tasks", "experiments", "tests")

pytestmark = pytest.mark.skipif(
    not (ROOT / "MODULE.bazel").exists(),
    reason="Bazel's own tree of files has no BUILD files to compare",
)


@functools.cache
def calls(folder):
    """The rules that a BUILD file calls, by their names, with their arguments.

    BUILD files are read as Python, which their language is a part of.
    """
    found = {}
    for node in ast.parse((ROOT / folder / "BUILD").read_text()).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            arguments = {each.arg: each.value for each in node.value.keywords}
            name = ast.literal_eval(arguments.get("name", ast.Constant("support")))
            found[name] = (node.value.func.id, arguments)
    return found


def sources(folder, arguments):
    """The files of a target: a list of names, or one glob."""
    value = arguments.get("srcs", ast.List([]))
    if isinstance(value, ast.Call):
        [patterns] = map(ast.literal_eval, value.args)
        return {path for each in patterns for path in (ROOT / folder).glob(each)}
    return {ROOT / folder / name for name in ast.literal_eval(value)}


def labels(folder, arguments, names=("deps", "test_deps")):
    """What a target depends on, in full: `//folder:name`."""
    found = set()
    for name in names:
        for label in ast.literal_eval(arguments.get(name, ast.List([]))):
            where, _, target = label.partition(":")
            where = where or f"//{folder}"
            found.add(f"{where}:{target or where.rsplit('/', 1)[-1]}")
    return found


def folders_with(pattern):
    found = {path.parent for each in HOUSES for path in (ROOT / each).rglob(pattern)}
    return sorted(str(folder.relative_to(ROOT)) for folder in found)


TEST_FOLDERS = sorted({*folders_with("test_*.py"), *folders_with("conftest.py")})
# The targets of modules, by folder and name.
TARGETS = {
    (folder, name): arguments
    for folder in folders_with("BUILD")
    if folder.split("/")[0] != "tests"
    for name, (rule, arguments) in calls(folder).items()
    if rule in ("py_library", "py_binary")
}


def targets_by_file():
    owners = {}
    for (folder, name), arguments in TARGETS.items():
        for path in sources(folder, arguments):
            owners.setdefault(path, []).append(f"//{folder}:{name}")
    return owners


OWNERS = targets_by_file()


def module_file(dotted):
    """The file of the module, or of the module that has the name, if it is ours."""
    parts = dotted.split(".")
    while parts:
        path = ROOT.joinpath(*parts)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.exists() and parts[0] in HOUSES:
                return candidate
        parts.pop()
    return None


def imported_files(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from filter(None, map(module_file, names))


def test_every_module_belongs_to_one_target():
    modules = [path for each in HOUSES[:-1] for path in (ROOT / each).rglob("*.py")]
    assert len(modules) > 100
    wrong = {
        str(path.relative_to(ROOT)): OWNERS.get(path, [])
        for path in modules
        if len(OWNERS.get(path, [])) != 1
    }
    assert wrong == {}, "give each folder of modules a BUILD file like its neighbours'"


@pytest.mark.parametrize(("folder", "name"), TARGETS)
def test_targets_depend_on_what_their_modules_import(folder, name):
    arguments = TARGETS[folder, name]
    me = f"//{folder}:{name}"
    needed = {
        owner
        for path in sources(folder, arguments)
        for other in imported_files(path)
        for owner in OWNERS[other]
    }
    missing = needed - {me} - labels(folder, arguments)
    if me == "//tff_drift:ground":
        # Packages are imported when they are first used.
        missing = {each for each in missing if not each.startswith("//tff_drift/")}
    assert missing == set(), f"add them to deps in {folder}/BUILD"


def test_lists_of_labels_are_in_the_order_that_buildifier_gives_them():
    for (folder, name), arguments in TARGETS.items():
        labels = ast.literal_eval(arguments.get("deps", ast.List([])))
        ordered = sorted(labels, key=lambda each: each.replace(":", ".").split("."))
        local = [each for each in ordered if each.startswith(":")]
        expected = local + [each for each in ordered if each not in local]
        assert labels == expected, f"{name} in {folder}/BUILD: run buildifier"


@pytest.mark.parametrize("whole", ["tff_drift", "experiments"])
def test_the_whole_has_every_package(whole):
    packages = {f"//{folder}:{name}" for folder, name in TARGETS}
    packages = {each for each in packages if each.startswith(f"//{whole}/")}
    have = labels(whole, TARGETS[whole, whole])
    reached = {dep for each in have for dep in _deps(each)} | have
    assert packages <= reached, f"add them to deps in {whole}/BUILD"


def _deps(label):
    folder, name = label[2:].split(":")
    return labels(folder, TARGETS[folder, name])


@pytest.mark.parametrize("folder", TEST_FOLDERS)
def test_every_folder_of_tests_declares_them(folder):
    assert (ROOT / folder / "BUILD").exists(), (
        f"write {folder}/BUILD: load test_files as in tests/layers/BUILD, and call it"
    )
    rule, arguments = calls(folder)["support"]
    assert rule == "test_files"
    files = list((ROOT / folder).glob("*.py"))
    needed = {
        f"//{other.parent.relative_to(ROOT)}:support"
        for path in files
        for other in imported_files(path)
        if other.relative_to(ROOT).parts[0] == "tests"
    }
    needed -= {f"//{folder}:support", "//tests:support"}
    assert needed <= labels(folder, arguments), f"add them to deps in {folder}/BUILD"


def test_both_ways_to_configure_bazel_name_what_the_build_files_load():
    used = set()
    for path in [*ROOT.glob("tff_drift/**/BUILD"), *ROOT.glob("tools/bazel/*.bzl")]:
        for line in path.read_text().splitlines():
            if line.startswith('load("@'):
                used.add(line.split("@")[1].split("//")[0])
    assert used == {"rules_python"}
    for configuration in ("MODULE.bazel", "WORKSPACE"):
        text = (ROOT / configuration).read_text()
        assert 'name = "rules_python"' in text
        assert 'environment_python(name = "environment_python")' in text
