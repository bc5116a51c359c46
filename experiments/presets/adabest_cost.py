"""What FedAvg, SCAFFOLD, FedDyn and AdaBest send, compute and keep.

Varno et al. (2022), AdaBest, https://arxiv.org/abs/2204.13170, Tables 4 and 5 and
section C.3. The traffic is measured, from the types of what the methods send, and so
is what a client keeps between rounds; the arithmetic is the paper's formulas at the
local steps really taken. None depends on the data, so that one short run on `digits`
tells it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.flags.presets import Request
from experiments.presets import studies
from experiments.presets.studies import Study, Variant
from experiments.reports import results, texts, writing
from experiments.reports.results import Result
from experiments.training import log
from tff_drift import algorithms

COST_FILE = "cost.md"
COST_DATA_FILE = "cost.csv"

_METHODS = ("fed_avg", "scaffold", "scaffold_m", "fed_dyn", "adabest")
_ROUNDS = {"local": 2, "paper": 2}


def run(request: Request) -> None:
    """Runs every method for a few rounds and writes the table of costs.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    log.show()
    for part in request.parts:
        study = Study(
            part,
            {
                "task": "digits",
                "num_clients": 100,
                "client_epochs": 5,
                "clients_per_round": 10,
                "rounds": _ROUNDS[request.scale],
            },
            [Variant(name, name) for name in _METHODS],
        )
        costs = tabulate(studies.run_study(request, study))
        folder = request.folder / part
        writing.write_table(folder / COST_DATA_FILE, costs)
        headers = [name.replace("_", " ") for name in costs.columns]
        cells = [
            [value if isinstance(value, str) else f"{value:.4g}" for value in row]
            for row in costs.itertuples(index=False)
        ]
        explanation = (
            "Per round, in units of the model's trainable weights n; of a client's "
            "arithmetic what is beyond SGD. A client keeps what is `stored`.\n\n"
        )
        writing.write_text(
            folder / COST_FILE, explanation + texts.markdown_table(headers, cells)
        )
        texts.print_table(headers, cells)


def tabulate(done: Sequence[Result]) -> pd.DataFrame:
    """Returns one row of costs per method.

    Args:
      done: The results, with FedAvg among them: what its clients receive is n, for a
        model without weights that are not trained.
    """
    first = {result.settings.algorithm: result for result in reversed(done)}
    model_bytes = first["fed_avg"].rows[-1]["bytes_down"]
    rows = []
    for method in _METHODS:
        # Section C.3; FedAvg and SCAFFOLD as their own papers have it.
        paper_down, paper_up = algorithms.methods()[method].traffic
        row = first[method].rows[-1]
        client_bytes = model_bytes / row["cohort_size"]
        known = results.arithmetic(first[method].settings, first[method].rows)
        assert known is not None  # Of all methods above.
        rows.append(
            {
                "method": method,
                "down": row["bytes_down"] / model_bytes,
                "down_paper": paper_down,
                "up": row["bytes_up"] / model_bytes,
                "up_paper": paper_up,
                "stored": first[method].summary["client_state_bytes"] / client_bytes,
                "local_steps": known["local_steps"],
                **{f"client_{name}": value for name, value in known["client"].items()},
                **{f"server_{name}": value for name, value in known["server"].items()},
            }
        )
    return pd.DataFrame(rows)
