"""Whole protocols of papers, and rates that nobody has tuned."""

import pathlib
import re
import shlex

import pytest

from experiments.flags import declarations, errors, paper_settings, settings
from tests.experiments import programs
from tests.experiments.programs import resolve


def test_the_flag_names_the_protocols():
    choices = declarations.flags_of("train")["protocol"].choices
    assert choices == ("none", *paper_settings.NAMES)


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "coverage.md"
COMMANDS = re.findall(r"`\$T ([^`]+)`", DOCUMENT.read_text("utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_table_of_papers_are_taken(command):
    assert resolve(*shlex.split(command)).configuration


def test_the_table_of_papers_has_a_command_for_each_protocol():
    named = [
        each for command in COMMANDS for each in re.findall(r"protocol=(\w+)", command)
    ]
    assert sorted(named) == sorted(set(paper_settings.NAMES) - {"none"})


def test_large_cohort():
    # Charles et al. (2021), Tables 2 to 5 and section 5.1.
    run = resolve(
        "--protocol=large_cohort", "--task=stackoverflow_word", "--algorithm=fed_adam",
        "--server_rate_scaling=sqrt", "--clients_per_round=200",
    ).configuration  # fmt: skip
    wanted = {
        "batch_size": 32,
        "clients_per_round": 200,
        "reference_clients_per_round": 50,
        "client_learning_rate": 10.0,
        "server_learning_rate": 1.0,
        "tau": 1e-3,
        "bias_correction": True,
        "adaptive_clipping": True,
        "rounds": 1500,
    }
    assert {name: run[name] for name in wanted} == wanted
    sgd = resolve("--protocol=large_cohort", "--task=cifar100", "--algorithm=fed_sgd")
    assert sgd.configuration["server_learning_rate"] == 0.1
    assert sgd.configuration["augment"] is False


def test_fed_opt_keeps_its_own_batches():
    words = ("--protocol=fed_opt", "--algorithm=fed_yogi")
    words_run = resolve(*words, "--task=stackoverflow_word").configuration
    assert (words_run["batch_size"], words_run["clients_per_round"]) == (16, 50)
    assert resolve(*words, "--task=cifar100").configuration["augment"] is True


def test_adabest_and_uga():
    run = resolve("--protocol=adabest", "--task=emnist_letters", "--algorithm=fed_avg")
    configuration = run.configuration
    assert configuration["letters"] == 10
    assert configuration["last_batch"] == "bootstrap"
    assert configuration["client_rate_decay"] == 0.998
    assert configuration["client_weight_decay"] == 1e-4
    assert configuration["weighting"] == "uniform"
    assert "beta" not in configuration
    uga = resolve("--protocol=uga", "--task=emnist_digits", "--algorithm=uga")
    rates = (
        uga.configuration["client_learning_rate"],
        uga.configuration["server_learning_rate"],
    )
    assert rates == (0.0128, 0.2)


def test_what_is_given_wins_over_the_protocol():
    run = resolve(
        "--protocol=adabest", "--task=cifar10", "--client_rate_schedule=constant",
        "--client_epochs=1",
    ).configuration  # fmt: skip
    assert run["client_rate_decay"] is None
    assert run["client_epochs"] == 1


@pytest.mark.parametrize("what", ["meta", "share"])
def test_a_file_takes_the_place_of_what_the_paper_draws(what):
    words = (
        *("--protocol=uga", "--task=emnist_digits", f"--algorithm=fed_{what}"),
        f"--{what}_file=mine.npz",
    )
    assert resolve(*words).configuration[f"{what}_file"].endswith("mine.npz")
    with pytest.raises(errors.UserError, match=f"--{what}_fraction has no meaning"):
        resolve(*words, f"--{what}_fraction=0.1")


def test_a_comparison_takes_each_method_as_the_paper_has_it():
    runs = settings.resolve_comparison(
        {
            "protocol": "adabest",
            "task": "cifar10",
            "algorithms": ("fed_avg", "adabest"),
            "seeds": (1,),
        }
    )
    assert [run.configuration.get("beta") for run in runs] == [None, 0.96]
    assert {run.configuration["client_weight_decay"] for run in runs} == {1e-3}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--protocol=uga --task=digits", "--protocol=uga has no task digits, but emn"),
        (
            "--protocol=fed_opt --task=cifar100 --algorithm=uga",
            "--protocol=fed_opt has no algorithm uga, but fed_avg,",
        ),
        (
            "--task=cifar10 --algorithm=fed_adam",
            "--server_learning_rate must be given for fed_adam on cifar10",
        ),
        (
            "--task=emnist_autoencoder --algorithm=fed_lamb",
            "tff-drift sweep server_learning_rate=log:0.001:1:4",
        ),
    ],
)
def test_what_no_paper_has_is_refused_with_the_remedy(words, message):
    with pytest.raises(errors.UserError) as caught:
        resolve(*words.split())
    assert message in str(caught.value)
    resolve("--task=cifar10", "--algorithm=fed_adam", "--server_learning_rate=0.01")


def test_the_search_for_a_rate_that_nobody_tuned_has_the_data_of_the_run():
    with pytest.raises(errors.UserError) as caught:
        resolve(
            "--task=own_data", "--algorithm=fed_adam", "--data=my data.csv",
            "--label=diagnosis", "--seed=3", "--output_dir=out",
        )  # fmt: skip
    told = str(caught.value).partition(": tff-drift sweep ")[2].partition(", then ")[0]
    sweep = programs.sweep(*shlex.split(told))
    assert sweep.fixed == {
        "task": "own_data",
        "algorithm": "fed_adam",
        "data": "my data.csv",
        "label": "diagnosis",
    }
    assert [axis.values for axis in sweep.axes] == [(0.001, 0.01, 0.1, 1.0)]
