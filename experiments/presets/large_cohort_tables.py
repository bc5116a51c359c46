"""Tables 6 to 9 of On Large-Cohort Training for Federated Learning, and its scales.

Charles et al. (2021), https://arxiv.org/abs/2106.07820.
"""

from __future__ import annotations

# The cohorts that a dynamic one grows to, section 5.3: at most all training clients.
LARGEST = {
    "cifar100": 500,
    "emnist_character": 800,
    "shakespeare_character": 715,
    "stackoverflow_word": 800,
}
# Accuracies to count simulated time to, in the range of Figures 28 to 31.
STEPS = {
    "cifar100": (0.1, 0.2, 0.3, 0.4),
    "emnist_character": (0.2, 0.4, 0.6, 0.7, 0.8),
    "shakespeare_character": (0.2, 0.3, 0.4, 0.5, 0.55),
    "stackoverflow_word": (0.05, 0.1, 0.15, 0.2),
}
# The accuracy of FedAdam over test clients: the 5th, 25th, 50th, 75th and 95th
# percentile, by task and by what the preset calls a cohort.
PERCENTILES: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar100": {  # Table 6
        "fed_adam_m10": (0.270, 0.353, 0.411, 0.475, 0.542),
        "fed_adam_m50": (0.322, 0.390, 0.445, 0.501, 0.556),
        "fed_adam_m100": (0.306, 0.375, 0.431, 0.484, 0.546),
        "fed_adam_m200": (0.296, 0.372, 0.424, 0.472, 0.538),
        "fed_adam_m400": (0.290, 0.364, 0.416, 0.470, 0.536),
    },
    "emnist_character": {  # Table 7
        "fed_adam_m10": (0.619, 0.773, 0.845, 0.912, 1.000),
        "fed_adam_m50": (0.625, 0.774, 0.854, 0.920, 1.000),
        "fed_adam_m100": (0.643, 0.779, 0.859, 0.920, 1.000),
        "fed_adam_m200": (0.638, 0.782, 0.859, 0.923, 1.000),
        "fed_adam_m400": (0.643, 0.786, 0.861, 0.923, 1.000),
        "fed_adam_m800": (0.650, 0.787, 0.862, 0.923, 1.000),
    },
    "shakespeare_character": {  # Table 8
        "fed_adam_m10": (0.399, 0.549, 0.583, 0.618, 0.709),
        "fed_adam_m50": (0.392, 0.550, 0.585, 0.624, 0.712),
        "fed_adam_m100": (0.394, 0.549, 0.585, 0.622, 0.712),
        "fed_adam_m200": (0.378, 0.549, 0.583, 0.621, 0.711),
        "fed_adam_m400": (0.386, 0.549, 0.584, 0.621, 0.711),
    },
    "stackoverflow_word": {  # Table 9
        "fed_adam_m10": (0.167, 0.210, 0.235, 0.261, 0.308),
        "fed_adam_m50": (0.187, 0.232, 0.258, 0.284, 0.332),
        "fed_adam_m100": (0.191, 0.236, 0.263, 0.290, 0.337),
        "fed_adam_m200": (0.195, 0.241, 0.267, 0.294, 0.342),
        "fed_adam_m400": (0.198, 0.244, 0.270, 0.297, 0.346),
        "fed_adam_m800": (0.199, 0.245, 0.272, 0.299, 0.348),
    },
}
