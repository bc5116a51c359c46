"""What a diagnosis says of numbers, and how it says it, without any training."""

import base64
import dataclasses
import io
import pathlib
import re

import matplotlib.figure
import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from tests.simulation.diagnosis_clients import RATE, datasets, quadratic, quadratics
from tff_drift import execution, simulation
from tff_drift.simulation.diagnosis import statistics
from tff_drift.simulation.diagnosis.labels import label_distances
from tff_drift.simulation.diagnosis.report import Diagnosis
from tff_drift.simulation.diagnosis.statistics import Estimate


def certain(**numbers):
    return {
        name: Estimate(each, 0.9 * each, 1.1 * each) for name, each in numbers.items()
    }


DIFFERENCES = certain(
    mean_squared_length=4.0,
    squared_length_of_mean=1.0,
    g2=3.0,
    agreement=0.25,
    agreement_of_others=0.2,
    g2_naive=4.0,
    noise_share=0.25,
)
TRAINED = certain(
    drift=1.0,
    drift_over_mean=2.0,
    cosine=0.5,
    shrinkage=0.1,
    bias=1.0,
    cohort_noise=0.2,
    minibatch_noise=0.05,
    bias_share=0.8,
    cohort_noise_share=0.16,
    minibatch_noise_share=0.04,
    variates_share=0.9,
    bias_of_unequal_work=0.1,
    noise_scale=1.2,
)
DRIFTING = Diagnosis(
    clients=20,
    cohort_size=5,
    sizes=np.array([10, 20, 30]),
    steps=np.array([1, 2, 3]),
    labels=(np.array([0.6, 0.9, 0.6]), np.array([0.3, 0.2, 0.1])),
    differences={0: DIFFERENCES, 2: DIFFERENCES},
    drift={1: TRAINED},
    as_trained=TRAINED,
)
ALIKE = np.full(3, 0.2), np.full(3, 0.2)
UNKNOWN = {"agreement_of_others": Estimate(0.0, -0.1, 0.1)}
NOTHING = {"mean_squared_length": Estimate(1.0, -1.0, 3.0)}
MAYBE = Estimate(1.0, -1.0, 3.0)
UNTOLD = Estimate(np.nan, np.nan, np.nan)


def with_trained(**changed):
    return dataclasses.replace(DRIFTING, as_trained={**TRAINED, **certain(**changed)})


def with_differences(changed, **options):
    found = {0: {**DIFFERENCES, **changed}}
    return dataclasses.replace(DRIFTING, differences=found, **options)


COHORT = with_trained(bias_share=0.16, cohort_noise_share=0.8)


@pytest.mark.parametrize(
    ("finding", "methods", "said", "report"),
    [
        ("drift", "scaffold adabest mime_lite", "(SCAFFOLD or AdaBest)", DRIFTING),
        (
            "drift",
            "scaffold fed_dyn adabest mime_lite",
            "at most 90% of the error",
            dataclasses.replace(DRIFTING, cohort_size=10),
        ),
        ("cohort", "fed_adam scaffold adabest", "The draw of its cohort", COHORT),
        (
            "cohort",
            "fed_adam scaffold adabest",
            "returns after 40 rounds: only a race tells",
            dataclasses.replace(COHORT, clients=200),
        ),
        (
            "cohort",
            "fed_adam",
            "may help.",
            with_trained(bias_share=0.16, cohort_noise_share=0.8, variates_share=-0.1),
        ),
        (
            "minibatches",
            "fed_adam",
            "Minibatches limit",
            with_trained(bias_share=0.1, minibatch_noise_share=0.8),
        ),
        (
            "unequal_work",
            "fed_nova scaffold adabest",
            "unequal numbers of local steps",
            with_trained(bias_of_unequal_work=0.7),
        ),
        (
            "unclear",
            "fed_adam scaffold adabest",
            "It cannot be told which error is the largest: race",
            with_trained(cohort_noise_share=0.75),
        ),
        (
            "no_drift",
            "",
            "Drift is not your problem",
            with_trained(bias=0.001, cohort_noise=0.001, minibatch_noise=0.001),
        ),
        ("noise", "", "more examples would help", with_differences(NOTHING)),
        (
            "contradiction",
            "",
            "no method for a common model",
            with_differences(UNKNOWN, labels=ALIKE),
        ),
        # A few clients with far longer gradients, whether halves are alike or not.
        (
            "unclear",
            "fed_adam scaffold adabest",
            "It cannot be told",
            with_differences({**NOTHING, "g2_naive": MAYBE}),
        ),
        # The clients may as well be alike.
        (
            "unclear",
            "fed_adam scaffold adabest",
            "It cannot be told",
            with_differences({**UNKNOWN, "g2": MAYBE}, labels=ALIKE),
        ),
        # Labels that nobody compared may be the reason, and by examples these are.
        (
            "drift",
            "scaffold adabest mime_lite",
            "Drift",
            with_differences(UNKNOWN, labels=None),
        ),
        (
            "drift",
            "scaffold adabest mime_lite",
            "Drift",
            with_differences(
                UNKNOWN,
                labels=(np.array([0.1, 0.1, 0.8]), np.array([0.4, 0.4, 0.1])),
                sizes=np.array([2, 2, 300]),
            ),
        ),
        (
            "unclear",
            "fed_adam scaffold adabest",
            "It cannot be told",
            dataclasses.replace(
                DRIFTING,
                as_trained={
                    name: UNTOLD if name.endswith("_share") else each
                    for name, each in TRAINED.items()
                }
                | {"variates_share": TRAINED["variates_share"]},
            ),
        ),
        # Other labels are the reason.
        ("drift", "scaffold adabest mime_lite", "Drift", with_differences(UNKNOWN)),
    ],
)
def test_what_follows_from_numbers(finding, methods, said, report):
    assert report.finding == finding
    assert report.methods == tuple(methods.split())
    assert said in report.sentences[-1]


def test_what_is_not_there_is_named_in_words():
    trained = dict.fromkeys(TRAINED, UNTOLD)
    report = with_differences({"noise_share": UNTOLD}, as_trained=trained)
    first, _, third, *_ = report.sentences
    assert "nothing of the plain G² was noise" in first
    assert third.startswith("After 2 local steps clients' updates have no mean")
    assert "nan" not in " ".join(report.sentences)


def test_noise_without_bias_means_that_drift_is_not_the_problem():
    unseen = {**COHORT.as_trained, "bias": Estimate(0.001, -0.001, 0.003)}
    report = dataclasses.replace(COHORT, as_trained=unseen)
    assert report.sentences[-1].startswith("Drift is not your problem. The draw")
    assert not COHORT.sentences[-1].startswith("Drift is not")


def test_sentences_have_the_numbers():
    differences, labels, drift, costs, _ = DRIFTING.sentences
    assert "differ after 2 rounds" in differences
    assert "is 4 (3.6 to 4.4), and 25% of the plain G²" in differences
    # By examples: (6 + 18 + 18) / 60 and (3 + 4 + 3) / 60.
    assert "0.70 from everyone's" in labels
    assert "at 0.17" in labels
    assert "After 2 local steps" in drift
    assert "45° off" in drift
    assert "bias of drift 1 (0.9 to 1.1)" in costs
    assert "outweighs" not in costs
    noisier = with_trained(bias=0.1)
    assert "it outweighs the noise after 2 rounds" in noisier.sentences[3]


def test_a_bias_that_is_called_the_largest_is_there():
    # As where one client drifts far: the share of the bias tells it from 0.
    report = with_trained(bias_of_unequal_work=0.0)
    wide = report.as_trained
    wide["bias"] = Estimate(0.1, -0.1, 0.3)
    assert report.sentences[-1].startswith("Drift limits a round most")
    assert "cannot be told" not in report.sentences[3]
    wide["bias_share"] = Estimate(0.8, -0.1, 1.7)
    assert report.sentences[3].endswith("Whether there is a bias cannot be told.")
    assert report.sentences[-1].startswith("It cannot be told which error")


def test_b2_is_infinite_where_the_mean_may_be_zero():
    agreement = {"agreement": Estimate(0.1, -0.1, 0.2)}
    assert with_differences(agreement).b2(0) == (10, 5, np.inf)
    assert str(with_differences(NOTHING).b2(0)) == "not to be told"


def test_gains_are_shares_of_the_error():
    assert DRIFTING.gains == {
        # The cohort's 0.16, and 15 of 20 parts of the minibatches' 0.04.
        "all clients in every round": pytest.approx(0.19),
        "control variates": 0.9,
        "one local step, or a far smaller rate": 0.8,
        "far larger batches": 0.04,
    }


def test_nothing_is_gained_by_all_clients_where_all_are_in_every_round():
    everyone = dataclasses.replace(
        with_trained(cohort_noise_share=0.0, minibatch_noise_share=0.45),
        cohort_size=20,
    )
    assert everyone.gains["all clients in every round"] == 0
    assert "all clients in every round, gain at most:            0%" in repr(everyone)


def test_a_report_tells_in_a_terminal_a_notebook_a_table_and_a_figure():
    text = repr(DRIFTING)
    assert text.startswith("Drift of 3 measured clients of 20, 5 per round")
    assert re.findall(r"^(\d)\. [A-Z]", text, re.MULTILINE) == list("12345")
    _, sentences = text.split("\n1. ")
    assert max(map(len, sentences.splitlines())) < 80
    assert DRIFTING.sentences[0] in " ".join(f"1. {sentences}".split())
    html = dataclasses.replace(DRIFTING, race="a <table>")._repr_html_()
    assert html.count("<li>") == 5
    assert html.count("<img alt=") == 4
    assert "max-width:100%" in html
    assert "a &lt;table&gt;" in html
    rows = "\n".join(f"method {number} is trained" for number in range(1, 1001))
    raced = repr(dataclasses.replace(DRIFTING, race=rows)).removeprefix(text)
    assert raced.startswith("\nrace:\nmethod 1 is trained\nmethod 2 is trained\n")
    # 9 lines of 20 characters, and as many of 21 as 1,200 characters have room for.
    assert raced.endswith("\nmethod 57 is trained\n... and 943 lines more")
    table = DRIFTING.to_frame()
    assert list(table) == ["part", "at", "name", "value", "low", "high"]
    (row,) = table.query("part == 'differences' and name == 'g2' and at == 2").to_dict(
        "records"
    )
    assert (row["value"], row["low"]) == (3.0, 2.7)
    assert set(table.query("part == 'as_trained'")["at"]) == {2.0}
    figure = DRIFTING.plot(matplotlib.figure.Figure())
    assert len(figure.axes) == 4
    assert [each.get_title() for each in figure.axes][3] == "What limits a round"
    assert list(figure.axes[1].lines[0].get_ydata()) == [0.6, 0.6, 0.9]
    without = dataclasses.replace(DRIFTING, labels=None).plot()
    assert len(without.axes[1].lines[0].get_ydata()) == 0
    with pytest.raises(
        AttributeError, match="'str' object has no attribute 'subplots'"
    ):
        DRIFTING.plot("figure.png")


@pytest.mark.parametrize(
    ("facecolor", "paper"),
    [("white", (1, 1, 1, 1)), ((1, 1, 1, 0), (1, 1, 1, 1)), ("black", (0, 0, 0, 1))],
)
def test_figures_are_opaque_in_the_colour_of_the_style(facecolor, paper):
    with matplotlib.rc_context({"figure.facecolor": facecolor}):
        assert DRIFTING.plot().get_facecolor() == paper
        html = DRIFTING._repr_html_()
    picture = re.search("base64,([^']+)'", html)[1]
    corner = matplotlib.image.imread(io.BytesIO(base64.b64decode(picture)))[0, 0]
    assert tuple(corner) == paper


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(10)
    held, estimates = [], []
    for _ in range(200):
        centres = 1 + 2 * random.normal(size=(30, 5))
        first, second = centres + 3 * random.normal(size=(2, 30, 5))
        own = np.sum(first * second, 1)
        mean = (first + second) / 2
        found = statistics.dissimilarity(mean, own, np.ones(30), 3000)["g2"]
        held.append(found.low < 20 < found.high)
        estimates.append(found.value)
    # Five coordinates of variance 4.
    assert np.mean(estimates) == pytest.approx(20, 0.05)
    assert 0.9 < np.mean(held) < 0.99


def test_intervals_of_bias_are_as_wide_as_it_varies():
    random = np.random.default_rng(12)
    # Updates that turn where gradients differ.
    held, estimates = [], []
    for _ in range(100):
        gradients = random.normal([3, 0, 0, 0], 1, (40, 4))
        turned = gradients + 0.06 * np.eye(4)[1] * gradients[:, :1] ** 2
        variates = gradients.mean(0) - gradients
        corrected = gradients + variates
        found = statistics.Training(turned, turned, corrected, variates, np.ones(40))
        bias = statistics.drift(found, np.ones(40), 40, 5)["bias"]
        # The mean of a squared normal number is 3² + 1: 0.6 across, 3 along.
        held.append(bias.low < 0.04 < bias.high)
        estimates.append(bias.value)
    assert np.mean(estimates) == pytest.approx(0.04, 0.1)
    assert np.mean(held) > 0.8
    # Four deviations; twice as wide where gradients do not tell all of the gaps.
    assert bias.high - bias.low < 12 * np.std(estimates)


def test_targets_are_compared_in_tenths_and_words_are_not():
    even = np.linspace(0, 1, 100, endpoint=False, dtype=np.float32)
    x = np.zeros((50, 1), np.float32)
    clients = {"low": (x, even[:50]), "high": (x, even[50:]), "all": (x, even[::2])}
    distances, _ = label_distances(datasets(clients), list(clients), 0)
    # Of everyone half is in the lower five tenths: low has all of its there.
    assert distances == pytest.approx([0.5, 0.5, 0.0], abs=0.02)
    words = {name: (x, np.zeros((50, 2), np.int32)) for name in clients}
    assert label_distances(datasets(words), list(words), 0) is not None
    outputs = {name: (x, np.zeros((50, 2), np.float32)) for name in clients}
    assert label_distances(datasets(outputs), list(outputs), 0) is None


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_one_hot_labels_are_as_far_as_their_classes(dtype):
    classes = {f"client {each}": np.full(4, each) for each in range(5)}
    one_hot = {name: np.eye(5, dtype=dtype)[each] for name, each in classes.items()}
    found = [
        label_distances(
            datasets({name: (np.zeros([4, 1]), y) for name, y in labels.items()}),
            list(labels),
            0,
        )
        for labels in (classes, one_hot)
    ]
    np.testing.assert_allclose(found[0][0], 0.8)
    for of_classes, of_rows in zip(*found, strict=True):
        np.testing.assert_array_equal(of_rows, of_classes)


QUADRATICS, _ = quadratics([4] * 4, [np.eye(5)] * 4, np.eye(4, 5))
SINGLE = {k: (x[:1], y[:1]) for k, (x, y) in QUADRATICS.items()}


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (
            TypeError,
            "train must be a tff_drift.simulation.ClientDatasets",
            {"train": 1},
        ),
        (
            TypeError,
            "client_optimizer_fn must be a learning rate",
            {"client_optimizer_fn": "sgd"},
        ),
        (TypeError, "client_weighting must be", {"client_weighting": "client_weight"}),
        (ValueError, "cohort_size is 5, but there are only 4", {"cohort_size": 5}),
        (ValueError, "rounds must be at least 0", {"rounds": -1}),
        (ValueError, "max_clients must be at least 3", {"max_clients": 2}),
        (TypeError, "race must be a function of the names", {"race": "scaffold"}),
        (
            TypeError,
            "no argument 'clients_per_round'. Did you mean cohort_size",
            {"clients_per_round": 2},
        ),
        (
            ValueError,
            "train has 2 clients of two examples or more",
            {"train": datasets(dict(list(QUADRATICS.items())[:2]))},
        ),
        (
            ValueError,
            "train has 0 clients of two examples or more",
            {"train": datasets(SINGLE)},
        ),
        pytest.param(
            ValueError,
            "not finite. Take a smaller client_optimizer_fn",
            {"client_optimizer_fn": 1e30, "rounds": 0},
            marks=pytest.mark.conformance,
        ),
    ],
)
def test_what_is_wrong_is_named_before_training(error, message, changed):
    execution.set_local_execution_context()
    arguments = {
        "train": datasets(QUADRATICS, epochs=5),
        "client_optimizer_fn": RATE,
        "cohort_size": 2,
        **changed,
    }
    with pytest.raises(error, match=message):
        simulation.diagnose(quadratic(), **arguments)


@pytest.mark.documents
def test_the_document_diagnoses_a_table(tmp_path, monkeypatch, capsys):
    document = pathlib.Path(__file__).parents[2] / "docs" / "diagnosis.md"
    (block,) = re.findall(r"```python\n(.*?)```", document.read_text("utf-8"), re.S)
    random = np.random.default_rng(11)
    owners = np.repeat([f"owner_{i}" for i in range(8)], 12)
    # Half of the owners have label 1 alone.
    labels = np.where(np.arange(96) < 48, 1, random.integers(0, 2, 96))
    columns = random.normal(labels[:, np.newaxis], 1, (96, 3))
    table = pd.DataFrame(columns, columns=["a", "b", "c"])
    monkeypatch.chdir(tmp_path)
    table.assign(owner=owners, label=labels).to_csv("my.csv", index=False)
    exec(block, {})
    assert "Drift of 8 measured clients of 8, 5 per round" in capsys.readouterr().out
    assert (tmp_path / "diagnosis.png").is_file()
