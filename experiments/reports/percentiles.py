"""Accuracy over test clients, beside a paper's percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import analysis
from experiments.analysis.studies import StudyResults
from experiments.reports import texts
from experiments.reports.texts import Table


def tabulate(
    results: StudyResults,
    last: int = 1,
    paper: Mapping[str, Sequence[float]] | None = None,
    source: str = "",
) -> Table:
    """Returns percentiles over test clients of the headline metric.

    Args:
      results: The results, with the columns of percentiles.
      last: How many rounds at the end to take the mean of.
      paper: The paper's percentiles, by labels.
      source: The paper and its tables.
    """
    columns = analysis.percentile_columns(results.headline)
    means = analysis.last_mean(results.runs, columns, last)
    data = analysis.over_seeds(means, results.labels)
    metric = results.headline.removeprefix("test_")
    cells = []
    for label, row in data.iterrows():
        of_paper = (paper or {}).get(str(label))
        line = [str(label), f"{row['seeds']:.0f}"]
        for position, column in enumerate(columns):
            text = texts.metric_with_deviation(metric, row[column], row[f"{column}_sd"])
            if of_paper is not None:
                text += f" ({texts.metric(metric, of_paper[position])})"
                data.loc[label, f"{column}_paper"] = of_paper[position]
            line.append(text)
        cells.append(line)
    rounds = analysis.last_rounds(results.runs, last)
    title = f"Percentiles of {metric} over test clients, {rounds}"
    if paper:
        title += f"; in parentheses {source}"
    headers = ["runs", "seeds", *(f"{percent} %" for percent in analysis.PERCENTS)]
    return Table(results.title(title), data.reset_index(), headers, cells)
