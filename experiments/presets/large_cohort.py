"""Charles et al. (2021), On Large-Cohort Training for Federated Learning.

https://arxiv.org/abs/2106.07820. At the scale `paper` all settings are those of
`--protocol=large_cohort`: the rates of Tables 4 and 5, tuned for cohorts of 50, one
epoch, 1,500 rounds, adaptive clipping (section A.3), and the cohorts of Tables 6 to 9.

At the scale `local` the task is `digits`, 1,438 real images over 50 clients, at the
rates of `tff-drift train`, which were tuned on held-out clients for cohorts of 10, with
adaptive clipping too. It shows directions: 50 clients of 29 images are neither large
nor many, and a cohort of 50 is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.presets import large_cohort_studies as studies
from experiments.presets import large_cohort_tables
from experiments.presets.preset import Preset, Scale, Study

_SOURCE = "Charles et al. (2021), {}. https://arxiv.org/abs/2106.07820"
_DIGITS = {
    "task": "digits",
    "adaptive_clipping": True,
    "rounds": 60,
    "rounds_per_evaluation": 3,
}
_COHORTS = (5, 10, 25, 50)
_FEWER_COHORTS = (5, 15, 50)
_ALL = (
    *("fed_sgd", "fed_avg", "fed_avgm", "fed_adagrad"),
    *("fed_adam", "fed_lars", "fed_lamb"),
)
_OF_RETURNS = (studies.curves("fed_avg"), studies.curves("fed_sgd"))


def _scales(
    local: Study,
    paper: Sequence[Study],
    minutes: float,
    paper_hours: float,
    gigabytes: float = 1.5,
    more: Sequence[Study] = (),
) -> dict[str, Scale]:
    return {
        "local": Scale([local, *more], minutes / 60, gigabytes),
        "paper": Scale(paper, paper_hours, 16, "one GPU, not measured"),
    }


# FedLARS and FedLamb among methods that they are compared with, Figure 10.
_LAYERWISE = ("fed_avg", "fed_adam", "fed_lars", "fed_lamb")
_NORMALIZED = ("fed_avg", "normalized_fed_avg")
# Table 8 at the cohort that the paper's figures are nearest to.
_TABLE_8 = studies.fairness(
    "shakespeare_character_m10",
    studies.paper("shakespeare_character"),
    ("fed_avg", "fed_adam"),
    (10,),
)
PRESETS = (
    Preset(
        "cohort_failures",
        "How often FedAvg's training breaks down by cohort size, with and without "
        "adaptive clipping.",
        _SOURCE.format("Figure 1 and section 3.1"),
        **_scales(
            studies.failures(
                "digits",
                # A client's images are one batch, so that the accuracy in training is
                # that of the model that was sent, and rates are so large that training
                # breaks down at all: with more steps clients repair what was broken.
                {**_DIGITS, "batch_size": 32, "rounds": 40, "rounds_per_evaluation": 4},
                (0.5, 1.0),
                _FEWER_COHORTS,
            ),
            [
                studies.failures(
                    "emnist_character",
                    # The rates of Reddi et al., tuned for cohorts of 10.
                    {"task": "emnist_character", "rounds": 1500},
                    (),
                    studies.COHORTS["emnist_character"],
                )
            ],
            13,
            60,
            more=[
                # The rates of Reddi et al., tuned for cohorts of 10, of 296 writers.
                studies.failures(
                    "emnist_character",
                    {
                        "task": "emnist_character",
                        "rounds": 100,
                        "rounds_per_evaluation": 5,
                    },
                    (),
                    (10, 50, 200),
                )
            ],
        ),
    ),
    Preset(
        "cohort_returns",
        "Rounds to accuracies, and the final accuracy in training and in tests, of "
        "seven methods by cohort size: returns diminish.",
        _SOURCE.format("Figures 2 to 5 and 14 to 27"),
        **_scales(
            studies.against_cohorts(
                "digits", _DIGITS, _ALL, _FEWER_COHORTS, more=_OF_RETURNS
            ),
            [
                studies.against_cohorts(
                    task,
                    flags,
                    _ALL,
                    cohorts,
                    more=_OF_RETURNS,
                )
                for task, flags, cohorts in studies.PAPER
            ],
            20,
            3000,
        ),
    ),
    Preset(
        "cohort_fairness",
        "Percentiles of accuracy over test clients by cohort size, of FedAvg and "
        "FedAdam.",
        _SOURCE.format("Figure 6 and Tables 6 to 9"),
        **_scales(
            # Fewer clients have more test images each.
            studies.fairness(
                "digits",
                {**_DIGITS, "num_clients": 25},
                ("fed_avg", "fed_adam"),
                (5, 10, 25),
            ),
            [
                *(
                    studies.fairness(
                        task,
                        flags,
                        ("fed_avg", "fed_adam"),
                        cohorts,
                    )
                    for task, flags, cohorts in studies.PAPER
                ),
                _TABLE_8,
            ],
            6,
            1000,
        ),
    ),
    Preset(
        "cohort_updates",
        "How long and how alike clients' updates are by cohort size, FedAvg's and "
        "FedSGD's: ‖Δ‖ falls as 1/√M where updates are nearly orthogonal.",
        _SOURCE.format("Figures 8 and 32 to 39"),
        **_scales(
            studies.updates("digits", _DIGITS, _COHORTS),
            [
                studies.updates(task, flags, cohorts)
                for task, flags, cohorts in studies.PAPER
            ],
            7,
            1000,
        ),
    ),
    Preset(
        "cohort_scaling",
        "FedAvg with its server rate scaled by the cohort, linearly or by its square "
        "root, after a warm-up.",
        _SOURCE.format("Figures 9, 40 and 41"),
        **_scales(
            studies.scaling("digits", _DIGITS, (10, 25, 50), 10, 10),
            [
                studies.scaling(task, flags, cohorts[1:], 100, 50)
                for task, flags, cohorts in studies.PAPER
            ],
            9,
            1500,
        ),
    ),
    Preset(
        "cohort_layerwise",
        "FedLARS and FedLamb, whose steps are scaled layer by layer, beside FedAvg and "
        "FedAdam by cohort size.",
        _SOURCE.format("Figure 10"),
        **_scales(
            studies.against_cohorts("digits", _DIGITS, _LAYERWISE, (10, 25, 50)),
            [
                studies.against_cohorts(task, flags, _LAYERWISE, cohorts)
                for task, flags, cohorts in studies.PAPER
            ],
            20,
            2000,
            # Whether FedLamb catches up where all have converged.
            more=[
                studies.against_cohorts(
                    "digits_long",
                    {**_DIGITS, "rounds": 200, "rounds_per_evaluation": 10},
                    ("fed_adam", "fed_lamb"),
                    (50,),
                )
            ],
        ),
    ),
    Preset(
        "cohort_dynamic",
        "A cohort that doubles during training, beside fixed ones: accuracy by rounds "
        "and by examples processed.",
        _SOURCE.format("Figures 11, 42 and 43"),
        **_scales(
            studies.dynamic(
                "digits",
                _DIGITS,
                *(5, 50),
                cohort_doubling="rounds",
                cohort_doubling_at=(12, 24, 36, 48),
            ),
            [
                studies.dynamic(
                    task,
                    flags,
                    *(50, max(cohorts)),
                    cohort_doubling="rounds",
                    cohort_doubling_at=(300, 600, 900, 1200),
                    max_clients_per_round=large_cohort_tables.LARGEST[task],
                )
                for task, flags, cohorts in studies.PAPER
            ],
            9,
            600,
        ),
    ),
    Preset(
        "cohort_normalized",
        "FedAvg with clients' updates scaled to one length, beside FedAvg, by cohort "
        "size.",
        _SOURCE.format("Figure 12"),
        **_scales(
            studies.against_cohorts("digits", _DIGITS, _NORMALIZED, (10, 25, 50)),
            [
                studies.against_cohorts(task, flags, _NORMALIZED, cohorts)
                for task, flags, cohorts in studies.PAPER
            ],
            5,
            1000,
        ),
    ),
    Preset(
        "cohort_local_steps",
        "FedAvg over local steps and cohort sizes, at batches of one example.",
        _SOURCE.format("Figure 13"),
        **_scales(
            studies.local_steps("digits", _DIGITS, (1, 4, 16, 64), (5, 15, 45)),
            [
                studies.local_steps(
                    "emnist_character",
                    studies.paper("emnist_character"),
                    tuple(2**power for power in range(9)),
                    tuple(2**power for power in range(4, 11)),
                )
            ],
            26,
            1000,
        ),
    ),
    Preset(
        "cohort_stragglers",
        "Simulated time to accuracies by cohort size, relative to cohorts of 10, for "
        "clients with random delays.",
        _SOURCE.format("Figures 28 to 31"),
        **_scales(
            studies.stragglers(
                "digits",
                _DIGITS,
                (10, 25, 50),
                (0.5, 0.6, 0.7, 0.8, 0.9),
                (0.1, 1.0, 10.0),
            ),
            [
                studies.stragglers(
                    task,
                    flags,
                    cohorts,
                    large_cohort_tables.STEPS[task],
                )
                for task, flags, cohorts in studies.PAPER
            ],
            10,
            3000,
        ),
    ),
)
