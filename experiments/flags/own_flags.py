"""The flags that single commands have besides those of runs."""

from __future__ import annotations

import dataclasses

from experiments.flags import table
from experiments.flags.flag import (
    ANALYZE,
    CIRCUMSTANCES,
    DIAGNOSE,
    GRID,
    PRESET,
    RANDOM,
    REPORT,
    SCALES,
    SWEEP,
    TPE,
    WHAT,
    Depends,
    Flag,
)

# A table, laid out by hand, as in `experiments.flags.table`.
# fmt: off
# What `tff-drift analyze` and report tell alike.
_REPORTED = (
    Flag("columns", "text",
         "Columns of metrics.csv, separated by commas; the first one is the metric of "
         "thresholds, box plots and bars.",
         Depends("the task's headline metric, and the loss"), many=True),
    Flag("thresholds", "number",
         "Values of the metric to reach, separated by commas: from below, losses and "
         "the like from above.",
         Depends("none"), many=True),
    Flag("last", "count", "Take the mean over this many last rounds.", 1),
    Flag("by", "text",
         "Settings that tell lines and rows apart, separated by commas; runs that are "
         "alike in them are averaged as seeds.",
         Depends("algorithm, and what varies within one but the seed"), many=True),
)
_AXES = Flag(
    "axes", "choice",
    "What to draw curves against and to count to thresholds, separated by commas.",
    ("round", "examples", "bytes"), many=True,
    # The names of `experiments.analysis.AXES`, which a test holds equal.
    choices=("round", "examples", "bytes", "seconds", "simulated_seconds"))
_BANDS = Flag(
    "bands", "choice",
    "What bands show: smallest to largest run, or a standard deviation.",
    # The names of `experiments.analysis.figures.BANDS`, likewise.
    "range", choices=("range", "sd"))


# By command, and by the group that help lists them in.
OWN: dict[str, dict[str, tuple[Flag, ...]]] = {
    SWEEP: {
        WHAT: (
            Flag("seeds", "seed",
                 "Seeds, separated by commas: each point runs once with each. Use "
                 "other seeds for the runs that you report.",
                 (0,), many=True, is_first=True),
            Flag("sampler", "choice",
                 "How points are chosen: all of the grid, at random, or by TPE, which "
                 "learns from the points before.",
                 Depends("grid, with --points random"),
                 choices=(GRID, RANDOM, TPE), is_first=True),
            Flag("points", "count",
                 "Try this many points, not the whole grid; a larger number continues.",
                 Depends("the whole grid"), is_first=True),
            Flag("prune", "flag",
                 "Give up points that are worse than the median of others after as "
                 "many rounds.",
                 False, is_first=True),
        ),
        CIRCUMSTANCES: (
            Flag("processes", "count", "Points trained at a time.",
                 Depends("as cores and RAM allow"), is_first=True),
        ),
    },
    DIAGNOSE: {
        "What to measure": (
            Flag("rounds_before", "whole",
                 "Rounds of FedAvg before the last measurement.", 2, is_first=True),
            Flag("max_clients", "count", "Clients to measure, drawn once.", 20,
                 is_first=True),
            Flag("race", "flag",
                 "Race FedAvg and the methods that follow, at rates searched for on "
                 "held-out clients, with two seeds.", False, is_first=True),
            Flag("race_rounds", "count", "Rounds of a run of the race.", table.BY_TASK,
                 needs="race", is_first=True),
            Flag("race_points", "count",
                 "Points of rates that the search tries for each method.", 6,
                 needs="race", is_first=True),
        ),
        CIRCUMSTANCES: (
            Flag("processes", "count", "Points trained at a time.",
                 Depends("as cores and RAM allow"), needs="race"),
        ),
    },
    PRESET: {
        WHAT: (
            Flag("scale", "choice",
                 "The paper's protocol, for a GPU and official data, or one for two "
                 "cores.",
                 SCALES[0], choices=SCALES),
            Flag("parts", "text",
                 "The parts of the preset to run, separated by commas.",
                 Depends("all"), many=True),
            Flag("verify", "flag",
                 "Train one variant of each part again, to the first evaluation from "
                 "round 20 on, and compare it with the results that are kept in the "
                 "checkout.",
                 False),
        ),
        CIRCUMSTANCES: (
            Flag("processes", "count", "Runs trained at a time.",
                 Depends("as cores and RAM allow")),
        ),
    },
    ANALYZE: {
        "What to report": _REPORTED,
        "Figures and files": (
            _AXES,
            Flag("against", "text",
                 "A setting to draw the last rounds and the thresholds against, such "
                 "as clients_per_round."),
            _BANDS,
            Flag("output_dir", "path", "Folder for tables and figures.",
                 "results/analyze"),
        ),
        CIRCUMSTANCES: (table.PLUGIN,),
    },
    # What is drawn against a setting belongs to one comparison, not to a page.
    REPORT: {
        "What to report": _REPORTED,
        "Figures and files": (
            dataclasses.replace(_AXES, default=("round",)),
            _BANDS,
            Flag("output_dir", "path", "Folder for tables and figures.",
                 "results/report"),
            Flag("name", "text",
                 "What the files are called: NAME.html, NAME.md and NAME_figures.",
                 "report"),
            Flag("title", "text", "The heading of the page.",
                 Depends("what is reported")),
        ),
        CIRCUMSTANCES: (table.PLUGIN,),
    },
    "install-tff": {
        "What to install": (
            Flag("worker", "flag",
                 "Whether TFF's worker is installed, too: 301 MB, which "
                 "--execution=native alone needs.",
                 Depends("on Linux on x86-64, where it runs")),
        ),
    },
}
# fmt: on
