import pandas as pd

from experiments.training import tuning


def test_the_best_mean_over_seeds_wins_and_ties_go_to_the_loss():
    columns = [
        "algorithm",
        "seed",
        "client_learning_rate",
        "server_learning_rate",
        "accuracy",
        "loss",
    ]
    rows = [
        ("a", 1, 0.1, 1.0, 0.9, 0.5),
        ("a", 2, 0.1, 1.0, 0.1, 0.5),
        ("a", 1, 0.3, 1.0, 0.6, 0.4),
        ("a", 2, 0.3, 1.0, 0.6, 0.2),
        ("a", 1, 1.0, 1.0, 0.6, 0.5),
        ("a", 2, 1.0, 1.0, 0.6, 0.5),
        # An algorithm without a client rate.
        ("b", 1, None, 0.1, 0.2, 0.5),
        ("b", 1, None, 0.3, 0.3, 0.5),
    ]
    best = tuning.best_points(pd.DataFrame(rows, columns=columns))
    best = best.set_index("algorithm")
    assert best.loc["a", "client_learning_rate"] == 0.3
    assert best.loc["a", "server_learning_rate"] == 1.0
    assert best.loc["b", "server_learning_rate"] == 0.3


def test_grids():
    points = list(tuning.grid("fed_avg"))
    assert len(points) == len(tuning.CLIENT_RATES) * 3
    assert {point["client_learning_rate"] for point in tuning.grid("fed_sgd")} == {None}
