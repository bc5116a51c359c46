"""Whether the pinned environment can be installed on every platform that it is for.

Each package that a platform needs must have a wheel for it, or plain Python, whose hash
is in the list of requirements.

usage: check_wheels.py UV_LOCK REQUIREMENTS PYTHON...
"""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from packaging import tags, utils
from packaging.requirements import Requirement

# The source of promise is plain Python.
PLAIN_SOURCE = "promise"


def _linux(machine: str) -> list[str]:
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(31, 4, -1)]
    return [*names, *(f"manylinux{old}_{machine}" for old in (2014, 2010, 1))]


# By `sys.platform` and `platform.machine()`: what their installers take.
PLATFORMS = {
    ("linux", "x86_64"): _linux("x86_64"),
    ("linux", "aarch64"): _linux("aarch64"),
    ("darwin", "arm64"): list(tags.mac_platforms((14, 0), "arm64")),
}


def read_requirements(text: str) -> Iterator[tuple[Requirement, set[str]]]:
    """Yields the requirements of a list, each with its hashes."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith(("#", "-")):
            requirement, *hashes = line.split("--hash=")
            yield Requirement(requirement), {each.strip() for each in hashes}


Wheels = dict[tuple[str, str], list[tuple[frozenset[tags.Tag], str]]]


def read_wheels(lock: dict[str, Any]) -> Wheels:
    """Returns the wheels of each package and version: their tags and hashes."""
    wheels: Wheels = {}
    for package in lock["package"]:
        for wheel in package.get("wheels", ()):
            name = wheel["url"].rpartition("/")[2]
            of_package = wheels.setdefault((package["name"], package["version"]), [])
            of_package.append((utils.parse_wheel_filename(name)[3], wheel["hash"]))
    return wheels


def lacking(
    requirements: Sequence[tuple[Requirement, set[str]]],
    wheels: Wheels,
    system: str,
    machine: str,
    python: str,
) -> tuple[list[str], int]:
    """Returns what a platform needs and has no wheel of, and how much it needs."""
    version = tuple(map(int, python.split(".")))
    interpreter = f"cp{version[0]}{version[1]}"
    names = PLATFORMS[system, machine]
    taken = {
        *tags.cpython_tags(version, platforms=names),
        *tags.compatible_tags(version, interpreter, names),
    }
    environment = {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    without, needed = [], 0
    for requirement, hashes in requirements:
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        needed += 1
        [version] = re.findall(r"^==([^,]+)$", str(requirement.specifier))
        there = wheels.get((requirement.name, version), ())
        fits = any(taken & set(own) and digest in hashes for own, digest in there)
        if not fits and requirement.name != PLAIN_SOURCE:
            without.append(f"{requirement.name} {version}")
    return without, needed


def main(lock: str, requirements: str, *pythons: str) -> int:
    """Tells what was found, and returns 1 where something is lacking."""
    wheels = read_wheels(tomllib.loads(pathlib.Path(lock).read_text()))
    listed = list(read_requirements(pathlib.Path(requirements).read_text()))
    failed = False
    for system, machine in PLATFORMS:
        for python in pythons:
            without, needed = lacking(listed, wheels, system, machine, python)
            failed = failed or bool(without) or not needed
            found = (
                f"no wheel of {', '.join(without)}" if without else "all have wheels"
            )
            print(f"{system} {machine}, Python {python}: {needed} packages, {found}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
