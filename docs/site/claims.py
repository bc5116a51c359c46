"""The papers' claims, and what was found here: `experiments/papers/*/claims.csv`.

A paper's folder has

*   `paper.toml`: its title and link, its figure, and what its page says first;
*   `claims.csv`: a claim a row. `source`, `row` and `column` look up the figure that
    stands for it (`lookups.py`), `form` is how it is written, `paper` is the paper's;
    `scale` is the runs' rounds divided by the paper's (`theory` where a claim holds at
    any scale), `paper_scale` the paper's in words;
    `note` says what the figures do not; where a claim is undecided, `needs` says what
    would decide it, with the part of the preset at the paper's scale;
*   `figures.csv`: the figures behind each claim, with the paper's where it has them, by
    `setting` and `label`.

In a `column` a `%` at the end multiplies by 100. `rule` says when a claim holds, in
relations with `;` between them:

    AdaBest > FedAvg, FedDyn    more than each of them
    A > B > C; A < B            chains; less
    A > B + 0.5; A > B * 10     by a margin, by a factor; A > 90 is of a number
    A >= B; A ~ B               more or level; level
    within 1; within 10 %       every figure is so near to the paper's
    IID: A > B                  in the setting `IID` alone

A relation is read in every setting that has its labels. Figures are level if they
differ by no more than the larger deviation over seeds or, without one, than a point,
and what is no percentage than a tenth. `>` and `<` do not hold of level figures.
All relations hold: the claim is reproduced, if its figures are within a point of the
paper's at the paper's scale, or theory, and otherwise confirmed. None does, and of some
the opposite holds: contradicted. Some do, or all that fail are of level figures: mixed.
A claim without a rule is undecided. It is not run if there are no runs, or if these are
of the task that would decide it and stopped before a tenth of the paper's rounds, and
otherwise not comparable: there are runs, and they cannot show it.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping

import lookups
from lookups import RESULTS, ROOT, Found

sys.path.insert(0, str(ROOT))

from experiments.presets.catalogue import PRESETS

PAPERS = ROOT / "experiments" / "papers"
VERDICTS = (
    "reproduced",
    "confirmed",
    "mixed",
    "contradicted",
    "not comparable",
    "not run",
)
NOT_COMPARABLE, NOT_RUN = "not comparable", "not run"
_POINT, _TENTH = 1.0, 0.1
_FILES = (".csv", ".gz", ".json")
# With fewer of the paper's rounds a run of its task says nothing of their end.
_LEAST_SCALE = 0.1


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure behind a claim: what the paper says, what was found here, or both."""

    claim: str
    setting: str
    label: str
    paper: str
    source: str
    row: str
    column: str
    form: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """A paper's claim, as `claims.csv` has it."""

    id: str
    claim: str
    place: str
    preset: str
    parts: str
    quantity: str
    paper: str
    source: str
    row: str
    column: str
    form: str
    verdict: str
    rule: str
    scale: str
    paper_scale: str
    seeds: str
    note: str
    needs: str
    needs_part: str
    figures: tuple[Figure, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of `experiments/results` that the figures are from."""
        sources = [self.source, *(each.source for each in self.figures)]
        folders = [each for each in sources if each]
        return tuple(
            dict.fromkeys(
                each.rpartition("/")[0] if each.endswith(_FILES) else each
                for each in folders
            )
        )


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper with its claims, and what `paper.toml` says."""

    name: str
    title: str
    short: str
    authors: str
    url: str
    about: str
    figure: str
    figure_says: str
    claims: tuple[Claim, ...]

    def count(self, verdict: str) -> int:
        """Returns how many claims have a verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)


def read_all(folder: pathlib.Path = PAPERS) -> list[Paper]:
    """Returns the papers, in the order of their folders' `paper.toml`."""
    papers = {
        tomllib.loads(path.read_text("utf-8"))["order"]: read(path.parent)
        for path in folder.glob("*/paper.toml")
    }
    return [paper for _, paper in sorted(papers.items())]


def read(folder: pathlib.Path) -> Paper:
    """Returns a paper with its claims.

    Args:
      folder: Its folder.
    """
    told = tomllib.loads((folder / "paper.toml").read_text("utf-8"))
    del told["order"]
    figures = [Figure(**row) for row in _rows(folder / "figures.csv")]
    claims = tuple(
        Claim(**row, figures=tuple(each for each in figures if each.claim == row["id"]))
        for row in _rows(folder / "claims.csv")
    )
    unknown = {each.claim for each in figures} - {claim.id for claim in claims}
    if unknown:
        raise ValueError(f"figures.csv names claims that there are not: {unknown}")
    return Paper(name=folder.name, claims=claims, **told)


def _rows(path: pathlib.Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def value(one: Claim | Figure, results: pathlib.Path = RESULTS) -> Found:
    """Returns the figure that a claim or one of its figures names, in its unit.

    Args:
      one: The claim or the figure, with a source.
      results: The folder of results.

    Raises:
      ValueError: If it names what there is not.
    """
    try:
        found = lookups.look_up(results / one.source, one.row, one.column.rstrip("%"))
    except (OSError, ValueError, KeyError, IndexError) as error:
        where = f"{one.source!r} {one.row!r} {one.column!r}"
        raise ValueError(f"{where}: {error}") from error
    if not one.column.endswith("%"):
        return found
    return found._replace(mean=100 * found.mean, sd=100 * found.sd, is_percentage=True)


def written(one: Claim | Figure, results: pathlib.Path = RESULTS) -> str:
    """Returns the figure that a claim or one of its figures names, as a page has it.

    Args:
      one: The claim or the figure; nothing is written of one without a source.
      results: The folder of results.
    """
    if not one.source:
        return ""
    found = value(one, results)
    # Tables have no deviation of a single seed.
    form = one.form.partition(" ± ")[0] if math.isnan(found.sd) else one.form
    return lookups.rewrite(form, found, 1)


def ruling(claim: Claim, results: pathlib.Path = RESULTS) -> str:
    """Returns the verdict that follows from a claim's rule and runs.

    Args:
      claim: The claim.
      results: The folder of results.

    Raises:
      ValueError: If the rule cannot be read, or names labels that there are not.
    """
    if not claim.rule:
        return NOT_RUN if _stopped_early(claim, results) else NOT_COMPARABLE
    tables = _tables(claim, results)
    relations = [each.strip() for each in claim.rule.split(";")]
    held = [each for one in relations for each in _held(one, claim, tables)]
    if not all(held):
        # Level figures say nothing against a claim.
        is_reversed = False in held and True not in held
        return "contradicted" if is_reversed else "mixed"
    to_a_point = re.search(r"within [01](\.\d+)?(;|$)", claim.rule)
    is_the_papers = claim.scale == "theory" or (claim.scale == "1" and to_a_point)
    return "reproduced" if is_the_papers else "confirmed"


def _stopped_early(claim: Claim, results: pathlib.Path) -> bool:
    """Returns whether an undecided claim was not run to where it could be decided."""
    if not claim.source:
        return True
    is_early = float(claim.scale) < _LEAST_SCALE
    return is_early and _ran_the_deciding_task(claim, results)


def _ran_the_deciding_task(claim: Claim, results: pathlib.Path) -> bool:
    path = results / claim.folders[0] / "config.json"
    ran = json.loads(path.read_text("utf-8"))["runs"][0]["task"]
    deciding = PRESETS[claim.preset].study("paper", claim.needs_part)
    return ran == deciding.flags["task"]


def hours(claim: Claim, results: pathlib.Path = RESULTS) -> float | None:
    """Returns how long the paper's rounds take at the speed of an undecided claim's.

    Args:
      claim: The claim.
      results: The folder of results.

    Returns:
      The hours of all methods, one seed; None if the runs were of another task.
    """
    rounds = _papers_rounds(claim)
    if rounds is None or not _ran_the_deciding_task(claim, results):
        return None
    path = results / claim.folders[0] / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    totals = summary["totals"]
    seconds = totals["seconds"] / totals["rounds"]
    return seconds * rounds * len(summary["algorithms"]) / 3600


def _papers_rounds(claim: Claim) -> int | None:
    found = re.search(r"([\d,]+) rounds", claim.paper_scale)
    return int(found[1].replace(",", "")) if found else None


def _tables(claim: Claim, results: pathlib.Path) -> dict[str, dict[str, Found]]:
    tables: dict[str, dict[str, Found]] = {}
    for each in claim.figures:
        if each.source:
            tables.setdefault(each.setting, {})[each.label] = value(each, results)
    return tables


def _held(
    relation: str, claim: Claim, tables: Mapping[str, Mapping[str, Found]]
) -> list[bool | None]:
    """Returns whether a relation holds, in each setting that has its labels.

    It is None where nothing but level figures keep it from holding.
    """
    setting, colon, rest = relation.partition(": ")
    if colon and setting in tables:
        tables, relation = {setting: tables[setting]}, rest
    if relation.startswith("within "):
        return [_is_within(relation, claim, tables)]
    operands = re.split(r" (?:>=|>|<|~) ", relation)
    signs = re.findall(r" (>=|>|<|~) ", relation)
    held: list[bool | None] = []
    for table in tables.values():
        sides = [_side(operand, table) for operand in operands]
        if all(side is not None for side in sides):
            every = [
                _holds(sign, left, right)
                for sign, lefts, rights in zip(signs, sides, sides[1:], strict=False)
                for left in lefts or ()
                for right in rights or ()
            ]
            held.append(False if False in every else None if None in every else True)
    if not held or not signs:
        raise ValueError(f"no setting of {claim.id} has what {relation!r} names")
    return held


def _side(operand: str, table: Mapping[str, Found]) -> list[Found] | None:
    """Returns the figures that a side names, None if a label is not in the table."""
    found = []
    for name in operand.split(", "):
        label, sign, number = (*re.split(r" ([+*]) (?=[\d.]+$)", name), "", "")[:3]
        if label in table:
            one = table[label]
        elif re.fullmatch(lookups.NUMBER, label):
            one = Found(float(label))
        else:
            return None
        if sign == "+":
            one = one._replace(mean=one.mean + float(number))
        elif sign:
            by = float(number)
            one = one._replace(mean=one.mean * by, sd=one.sd * by)
        found.append(one)
    return found


def _holds(sign: str, left: Found, right: Found) -> bool | None:
    """Returns whether a relation holds: of level figures neither > nor <, but None."""
    is_level = abs(left.mean - right.mean) <= _margin(left, right)
    if sign == "~":
        return is_level
    if sign == ">=":
        return is_level or left.mean > right.mean
    # Of what was not reached, NaN, neither is true.
    if is_level:
        return None
    return left.mean > right.mean if sign == ">" else left.mean < right.mean


def _margin(left: Found, right: Found) -> float:
    """Returns by how much level figures may differ."""
    deviations = [one.sd for one in (left, right) if not math.isnan(one.sd)]
    if deviations:
        return max(deviations)
    if left.is_percentage or right.is_percentage:
        return _POINT
    return _TENTH * max(abs(left.mean), abs(right.mean))


def _is_within(
    relation: str, claim: Claim, tables: Mapping[str, Mapping[str, Found]]
) -> bool:
    _, number, *percent = relation.split()
    near = float(number)
    pairs = [
        (float(each.paper), tables[each.setting][each.label].mean)
        for each in claim.figures
        if each.paper and each.source and each.setting in tables
    ]
    if not pairs:
        raise ValueError(f"{claim.id} has no figures of the paper beside ours")
    return all(
        abs(ours - theirs) <= (near / 100 * abs(theirs) if percent else near)
        for theirs, ours in pairs
    )


def scale(claim: Claim, results: pathlib.Path = RESULTS) -> str | None:
    """Returns the rounds behind a claim divided by the paper's, None if unknown.

    Args:
      claim: The claim.
      results: The folder of results.
    """
    rounds = _papers_rounds(claim)
    path = results / claim.folders[0] / "config.json"
    if not rounds or not path.exists():
        return None
    runs = json.loads(path.read_text("utf-8"))["runs"]
    return f"{max(run['rounds'] for run in runs) / rounds:.2g}"


def seeds(claim: Claim, results: pathlib.Path = RESULTS) -> str:
    """Returns the seeds of the runs behind a claim, such as `3` or `1 to 3`.

    Args:
      claim: The claim.
      results: The folder of results.
    """
    paths = [results / each / "summary.json" for each in claim.folders]
    counts = [
        len(json.loads(path.read_text("utf-8"))["seeds"])
        for path in paths
        if path.exists()
    ]
    if not counts:
        return "1"
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"
