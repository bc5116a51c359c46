"""Methods with client state: their measurements, options and edges."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import stateful, tiers
from tests.paper import reference
from tff_drift import algorithms

D = stateful.DIMENSION
RATE = 0.1
CLIENTS = stateful.ragged_clients([7, 4, 9], seed=5)


@pytest.mark.parametrize(
    ("build_process", "mu"),
    tiers.first(
        [3],
        [
            (lambda: stateful.scaffold("II", 0.04, 10), 0.0),
            (lambda: stateful.scaffold_m(0.04, 10), 0.0),
            # No client state corrects yet, but the pull to the cloud model does.
            (lambda: stateful.fed_dyn(RATE, 10, 0.2), 0.2),
            (lambda: stateful.adabest(RATE, 0.2, 0.5), 0.0),
        ],
    ),
    ids=["scaffold", "scaffold_m", "fed_dyn", "adabest"],
)
def test_measures_the_first_round(build_process, mu):
    driver = stateful.Driver(build_process(), CLIENTS)
    x = driver.model
    metrics = driver.round(list(CLIENTS))
    rate = np.float64(driver.state.client_work["hparams"]["learning_rate"])
    work = metrics["client_work"]
    np.testing.assert_allclose(work["learning_rate"], rate)
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


@pytest.mark.conformance
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


def test_later_rounds_may_weigh_more_in_the_average():
    driver = stateful.Driver(
        algorithms.build_scaffold(
            stateful.LinearRegression,
            RATE,
            len(CLIENTS),
            evaluated_model="average",
            averaging_growth=2.0,
        ),
        CLIENTS,
    )
    cohorts = (["client_0", "client_2"], ["client_1"], ["client_0"])
    iterates = []
    for cohort in cohorts:
        driver.round(cohort)
        iterates.append(driver.model)
    expected = np.average(iterates, axis=0, weights=[1, 2, 4])
    np.testing.assert_allclose(driver.deployed_model(), expected, rtol=1e-5)
    assert np.linalg.norm(expected - np.mean(iterates, axis=0)) > 0.01


@pytest.mark.conformance
def test_a_schedule_sets_the_rate_of_clients_and_of_their_states():
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


@pytest.mark.parametrize(
    "method",
    tiers.first(["scaffold"], ["scaffold", "scaffold_m", "fed_dyn", "adabest"]),
)
def test_a_functional_model_and_weights_of_another_dtype(method):
    # Rates that float32 holds exactly, so that double precision shows; M / N is none.
    model = functional_model(np.zeros([2, 2]), np.zeros([1]), tf.float64)
    rate, options = 0.125, {"num_clients": 3}
    if method == "scaffold":
        paper = reference.Scaffold(D, CLIENTS, rate, "II")
    elif method == "scaffold_m":
        paper = reference.ScaffoldM(D, 3, rate)
    elif method == "fed_dyn":
        options["mu"] = 0.25
        paper = reference.FedDyn(D, 3, rate, 0.25)
    else:
        options = {"mu": 0.25, "beta": 0.5}
        paper = reference.AdaBest(D, rate, 0.25, 0.5)
    process = getattr(algorithms, f"build_{method}")(model, rate, **options)
    driver = stateful.Driver(process, CLIENTS, dtype=np.float64)
    # K_i of 6, 4 and 6 local steps: neither is their mean over three.
    for cohort in (["client_0", "client_2"], list(CLIENTS), ["client_0"]):
        driver.round(cohort)
        paper.round(stateful.batches(CLIENTS, cohort))
    expected = paper.x if method == "scaffold" else paper.theta
    np.testing.assert_allclose(driver.model, expected, rtol=1e-10)
    c_i = paper.c_i if method == "scaffold" else paper.h_i
    (name,) = (n for n in driver.client_states["client_0"] if n != "last_round")
    kept = driver.client_states["client_0"][name]
    assert kept.dtype == np.float64
    np.testing.assert_allclose(kept, c_i["client_0"], rtol=1e-10)


def build(method, model_fn=stateful.LinearRegression, rate=0.1, **options):
    if method != "adabest":
        options.setdefault("num_clients", 4)
    builder = getattr(algorithms, f"build_{method}")
    return builder(model_fn, rate, **options)


SGD = tff.learning.optimizers.build_sgdm(0.1)
NUM_EXAMPLES = {"client_weighting": stateful.NUM_EXAMPLES}


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("scaffold", {"rate": SGD}, ValueError, "client_optimizer_fn must be a numb"),
        ("scaffold_m", {"rate": SGD}, TypeError, "client_learning_rate must be a numb"),
        (
            "scaffold",
            {"server_optimizer_fn": "sgd"},
            TypeError,
            "server_optimizer_fn must be",
        ),
        *(
            (method, options, ValueError, "total_examples must be given exactly if")
            for method in ("scaffold", "scaffold_m", "scaffold_momentum", "fed_dyn")
            for options in ({"total_examples": 9}, NUM_EXAMPLES)
        ),
        (
            "fed_dyn",
            {**NUM_EXAMPLES, "total_examples": 9, "mean_examples": 3},
            ValueError,
            "mean_examples must be None with client_weighting NUM_EXAMPLES",
        ),
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
            "^control_variate_sum_factory must be",
        ),
        (
            "scaffold",
            {"control_variate_sum_factory": tff.aggregators.UnweightedMeanFactory()},
            TypeError,
            r"control_variate_sum_factory\) must sum .* averages them",
        ),
        ("adabest", {"mu": "0.1"}, TypeError, "mu must be a number"),
        ("adabest", {"beta": 1.5}, ValueError, "beta must be a number from 0 to 1"),
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


@pytest.mark.parametrize(
    "method",
    ["adabest", "scaffold", "scaffold_m", "fed_cm", "mime", "mime_lite", "fed_dc"],
)
def test_weights_of_several_dtypes_are_refused(method):
    options = {"num_clients": 3} if "scaffold" in method else {}
    model = functional_model(np.zeros([2, 2], np.float32), np.zeros([1]), tf.float64)
    with pytest.raises(TypeError, match=r"all of one floating dtype.*float32.*float64"):
        getattr(algorithms, f"build_{method}")(model, 0.1, **options)


@pytest.mark.parametrize(
    "method",
    tiers.first(["scaffold_momentum"], ["scaffold", "scaffold_m", "scaffold_momentum"]),
)
def test_a_round_at_a_rate_of_zero_leaves_the_variates(method):
    process = build(
        method, client_rate_schedule=lambda k: tf.where(tf.equal(k, 1.0), 0.0, 1.0)
    )
    driver = stateful.Driver(process, CLIENTS)
    driver.round(list(CLIENTS))
    model, variate = driver.model, driver.server_variate()
    assert np.linalg.norm(variate) > 0.01
    kept = {client: driver.remembered(client) for client in CLIENTS}
    driver.round(["client_0", "client_2"])
    np.testing.assert_array_equal(driver.model, model)
    np.testing.assert_array_equal(driver.server_variate(), variate)
    for client in CLIENTS:
        np.testing.assert_array_equal(driver.remembered(client), kept[client])
    driver.round(["client_0", "client_2"])
    assert np.linalg.norm(driver.server_variate() - variate) > 1e-4


@pytest.mark.parametrize(
    ("method", "options"),
    tiers.first(
        [0],
        [
            ("scaffold", {"num_clients": 4, "option": "I"}),
            ("mime_lite", {"client_weighting": stateful.UNIFORM}),
            ("mime", {"client_weighting": stateful.UNIFORM}),
        ],
    ),
)
def test_a_client_whose_whole_gradient_is_not_finite_is_rejected(method, options):
    # The first step, of 1/4, leads to where the second gradient is 0. At x = 0 that is
    # 2^66 (0 - 2^64), beyond float32.
    features = np.zeros([2, D])
    features[:, 0] = 1, 2.0**66
    clients = {
        "fine": stateful.axis_client(1.0, optimum=1.0, axis=1),
        "broken": stateful.Client(features, np.array([1, 2.0**64]), batch_size=1),
    }
    process = getattr(algorithms, f"build_{method}")(
        stateful.LinearRegression, 0.25, **options
    )
    driver, without = (stateful.Driver(process, clients) for _ in range(2))
    metrics = driver.round(["fine", "broken"])
    without.round(["fine"])
    assert metrics["client_work"]["rejected_clients"] == 1
    # The loss of the other client alone, 1/2 at x = 0.
    assert metrics["client_work"]["train"]["loss"] == 0.5
    np.testing.assert_array_equal(driver.model, without.model)
    np.testing.assert_allclose(driver.model, [0, 0.25, 0, 0, 0])
    if method == "scaffold":
        np.testing.assert_array_equal(driver.remembered("broken"), np.zeros(D))
        # c is c_i = -1 of one of four clients.
        np.testing.assert_allclose(driver.server_variate(), [0, -0.25, 0, 0, 0])
