"""Links from the pages of results to the tables that runs wrote."""

from __future__ import annotations

import pathlib


def links(folder: pathlib.Path) -> str:
    """Returns links to the tables below a page of results that no other page is nearer.

    Args:
      folder: The folder of the page, a README.md.
    """
    lines = []
    for path in sorted(folder.rglob("*.md")):
        above = (each for each in path.parents if (each / "README.md").exists())
        if path.name != "README.md" and next(above) == folder:
            place = path.relative_to(folder)
            name = f"{', '.join(place.parts[:-1])}: {place.stem}".replace("_", " ")
            lines.append(f"- [{name.removeprefix(': ')}]({place.as_posix()})\n")
    return f"\n\n## All tables\n\n{''.join(lines)}" if lines else ""
