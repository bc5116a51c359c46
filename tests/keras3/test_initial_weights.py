"""Training begins with the weights that a Keras 3 model has."""

import keras
import numpy as np
import pytest

from tests import keras3_models, models
from tff_drift import algorithms, simulation
from tff_drift.models import initial_weights_for

pytestmark = keras3_models.needed

SHAPES = [(models.NUM_FEATURES, models.NUM_CLASSES), (models.NUM_CLASSES,)]
VALUES = [np.full(shape, 3.0, np.float32) for shape in SHAPES]


def trained(*layers_before):
    keras_model = keras3_models.softmax_regression(*layers_before)
    keras_model.set_weights(VALUES)
    return keras_model


def begin(model_fn):
    process = algorithms.build_fed_avg(model_fn, 0.1)
    return models.trainable(process, process.initialize())


def test_present_weights_of_a_model_from_outside():
    models.assert_bit_equal(begin(keras3_models.model_fn(trained())), VALUES)


def test_weights_that_model_fn_sets_or_loads(tmp_path):
    trained().save(tmp_path / "model.keras")
    trained().save_weights(tmp_path / "model.weights.h5")

    def loaded():
        keras_model = keras3_models.softmax_regression()
        keras_model.load_weights(tmp_path / "model.weights.h5")
        return keras_model

    for build in (
        trained,
        loaded,
        lambda: keras.models.load_model(tmp_path / "model.keras"),
    ):

        def model_fn(build=build):
            return keras3_models.model_fn(build())()

        models.assert_bit_equal(begin(model_fn), VALUES)


@pytest.mark.parametrize("name", [None, "model.keras", "model.h5", "model"])
def test_initial_weights_of_a_run(tmp_path, name):
    # What a layer that draws numbers keeps is no weight, in an exported model neither.
    given = trained(keras.layers.Dropout(0.5))
    if name is not None:
        save = given.save if "." in name else given.export
        given = tmp_path / name
        save(given)
    process = algorithms.build_fed_avg(
        keras3_models.model_fn(keras3_models.softmax_regression()), 1e-30
    )
    clients = {"a": models.client_arrays([4])[0]}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    result = simulation.run_training(
        process, train, rounds=1, cohort_size=1, initial_weights=given
    )
    models.assert_bit_equal(result.model_weights.trainable, VALUES)


@pytest.mark.parametrize("frozen_in_given", [[], ["a"], ["b", "c"]])
def test_each_layer_begins_with_its_weights_whichever_the_given_model_freezes(
    frozen_in_given,
):
    def build(frozen):
        model = keras.Sequential(
            [
                keras.Input([models.NUM_FEATURES]),
                *(keras.layers.Dense(models.NUM_FEATURES, name=name) for name in "abc"),
            ]
        )
        for name in frozen:
            model.get_layer(name).trainable = False
        return model

    given = build(frozen_in_given)
    given.set_weights([np.full(each.shape, i) for i, each in enumerate(given.weights)])
    process = algorithms.build_fed_avg(keras3_models.model_fn(build(["b"])), 0.1)
    weights = initial_weights_for(process, given)
    assert [each.flat[0] for each in weights.trainable] == [0, 1, 4, 5]
    assert [each.flat[0] for each in weights.non_trainable] == [2, 3]


def test_adapters_that_weights_lack_name_the_way_that_works():
    adapted = keras3_models.softmax_regression()
    adapted.layers[-1].enable_lora(2)
    process = algorithms.build_fed_avg(keras3_models.model_fn(adapted), 0.1)
    with pytest.raises(ValueError, match=r"enable_lora.*leave initial_weights out"):
        initial_weights_for(process, trained())
