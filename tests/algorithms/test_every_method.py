"""What every method has in common, whatever its row says.

A method that is registered before these tests are collected is under all of them.
"""

import collections
import dataclasses
import inspect
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import methods, models, stateful
from tff_drift import aggregators, algorithms, method_specs, simulation

EXAMPLES = "<float32[?,5],float32[?]>*"
# Values out of the range of an option, by its kind.
OUT_OF_RANGE = {
    "count": [0, -1],
    "whole": [-1],
    "seed": [-1, 2**32],
    "number": [float("nan")],
    "number or auto": [float("nan"), "automatic"],
    "positive": [0.0, -1.0, float("inf")],
    "non_negative": [-1.0, float("nan")],
    "rate": [1.0, -0.1],
    "fraction": [0.0, 1.5],
    "probability": [-0.1, 1.5],
    "choice": ["no such choice"],
    "flag": [2],
    "text": [],
    "path": [""],
}


def assert_equal(actual, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)


def _of_every_client(found):
    return f"{found[0]}?," if found[0].endswith("[") else f"{found[0]}[?]"


@methods.every
def test_the_row_and_the_documentation_tell_of_the_same_method(method):
    text = inspect.getdoc(method.builder)
    assert method.url in text
    for heading in ("Args:", "Returns:", "Raises:"):
        assert f"\n{heading}\n" in text
    # Authors and year, as in "Acar et al. (2021)".
    authors, _, _ = method.paper.partition(",")
    assert authors in " ".join(text.split())
    for option in method.options:
        assert f"\n  {option.name}: " in text
        assert option.help[0].isupper()
        assert option.help[-1] == "."


@methods.every
def test_options_with_one_flag_mean_the_same(method):
    for option in method.options:
        for other in algorithms.methods().values():
            for theirs in other.options:
                if option.flag == theirs.flag:
                    assert option == dataclasses.replace(theirs, default=option.default)


@methods.every
def test_costs_grow_with_the_work(method):
    for cost in (method.client_cost, method.server_cost):
        if cost is not None:
            none, once, twice = (cost.times(count) for count in (0, 1, 2))
            assert all(number >= 0 for number in (*none, *once))
            assert twice.total - once.total == once.total - none.total >= 0


@methods.every_model
@methods.every
def test_sends_what_the_row_says(method, model):
    traffic = simulation.model_traffic(methods.drive(method, model=model).process)
    # A client's weight is one number more than what the papers count.
    number = np.dtype(np.float32).itemsize
    numbers_down, numbers_up = method.scalars
    units = (
        traffic.bytes_down - numbers_down * number,
        traffic.bytes_up - (1 + numbers_up) * number,
    )
    assert units == tuple(traffic.model_bytes * unit for unit in method.traffic)


@methods.every_model
@methods.every
def test_has_the_types_of_a_learning_process(method, model):
    process = methods.drive(method, model=model).process
    assert isinstance(process, tff.learning.templates.LearningProcess)
    state_type = process.initialize.type_signature.result
    arguments = process.next.type_signature.parameter
    result = process.next.type_signature.result
    assert arguments[0] == result.state == state_type
    if not isinstance(process, algorithms.StatefulLearningProcess):
        assert str(arguments[1]) == f"{{{EXAMPLES}}}@CLIENTS"
        return
    client_state = arguments[1].member.state
    assert str(arguments[1]) == (
        f"{{<examples={EXAMPLES},state={client_state},index=int32>}}@CLIENTS"
    )
    # In the documentation, of a model with n weights.
    assert str(client_state).replace("float32[5]", "float32[n]") in inspect.getdoc(
        method.builder
    )
    # Of every leaf one for each client.
    stacked = re.sub(r"(int|float)32\[?", _of_every_client, str(client_state))
    collected = result.metrics.member.client_states
    assert str(collected) == f"<index=int32[?],state={stacked}>"


@methods.every_model
@methods.every_variant
def test_learns_at_the_rates_it_shows(method, options, model):
    first, driver = (
        methods.drive_on(method, options, model, rounds) for rounds in (1, 2)
    )
    losses = [each.metrics["client_work"]["train"]["loss"] for each in (first, driver)]
    assert losses[1] < losses[0]
    hparams = driver.process.get_hparams(driver.state)
    assert ("learning_rate" in hparams["client_work"]) == method.has_client_rate
    # Of central training it is 1, and no argument.
    assert ("learning_rate" in hparams["finalizer"]) == (
        method.has_server_rate or method.pools_data
    )
    if method.has_client_rate:
        rate = np.float32(methods.CLIENT_RATE)
        assert driver.metrics["client_work"]["learning_rate"] == rate


@methods.every_model
@methods.every_variant
def test_hyperparameters_can_be_changed_and_at_rates_of_zero_nothing_moves(
    method, options, model
):
    driver = methods.drive(method, options, model)
    process = driver.process
    assert_equal(
        process.set_hparams(driver.state, process.get_hparams(driver.state)),
        driver.state,
    )
    changed = tf.nest.map_structure(
        lambda value: np.asarray(0.5 * value, np.asarray(value).dtype),
        process.get_hparams(driver.state),
    )
    assert_equal(
        process.get_hparams(process.set_hparams(driver.state, changed)), changed
    )
    for values in changed.values():
        if "learning_rate" in values:
            values["learning_rate"] = np.float32(0.0)
    driver.state = process.set_hparams(driver.state, changed)
    before = driver.model
    driver.round(list(methods.CLIENTS))
    np.testing.assert_array_equal(driver.model, before)


@methods.every_model
@methods.every_variant
def test_a_model_that_is_set_is_the_model(method, options, model):
    driver = methods.drive_on(method, options, model)
    w = np.arange(5) / 8
    driver.set_model(w)
    np.testing.assert_array_equal(driver.model, w)
    np.testing.assert_array_equal(driver.deployed_model(), w)


def broken_and_empty(method):
    """Clients of which the first has a bad example, and the other none."""
    targets = methods.CLIENTS["client_1"].targets.copy()
    targets[2] = np.nan
    clients = {"client_1": methods.CLIENTS["client_1"]._replace(targets=targets)}
    # Where examples are public, no client is without.
    if "shared_data" not in method.needs:
        clients["client_2"] = methods.CLIENTS["client_2"]._replace(
            features=np.zeros([0, stateful.DIMENSION]), targets=np.zeros([0])
        )
    return clients


@methods.every_model
@methods.every_variant
def test_broken_and_empty_clients_change_nothing(method, options, model):
    of_round = broken_and_empty(method)
    driver, without = (
        methods.drive_on(method, options, model),
        methods.drive_on(method, options, model),
    )
    before = dict(driver.client_states)
    metrics = driver.round(["client_0", *of_round], of_round)
    without.round(["client_0"])
    assert metrics["client_work"]["rejected_clients"] == 1
    assert metrics["finalizer"]["update_non_finite"] == 0
    assert_equal(driver.state, without.state)
    assert_equal(
        driver.client_states.get("client_0"), without.client_states.get("client_0")
    )
    if not isinstance(driver.process, algorithms.StatefulLearningProcess):
        return
    # With nobody else, only the round number changes.
    settled = driver.state
    driver.round(list(of_round), of_round)
    assert driver.state.client_work["round_number"] == 3
    for part in ("global_model_weights", "aggregator", "finalizer"):
        assert_equal(getattr(driver.state, part), getattr(settled, part))
    if driver.process.needs_full_participation:
        # Scaffnew's clients renew their variates from the model that came all the same.
        return
    for client in of_round:
        assert_equal(driver.client_states[client], before[client])


@methods.every_model
@methods.every_variant
def test_measures_the_drift_of_clients_with_states(method, options, model):
    driver = methods.drive(method, options, model)
    x = driver.model
    if isinstance(driver.process, algorithms.StatefulLearningProcess):
        metrics = driver.round(["client_2"])
        finalizer, drift = metrics["finalizer"], metrics["client_work"]["drift"]
        # Of one client, whose model is the mean.
        np.testing.assert_allclose(finalizer["pseudo_gradient_norm"], drift, rtol=1e-5)
        model_norm = np.linalg.norm(driver.model)
        np.testing.assert_allclose(finalizer["model_norm"], model_norm, rtol=1e-5)
        assert np.any(driver.model != x)


@methods.every_model
@methods.every_variant
def test_the_order_of_the_cohort_does_not_matter(method, options, model):
    one = methods.drive_on(method, options, model, rounds=2)
    other = methods.drive_on(method, options, model)
    other.round(list(methods.CLIENTS)[::-1])
    np.testing.assert_allclose(one.model, other.model, atol=1e-6)
    assert one.client_states.keys() == other.client_states.keys()
    for client, state in one.client_states.items():
        for name, value in state.items():
            np.testing.assert_allclose(
                value, other.client_states[client][name], atol=1e-5
            )


REFUSED_BY_ALL = [
    ({"model_fn": models.keras_softmax_regression()}, TypeError, "model_fn must be a"),
    ({"client_weighting": "uniform"}, TypeError, "client_weighting must be"),
    ({"model_aggregator": "mean"}, TypeError, "model_aggregator must be a factory"),
    (
        {"model_aggregator": tff.aggregators.MeanFactory},
        TypeError,
        r"model_aggregator must .* the class: call it, MeanFactory\(",
    ),
    (
        {
            "metrics_aggregator": tff.learning.metrics.sum_then_finalize(
                collections.OrderedDict(loss=tf.function(lambda value: value))
            )
        },
        TypeError,
        "metrics_aggregator must .* Give the function itself, not what a call",
    ),
    (
        {"model_aggregator": aggregators.ControlVariateFactory(3)},
        TypeError,
        "model_aggregator is a ControlVariateFactory",
    ),
    ({"client_rate_decay": 0.5}, TypeError, "client_rate_decay.*Did you mean client_"),
    ({"client_weight_decay": -1.0}, ValueError, "client_weight_decay (must be|is)"),
    ({"gradient_clipping_norm": -1.0}, ValueError, "gradient_clipping_norm (must|is)"),
    ({"client_rate_schedule": 0.5}, (TypeError, ValueError), "client_rate_schedule"),
    ({"server_rate_schedule": 0.5}, (TypeError, ValueError), "server_rate_schedule"),
]


@methods.every_kind_of_state
@pytest.mark.parametrize(("options", "error", "message"), REFUSED_BY_ALL)
def test_bad_arguments_are_refused(method, options, error, message):
    with pytest.raises(error, match=message):
        methods.build(method, **options)


@methods.every
@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_rates_are_refused(method, rate):
    for side in ("client", "server"):
        if getattr(method, f"has_{side}_rate"):
            name = f"{side}_(learning_rate|optimizer_fn) must be"
            with pytest.raises(ValueError, match=name):
                methods.build(method, **{f"{side}_learning_rate": rate})


@methods.every_scheduled
def test_a_rate_that_is_there_can_be_scheduled(method):
    accepted = {}
    for side in ("client", "server"):
        schedule = {f"{side}_rate_schedule": lambda round_number: 0.0 * round_number}
        if getattr(method, f"has_{side}_rate"):
            accepted.update(schedule)
        else:
            with pytest.raises(ValueError, match=f"{side}_rate_schedule"):
                methods.build(method, **schedule)
    driver = stateful.Driver(methods.build(method, **accepted), methods.CLIENTS)
    before = driver.model
    driver.round(list(methods.CLIENTS))
    # The meta step goes by the clients' schedule.
    np.testing.assert_array_equal(driver.model, before)


@methods.every
def test_options_out_of_their_range_are_refused(method):
    for option in method.options:
        for value in OUT_OF_RANGE[option.value_type]:
            with pytest.raises((TypeError, ValueError), match=f"{option.name} must"):
                methods.build(method, **{option.name: value})
        if not option.may_be_none:
            with pytest.raises((TypeError, ValueError), match=f"{option.name} must"):
                methods.build(method, **{option.name: None})


@methods.every
def test_the_population_is_a_whole_number(method):
    if "num_clients" in method.needs:
        for number, error in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
            with pytest.raises(error, match="num_clients must be"):
                methods.build(method, num_clients=number)


def build_nothing(model_fn, client_learning_rate, *, mu=0.5, num_clients):
    """Takes what some builders take."""


def test_methods_are_in_alphabetical_order_and_named_after_their_builders():
    rows = algorithms.methods()
    assert list(rows) == sorted(rows)
    built = {f"build_{name}" for name in rows}
    public = {name for name in algorithms.__all__ if name.startswith("build_")}
    assert public <= built
    assert {row.builder.__name__ for row in rows.values()} == built


def test_the_methods_are_a_table():
    table = algorithms.methods().to_frame()
    assert list(table.index) == list(algorithms.methods())
    assert list(table.index[table["second_gradients"]]) == [
        "fed_meta_uga",
        "mime",
        "mime_lite",
        "uga",
    ]
    assert list(table.index[table["full_participation"]]) == ["scaffnew"]
    scaffold, mime = table.loc["scaffold"], table.loc["mime"]
    assert scaffold["client_state"]
    assert not mime["client_state"]
    assert (scaffold["down"], scaffold["up"]) == (mime["down"], mime["up"]) == (2, 2)
    assert table.loc["uga", "sends"] == "gradient"
    assert scaffold["paper"].startswith("Karimireddy et al. (2020)")


def test_a_name_is_taken_once():
    row = algorithms.methods()["fed_avg"]
    assert algorithms.register(row) is row
    with pytest.raises(ValueError, match=r"'fed_avg'.*tff_drift\.algorithms\.fed_avg"):
        algorithms.register(dataclasses.replace(row, paper="Another (2026)"))
    with pytest.raises(TypeError, match="must be a Method, found 'fed_avg'"):
        algorithms.register("fed_avg")


def test_a_module_may_register_its_method_anew(monkeypatch):
    monkeypatch.setattr(method_specs, "_METHODS", {})
    cell = """
def build_mine(model_fn, client_learning_rate):
    return {value}


algorithms.register(algorithms.Method("mine", build_mine, "I (2026)", "https://me"))
"""
    names = {"__name__": "a_notebook", "algorithms": algorithms}
    for value in (1, 2):
        exec(cell.format(value=value), names)
        assert algorithms.methods()["mine"].builder(None, 0.1) == value
    with pytest.raises(ValueError, match="of the name 'mine' already"):
        exec(cell.format(value=3), {**names, "__name__": "another"})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"name": "fed avg"}, "name must be an identifier.*'fed avg'"),
        ({"weighting": "by_size"}, "weighting must be one of"),
        ({"needs": ("num_clients", "a_dog")}, "needs must be one of.*'a_dog'"),
        ({"needs": ("num_clients", "meta_data")}, "'meta_data', an option or a need"),
        ({"needs": ()}, "'num_clients' without a default"),
        (
            {"options": (algorithms.Option("nu", "positive", "No."),)},
            "'nu', an option or a need of 'mine'",
        ),
    ],
)
def test_bad_rows_are_refused(parts, message):
    row = {"name": "mine", "needs": ("num_clients",), **parts}
    with pytest.raises(ValueError, match=message):
        algorithms.Method(
            builder=build_nothing, paper="I (2026), It", url="https://me", **row
        )


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="value_type must be one of"):
        algorithms.Option("mu", "float", "Strength.")
    with pytest.raises(ValueError, match="choices must be given exactly with"):
        algorithms.Option("mu", "choice", "Strength.")
