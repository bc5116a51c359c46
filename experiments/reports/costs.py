"""Methods' costs in traffic, computation and memory, beside their papers' formulas."""

from __future__ import annotations

import pandas as pd

from experiments.analysis.studies import StudyResults
from experiments.reports.texts import Table
from tff_drift import from_source


def tabulate(results: StudyResults) -> Table:
    """Returns one row of costs per method.

    Args:
      results: The results, with FedAvg among them: what its clients receive is n, for a
        model without weights that are not trained.
    """
    last = results.runs.rounds.groupby("run").last()
    known = {each["algorithm"]: each for each in reversed(results.summary["runs"])}
    first = {label: run for run, label in reversed(list(results.labels.items()))}
    model_bytes = last.loc[first["fed_avg"], "bytes_down"]
    rows = []
    for method, run in reversed(list(first.items())):
        # Section C.3; FedAvg and SCAFFOLD as their own papers have it.
        paper_down, paper_up = from_source.methods()[method].traffic
        row = last.loc[run]
        client_bytes = model_bytes / row["cohort_size"]
        arithmetic = known[method]["arithmetic"]
        rows.append(
            {
                "method": method,
                "down": row["bytes_down"] / model_bytes,
                "down_paper": paper_down,
                "up": row["bytes_up"] / model_bytes,
                "up_paper": paper_up,
                "stored": known[method]["client_state_bytes"] / client_bytes,
                "local_steps": arithmetic["local_steps"],
                **{f"client_{name}": n for name, n in arithmetic["client"].items()},
                **{f"server_{name}": n for name, n in arithmetic["server"].items()},
            }
        )
    data = pd.DataFrame(rows)
    cells = [
        [value if isinstance(value, str) else f"{value:.4g}" for value in row]
        for row in data.itertuples(index=False)
    ]
    title = (
        "Per round, in units of the model's trainable weights n; of a client's "
        "arithmetic what is beyond SGD. A client keeps what is `stored`."
    )
    return Table(title, data, [name.replace("_", " ") for name in data], cells)
