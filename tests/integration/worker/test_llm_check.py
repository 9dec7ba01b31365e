"""The check of a model's files as the command that `models push` runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.worker.llm.tiny_folders import write_folder
from tests.unit.worker.llm.tiny_models import ALL, Tiny, write_tiny


def check(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the last line of what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "services.worker.llm_check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, said


def test_a_file_is_described_and_measured(tmp_path: Path) -> None:
    """What it is, and what its 8 bits cost against floats, over the whole text."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(context=2048, precision="Q8_0"))
    code, said = check(str(path), "--accuracy")
    assert code == 0
    assert (said["format"], said["architecture"], said["precision"]) == ("gguf", "llama", "Q8_0")
    assert (said["layer_count"], said["context_length"], said["has_chat_template"]) == (
        2,
        2048,
        True,
    )
    assert said["accuracy"]["tokens"] == 512
    assert 0 <= said["accuracy"]["kl"] < 0.01
    assert said["accuracy"]["argmax_agreement"] > 0.9
    assert said["tools"]["gguf"]


def test_a_folder_is_described(tmp_path: Path) -> None:
    """A model of transformers, as it is published."""
    code, said = check(str(write_folder(tmp_path, ALL["qwen3"])))
    assert (code, said["format"], said["architecture"]) == (0, "safetensors", "qwen3")
    assert said["accuracy"] is None


def test_what_can_not_be_served_is_refused(tmp_path: Path) -> None:
    """One line for a person, and a reason for a program."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(keys={"general.architecture": "falcon"}))
    code, said = check(str(path))
    assert code == 1
    assert said["reason"] == "MODEL_FILE_INVALID"
    assert "'falcon' is not supported; allowed: llama" in said["refused"]
