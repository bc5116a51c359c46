"""The defaults that papers tuned."""

import tasks
from experiments.flags import published_rates
from tff_drift import from_source


def test_every_task_has_defaults():
    for name in tasks.names():
        assert name in published_rates.TASKS
        settings = published_rates.of_task(name)
        assert min(settings.rounds, settings.clients_per_round) >= 1
        for algorithm, method in from_source.methods().items():
            rates = published_rates.rates(name, algorithm)
            assert rates.client > 0
            assert rates.server is None or rates.server > 0
            assert set(rates.hyperparameters) <= {o.flag for o in method.options}
