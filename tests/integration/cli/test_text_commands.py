"""The commands on language models against a real mesh: a tiny random model from push to chat."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.running_mesh import Done, RunningMesh, running_mesh
from tests.unit.worker.llm.tiny_folders import write_folder
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

_GREEDY = ("--temperature", "0", "--max-tokens", "12", "--ignore-eos")
_SETTINGS = "generation: {max_running_requests: 4, context_length: 128}"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """A mesh of one worker that serves a tiny llama as `tiny`."""
    model = write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", Tiny(precision="Q8_0"))
    with running_mesh(tmp_path_factory.mktemp("state"), "--workers", "1") as running:
        push = ("models", "push", "tiny", str(model), "--no-accuracy", "--settings", "-")
        _done(running, *push, stdin=_SETTINGS)
        deployed = _done(running, "deploy", "tiny@1")
        assert "next: inferplane chat tiny" in deployed.stderr
        yield running


def _done(mesh: RunningMesh, *arguments: str, stdin: str = "") -> Done:
    done = mesh.cli_inside(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done


def _json(mesh: RunningMesh, *arguments: str) -> Any:
    return json.loads(_done(mesh, *arguments, "-o", "json").stdout)


def test_what_it_is_is_shown(mesh: RunningMesh) -> None:
    """The registry has read it from the file; the status shows how busy its engine is."""
    version = _json(mesh, "models", "get", "tiny@1")
    assert version["format"] == "FORMAT_GGUF"
    assert version["language_model"]["architecture"] == "llama"
    assert version["lineage"]["precision"] == "Q8_0"
    assert "text (llama, Q8_0, 256 tokens)" in _done(mesh, "models", "list", "tiny").stdout
    assert "Engines of language models" in _done(mesh, "status", "--once").stdout


def test_the_same_text_streamed_and_at_once(mesh: RunningMesh) -> None:
    """As it is made, at once, as JSON, and once more with what was kept of the prompt."""
    ask = ("generate", "tiny", "The quick brown fox jumps over the lazy dog.", *_GREEDY)
    streamed = _done(mesh, *ask).stdout.removesuffix("\n")
    assert streamed
    assert _done(mesh, *ask, "--no-stream").stdout.removesuffix("\n") == streamed
    answer = _json(mesh, *ask)
    assert answer["choices"][0]["text"] == streamed
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["cached_prompt_tokens"] > 0
    lines = _done(mesh, *ask, "--stream", "-o", "json").stdout.splitlines()
    pieces = [piece for line in lines for piece in json.loads(line)["pieces"]]
    assert "".join(piece["text"] for piece in pieces) == streamed


def test_a_chat(mesh: RunningMesh) -> None:
    """Lines from a pipe are questions; the second is sent with the first and its answer."""
    talk = "/set temperature=0\n/set max_tokens=8\n/set ignore_eos=true\nhello\nagain\n"
    told = _done(mesh, "chat", "tiny", stdin=talk).stderr.splitlines()
    first, second = (line for line in told if " tokens; " in line or " tok/s; " in line)
    assert first.startswith("8 tokens")
    assert int(second.split("prompt ")[1].split()[0]) > int(first.split("prompt ")[1].split()[0])


def test_nobody_of_that_name(mesh: RunningMesh) -> None:
    """Told with what was asked for, and the code for what isn't there."""
    for arguments in (("generate", "tony", "x"), ("chat", "tony", "--once", "x")):
        done = mesh.cli_inside(*arguments)
        assert done.returncode == 3
        assert "'tony' does not exist" in done.stderr
    done = mesh.cli_inside("generate", "tiny", "x", "--version", "7")
    assert done.returncode == 3
    assert "'tiny' in version 7 does not exist" in done.stderr


def test_what_does_not_fit(mesh: RunningMesh) -> None:
    """A prompt that is too long is told with both numbers; tensors and measuring are for other models."""
    done = mesh.cli_inside("generate", "tiny", "x" * 200, *_GREEDY)
    assert done.returncode == 5
    assert "128" in done.stderr
    done = mesh.cli_inside("infer", "tiny", "--json", "-", stdin='{"inputs": []}')
    assert done.returncode == 5
    assert "Try: inferplane generate tiny PROMPT" in done.stderr
    done = mesh.cli_inside("tune", "tiny@1")
    assert done.returncode == 5
    assert "is a language model" in done.stderr


def test_a_second_version_of_another_format(mesh: RunningMesh, tmp_path: Path) -> None:
    """A folder of transformers takes half of the traffic, and is asked by its number."""
    write_folder(tmp_path / "tiny", Tiny(family="qwen2", biases=True))
    _done(mesh, "models", "push", "tiny", "--from", f"hf:{tmp_path / 'tiny'}", "--no-accuracy")
    assert _json(mesh, "models", "get", "tiny@2")["format"] == "FORMAT_SAFETENSORS"
    _done(mesh, "deploy", "tiny@2", "--weight", "50")
    for version in ("1", "2"):
        answer = _json(mesh, "generate", "tiny", "hello", *_GREEDY, "--version", version)
        assert answer["model_version"] == version


def test_settings_that_are_not_for_language_models(mesh: RunningMesh, tmp_path: Path) -> None:
    """They are refused by name, and nothing stays."""
    model = write_tiny(tmp_path / "other.gguf", Tiny(seed=1))
    push = ("models", "push", "other", str(model), "--no-accuracy", "--max-batch-size", "4")
    done = mesh.cli_inside(*push)
    assert done.returncode == 5
    assert "max_batch_size" in done.stderr
