"""What all methods with client memory share."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, stateful
from tests.paper import reference
from tff_drift import algorithms

D = stateful.DIMENSION
RATE = 0.1
CLIENTS = stateful.ragged_clients([7, 4, 9], seed=5)
EXAMPLES = "<float32[?,5],float32[?]>*"
VARIATE = "<control_variate=float32[5]>"
ESTIMATE = "<gradient_estimate=float32[5]>"

PROCESSES = {
    "scaffold": lambda: stateful.scaffold("II", 0.04, 10),
    "scaffold_option_I": lambda: stateful.scaffold("I", 0.04, 10),
    "scaffold_m": lambda: stateful.scaffold_m(0.04, 10),
    "fed_dyn": lambda: stateful.fed_dyn(RATE, 10, 0.2),
    "adabest": lambda: stateful.adabest(RATE, 0.2, 0.5),
}


@pytest.fixture(params=PROCESSES)
def process(request):
    return PROCESSES[request.param]()


@pytest.mark.parametrize(
    ("name", "memory", "down", "up"),
    [
        ("scaffold", VARIATE, "float32[5]", "float32[5]"),
        ("scaffold_m", VARIATE, "float32[5]", "<>"),
        ("fed_dyn", ESTIMATE, "<>", "<>"),
        ("adabest", "<gradient_estimate=float32[5],last_round=int32>", "<>", "<>"),
    ],
)
def test_has_the_documented_types(name, memory, down, up):
    process = PROCESSES[name]()
    assert isinstance(process, tff.learning.templates.LearningProcess)
    assert isinstance(process, algorithms.StatefulLearningProcess)
    assert str(process.next.type_signature.parameter[1]) == (
        f"{{<examples={EXAMPLES},state={memory},index=int32>}}@CLIENTS"
    )
    collected = process.next.type_signature.result.metrics.member.client_states
    # Of every leaf one for each client.
    stacked = memory.replace("float32[5]", "float32[?,5]").replace("int32", "int32[?]")
    assert str(collected) == f"<index=int32[?],state={stacked}>"
    # The traffic besides the model, which costs n each way: n or nothing.
    assert str(process.message_down) == down
    assert str(process.message_up) == up
    initial = process.initial_client_state
    np.testing.assert_array_equal(initial[next(iter(initial))], np.zeros(D))
    assert initial.get("last_round", -1) == -1


def test_broken_and_empty_clients_keep_their_memory_and_do_not_move_the_server(
    process,
):
    poisoned = CLIENTS["client_1"].targets.copy()
    poisoned[2] = np.nan
    of_round = {
        "client_1": CLIENTS["client_1"]._replace(targets=poisoned),
        "client_2": CLIENTS["client_2"]._replace(
            features=np.zeros([0, D]), targets=np.zeros([0])
        ),
    }
    driver, without = (stateful.Driver(process, CLIENTS) for _ in range(2))
    driver.round(list(CLIENTS))
    without.round(list(CLIENTS))
    before = dict(driver.memory)
    metrics = driver.round(["client_1", "client_0", "client_2"], of_round)
    without.round(["client_0"])
    assert metrics["client_work"]["rejected_clients"] == 1
    assert metrics["finalizer"]["update_non_finite"] == 0
    tf.nest.map_structure(np.testing.assert_array_equal, driver.state, without.state)
    np.testing.assert_equal(driver.memory["client_0"], without.memory["client_0"])
    for client in of_round:
        np.testing.assert_equal(driver.memory[client], before[client])
    # With nobody else, only the round number changes.
    settled = driver.state
    driver.round(["client_2", "client_1"], of_round)
    assert driver.state.client_work["round_number"] == 3
    for part in ("global_model_weights", "aggregator", "finalizer"):
        tf.nest.map_structure(
            np.testing.assert_array_equal,
            getattr(driver.state, part),
            getattr(settled, part),
        )
    for client in of_round:
        np.testing.assert_equal(driver.memory[client], before[client])


def test_measures_the_round(process):
    driver = stateful.Driver(process, CLIENTS)
    x = driver.model
    metrics = driver.round(list(CLIENTS))
    rate = np.float64(driver.state.client_work["hparams"]["learning_rate"])
    work = metrics["client_work"]
    np.testing.assert_allclose(work["learning_rate"], rate)
    # In the first round no memory corrects yet, but FedDyn's pull to the cloud model.
    mu = 0.2 if process is PROCESSES["fed_dyn"]() else 0.0
    moves = [
        reference.Sgd(rate).run(x, c.batches(), lambda w: mu * (w - x)) - x
        for c in CLIENTS.values()
    ]
    np.testing.assert_allclose(
        work["drift"], np.mean(np.linalg.norm(moves, axis=1)), rtol=1e-4
    )
    finalizer = metrics["finalizer"]
    np.testing.assert_allclose(
        finalizer["pseudo_gradient_norm"],
        np.linalg.norm(np.mean(moves, axis=0)),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        finalizer["model_norm"], np.linalg.norm(driver.model), rtol=1e-5
    )


def test_the_model_can_be_set_and_the_learning_rate_changed(process):
    driver = stateful.Driver(process, CLIENTS)
    driver.round(["client_0", "client_2"])
    w = np.arange(5) / 8
    driver.set_model(w)
    np.testing.assert_array_equal(driver.model, w)
    np.testing.assert_array_equal(driver.deployed_model(), w)
    hparams = process.get_hparams(driver.state)
    assert (
        hparams["client_work"]["learning_rate"]
        == (driver.state.client_work["hparams"]["learning_rate"])
    )
    hparams["client_work"]["learning_rate"] = 0.0625
    changed = process.set_hparams(driver.state, hparams)
    assert process.get_hparams(changed)["client_work"]["learning_rate"] == 0.0625
    assert changed.client_work["round_number"] == 1


def test_adabests_beta_is_a_hyperparameter_and_a_set_model_its_last_aggregate():
    process = stateful.adabest(RATE, 0.2, 0.5)
    driver = stateful.Driver(process, CLIENTS)
    driver.round(["client_0"])
    hparams = process.get_hparams(driver.state)
    assert hparams["finalizer"]["beta"] == 0.5
    hparams["finalizer"]["beta"] = 0.25
    driver.state = process.set_hparams(driver.state, hparams)
    w = np.arange(5) / 8
    driver.set_model(w)
    metrics = driver.round(["client_1"])
    assert metrics["finalizer"]["beta"] == 0.25
    aggregate = stateful.vector(driver.state.finalizer["aggregate_model"])
    # h = β (θ̄ before - θ̄) with θ̄ before = w.
    np.testing.assert_allclose(
        driver.model, aggregate - 0.25 * (w - aggregate), atol=1e-6
    )


def test_which_model_is_evaluated():
    default = stateful.Driver(stateful.adabest(RATE, 0.2, 0.5), CLIENTS)
    cloud, average = (
        stateful.Driver(
            algorithms.build_adabest(
                stateful.LinearRegression,
                RATE,
                mu=0.2,
                beta=0.5,
                evaluated_model=evaluated_model,
            ),
            CLIENTS,
        )
        for evaluated_model in ("cloud", "average")
    )
    aggregates = []
    for cohort in (["client_0", "client_2"], ["client_1"], ["client_0"]):
        for driver in (default, cloud, average):
            driver.round(cohort)
            np.testing.assert_array_equal(driver.model, default.model)
        aggregates.append(stateful.vector(default.state.finalizer["aggregate_model"]))
        np.testing.assert_array_equal(default.deployed_model(), aggregates[-1])
        np.testing.assert_array_equal(cloud.deployed_model(), default.model)
        np.testing.assert_allclose(
            average.deployed_model(), np.mean(aggregates, axis=0), atol=1e-6
        )
    assert np.linalg.norm(default.model - aggregates[-1]) > 0.01
    # A model that was set is where the average starts anew.
    average.set_model(np.ones(D))
    np.testing.assert_array_equal(average.deployed_model(), np.ones(D))
    hparams = average.process.get_hparams(average.state)
    hparams["finalizer"]["beta"] = 0.75
    average.state = average.process.set_hparams(average.state, hparams)
    assert average.round(["client_2"])["finalizer"]["beta"] == 0.75
    aggregate = stateful.vector(average.state.finalizer["step"]["aggregate_model"])
    np.testing.assert_allclose(average.deployed_model(), aggregate, atol=1e-6)


def test_a_schedule_sets_the_rate_of_clients_and_of_their_memory():
    process = algorithms.build_scaffold_m(
        stateful.LinearRegression,
        0.2,
        3,
        client_rate_schedule=lambda t: 0.5 ** tf.cast(t, tf.float32),
    )
    driver = stateful.Driver(process, CLIENTS)
    paper = reference.ScaffoldM(D, 3, 0.2)
    for cohort in (["client_0"], ["client_1", "client_2"], ["client_0", "client_2"]):
        metrics = driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
        np.testing.assert_allclose(
            metrics["client_work"]["learning_rate"], paper.sgd.rate, rtol=1e-6
        )
        np.testing.assert_allclose(driver.model, paper.theta, atol=1e-5)
        h = stateful.vector(driver.state.finalizer["control_variate"])
        np.testing.assert_allclose(h, paper.h, atol=1e-5)
        paper.sgd.rate /= 2


def functional_model(first, last, dtype):
    """The loss of `stateful.LinearRegression`, for data of the given dtype."""

    @tf.function
    def predict_on_batch(model_weights, x, training):
        del training
        (first, last), _ = model_weights
        w = tf.concat([tf.reshape(first, [-1]), last], axis=0)
        return tf.linalg.matvec(x, w)

    @tf.function
    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean(tf.square(output - label)) / 2

    return tff.learning.models.FunctionalModel(
        initial_weights=((first, last), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        input_spec=(tf.TensorSpec([None, D], dtype), tf.TensorSpec([None], dtype)),
    )


def test_a_functional_model_and_weights_of_another_dtype():
    # Rates that float32 holds exactly, so that double precision shows.
    model = functional_model(np.zeros([2, 2]), np.zeros([1]), tf.float64)
    process = algorithms.build_adabest(model, 0.125, mu=0.25, beta=0.5)
    driver = stateful.Driver(process, CLIENTS, dtype=np.float64)
    paper = reference.AdaBest(D, 0.125, 0.25, 0.5)
    for cohort in (["client_0", "client_2"], ["client_1"], ["client_0"]):
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
    np.testing.assert_allclose(driver.model, paper.theta, rtol=1e-10)
    h_i = driver.memory["client_0"]["gradient_estimate"]
    assert h_i.dtype == np.float64
    np.testing.assert_allclose(h_i, paper.h_i["client_0"], rtol=1e-10)


def build(method, model_fn=stateful.LinearRegression, rate=0.1, **options):
    if method != "adabest":
        options.setdefault("num_clients", 4)
    builder = getattr(algorithms, f"build_{method}")
    return builder(model_fn, rate, **options)


METHODS = ["scaffold", "scaffold_m", "fed_dyn", "adabest"]
REFUSED_BY_ALL = [
    ({"rate": 0.0}, ValueError, "client_.* must be .* greater than 0"),
    ({"rate": float("nan")}, ValueError, "client_(optimizer_fn|learning_rate) must be"),
    ({"rate": None}, TypeError, "client_(optimizer_fn|learning_rate) must be"),
    ({"client_weight_decay": -1.0}, ValueError, "client_weight_decay must be"),
    ({"weight_decay": 0.1}, TypeError, "Did you mean client_weight_decay"),
    ({"gradient_clipping_norm": 0.0}, ValueError, "gradient_clipping_norm must be"),
    ({"evaluated_model": "mean"}, ValueError, "evaluated_model must be one of"),
    ({"client_weighting": "uniform"}, TypeError, "client_weighting must be"),
    ({"client_rate_schedule": 0.5}, TypeError, "client_rate_schedule must be"),
    ({"model_aggregator": "mean"}, TypeError, "model_aggregator must be a factory"),
    ({"model_fn": models.keras_softmax_regression()}, TypeError, "model_fn must be a"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("options", "error", "message"), REFUSED_BY_ALL)
def test_bad_arguments_are_refused(method, options, error, message):
    with pytest.raises(error, match=message):
        build(method, **options)


@pytest.mark.parametrize("method", ["scaffold", "scaffold_m", "fed_dyn"])
@pytest.mark.parametrize(
    ("num_clients", "error"), [(0, ValueError), (2.5, TypeError), (True, TypeError)]
)
def test_a_bad_number_of_clients_is_refused(method, num_clients, error):
    with pytest.raises(error, match="num_clients must be"):
        build(method, num_clients=num_clients)


SGD = tff.learning.optimizers.build_sgdm(0.1)
SCHEDULE = {"server_rate_schedule": lambda round_number: 1.0}
NUM_EXAMPLES = {"client_weighting": stateful.NUM_EXAMPLES}


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("scaffold", {"rate": SGD}, ValueError, "client_optimizer_fn must be a numb"),
        ("scaffold_m", {"rate": SGD}, TypeError, "client_learning_rate must be a numb"),
        ("scaffold", {"server_rate_schedule": 0.5}, TypeError, "server_rate_schedule"),
        ("scaffold_m", SCHEDULE, ValueError, "server_rate_schedule must be None"),
        ("fed_dyn", SCHEDULE, ValueError, "server_rate_schedule must be None"),
        ("adabest", SCHEDULE, ValueError, "server_rate_schedule must be None"),
        ("scaffold", {"option": "III"}, ValueError, "option must be one of 'I', 'II'"),
        (
            "scaffold",
            {"server_optimizer_fn": "sgd"},
            TypeError,
            "server_optimizer_fn must be",
        ),
        ("scaffold", {"total_examples": 9}, ValueError, "total_examples must be given"),
        ("scaffold", NUM_EXAMPLES, ValueError, "total_examples must be given exactly"),
        (
            "scaffold",
            {**NUM_EXAMPLES, "total_examples": -9},
            ValueError,
            "total_examples must be a finite number greater than 0, found -9",
        ),
        (
            "scaffold",
            {"control_variate_sum_factory": 3},
            TypeError,
            "sum_factory must be",
        ),
        ("fed_dyn", {"mu": -0.1}, ValueError, "mu must be .* at least 0"),
        ("adabest", {"mu": "0.1"}, TypeError, "mu must be a number"),
        ("adabest", {"beta": 1.5}, ValueError, "beta must be between 0 and 1"),
        ("adabest", {"beta": "automatic"}, ValueError, "beta must be one of 'auto'"),
        ("adabest", {"beta": None}, TypeError, "beta must be a number"),
        ("adabest", {"beta_schedule": 0.5}, TypeError, "beta_schedule must be"),
        (
            "adabest",
            {**NUM_EXAMPLES, "mu_by_examples": True},
            ValueError,
            "mu_by_examples must be False with client_weighting NUM_EXAMPLES",
        ),
        ("adabest", {"mu_by_examples": 2}, ValueError, "mu_by_examples must be one"),
        ("adabest", {"beta_decay": 0.0}, ValueError, "beta_decay must be"),
        ("adabest", {"beta_decay": 1.5}, ValueError, "beta_decay must be"),
        ("adabest", {"plateau_patience": 0}, ValueError, "plateau_patience must be"),
        ("adabest", {"plateau_patience": 2.0}, TypeError, "plateau_patience must be"),
    ],
)
def test_bad_arguments_of_one_method_are_refused(method, options, error, message):
    with pytest.raises(error, match=message):
        build(method, **options)


def test_weights_of_several_dtypes_are_refused():
    model = functional_model(np.zeros([2, 2], np.float32), np.zeros([1]), tf.float64)
    with pytest.raises(TypeError, match=r"all of one floating dtype.*float32.*float64"):
        algorithms.build_adabest(model, 0.1)


def test_the_result_does_not_depend_on_the_order_of_the_cohort(process):
    one, other = (stateful.Driver(process, CLIENTS) for _ in range(2))
    for driver, cohort in ((one, list(CLIENTS)), (other, list(CLIENTS)[::-1])):
        driver.round(cohort)
        driver.round(cohort[:2] if driver is one else cohort[1:])
    np.testing.assert_allclose(one.model, other.model, atol=1e-6)
    assert one.memory.keys() == other.memory.keys()
    for client, state in one.memory.items():
        np.testing.assert_equal(
            collections.OrderedDict(state).keys(), other.memory[client].keys()
        )
        for name, value in state.items():
            np.testing.assert_allclose(value, other.memory[client][name], atol=1e-5)
