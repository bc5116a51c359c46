"""Figures that documents quote from committed results: `make quotes` renews them.

A quoted figure stands before a comment, which no page shows:

    96.19 ± 1.16 %<!-- drift_comparison/digits_low fed_avg accuracy -->

that names a source, a row and a column, as `lookups.py` has them; a comment of two
words has the source of the one before it. A figure of metrics is the mean over seeds,
or, as a list such as `14.0, 29.1, 25.3 %`, each seed's.

Figures in per cent and in points are a hundred times the number; where the unit stands
elsewhere, the column has a `%` at its end. `> 60` is what was not reached in as many
`rounds`. A figure keeps the decimals that it is written with. `<!-- paper -->` marks
one that is a paper's, where no table has it.

python docs/site/quotes.py            # says which figures are not those of the results
python docs/site/quotes.py --write    # writes them anew
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys

from lookups import NUMBER, RESULTS, ROOT, look_up, rewrite

_TEXT = rf"(?:> )?{NUMBER}(?: ± {NUMBER}|(?:, {NUMBER})+)?(?: %| points)?"
# After a figure may come the end of what is bold or in parentheses.
_QUOTE = re.compile(rf"(?P<text>{_TEXT})(?P<between>\**\)?)<!-- (?P<words>.*?) -->")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def documents() -> list[pathlib.Path]:
    """Returns the documents in which figures are quoted."""
    patterns = (
        "docs/choosing.md",
        *("docs/methods/notes/*.md", "experiments/results/**/README.md"),
    )
    return [path for each in patterns for path in sorted(ROOT.glob(each))]


def renewed(text: str, results: pathlib.Path = RESULTS) -> str:
    """Returns a document with the figures of its sources.

    Args:
      text: The document.
      results: The folder of results.

    Raises:
      ValueError: If a comment names what there is not.
    """
    source = ""

    def renew(match: re.Match[str]) -> str:
        nonlocal source
        words = match["words"].split()
        if words == ["paper"]:
            return match[0]
        if len(words) == 3:
            source = words.pop(0)
        try:
            row, column = words
            found = look_up(results / source, row, column.rstrip("%"))
            written = match["text"]
            is_share = column.endswith("%") or written.endswith((" %", " points"))
            figure = rewrite(written, found, 100 if is_share else 1)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{match[0]!r} of {source!r}: {error}") from error
        return f"{figure}{match['between']}<!-- {match['words']} -->"

    return _QUOTE.sub(renew, text)


def unquoted(text: str) -> list[str]:
    """Returns the means and deviations of a document that name no source.

    Args:
      text: The document.
    """
    return re.findall(rf"{NUMBER} ± {NUMBER}", _QUOTE.sub("", text))


def misplaced(text: str) -> list[str]:
    """Returns the comments of three words that follow no figure.

    Args:
      text: The document.
    """
    return _COMMENT.findall(_QUOTE.sub("", text))


def main() -> int:
    """Checks or writes the figures of all documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    differing = 0
    for path in documents():
        text = path.read_text("utf-8")
        new = renewed(text)
        for old_line, new_line in zip(
            text.splitlines(), new.splitlines(), strict=False
        ):
            if old_line != new_line:
                differing += 1
                print(f"{path.relative_to(ROOT)}:\n- {old_line}\n+ {new_line}")
        if write and new != text:
            path.write_text(new, "utf-8")
    return 0 if write or not differing else 1


if __name__ == "__main__":
    sys.exit(main())
