import os

import pytest

import tasks
from experiments import main
from experiments.flags import declarations, errors
from tests.experiments.programs import parse


def test_what_is_not_given_is_left_to_its_default():
    assert parse("train") == {}
    values = declarations.values(declarations.flags_of("train"), {})
    assert values["task"] == "digits"
    assert values["algorithm"] == "fed_avg"
    assert values["rounds"] is None


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("--rounds=7", "rounds", 7),
        ("--client_learning_rate=0.25", "client_learning_rate", 0.25),
        ("--client_learning_rate=1e-3", "client_learning_rate", 1e-3),
        ("--tensorboard", "tensorboard", True),
        ("--notensorboard", "tensorboard", False),
        ("--tensorboard=false", "tensorboard", False),
        ("--weighting=uniform", "weighting", "uniform"),
        ("--batch_size=none", "batch_size", None),
        ("--beta_1=0", "beta_1", 0.0),
        ("--beta=auto", "beta", "auto"),
        ("--beta=0.5", "beta", 0.5),
        ("--alpha=0.1", "alpha", 0.1),
        ("--synthetic", "synthetic", True),
        ("--output_dir=some/folder", "output_dir", "some/folder"),
    ],
)
def test_values(word, name, value):
    given = parse("train", word)
    assert given == {name: value}
    assert type(given[name]) is type(value)


def test_lists():
    given = parse("compare", "--seeds=3, 1", "--algorithms=fed_sgd,fed_avg")
    assert given == {"seeds": (3, 1), "algorithms": ("fed_sgd", "fed_avg")}


def test_flag_and_value_may_be_two_words():
    assert parse("train", "--rounds", "9") == {"rounds": 9}


def test_flagfile(tmp_path):
    path = tmp_path / "some.flags"
    inner = tmp_path / "inner.flags"
    inner.write_text("--algorithm=fed_yogi\n")
    path.write_text(f"# A comment.\n\n--rounds=11\n--flagfile={inner}\n")
    assert parse("train", f"--flagfile={path}", "--seed=4") == {
        "rounds": 11,
        "algorithm": "fed_yogi",
        "seed": 4,
    }


def test_a_flagfile_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "flags").write_bytes("--rounds=3\n".encode("utf-8-sig"))
    assert parse("train", f"--flagfile={tmp_path / 'flags'}") == {"rounds": 3}


def test_a_flagfile_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "utf16").write_bytes("--rounds=3\n".encode("utf-16"))
    for name, told in (
        ("absent", "No such file or directory"),
        (".", "Is a directory"),
        ("utf16", "is not text in UTF-8"),
        ("", "Is a directory"),
    ):
        path = tmp_path / name if name else ""
        with pytest.raises(errors.UserError) as caught:
            parse("train", f"--flagfile={path}")
        assert str(caught.value).startswith("--flagfile: ")
        assert told in str(caught.value)
        assert repr(str(path or ".")) in str(caught.value)


def test_a_flagfile_that_leads_back_to_itself(tmp_path):
    path = tmp_path / "some.flags"
    inner = tmp_path / "inner.flags"
    inner.write_text(f"--flagfile={path}\n")
    path.write_text(f"--rounds=11\n--flagfile={inner}\n")
    with pytest.raises(errors.UserError, match=r"some\.flags leads back to itself"):
        parse("train", f"--flagfile={path}")


def test_a_flagfile_may_be_a_pipe(capsys):
    end, start = os.pipe()
    os.write(start, b"--no_such_flag=1\n")
    os.close(start)
    assert main.run(["list", f"--flagfile=/dev/fd/{end}"]) == 2
    assert "unknown flag '--no_such_flag'" in capsys.readouterr().err
    os.close(end)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "--task=digit"],
            "--task: unknown task 'digit'. Did you mean digits?",
        ),
        (
            ["train", "--algorithm=fed_addam"],
            "--algorithm: unknown algorithm 'fed_addam'. Did you mean fed_adam",
        ),
        (
            ["compare", "--algorithms=fed_avg,fedavg"],
            "--algorithms: unknown algorithm 'fedavg'. Did you mean fed_avg",
        ),
        (
            ["train", "--task=zzz"],
            "--task: unknown task 'zzz'. Known are digits, quadratic,",
        ),
        (["train", "--rouns=3"], "unknown flag '--rouns'. Did you mean --rounds?"),
        (
            ["train", "--seeds=1"],
            "unknown flag '--seeds'. Did you mean --seed?",
        ),
        (
            ["compare", "--algorithm=fed_avg"],
            "unknown flag '--algorithm'. Did you mean --algorithms?",
        ),
        (["train", "--qqqqq"], "unknown flag '--qqqqq'. See tff-drift train --help."),
        (["train", "--weighting=example"], "Did you mean num_examples?"),
        (["train", "--rounds=0"], "--rounds must be an integer of at least 1, below"),
        (["train", f"--rounds={10**20}"], f"below 2**63, found '{10**20}'."),
        (["diagnose", f"--rounds_before={2**63}"], f"below 2**63, found '{2**63}'."),
        (
            ["train", f"--seed={2**32}"],
            "--seed must be an integer from 0 to 4294967295",
        ),
        (["train", "--rounds=2.5"], "--rounds must be an integer of at least 1"),
        (["train", "--rounds"], "argument --rounds: expected one argument."),
        (
            ["train", "--seed=-1"],
            "--seed must be an integer from 0 to 4294967295,",
        ),
        (["train", "--seed=4294967296"], "to 4294967295, found '4294967296'."),
        (["compare", "--seeds=1,x"], "--seeds must be an integer from 0 to"),
        (["compare", "--seeds=1,1"], "--seeds has 1 more than once"),
        (["compare", "--algorithms="], "--algorithms must name at least one"),
        (["train", "--batch_size=0"], "2**63, or none, found '0'"),
        (["train", "--tensorboard=maybe"], "--tensorboard must be true or false"),
        (["train", "--clipping_quantile=1.5"], "must be a number from 0 to 1, found"),
        (["train", "--meta_step=0"], "greater than 0, or none, found '0'"),
        (["train", "--client_rate_decay=0"], "must be a number above 0, at most 1"),
        (["train", "--beta_1=1"], "must be a number of at least 0, below 1, found '1'"),
        (["train", "--beta=nan"], "must be a finite number, or auto, found 'nan'"),
        (["train", "digits"], "unexpected argument 'digits'"),
        (["train", "--flagfile=no_such_file"], "no_such_file"),
        # Names that flags and values had.
        (
            ["train", "--weight_decay=1"],
            "unknown flag '--weight_decay'. Did you mean --client_weight_decay or "
            "--server_weight_decay?",
        ),
        (
            ["train", "--mu=1"],
            "Did you mean --adabest_mu, --fed_dyn_mu or --fed_prox_mu?",
        ),
        (["train", "--client_states=memory"], "Did you mean ram?"),
        (["diagnose", "--rounds=3"], "Did you mean --rounds_before or --race_rounds?"),
    ],
)
def test_errors(words, message):
    with pytest.raises(errors.UserError) as caught:
        parse(*words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rate", ["client_learning_rate", "server_learning_rate"])
@pytest.mark.parametrize("value", ["-0.1", "0", "nan", "inf", "-inf", "fast"])
def test_bad_rates(rate, value):
    with pytest.raises(errors.UserError) as caught:
        parse("train", f"--{rate}={value}")
    expected = f"--{rate} must be a finite number greater than 0, found {value!r}."
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("train", name) for name in ("data", "output_dir", "cache_dir")),
        *(("train", name) for name in ("initial_weights", "meta_file", "share_file")),
        *((command, "output_dir") for command in ("analyze", "report", "preset")),
    ],
)
def test_no_path_is_empty(command, name):
    with pytest.raises(errors.UserError) as caught:
        parse(command, f"--{name}=")
    assert f"--{name} must be the path of a file or a folder" in str(caught.value)
    assert str(caught.value).endswith("found ''.")


def test_train_and_compare_differ_in_one_and_many():
    train, compare = (declarations.flags_of(name) for name in ("train", "compare"))
    assert set(train) ^ set(compare) == {"algorithm", "algorithms", "seed", "seeds"}


# A flag of all, an option of methods, and words of commands.
@pytest.mark.parametrize("name", ["rounds", "tau", "help", "axes"])
def test_an_option_whose_name_is_taken_gets_a_prefix(monkeypatch, name):
    option = tasks.Option(name, "positive", "Some number.", 2.0)
    task = tasks.TaskDefinition("other", "Another task.", (option,), lambda *_: None)
    monkeypatch.setattr(tasks, "names", lambda: ("other",))
    monkeypatch.setattr(tasks, "describe", lambda name: task)
    for command in ("train", "sweep", "diagnose"):
        flags = declarations.flags_of(command)
        assert flags[f"task_{name}"].options == {"other": option}
        assert flags[f"task_{name}"].value_type == "positive"
        assert name not in flags or flags[name].of != "task"
    given = parse("sweep", "rounds=1,2", f"--task_{name}=3")
    assert given == {"axes": ["rounds=1,2"], f"task_{name}": 3.0}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("--verify", "uga_table"), {"name": "uga_table", "verify": True}),
        (("uga_table", "--verify"), {"name": "uga_table", "verify": True}),
        (("--verify", "False", "uga_table"), {"name": "uga_table", "verify": False}),
        (("--seeds=2", "uga_table", "--verify"), {"seeds": (2,), "verify": True}),
    ],
)
def test_a_switch_leaves_the_name_after_it_alone(words, given):
    assert given.items() <= parse("preset", *words).items()


def test_names_may_stand_on_both_sides_of_flags():
    given = parse("analyze", "one", "--last=3", "two")
    assert given == {"folders": ["one", "two"], "last": 3}


def test_a_value_that_no_switch_has_is_refused_where_there_are_no_names():
    message = "--tensorboard must be true or false, found 'yes'"
    with pytest.raises(errors.UserError, match=message):
        parse("train", "--tensorboard", "yes")
