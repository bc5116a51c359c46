"""Parts of one's own whose results do not fit: one error, and nothing is broadcast."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import stateful
from tff_drift import algorithms, client_works, execution
from tff_drift.algorithms import server_steps

CLIENTS = stateful.ragged_clients([7, 4], seed=5)


def compose(work, server_step=1.0, **options):
    return algorithms.compose(stateful.LinearRegression, work, server_step, **options)


def means(weights):
    """A slip: a number for each weight."""
    return tuple(tf.reduce_mean(weight) for weight in weights)


def subclass(base, **members):
    """A class that has some members, functions or values, of its own."""
    return type("Own", (base,), members)


class Work(client_works.LocalSgd):
    """A client's half that keeps and says something."""

    def initial_client_state(self, zeros):
        return collections.OrderedDict(last=zeros)

    def update_client_state(self, context, local):
        del context
        return client_works.ClientOutput(
            collections.OrderedDict(last=local.pseudo_gradient)
        )


class Step(server_steps.ServerStep):
    """x <- x - Δ, and counts."""

    def initial_state(self, trainable):
        del trainable
        return collections.OrderedDict(rounds=tf.zeros([5]))

    def next(self, state, trainable, pseudo_gradient, cohort):
        del cohort
        return server_steps.ServerResult(
            collections.OrderedDict(rounds=state["rounds"] + 1),
            tuple(x - g for x, g in zip(trainable, pseudo_gradient, strict=True)),
            collections.OrderedDict(),
        )


class MeanOptimizer(tff.learning.optimizers.Optimizer):
    """Moves all entries of a weight to where their mean goes."""

    def initialize(self, specs):
        del specs
        return collections.OrderedDict(learning_rate=1.0)

    def next(self, state, weights, gradients):
        return state, tf.nest.map_structure(
            lambda w, g: tf.reduce_mean(w - g), weights, gradients
        )


@pytest.mark.parametrize("work", [client_works.LocalSgd(0.1), Work(0.1)])
def test_a_server_optimizer_that_returns_other_shapes_is_refused(work):
    # As TFF's own builder refuses it.
    with pytest.raises(
        TypeError,
        match=r"^The weights that next of server_optimizer_fn returns must have at '0' "
        r"shape \(2, 2\) and dtype float32, found shape \(\), dtype float32\.$",
    ):
        compose(work, MeanOptimizer())


def returns(**changes):
    """A step whose result has some fields of its own, as functions of the true ones."""

    def next_of_own(self, state, trainable, pseudo_gradient, cohort):
        result = Step.next(self, state, trainable, pseudo_gradient, cohort)
        return result._replace(
            **{name: change(getattr(result, name)) for name, change in changes.items()}
        )

    return subclass(Step, next=next_of_own)()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            returns(trainable=means),
            r"The trainable that next of Own returns must have at '0' shape \(2, 2\)",
        ),
        (
            returns(trainable=lambda weights: weights[:1]),
            "The trainable that next of Own returns must hold 0, 1, found 0",
        ),
        (
            returns(state=lambda state: {"rounds": tf.reduce_mean(state["rounds"])}),
            r"The state that next of Own returns must have at 'rounds' shape \(5,\)",
        ),
        (
            returns(state=lambda state: {"rounds": tf.cast(state["rounds"], "int32")}),
            r".* must have at 'rounds' .* float32, found shape \(5,\), dtype int32",
        ),
        (
            returns(state=lambda state: {"round": state["rounds"]}),
            "The state that next of Own returns must hold rounds, found round",
        ),
        (
            subclass(Step, aggregate_model=lambda self, state, model: means(model))(),
            r"The model that aggregate_model of Own returns must have at '0' shape",
        ),
    ],
)
@pytest.mark.parametrize("evaluated_model", ["aggregate", "average"])
def test_a_server_step_that_returns_other_shapes_is_refused(
    step, message, evaluated_model
):
    with pytest.raises(TypeError, match=f"^{message}"):
        compose(client_works.LocalSgd(0.1), step, evaluated_model=evaluated_model)


def keeps(**state):
    """A work whose clients keep some functions of the pseudo-gradient."""

    def update_client_state(self, context, local):
        del self, context
        return client_works.ClientOutput(
            {name: of(local.pseudo_gradient) for name, of in state.items()}
        )

    return subclass(Work, update_client_state=update_client_state)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            keeps(last=tf.norm),
            "The client state that update_client_state of Own returns must have at "
            r"'last' shape \(5,\) and dtype float32, found shape \(\), dtype float32\.",
        ),
        (
            keeps(last=lambda vector: tf.cast(vector, tf.float64)),
            r"must have .* float32, found .* dtype float64\.",
        ),
        (keeps(first=tf.identity), "must hold last.*, found first"),
        (
            subclass(Work, idle_client_state=lambda self, context: {"last": 0.0}),
            "The client state that idle_client_state of Own returns must have at "
            r"'last' shape \(5,\)",
        ),
    ],
)
@pytest.mark.parametrize("keep_latest_models", [False, True])
def test_a_client_state_of_other_shapes_is_refused(work, message, keep_latest_models):
    with pytest.raises(TypeError, match=message):
        compose(work(0.1), keep_latest_models=keep_latest_models)


def returning(value):
    """A method that returns a value, whatever it is given."""
    return lambda self, *arguments: value


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"update_client_state": returning({"last": 0.0})},
            "What update_client_state of Own returns must be a tff_drift.client_works."
            r"ClientOutput, found \{'last': 0.0\}\. Return ClientOutput\(client_state,",
        ),
        (
            {"update_client_state": returning(None)},
            "What update_client_state of Own returns must be .* found None",
        ),
        (
            {"update_client_state": client_works.ClientWork.update_client_state},
            "The client state that update_client_state of Own returns must hold last, "
            "found nothing",
        ),
        (
            {"initial_client_state": returning(None)},
            "What initial_client_state of Own returns must not be None",
        ),
        (
            {"initial_client_state": returning({"last": 0.0})},
            "What initial_client_state of Own returns must hold arrays or numbers of "
            r"NumPy's, found 0\.0\. Say of which dtype it is: np\.float32\(0\)\.",
        ),
        (
            {"initial_client_state": returning({"on": False})},
            ".* must hold .* found Fal",
        ),
        (
            {"initial_client_state": returning(np.zeros(5))},
            "What initial_client_state of Own returns must be a dictionary",
        ),
    ],
)
def test_client_states_in_other_forms_are_refused(members, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        compose(subclass(Work, **members)(0.1))


@pytest.mark.parametrize(
    ("correction", "message"),
    [
        (
            lambda self, context: context.initial_trainable,
            "hold one tensor, found 0, 1",
        ),
        (returning(None), "not be None. Is its return missing"),
        (returning(0.0), r"have shape \(5,\) and dtype float32, found shape \(\),"),
        (returning(np.zeros(4, "f")), r"have shape \(5,\) .* found shape \(4,\),"),
        (
            lambda self, context: tf.zeros(5, tf.float64),
            "have .* found .* dtype float64",
        ),
    ],
)
def test_a_correction_that_is_no_vector_is_refused(correction, message):
    work = subclass(client_works.LocalSgd, correction=correction)(0.1)
    with pytest.raises(
        TypeError,
        match=f" correction of Own returns must {message}",
    ):
        compose(work)


@pytest.mark.parametrize("value", [None, np.ones(5, "f")])
def test_a_proximal_strength_that_is_no_scalar_is_refused(value):
    members = {"proximal_strength": returning(value)}
    for linear in ({}, {"client_weight_decay": 0.1}, {"gradient_clipping_norm": 1.0}):
        with pytest.raises(
            TypeError,
            match="What proximal_strength of Own returns must be a number or a scalar",
        ):
            compose(subclass(client_works.LocalSgd, **members)(0.1, **linear))


HOOKS_OF_A_WORK = [
    "initial_hparams",
    "prepare",
    "init",
    "step",
    "initial_optimizer_state",
]


@pytest.mark.parametrize("hook", HOOKS_OF_A_WORK)
def test_a_hook_of_a_work_without_return_is_refused(hook):
    work = subclass(client_works.LocalSgd, **{hook: returning(None)})(0.1)
    with pytest.raises(
        TypeError,
        match=rf"What {hook} of Own returns must not be None\. Is its return missing\?",
    ):
        compose(work)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "hold 0, 1, found None"),
        ((0.0, 0.0), r"have at '0' shape \(2, 2\) and dtype float32, found shape \(\)"),
    ],
)
def test_an_update_of_other_shapes_is_refused(value, message):
    work = subclass(client_works.LocalSgd, finish=returning(value))(0.1)
    with pytest.raises(TypeError, match=f"What finish of Own returns must {message}"):
        compose(work)


HOOKS_OF_A_STEP = [
    "initial_state",
    "message",
    "replace_model",
    "get_hparams",
    "set_hparams",
    "control_variate",
]


@pytest.mark.parametrize("evaluated_model", ["aggregate", "average"])
@pytest.mark.parametrize("hook", HOOKS_OF_A_STEP)
def test_a_hook_of_a_server_step_without_return_is_refused(hook, evaluated_model):
    members = {hook: returning(None), "has_control_variate": True}
    members = {"control_variate": Step.aggregate_model, **members}
    with pytest.raises(
        TypeError,
        match=rf"What {hook} of Own returns must not be None\. Is its return missing\?",
    ):
        compose(
            client_works.LocalSgd(0.1),
            subclass(Step, **members)(),
            evaluated_model=evaluated_model,
        )


@pytest.mark.parametrize(
    "name", ["update_non_finite", "model_norm", "pseudo_gradient_norm"]
)
def test_measurements_with_names_of_the_library_s_are_refused(name):
    step = returns(measurements=lambda _: collections.OrderedDict({name: 1.0}))
    with pytest.raises(
        ValueError,
        match=f"The measurements that next of Own returns hold {name}, a name of the",
    ):
        compose(Work(0.1), step)


@pytest.mark.parametrize("evaluated_model", ["aggregate", "average"])
def test_a_server_step_that_returns_another_form_is_refused(evaluated_model):
    options = {"evaluated_model": evaluated_model}
    with pytest.raises(
        TypeError,
        match=r"^The measurements that next of Own returns must be a dictionary, empty "
        "if there are none, found None",
    ):
        compose(
            client_works.LocalSgd(0.1), returns(measurements=lambda _: None), **options
        )
    plain = subclass(
        Step,
        next=lambda self, *arguments: tuple(Step.next(self, *arguments)),
    )
    with pytest.raises(
        TypeError,
        match=r"^What next of Own returns must be a .*\.ServerResult, found \(.*\)\. "
        r"Return ServerResult\(state, trainable, measurements\)\.$",
    ):
        compose(client_works.LocalSgd(0.1), plain(), **options)


def test_a_class_is_to_be_called():
    with pytest.raises(
        TypeError,
        match=r"^work must be .* That is the class: call it, Work\(\.\.\.\)\.$",
    ):
        compose(Work)
    with pytest.raises(
        TypeError, match=r"^server_optimizer_fn must be .* Step\(\.\.\.\)"
    ):
        compose(Work(0.1), Step)


def of_mean(self, step):
    del self
    return means(step.gradients)


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("minibatch_gradient", {"minibatch_gradient": of_mean}),
        # Where a step is linear: the sum with what stays fixed has the right shape.
        (
            "minibatch_gradient",
            {
                "minibatch_gradient": of_mean,
                "proximal_strength": lambda self, context: 0.1,
            },
        ),
        (
            "direction",
            {"direction": lambda self, context, correction, step: of_mean(self, step)},
        ),
    ],
)
def test_a_direction_of_other_shapes_is_refused(name, members):
    work = subclass(client_works.LocalSgd, **members)(0.1)
    with pytest.raises(
        TypeError, match=rf"What {name} of Own returns must have at '0' shape \(2, 2\)"
    ):
        compose(work)


def test_shapes_that_are_not_known_are_taken():
    def unknown(tensor):
        return tf.boolean_mask(tensor, tf.ones_like(tensor, tf.bool))

    own = compose(
        keeps(last=unknown)(0.1),
        returns(state=lambda state: {"rounds": unknown(state["rounds"])}),
    )
    drivers = [
        stateful.Driver(process, CLIENTS) for process in (own, compose(Work(0.1)))
    ]
    with tff.framework.get_context_stack().install(
        execution.create_local_execution_context()
    ):
        for driver in drivers:
            driver.round(list(CLIENTS))
    np.testing.assert_array_equal(drivers[0].model, drivers[1].model)
    np.testing.assert_array_equal(drivers[0].state.finalizer["rounds"], np.ones(5))
    for name in CLIENTS:
        np.testing.assert_array_equal(
            *(driver.remembered(name, "last") for driver in drivers)
        )


class Around(server_steps.StepAround):
    """An inner step, taken by the method for it."""

    def initial_state(self, trainable):
        return collections.OrderedDict(step=self._step.initial_state(trainable))

    def next(self, state, trainable, pseudo_gradient, cohort):
        result = self.next_of_step(state, trainable, pseudo_gradient, cohort)
        return result._replace(state=collections.OrderedDict(step=result.state))


def test_a_step_around_another_takes_it():
    weights = []
    for step in (Step(), Around(Step())):
        process = compose(client_works.LocalSgd(0.1), step)
        data = [client.dataset() for client in CLIENTS.values()]
        state = process.next(process.initialize(), data).state
        weights.append(process.get_model_weights(state).trainable)
    tf.nest.map_structure(np.testing.assert_array_equal, *weights)


def test_a_method_that_has_no_name_is_told_by_its_own():
    work = client_works.LocalSgd(0.1)
    work.correction = functools.partial(lambda context: None)
    with pytest.raises(TypeError, match="What correction of LocalSgd returns must not"):
        compose(work)


class OwnProcess(algorithms.StatefulLearningProcess):
    """A process that is made of another one."""

    def __init__(self, process):
        self.__dict__.update(process.__dict__)


def test_a_step_is_appended_to_a_process_of_ones_own_class():
    def build(wrap):
        process = wrap(
            algorithms.build_scaffold(stateful.LinearRegression, 0.1, num_clients=2)
        )
        data = CLIENTS["client_0"].dataset()
        return algorithms.add_meta_step(process, stateful.LinearRegression, data, 0.1)

    own, plain = build(OwnProcess), build(lambda process: process)
    assert own.settings == plain.settings
    assert own.next.type_signature == plain.next.type_signature
