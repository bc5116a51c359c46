"""The table of presets in `docs/presets.md`: `make papers` writes it anew."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments.presets.catalogue import PRESETS  # noqa: E402
from experiments.reports import listing  # noqa: E402

DOCUMENT = ROOT / "docs" / "presets.md"
_ROWS = re.compile(r"(?:^\| `.*\n)+", re.MULTILINE)


def renewed(text: str) -> str:
    """Returns the document with the table of the presets that there are."""
    rows = [
        f"| `{name}` | {preset.source.split('. http')[0]} | {preset.summary} "
        f"| {listing.cost(preset.local)} | {listing.cost(preset.paper)} |\n"
        for name, preset in PRESETS.items()
    ]
    return _ROWS.sub(lambda _: "".join(rows), text, count=1)


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text("utf-8")), "utf-8")
