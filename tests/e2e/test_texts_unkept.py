"""What a whole mesh keeps of texts by default: how much there was and a fingerprint, and none of what was said."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import Mesh, eventually

_MARK = "marzipan-77-quokka"  # in no other text
_LENGTH = 397  # characters of this prompt, and of no other
_PUBLIC = {"cache", "registry.blobs"}  # models and graphs: large, and not of callers


def texts_known(mesh: Mesh) -> list[tuple[Any, ...]]:
    """Fingerprint and characters of answers of the calls with a prompt of this length."""
    where = f"file:{mesh.state_dir / 'metering' / 'metering.db'}?mode=ro"
    asked = "SELECT fingerprint, output_characters FROM usage_telemetry WHERE input_characters = ?"
    with closing(sqlite3.connect(where, uri=True)) as database:
        return database.execute(asked, (_LENGTH,)).fetchall()


def kept(mesh: Mesh) -> list[Path]:
    """All files that the mesh wrote, but models."""
    paths = mesh.state_dir.rglob("*")
    return [path for path in paths if path.is_file() and not _PUBLIC.intersection(path.parts)]


def test_no_file_of_the_mesh_has_a_prompt(text_mesh: Mesh) -> None:
    """1. Equal prompts are seen to be equal. 2. Logs, journals and databases have none of them, nor of one refused."""
    prompt = f"{_MARK} is ".ljust(_LENGTH, ".")
    for _ in range(2):
        text_mesh.cli("generate", "smollm2", prompt, "--max-tokens", "4", "--temperature", "0")
    refused = text_mesh.cli("generate", "smollm2", prompt, "--max-tokens", "100000", check=False)
    assert refused.returncode
    eventually(lambda: len(texts_known(text_mesh)) == 2, seconds=150, what="both rows are stored")
    first, second = texts_known(text_mesh)
    assert first == second
    assert len(first[0]) == 16
    assert first[1] > 0
    files = kept(text_mesh)
    assert any(path.name == "worker-1.log" for path in files)
    for path in files:
        assert _MARK.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("option", ["table", "json"])
def test_nothing_is_captured_by_default(text_mesh: Mesh, option: str) -> None:
    """The command says so."""
    told = text_mesh.cli("captures", "list", "--output", option)
    assert told.stdout == ("" if option == "table" else "[]\n")
