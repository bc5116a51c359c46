"""Mistakes in a preset of a user's own, which a plugin registers."""

import dataclasses

import numpy as np
import pytest

from experiments import presets
from experiments.flags import errors
from experiments.presets import requests
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import Output, Preset, Scale, Search, Study, Variant
from experiments.training import studies, verification

RATES = {"client_learning_rate": (0.1, 0.2)}
TAKEN = {"b": ("a", ("client_learning_rate",))}
STUDY = Study(
    "one",
    {"task": "digits", "rounds": 1},
    (Variant("a", "fed_avg"), Variant("b", "fed_avgm")),
    Search(1, {"a": RATES}, TAKEN),
)


def preset(*studies, name="mine", **changed):
    changed = changed or {"hours": 1, "gigabytes": 1}
    scale = Scale(studies, **{"hours": 1, "gigabytes": 1, **changed})
    return Preset(name, "A.", "B.", scale, scale)


def with_search(**changed):
    return {"search": dataclasses.replace(STUDY.search, **changed)}


@pytest.fixture
def register():
    """Registers a preset until the end of the test."""
    yield lambda made: requests.request(presets.register(made).name, {})
    PRESETS.pop("mine", None)


def test_a_preset_without_mistakes(register):
    studies.check(register(preset(STUDY, dataclasses.replace(STUDY, part="two"))))


@pytest.mark.parametrize(
    "changed",
    [
        {"grids": {"a": {"client_learning_rate": np.array([0.1, 0.2])}}},
        {"taken": {"b": ["a", ["client_learning_rate"]]}},
    ],
)
def test_arrays_and_lists_are_lists(register, changed):
    register(preset(dataclasses.replace(STUDY, **with_search(**changed))))


def test_what_is_taken_of_a_variant_without_flags(register):
    changed = with_search(grids={})
    with pytest.raises(ValueError, match="'a' has no flags of its own, nor a grid"):
        register(preset(dataclasses.replace(STUDY, **changed)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"variants": (Variant("a", "fed_avg"), Variant("a", "fed_dyn"))},
            "labels must be different, found 'a' more than once",
        ),
        ({"variants": ("fed_avg", "scaffold")}, "variants must be a list of Variant,"),
        ({"variants": "fed_avg"}, "variants must be a list of Variant, found"),
        ({"variants": ()}, "variants must have at least one Variant, found none"),
        ({"variants": (Variant("..", "fed_avg"),)}, "label names a folder, found"),
        ({"variants": (Variant("a/b", "fed_avg"),)}, "label names a folder, found"),
        ({"part": "a/b"}, "part names a folder, found 'a/b'"),
        ({"part": ""}, "part must not be empty"),
        ({"flags": {"rounds": 1}}, r"flags must have a task, found \{'rounds': 1\}"),
        ({"flags": {"task": "digits", "seed": 3}}, "must not have seed: --seeds of"),
        ({"flags": {"task": "digits", "output_dir": "x"}}, "must not have output_dir"),
        ({"flags": {"task": "digits", "algorithm": "x"}}, "must not have algorithm"),
        ({"flags": ["task=digits"]}, "flags must be a mapping"),
        (
            {"variants": (Variant("a", "fed_avg", {"task": "quadratic"}),)},
            "variant 'a': flags must not have task",
        ),
        (
            {"variants": (Variant("a", "fed_avg", {"seed": 3}),)},
            "variant 'a': flags must not have seed",
        ),
        (with_search(rounds=0), "rounds of the search must be at least 1, found 0"),
        (
            with_search(grids={"c": RATES}),
            "a label in grids must be one of 'a', 'b', found 'c'",
        ),
        (
            with_search(taken={"c": TAKEN["b"]}),
            "a label in taken must be one of 'a', 'b', found 'c'",
        ),
        (
            with_search(taken={"b": ("c", ("client_learning_rate",))}),
            "taken by 'b': 'c' must be the label of a variant before it",
        ),
        (
            with_search(grids={"b": RATES}, taken={"a": ("b", tuple(RATES))}),
            "taken by 'a': 'b' must be the label of a variant before it",
        ),
        (
            with_search(taken={"b": ("a", ("tau",))}),
            "taken by 'b': a flag must be one of 'client_learning_rate', found 'tau'",
        ),
        (
            with_search(taken={"b": ("a", "client_learning_rate")}),
            "taken by 'b': flags must be a list of names, found 'client_learning_rate'",
        ),
        (with_search(taken={"b": "a"}), "taken by 'b' must be a pair"),
        (
            with_search(grids={"a": RATES, "b": RATES}),
            "taken by 'b': client_learning_rate is in its grid too",
        ),
        (
            with_search(grids={"a": {"client_learning_rate": 0.1}}, taken={}),
            "grid of 'a': client_learning_rate must be a list of values, found 0.1",
        ),
        (
            with_search(grids={"a": {"client_learning_rate": ()}}, taken={}),
            "grid of 'a': client_learning_rate must have at least one value",
        ),
        (
            with_search(grids={"a": {"seed": (1, 2)}}, taken={}),
            "grid of 'a' must not have seed",
        ),
        (with_search(grids={"a": 0.1}), "grid of 'a' must be a mapping"),
        ({"search": RATES}, "search must be a Search, found"),
        ({"outputs": (Output("x", "curves"),) * 2}, "outputs must be different, found"),
        ({"outputs": (Output("../x", "curves"),)}, "name of an output names a folder"),
        ({"columns": ("norm",)}, "columns must be a mapping"),
    ],
)
def test_what_does_not_fit_is_named_when_it_is_registered(register, changed, told):
    with pytest.raises(
        (TypeError, ValueError), match=f"^preset 'mine'(: |, part 'one'.*){told}"
    ):
        register(preset(dataclasses.replace(STUDY, **changed)))
    assert "mine" not in PRESETS


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            preset(STUDY, STUDY),
            "'mine': parts must be different, found 'one' more than",
        ),
        (preset(), "'mine': studies must have at least one Study, found none"),
        (preset("one"), "'mine': studies must be a list of Study, found 'one'"),
        (preset(STUDY, hours=-1), "'mine': hours must be "),
        (preset(STUDY, gigabytes="1"), "'mine': gigabytes must be "),
        (preset(STUDY, name=".."), "name of a preset names a folder, found '..'"),
        (dataclasses.replace(preset(STUDY), summary=""), "summary must not be empty"),
        (dataclasses.replace(preset(STUDY), local=STUDY), "local must be a Scale"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parts_and_scales_are_checked(register, made, told):
    with pytest.raises((TypeError, ValueError), match=told):
        register(made)


@pytest.mark.parametrize("run", [studies.run, verification.run])
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            with_search(grids={"a": {"client_lr": (0.1, 0.2)}}, taken={}),
            "variant 'a': unknown flag '--client_lr'. Did you mean --client_learning",
        ),
        (
            with_search(grids={"a": {"client_learning_rate": (0.1, -2)}}, taken={}),
            "variant 'a': --client_learning_rate must be ",
        ),
        (
            {"variants": (*STUDY.variants, Variant("c", "fed_avg", {"taus": 1}))},
            "variant 'c': unknown flag '--taus'",
        ),
        (
            {"outputs": (Output("x", "curve"),)},
            "unknown kind of the output 'x': 'curve'. Did you mean curves",
        ),
    ],
)
def test_unknown_flags_of_any_part_are_named_before_anything_runs(
    register, monkeypatch, tmp_path, run, changed, told
):
    monkeypatch.chdir(tmp_path)
    wrong = dataclasses.replace(STUDY, part="two", **changed)
    asked = register(preset(STUDY, wrong))
    with pytest.raises(errors.UserError, match=f"^preset 'mine', part 'two': {told}"):
        run(asked)
    assert not list(tmp_path.iterdir())
