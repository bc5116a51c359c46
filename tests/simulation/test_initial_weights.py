"""Runs that begin with weights that are given."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution, simulation
from tff_drift.models import weight_places

pytestmark = pytest.mark.no_smoke

L = tf.keras.layers


@pytest.fixture(scope="module", autouse=True)
def local():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield context


def net(classes=2, norm=True):
    between = [L.BatchNormalization()] if norm else []
    return tf.keras.Sequential(
        [L.Dense(3, input_shape=[5]), *between, L.Dense(classes)]
    )


@pytest.fixture(scope="module")
def train():
    clients = {
        name: (np.ones((4, 5), np.float32), np.zeros(4, np.int64)) for name in "ab"
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=2)


def build(train, **options):
    def model_fn():
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(
            net(**options), loss, train.element_spec
        )

    # Its steps are too small to change a weight.
    return algorithms.build_fed_avg(model_fn, 1e-30)


@pytest.fixture(scope="module")
def process(train):
    return build(train)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def keras_model(folder):
    model, random = net(), np.random.default_rng(0)
    model.set_weights([random.random(each.shape) for each in model.get_weights()])
    # Before a graph is built, in which Keras 2 turns all models into those of graphs.
    for name in ("model.keras", "model.h5", "model"):
        model.save(folder / name)
    model.save_weights(folder / "a.weights.h5")
    return model


def run(process, train, **options):
    return simulation.run_training(process, train, rounds=1, cohort_size=1, **options)


def assert_begins(result, keras_model):
    weights = result.model_weights
    for found, expected in (
        (weights.trainable, keras_model.trainable_variables),
        (weights.non_trainable, keras_model.non_trainable_variables),
    ):
        assert len(found) == len(expected)
        for array, variable in zip(found, expected, strict=True):
            np.testing.assert_array_equal(array, variable.numpy())


def weights_of(keras_model):
    return tff.learning.models.ModelWeights.from_model(keras_model)


@pytest.mark.no_smoke
def test_a_model_and_its_weights_are_where_training_starts(process, train, keras_model):
    for given in (keras_model, weights_of(keras_model)):
        assert_begins(run(process, train, initial_weights=given), keras_model)


class Block(L.Layer):
    """Two layers of one shape in one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = L.Dense(5), L.Dense(5)

    def call(self, inputs):
        return self.second(self.first(inputs))


def layers_of_one_shape(frozen):
    block = Block()
    inner = tf.keras.Sequential([L.Dense(5, input_shape=[5])])
    outer = tf.keras.Sequential([tf.keras.Input([5]), block, inner, L.Dense(5)])
    layers = [block.first, block.second, inner.layers[0], outer.layers[-1]]
    for place in frozen:
        layers[place].trainable = False
    return outer, layers


def numbered(layers):
    for number, layer in enumerate(layers):
        layer.set_weights([np.full(each.shape, number) for each in layer.get_weights()])


def fed_avg(train, build, builder=algorithms.build_fed_avg):
    def model_fn():
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(build(), loss, train.element_spec)

    return builder(model_fn, 1e-30)


@pytest.mark.parametrize("frozen_in_given", [(), (0,), (1, 2), (0, 1, 3)])
def test_each_layer_begins_with_its_weights_whichever_the_given_model_freezes(
    train, frozen_in_given
):
    process = fed_avg(train, lambda: layers_of_one_shape(frozen=(0, 2))[0])
    given, layers = layers_of_one_shape(frozen_in_given)
    numbered(layers)
    weights = run(process, train, initial_weights=given).model_weights
    for part, numbers in ((weights.trainable, (1, 3)), (weights.non_trainable, (0, 2))):
        assert [each.flat[0] for each in part] == [n for n in numbers for _ in "wb"]


def test_a_process_that_tells_no_places_takes_a_model_with_the_same_layers_frozen(
    train, keras_model, monkeypatch
):
    def build():
        built = net()
        built.layers[0].trainable = False
        return built

    process = fed_avg(
        train,
        build,
        lambda model_fn, rate: tff.learning.algorithms.build_unweighted_fed_avg(
            model_fn, tff.learning.optimizers.build_sgdm(rate)
        ),
    )
    with pytest.raises(ValueError, match=r"Freeze the same layers of a Keras model"):
        run(process, train, initial_weights=keras_model)
    monkeypatch.setattr(keras_model.layers[0], "trainable", False)
    weights = run(process, train, initial_weights=keras_model).model_weights
    for part, variables in (
        (weights.trainable, keras_model.trainable_variables),
        (weights.non_trainable, keras_model.non_trainable_variables),
    ):
        np.testing.assert_equal(part, [each.numpy() for each in variables])


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model"])
def test_a_saved_model_is_where_training_starts(
    folder, process, train, keras_model, name
):
    path = folder / name
    for given in (path, str(path)):
        assert_begins(run(process, train, initial_weights=given), keras_model)


def test_a_list_is_taken_of_a_model_whose_weights_all_train(
    process, train, keras_model
):
    arrays = [np.arange(15.0).reshape(5, 3), [1, 2, 3], np.ones((3, 2)), [3, 4]]
    result = run(build(train, norm=False), train, initial_weights=arrays)
    for found, expected in zip(result.model_weights.trainable, arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"list of arrays.*ModelWeights\(trainable"):
        run(
            process,
            train,
            initial_weights=[each.numpy() for each in keras_model.weights],
        )


def test_one_line_begins_a_loop_of_ones_own(process, keras_model):
    state = process.set_model_weights(process.initialize(), weights_of(keras_model))
    np.testing.assert_array_equal(
        process.get_model_weights(state).trainable[0],
        keras_model.trainable_variables[0].numpy(),
    )


def test_a_resumed_run_compares_them(tmp_path, process, train, keras_model):
    run(process, train, initial_weights=keras_model, output_dir=tmp_path)
    again = run(
        process, train, initial_weights=weights_of(keras_model), output_dir=tmp_path
    )
    assert_begins(again, keras_model)
    for other in ({}, {"initial_weights": net()}):
        with pytest.raises(
            simulation.OutputDirError,
            match=r"configuration: initial_weights or initial_state \(initial_state_",
        ):
            run(process, train, output_dir=tmp_path, **other)


def test_other_weights_are_refused_with_the_remedy(
    tmp_path, folder, process, train, keras_model
):
    weights = weights_of(keras_model)
    (tmp_path / "a.keras").write_bytes(b"no archive")
    for given, error, message in (
        (3, TypeError, "initial_weights must be a Keras model.*found 3"),
        (
            tf.keras.Sequential([tf.keras.layers.Dense(2)]),
            ValueError,
            "not built.*Call it once on a batch",
        ),
        (net(4), ValueError, r"weight 4, has the shape \(3, 4\).*\(3, 2\)"),
        (net(norm=False), ValueError, "has 4 trainable weights.*has 6"),
        (
            tff.learning.models.ModelWeights(
                [np.nan * each for each in weights.trainable], weights.non_trainable
            ),
            ValueError,
            "trainable weight 0, has values that are not finite",
        ),
        (tmp_path / "none.keras", ValueError, "there is no file"),
        (tmp_path / "a.keras", ValueError, "cannot be read"),
        (folder / "a.weights.h5", ValueError, "weights alone.*load_weights"),
        (tmp_path, ValueError, r"no saved_model\.pb"),
    ):
        with pytest.raises(error, match=message) as raised:
            run(process, train, initial_weights=given)
        assert len(str(raised.value)) < 700
    with pytest.raises(ValueError, match="both given"):
        run(
            process,
            train,
            initial_state=process.initialize(),
            initial_weights=keras_model,
        )
    with pytest.raises(TypeError, match="weights of a model as initial_weights"):
        run(process, train, initial_state=weights)


def test_a_users_own_model_around_a_keras_model_tells_no_places():
    """It may train other weights, or in another order."""
    own = types.SimpleNamespace(_keras_model=net())
    assert weight_places.find_weight_places(own) is None
