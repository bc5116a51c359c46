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

_DIGITS = {
    "task": "digits",
    "adaptive_clipping": True,
    "rounds": 60,
    "rounds_per_evaluation": 3,
}
_COHORTS = (5, 10, 25, 50)
_FEWER_COHORTS = (5, 15, 50)
_LARGER_COHORTS = (10, 25, 50)
_ALL = (
    *("fed_sgd", "fed_avg", "fed_avgm", "fed_adagrad"),
    *("fed_adam", "fed_lars", "fed_lamb"),
)
# FedLARS and FedLamb among methods that they are compared with, Figure 10.
_LAYERWISE = ("fed_avg", "fed_adam", "fed_lars", "fed_lamb")
_NORMALIZED = ("fed_avg", "normalized_fed_avg")
_OF_RETURNS = (studies.curves("fed_avg"), studies.curves("fed_sgd"))


def _preset(
    name: str,
    summary: str,
    places: str,
    local: Sequence[Study],
    paper: Sequence[Study],
    minutes: float,
    paper_hours: float,
) -> Preset:
    """Returns a preset.

    Args:
      name: Its name.
      summary: What it shows.
      places: The figures and tables of the paper that it repeats.
      local: The studies for two cores.
      paper: The studies of the paper's protocol.
      minutes: About how long those for two cores take.
      paper_hours: About how long those of the paper's protocol take.
    """
    return Preset(
        name,
        summary,
        f"Charles et al. (2021), {places}. https://arxiv.org/abs/2106.07820",
        Scale(local, minutes / 60, 1.5),
        Scale(paper, paper_hours, 16, "one GPU, not measured"),
    )


PRESETS = (
    _preset(
        "cohort_failures",
        "How often FedAvg's training breaks down by cohort size, with and without "
        "adaptive clipping.",
        "Figure 1 and section 3.1",
        [
            studies.failures(
                "digits",
                # A client's images are one batch, so that the accuracy in training is
                # that of the model that was sent, and rates are so large that training
                # breaks down at all: with more steps clients repair what was broken.
                {**_DIGITS, "batch_size": 32, "rounds": 40, "rounds_per_evaluation": 4},
                (0.5, 1.0),
                _FEWER_COHORTS,
            ),
            # The rates of Reddi et al., tuned for cohorts of 10, of 296 writers.
            studies.failures(
                "emnist_character",
                {"task": "emnist_character", "rounds": 100, "rounds_per_evaluation": 5},
                (),
                (10, 50, 200),
            ),
        ],
        [
            studies.failures(
                "emnist_character",
                # The rates of Reddi et al., tuned for cohorts of 10.
                {"task": "emnist_character", "rounds": 1500},
                (),
                studies.COHORTS["emnist_character"],
            )
        ],
        # Of which EMNIST takes nearly all.
        170,
        60,
    ),
    _preset(
        "cohort_returns",
        "Rounds to accuracies, and the final accuracy in training and in tests, of "
        "seven methods by cohort size: returns diminish.",
        "Figures 2 to 5 and 14 to 27",
        [
            studies.against_cohorts(
                "digits", _DIGITS, _FEWER_COHORTS, _ALL, more=_OF_RETURNS
            )
        ],
        [
            studies.against_cohorts(*task, _ALL, more=_OF_RETURNS)
            for task in studies.PAPER
        ],
        20,
        3000,
    ),
    _preset(
        "cohort_fairness",
        "Percentiles of accuracy over test clients by cohort size, of FedAvg and "
        "FedAdam.",
        "Figure 6 and Tables 6 to 9",
        [
            # Fewer clients have more test images each.
            studies.fairness("digits", {**_DIGITS, "num_clients": 25}, (5, 10, 25)),
            # 296 writers, the paper's net and rates; FedLamb is beside FedAdam as in
            # Figure 10.
            studies.fairness(
                "emnist_character",
                {
                    **studies.paper("emnist_character"),
                    "rounds": 200,
                    "rounds_per_evaluation": 10,
                },
                (10, 50),
                ("fed_adam", "fed_lamb"),
                last=50,
            ),
        ],
        [
            *(studies.fairness(*task) for task in studies.PAPER),
            # Table 8 at the cohort that the paper's figures are nearest to.
            studies.fairness(
                "shakespeare_character_m10",
                studies.paper("shakespeare_character"),
                (10,),
            ),
        ],
        80,
        1000,
    ),
    _preset(
        "cohort_updates",
        "How long and how alike clients' updates are by cohort size, FedAvg's and "
        "FedSGD's: ‖Δ‖ falls as 1/√M where updates are nearly orthogonal.",
        "Figures 8 and 32 to 39",
        [studies.updates("digits", _DIGITS, _COHORTS)],
        [studies.updates(*task) for task in studies.PAPER],
        7,
        1000,
    ),
    _preset(
        "cohort_scaling",
        "FedAvg with its server rate scaled by the cohort, linearly or by its square "
        "root, after a warm-up.",
        "Figures 9, 40 and 41",
        [studies.scaling("digits", _DIGITS, _LARGER_COHORTS, 10, 10)],
        [
            studies.scaling(task, flags, cohorts[1:], 100, 50)
            for task, flags, cohorts in studies.PAPER
        ],
        9,
        1500,
    ),
    _preset(
        "cohort_layerwise",
        "FedLARS and FedLamb, whose steps are scaled layer by layer, beside FedAvg and "
        "FedAdam by cohort size.",
        "Figure 10",
        [
            studies.against_cohorts("digits", _DIGITS, _LARGER_COHORTS, _LAYERWISE),
            # Whether FedLamb catches up where all have converged.
            studies.against_cohorts(
                "digits_long",
                {**_DIGITS, "rounds": 200, "rounds_per_evaluation": 10},
                (50,),
                ("fed_adam", "fed_lamb"),
            ),
        ],
        [studies.against_cohorts(*task, _LAYERWISE) for task in studies.PAPER],
        20,
        2000,
    ),
    _preset(
        "cohort_dynamic",
        "A cohort that doubles during training, beside fixed ones: accuracy by rounds "
        "and by examples processed.",
        "Figures 11, 42 and 43",
        [studies.dynamic("digits", _DIGITS, 5, 50, (12, 24, 36, 48))],
        [
            studies.dynamic(
                task,
                flags,
                50,
                max(cohorts),
                (300, 600, 900, 1200),
                max_clients_per_round=large_cohort_tables.LARGEST[task],
            )
            for task, flags, cohorts in studies.PAPER
        ],
        9,
        600,
    ),
    _preset(
        "cohort_normalized",
        "FedAvg with clients' updates scaled to one length, beside FedAvg, by cohort "
        "size.",
        "Figure 12",
        [studies.against_cohorts("digits", _DIGITS, _LARGER_COHORTS, _NORMALIZED)],
        [studies.against_cohorts(*task, _NORMALIZED) for task in studies.PAPER],
        5,
        1000,
    ),
    _preset(
        "cohort_local_steps",
        "FedAvg over local steps and cohort sizes, at batches of one example.",
        "Figure 13",
        [studies.local_steps("digits", _DIGITS, (5, 15, 45), (1, 4, 16, 64))],
        [
            studies.local_steps(
                "emnist_character",
                studies.paper("emnist_character"),
                tuple(2**power for power in range(4, 11)),
                tuple(2**power for power in range(9)),
            )
        ],
        26,
        1000,
    ),
    _preset(
        "cohort_stragglers",
        "Simulated time to accuracies by cohort size, relative to cohorts of 10, for "
        "clients with random delays.",
        "Figures 28 to 31",
        [
            studies.stragglers(
                "digits",
                _DIGITS,
                _LARGER_COHORTS,
                (0.5, 0.6, 0.7, 0.8, 0.9),
                (0.1, 1.0, 10.0),
            )
        ],
        [
            studies.stragglers(*task, large_cohort_tables.STEPS[task[0]])
            for task in studies.PAPER
        ],
        10,
        3000,
    ),
)
