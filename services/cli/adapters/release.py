"""Which release this is."""

import tomllib
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def version() -> str:
    """The release's version."""
    with _PROJECT.open("rb") as stream:
        return str(tomllib.load(stream)["project"]["version"])
