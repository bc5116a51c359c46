"""The pages of the papers, made of their claims: `make papers`.

python docs/site/paper_pages.py    # writes docs/results.md and docs/results/*.md
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable, Sequence

import claims
import scales
from claims import PRESETS, VERDICTS, Claim, Figure, Paper
from lookups import RESULTS, ROOT

from experiments.reports import listing

_DOCS = ROOT / "docs"
_TO_RESULTS = "../../experiments/results"
_WORDS = {"confirmed": "confirmed in direction"}
_MEANINGS = {
    "reproduced": "the paper's protocol ran on its data and the figures agree to "
    "within a point, or its theory holds",
    "confirmed": "in direction: the paper's order or shape is seen, by more than "
    "figures that are level differ, on other data or at a smaller scale",
    "mixed": "a part of what the paper says is seen, one setting shows it and "
    "another does not, or the figures are level",
    "contradicted": "the opposite is seen; the claim says at which settings",
    "not comparable": "there are runs, and their task, size or rounds cannot show it; "
    "the claim says what would",
    "not run": "there is a command; nothing ran, or the paper's own task stopped "
    "before a tenth of its rounds",
}
# So many settings a table has that shows figures beside the paper's, or alone.
_BESIDE = 2
_ALONE = 4
_NONE = "\N{EN DASH}"
_COMMAND_WIDTH = 80


def pages() -> dict[str, str]:
    """Returns the pages by their path in the repository."""
    papers = claims.read_all()
    return {
        "docs/results.md": overview(papers),
        **{f"docs/results/{paper.name}.md": page(paper) for paper in papers},
    }


def overview(papers: Sequence[Paper]) -> str:
    """Returns the page over all papers.

    Args:
      papers: The papers.
    """
    all_claims = [claim for paper in papers for claim in paper.claims]
    header = ["", *(f"[{paper.short}](results/{paper.name}.md)" for paper in papers)]
    counts = [
        (_verdict(verdict), [paper.count(verdict) for paper in papers])
        for verdict in VERDICTS
    ]
    counts.append(("claims", [len(paper.claims) for paper in papers]))
    rows = [[name, *map(str, each)] for name, each in counts]
    sections = [
        f"## {paper.title}\n\n[{paper.authors}]({paper.url}): {summary(paper.claims)}. "
        f"[All claims](results/{paper.name}.md)\n\n{_found(paper)}"
        for paper in papers
    ]
    text = (_DOCS / "site" / "results_page.txt").read_text("utf-8")
    for name, value in {
        "SUMMARY": summary(all_claims),
        "TABLE": _table(header, rows, numbers=len(papers)),
        "MEANINGS": "\n".join(
            f"*   {_verdict(verdict)}: {meaning}."
            for verdict, meaning in _MEANINGS.items()
        ),
        "PAPERS": "\n\n".join(sections),
    }.items():
        text = text.replace(f"%{name}%", value)
    return text


def _found(paper: Paper) -> str:
    """Returns which claims have the verdicts that one looks for first."""
    lines = []
    for verdict in ("reproduced", "contradicted"):
        links = [
            f"[{claim.claim}](results/{paper.name}.md#{_slug(claim.claim)})"
            for claim in paper.claims
            if claim.verdict == verdict
        ]
        if links:
            lines.append(f"*   {_verdict(verdict)}: {'; '.join(links)}.")
    return "\n".join(lines)


def summary(of: Iterable[Claim]) -> str:
    """Returns how many claims have which verdict.

    Args:
      of: The claims.
    """
    verdicts = [claim.verdict for claim in of]
    counted = [
        f"{verdicts.count(verdict)} {_WORDS.get(verdict, verdict)}"
        for verdict in VERDICTS
        if verdict in verdicts
    ]
    return f"{len(verdicts)} claims: {', '.join(counted)}"


def page(paper: Paper) -> str:
    """Returns the page of a paper.

    Args:
      paper: The paper.
    """
    rows = [
        [
            f"[{claim.claim}](#{_slug(claim.claim)})",
            _verdict(claim.verdict),
            claim.quantity,
            _minus(claim.paper) or _NONE,
            _minus(claims.written(claim)) or _NONE,
        ]
        for claim in paper.claims
    ]
    head = ["claim", "verdict", "figure", "paper", "here"]
    text = [
        f"# {paper.title}",
        f"**{summary(paper.claims)}.**",
        f"![The figure of this paper]({_TO_RESULTS}/{paper.figure})",
        f"*{paper.figure_says}*",
        f"[{paper.authors}]({paper.url}). {paper.about}",
        "## The claims",
        f"{_scales(paper)} What the verdicts mean: [the overview](../results.md). Each "
        "claim links to its figures and its command.",
        _table(head, rows, numbers=2),
        "## The figures",
        "Deviations (±) are over seeds. In commands, `data` is a folder with TFF's "
        "SQLite files.",
        *(_details(claim) for claim in paper.claims),
    ]
    return "\n\n".join(text) + "\n"


def _scales(paper: Paper) -> str:
    """Returns the range of the scales of a paper's claims, in a sentence."""
    found = [float(each.scale) for each in paper.claims if _is_number(each.scale)]
    seeds = sorted({each.seeds for each in paper.claims})
    told = f"Seeds: {seeds[0]} to {seeds[-1]}."
    if not found:
        return told
    least, most = min(found), max(found)
    return f"Scale, rounds here ÷ rounds in the paper: {least:g} to {most:g}. {told}"


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+", text))


def _details(claim: Claim) -> str:
    words = (
        _verdict(claim.verdict),
        claim.place,
        f"scale {claim.scale or 'unknown'}",
        f"seeds {claim.seeds}",
    )
    here = [
        f"*   here: {scales.describe(RESULTS / folder)} ([{folder.split('/')[-1]}]"
        f"({_link(folder, claim)}))"
        for folder in claim.folders
        if (RESULTS / folder / "summary.json").exists()
    ]
    if claim.paper_scale and claim.scale != "theory":
        here.append(f"*   the paper: {claim.paper_scale}")
    return "\n\n".join(
        each
        for each in (
            f"### {claim.claim}",
            " · ".join(words),
            claim.note,
            "\n".join(here),
            *_tables(claim.figures),
            command(claim),
            _needs(claim),
        )
        if each
    )


def _link(folder: str, claim: Claim) -> str:
    """Returns the link to the table that a folder's figures are from."""
    names = [
        pathlib.Path(each.source).with_suffix(".md").name
        for each in (claim, *claim.figures)
        if each.source.startswith(f"{folder}/") and each.source.endswith(".csv")
    ]
    for name in (*names, "table.md"):
        if (RESULTS / folder / name).exists():
            return f"{_TO_RESULTS}/{folder}/{name}"
    return f"{_TO_RESULTS}/{folder}/config.json"


def command(claim: Claim) -> str:
    """Returns the command that made a claim's figures, as its page has it.

    Args:
      claim: The claim.
    """
    if not claim.preset:
        log = pathlib.PurePosixPath(claim.source).parts[0]
        return f"Its commands: [{log}]({_TO_RESULTS}/{log}/README.md)."
    configuration = RESULTS / claim.folders[0] / "config.json"
    flags = {}
    if configuration.exists():
        flags = json.loads(configuration.read_text("utf-8")).get("flags", {})
    seeds = ["--seeds=1"] if claim.seeds == "1" else []
    scale = ["--scale=paper"] if flags.get("scale") == "paper" else []
    return _preset(claim.preset, claim.parts.split(), [*scale, *seeds])


def _needs(claim: Claim) -> str:
    """Returns what would decide a claim that the runs here do not."""
    if not claim.needs:
        return ""
    scale = PRESETS[claim.preset].paper
    hours = claims.hours(claim)
    if hours is None:
        cost = f"all parts of the preset at this scale: {listing.cost(scale)}"
    else:
        cost = (
            f"at the speed of the runs here, {listing.duration(hours)} on two cores, "
            f"more where clients have more data, and {scale.gigabytes:g} GB of RAM"
        )
    return (
        f"To decide it takes {claim.needs} ({cost}):"
        f"\n\n{_preset(claim.preset, [claim.needs_part], ['--scale=paper'])}"
    )


def _preset(name: str, parts: Sequence[str], flags: Sequence[str]) -> str:
    """Returns the command that runs parts of a preset, in lines that fit a page."""
    words = [
        f"--parts={','.join(parts)}",
        *flags,
        "--cache_dir=data",
        f"--output_dir=results/{name}",
    ]
    lines = [f"tff-drift preset {name}"]
    for word in words:
        if len(lines[-1]) + len(word) > _COMMAND_WIDTH:
            lines.append(" ")
        lines[-1] += f" {word}"
    return "```\n" + " \\\n".join(lines) + "\n```"


def _tables(figures: Sequence[Figure]) -> list[str]:
    """Returns the figures of a claim in tables: rows are labels, columns settings.

    Settings that have no label in common are in tables of their own.
    """
    labels: dict[str, set[str]] = {}
    for each in figures:
        labels.setdefault(each.setting, set()).add(each.label)
    beside = any(each.paper and each.source for each in figures)
    width = _BESIDE if beside else _ALONE
    together: list[list[str]] = []
    for setting in labels:
        last = together[-1] if together else []
        shared = any(labels[setting] & labels[each] for each in last)
        if shared and len(last) < width:
            last.append(setting)
        else:
            together.append([setting])
    return [_figures_table(figures, settings) for settings in together]


def _figures_table(figures: Sequence[Figure], settings: Sequence[str]) -> str:
    columns: dict[str, dict[str, str]] = {}
    for setting in settings:
        own = [each for each in figures if each.setting == setting]
        theirs = {each.label: _minus(each.paper) for each in own if each.paper}
        ours = {each.label: _minus(claims.written(each)) for each in own if each.source}
        if theirs:
            columns[f"{setting}: paper"] = theirs
        if ours:
            columns[f"{setting}: here" if theirs else setting] = ours
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = [
        [label, *(column.get(label, "") for column in columns.values())]
        for label in labels
    ]
    return _table(["", *columns], rows, numbers=len(columns))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Returns a table, of which so many columns, the last, are of numbers."""
    first = len(header) - numbers
    rule = ["---" if index < first else "--:" for index in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdict(verdict: str) -> str:
    return f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}</span>'


def _minus(number: str) -> str:
    return re.sub(r"^-", "\N{MINUS SIGN}", number)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> None:
    """Writes the pages."""
    for name, text in pages().items():
        path = ROOT / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
