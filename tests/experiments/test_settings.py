import pathlib

import pytest

from experiments.flags import declarations, errors, published_rates, settings
from tests.experiments.programs import parse
from tests.experiments.programs import resolve as resolve_one
from tff_drift import value_types


def resolve(command, *words):
    given = parse(command, *words)
    if command == "train":
        return [settings.resolve(given)]
    return settings.resolve_comparison(given)


def test_train_with_no_flags():
    run = resolve_one()
    assert (run.task, run.algorithm, run.seed) == ("digits", "fed_avg", 1)
    assert str(run.folder) == "results/train/digits/fed_avg/seed_1"
    assert run.rounds == published_rates.TASKS["digits"].rounds
    assert run.options["algorithm"] == {}


def test_published_rates_are_the_defaults():
    # Reddi et al. (2021): log10 of client rate, server rate and τ.
    published = {
        "emnist_character": {
            "fed_avg": (-1, 0, None),
            "fed_avgm": (-1.5, -0.5, None),
            "fed_adagrad": (-1.5, -1, -2),
            "fed_adam": (-1.5, -2.5, -4),
            "fed_yogi": (-1.5, -2.5, -4),
        },
        "shakespeare_character": {
            "fed_avg": (0, 0, None),
            "fed_avgm": (0, -0.5, None),
            "fed_adagrad": (0, -0.5, -1),
            "fed_adam": (0, -2, -3),
            "fed_yogi": (0, -2, -3),
        },
    }
    for task, algorithms in published.items():
        for algorithm, (client, server, tau) in algorithms.items():
            run = resolve_one(f"--task={task}", f"--algorithm={algorithm}")
            configuration = run.configuration
            assert configuration["client_learning_rate"] == pytest.approx(
                10**client, rel=1e-3
            )
            assert configuration["server_learning_rate"] == pytest.approx(
                10**server, rel=1e-3
            )
            if tau is not None:
                assert configuration["tau"] == pytest.approx(10**tau, rel=1e-3)


def test_published_rounds_and_cohorts():
    emnist = resolve_one("--task=emnist_character").configuration
    shakespeare = resolve_one("--task=shakespeare_character").configuration
    assert (emnist["rounds"], emnist["clients_per_round"]) == (1500, 10)
    assert (shakespeare["rounds"], shakespeare["clients_per_round"]) == (1200, 10)
    assert (emnist["batch_size"], shakespeare["batch_size"]) == (20, 4)


def test_a_comparison_has_a_folder_for_each_algorithm_and_seed():
    runs = resolve(
        "compare", "--algorithms=fed_avg,fed_adam", "--seeds=3,2", "--output_dir=out"
    )
    assert [str(run.folder) for run in runs] == [
        "out/fed_avg/seed_3",
        "out/fed_adam/seed_3",
        "out/fed_avg/seed_2",
        "out/fed_adam/seed_2",
    ]
    assert [run.seed for run in runs] == [3, 3, 2, 2]


# A value for each flag that is not its default, and flags that it needs.
GIVEN = {
    "task": ("quadratic", ""),
    "algorithm": ("fed_adam", ""),
    "protocol": ("adabest", "--task=cifar10"),
    "rounds": (17, ""),
    "clients_per_round": (3, ""),
    "cohort_doubling": ("rounds", "--cohort_doubling_at=3"),
    "cohort_doubling_at": ((3, 9), "--cohort_doubling=examples"),
    "max_clients_per_round": (20, "--cohort_doubling=rounds --cohort_doubling_at=3"),
    "seed": (9, ""),
    "cache_dir": ("data", ""),
    "client_learning_rate": (0.07, ""),
    "client_optimizer": ("adam", ""),
    "client_momentum": (0.5, "--client_optimizer=momentum"),
    "client_epochs": (4, ""),
    "local_steps": (7, ""),
    "batch_size": (6, ""),
    "client_rate_schedule": ("inverse_sqrt", ""),
    "client_rate_decay": (0.5, "--client_rate_schedule=per_round_factor"),
    "client_rate_decay_rounds": (5, "--client_rate_schedule=inverse_sqrt"),
    "client_rate_staircase": (
        False,
        "--client_rate_schedule=exponential --client_rate_decay=0.5 "
        "--client_rate_decay_rounds=5",
    ),
    "server_learning_rate": (0.3, ""),
    "server_rate_scaling": ("sqrt", ""),
    "reference_clients_per_round": (5, "--server_rate_scaling=linear"),
    "server_warm_up_rounds": (8, ""),
    "server_warm_up_from": (
        "zero",
        "--server_warm_up_rounds=3 --server_rate_scaling=sqrt",
    ),
    "weighting": ("uniform", ""),
    "adaptive_clipping": (True, ""),
    "clipping_quantile": (0.4, "--adaptive_clipping"),
    "clipping_initial_norm": (2.5, "--adaptive_clipping"),
    "clipping_learning_rate": (0.6, "--adaptive_clipping"),
    "cohort_measurements": (True, ""),
    "rounds_per_evaluation": (6, ""),
    "max_evaluation_clients": (2, ""),
    "evaluate_on_training_clients": (True, ""),
    "evaluated_model": ("latest", "--algorithm=adabest"),
    "averaging_growth": (1.5, "--algorithm=scaffold --evaluated_model=average"),
    "beta_schedule": ("every_round", "--algorithm=adabest"),
    "mu_by_examples": (True, "--algorithm=adabest"),
    "variates_by_examples": (True, "--algorithm=scaffold"),
    "straggler_clock": (True, ""),
    "straggler_delay": (10.0, "--straggler_clock"),
    "straggler_seconds_per_example": (0.5, "--straggler_clock"),
    "straggler_left_out": (0.2, "--straggler_clock"),
    "output_dir": ("somewhere", ""),
    "rounds_per_checkpoint": (3, ""),
    "tensorboard": (True, ""),
    "track": (("mlflow",), ""),
    "client_states": ("disk", "--algorithm=scaffold"),
    "callbacks": (("my_module:MyCallback", "my_module:other"), ""),
    "plugin": (("some.py",), ""),
    "settings": ((str(pathlib.Path(__file__).with_name("best.json")),), ""),
    "measure_mismatch": (True, "--algorithm=scaffold"),
    "execution": ("native", ""),
    "max_concurrent_clients": (1, ""),
    "ray_address": ("auto", "--execution=ray"),
    "ray_actors": (2, "--execution=ray"),
    "momentum": (0.4, "--algorithm=fed_avgm"),
    "beta_1": (0.4, "--algorithm=fed_adam"),
    "beta_2": (0.4, "--algorithm=fed_adam"),
    "tau": (0.4, "--algorithm=fed_adam"),
    "initial_accumulator": (0.4, "--algorithm=fed_adam"),
    "server_weight_decay": (0.4, "--algorithm=fed_lamb"),
    "bias_correction": (True, "--algorithm=fed_lamb"),
    "epsilon": (0.4, "--algorithm=fed_lars"),
    "client_weight_decay": (0.4, "--algorithm=fed_avg"),
    "gradient_clipping_norm": (3.0, "--algorithm=scaffold"),
    "option": ("I", "--algorithm=scaffold"),
    "adabest_mu": (0.4, "--algorithm=adabest"),
    "fed_dyn_mu": (0.4, "--algorithm=fed_dyn"),
    "fed_cm_alpha": (0.4, "--algorithm=fed_cm"),
    "fed_dc_alpha": (0.4, "--algorithm=fed_dc"),
    "fed_dc_correct_gradients": (False, "--algorithm=fed_dc"),
    "fed_exp_epsilon": (0.4, "--algorithm=fed_exp"),
    "fed_exp_mu": (0.4, "--algorithm=fed_exp"),
    "fed_nova_mu": (0.4, "--algorithm=fed_nova"),
    "scaffnew_probability": (0.4, "--algorithm=scaffnew"),
    "scaffnew_seed": (4, "--algorithm=scaffnew"),
    "scaffold_beta": (0.4, "--algorithm=scaffold_momentum"),
    "fed_prox_mu": (0.4, "--algorithm=fed_prox"),
    "beta": ("auto", "--algorithm=adabest"),
    "beta_decay": (0.4, "--algorithm=adabest"),
    "plateau_patience": (4, "--algorithm=adabest"),
    "share_fraction": (0.2, "--algorithm=fed_share"),
    "share_split": (False, "--algorithm=fed_share"),
    "share_labels": ("1+2", "--algorithm=fed_share"),
    "share_file": ("some.npz", "--algorithm=fed_share"),
    "meta_step": (0.2, "--algorithm=adabest"),
    "meta_step_epochs": (5, "--meta_step=0.1"),
    "meta_step_batch_size": (64, "--meta_step=0.1"),
    "meta_labels": ("1+2", "--meta_step=0.1"),
    "meta_overlap": (0.5, "--algorithm=fed_meta"),
    "initial_weights": ("model.keras", ""),
    "meta_file": ("some.npz", "--algorithm=fed_meta"),
    "meta_fraction": (0.2, "--algorithm=fed_meta"),
    "meta_learning_rate": (0.0, "--algorithm=fed_meta"),
    "meta_epochs": (5, "--algorithm=fed_meta"),
    "meta_batch_size": (64, "--algorithm=fed_meta_uga"),
    "meta_rate_decay": (0.5, "--algorithm=fed_meta_uga"),
    "max_examples": (12, ""),
    "num_clients": (13, ""),
    "alpha": (0.9, ""),
    "units": (16, "--task=shakespeare_character_gru"),
    "dimension": (3, "--task=quadratic"),
    "heterogeneity": (0.5, "--task=quadratic"),
    "download": (True, "--task=emnist_character"),
    "synthetic": (True, "--task=emnist_character"),
    "dropout_rate": (0.1, "--task=emnist_digits"),
    "validation_fraction": (0.25, "--task=emnist_character"),
    "size_sigma": (0.4, "--task=cifar10"),
    "similarity": (0.1, "--task=cifar10"),
    "last_batch": ("bootstrap", "--task=cifar10"),
    "letters": (10, "--task=emnist_letters"),
    "network": ("uga", "--task=cifar10"),
    "augment": (False, "--task=cifar10"),
    "setting": ("adabest", "--task=cifar100"),
    "vocabulary_size": (50, "--task=stackoverflow_word"),
    "test_clients": (7, "--task=stackoverflow_word"),
    "loss": ("mean", "--task=stackoverflow_tag"),
    "data": ("here", "--task=own_data"),
    "client_column": ("hospital", "--task=own_data"),
    "label": ("diagnosis", "--task=own_data"),
    "features": ("age,weight", "--task=own_data"),
    "class_weight": ("a:5,b:1", "--task=own_data"),
    "num_classes": (3, "--task=own_data"),
    "test_fraction": (0.5, "--task=own_data"),
    "time_column": ("day", "--task=own_data"),
    "window": (7, "--task=own_numbers"),
    "num_tags": (5, "--task=stackoverflow_tag"),
}


def test_a_run_has_the_flags_of_train_alone():
    known = set(declarations.flags_of("train"))
    for words in (["train"], ["compare", "--algorithms=adabest", "--seeds=1"]):
        (run,) = resolve(*words)
        assert {*run.configuration, *run.circumstances} <= known


def test_the_table_of_values_covers_every_flag():
    assert set(GIVEN) == set(declarations.flags_of("train"))


@pytest.mark.parametrize("name", GIVEN)
def test_every_flag_reaches_the_run(name):
    value, others = GIVEN[name]
    text = value_types.show(value)
    run = resolve_one(f"--{name}={text}", *others.split())
    recorded = {**run.circumstances, **run.configuration}
    assert recorded[name] == value
    default = resolve_one()
    assert {**default.circumstances, **default.configuration}.get(name) != value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--execution=remote", "--execution: unknown value 'remote'.*mean ray"),
        ("--workers=a:1", "unknown flag.*--ray_address"),
        ("--ray_actors=2", "--ray_actors has no meaning for --execution=local"),
        (
            "--execution=native --ray_address=auto",
            "--ray_address has no meaning for --execution=native",
        ),
    ],
)
def test_clusters_are_rays(words, message):
    with pytest.raises(errors.UserError, match=message):
        resolve_one(*words.split())


def test_a_hyperparameter_applies_to_the_algorithms_that_have_it():
    runs = resolve(
        "compare", "--algorithms=fed_avg,fed_adam", "--seeds=1", "--beta_2=0.9"
    )
    assert "beta_2" not in runs[0].configuration
    assert runs[1].configuration["beta_2"] == 0.9


def test_fed_sgd_has_no_local_training():
    configuration = resolve_one("--algorithm=fed_sgd").configuration
    assert configuration["client_learning_rate"] is None
    assert configuration["client_epochs"] == 1
    runs = resolve(
        "compare", "--algorithms=fed_sgd,fed_avg", "--seeds=1", "--client_epochs=5"
    )
    assert [run.options["task"]["epochs"] for run in runs] == [1, 5]


def test_methods_with_client_state_weigh_clients_alike_by_default():
    runs = resolve("compare", "--algorithms=fed_avg,fed_dyn", "--seeds=1")
    weightings = [run.configuration["weighting"] for run in runs]
    assert weightings == ["num_examples", "uniform"]
    assert runs[1].configuration["server_learning_rate"] is None
    fed_avg, fed_dyn = (run.configuration["client_learning_rate"] for run in runs)
    assert fed_avg == fed_dyn


def test_schedule_parameters_with_defaults():
    run = resolve_one("--client_rate_schedule=inverse_sqrt")
    assert run.configuration["client_rate_decay_rounds"] == 1
    run = resolve_one(
        "--client_rate_schedule=exponential",
        "--client_rate_decay=0.1",
        "--client_rate_decay_rounds=50",
    )
    assert run.configuration["client_rate_staircase"] is True


def test_scaling_refers_to_the_cohort_that_the_rates_were_tuned_for():
    run = resolve_one("--clients_per_round=40", "--server_rate_scaling=sqrt")
    tuned = published_rates.TASKS["digits"].clients_per_round
    assert run.configuration["reference_clients_per_round"] == tuned
    # Charles et al. (2021), section 5.1: their rates are for cohorts of 50.
    words = ("--task=emnist_character", "--server_rate_scaling=sqrt")
    large = resolve_one(*words, "--algorithm=fed_lars")
    assert large.configuration["reference_clients_per_round"] == 50
    other = resolve_one(*words, "--algorithm=fed_adam")
    assert other.configuration["reference_clients_per_round"] == 10


def test_local_steps_take_the_place_of_epochs():
    run = resolve_one("--task=emnist_letters", "--local_steps=3")
    assert run.options["task"]["epochs"] == 1
    with pytest.raises(errors.UserError, match="no meaning for --local_steps=3"):
        resolve_one("--local_steps=3", "--client_epochs=2")
    with pytest.raises(errors.UserError, match="has no meaning for fed_sgd"):
        resolve_one("--algorithm=fed_sgd", "--local_steps=3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "--algorithm=fed_adam", "--momentum=0.5"],
            "--momentum is not an option of fed_adam, which has --beta_1, "
            "--beta_2, --bias_correction, --initial_accumulator, --tau.",
        ),
        (
            ["train", "--tau=0.5"],
            "--tau is not an option of fed_avg, which has none.",
        ),
        (
            ["compare", "--algorithms=fed_avg,fed_avgm", "--tau=0.5"],
            "--tau is not an option of fed_avg or fed_avgm, which has --momentum.",
        ),
        (
            ["train", "--task=quadratic", "--alpha=1"],
            "--alpha is not an option of task quadratic, which has --batch_size, "
            "--client_epochs, --dimension, --heterogeneity, --num_clients.",
        ),
        (
            ["train", "--client_states=disk"],
            "--client_states has no meaning for fed_avg, whose clients keep no states",
        ),
        (
            ["train", "--task=cifar10", "--alpha=0.1", "--similarity=0.1"],
            "--alpha has no meaning with --similarity, which takes its place.",
        ),
        (
            ["train", "--algorithm=fed_meta", "--meta_file=a.npz", "--meta_labels=0"],
            "--meta_labels has no meaning with --meta_file",
        ),
        (["train", "--batch_size=none"], "--batch_size cannot be none for task digits"),
        (
            ["train", "--algorithm=fed_sgd", "--client_learning_rate=1"],
            "--client_learning_rate has no meaning for fed_sgd",
        ),
        (
            ["train", "--algorithm=fed_dyn", "--server_warm_up_rounds=3"],
            "--server_warm_up_rounds has no meaning for fed_dyn",
        ),
        (
            ["train", "--client_rate_decay=0.5"],
            "no meaning for --client_rate_schedule=constant",
        ),
        (
            ["train", "--client_rate_schedule=per_round_factor"],
            "--client_rate_schedule=per_round_factor needs --client_rate_decay.",
        ),
        (
            ["train", "--clipping_quantile=0.5"],
            "--clipping_quantile has no meaning without --adaptive_clipping",
        ),
        (
            ["train", "--reference_clients_per_round=5"],
            "no meaning without --server_rate_scaling, which is none",
        ),
        (
            ["train", "--server_warm_up_from=zero"],
            "no meaning without --server_warm_up_rounds, which is 0",
        ),
        (
            ["train", "--server_warm_up_rounds=5", "--server_warm_up_from=reference"],
            "reference needs --server_rate_scaling.",
        ),
    ],
)
def test_flags_that_do_not_fit(words, message):
    with pytest.raises(errors.UserError) as caught:
        resolve(*words)
    assert message in str(caught.value)


def test_programs_resolve_values_without_words():
    run = settings.resolve({"algorithm": "fed_dyn", "fed_dyn_mu": 0.1, "rounds": 7})
    assert (
        run.configuration
        == resolve_one(
            "--algorithm=fed_dyn", "--fed_dyn_mu=0.1", "--rounds=7"
        ).configuration
    )
    assert run.options["algorithm"] == {"mu": 0.1, "mu_by_examples": False}
    assert settings.resolve({}, "mine").label == "mine"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rouns": 3}, "unknown flag '--rouns'. Did you mean --rounds?"),
        ({"rounds": "3"}, "--rounds must be an integer, found '3'."),
        ({"task": "digit"}, "--task must be one of 'digits', "),
        ({"callbacks": (3,)}, "--callbacks must be a string, found 3."),
        ({"client_weight_decay": -1}, "--client_weight_decay must be a finite number"),
        ({"algorithm": "fed_avg", "tau": 0.1}, "--tau is not an option of fed_avg"),
    ],
)
def test_values_of_programs_are_checked_as_words_are(given, message):
    with pytest.raises(errors.UserError) as caught:
        settings.resolve(given)
    assert message in str(caught.value)
