"""The packages of the layers of images, each as a part of lock/runtime.txt that pip installs by itself.

Runs inside image builds before anything is installed, so it uses the standard library alone.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
LOCK = _ROOT / "lock" / "runtime.txt"
LAYERS = _ROOT / "deploy" / "images" / "packages.toml"

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==")
_REASON = re.compile(r"^    #(?: via)? +(?!via$)([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?: \(.*\))?\s*$")


@dataclass(frozen=True, slots=True)
class Pin:
    """One locked version of a package."""

    name: str
    text: str  # its lines in the lock: version, marker, hashes
    needed_by: frozenset[str]


class UnknownNameError(Exception):
    """A layer or package that the files do not have."""


def pins(lock: str) -> list[Pin]:
    """What a lock file holds; a package comes twice where Pythons differ."""
    found: list[Pin] = []
    lines: list[str] = []
    reasons: set[str] = set()
    for line in [*lock.splitlines(), "end=="]:
        if (begins := _PIN.match(line)) and lines:
            name = _name_of(lines[0])
            found.append(Pin(name, "\n".join(lines) + "\n", frozenset(reasons)))
            lines, reasons = [], set()
        if reason := _REASON.match(line):
            reasons.add(reason[1])
        elif begins or (lines and not line.lstrip().startswith("#")):
            lines.append(line)
    return found


def _name_of(line: str) -> str:
    matched = _PIN.match(line)
    assert matched is not None  # for the type checker: only such lines begin one
    return matched[1]


def closure(names: Sequence[str], locked: Sequence[Pin]) -> frozenset[str]:
    """These packages and all that they need. Raises UnknownNameError."""
    if unknown := set(names) - {pin.name for pin in locked}:
        raise UnknownNameError(f"not in the lock: {', '.join(sorted(unknown))}")
    needs: dict[str, set[str]] = {}
    for pin in locked:
        for needer in pin.needed_by:
            needs.setdefault(needer, set()).add(pin.name)
    reached: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left.extend(needs.get(name, ()))
    return frozenset(reached)


def below(layer: str, layers: Mapping[str, Any]) -> list[str]:
    """The layers under this one, lowest first. Raises UnknownNameError."""
    if layer not in layers:
        raise UnknownNameError(f"no layer {layer}; there are: {', '.join(layers)}")
    under = layers[layer].get("after")
    return [] if under is None else [*below(under, layers), under]


def packages(layer: str, layers: Mapping[str, Any], locked: Sequence[Pin]) -> frozenset[str]:
    """All packages of an image that ends with this layer. Raises UnknownNameError."""
    named = [name for one in [*below(layer, layers), layer] for name in layers[one]["packages"]]
    return closure(named, locked)


def requirements(layer: str, layers: Mapping[str, Any], locked: Sequence[Pin]) -> str:
    """What this layer adds to those under it, for `pip install --require-hashes`. Raises UnknownNameError."""
    under = below(layer, layers)
    there = packages(under[-1], layers, locked) if under else frozenset()
    wanted = packages(layer, layers, locked) - there
    return "".join(pin.text for pin in locked if pin.name in wanted)


def main(arguments: Sequence[str]) -> int:
    """Writes the requirements of each layer to a file of its name."""
    parser = argparse.ArgumentParser(prog="image_packages", description=__doc__)
    parser.add_argument("folder", type=Path, help="gets LAYER.txt for each layer")
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    layers, locked = tomllib.loads(LAYERS.read_text()), pins(LOCK.read_text())
    try:
        for layer in layers:
            (folder / f"{layer}.txt").write_text(requirements(layer, layers, locked))
    except UnknownNameError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
