"""What the README shows is what happens: its console examples are run and compared."""

import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.mesh import ROOT, Mesh, environment, eventually

README = (ROOT / "README.md").read_text()
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_ACCOUNT = "$ inferplane projects create research"  # how a block of several commands begins
_RUN_WITH = {
    "curl": ["curl"],
    "buf": [str(Path(sys.executable).parent / "buf")],
    "python": [sys.executable],
    "inferplane": [sys.executable, "-m", "services.cli"],
}


def _examples(*, of_text: bool) -> list[tuple[str, str]]:
    """Command and shown output of every console block that calls the demo's mesh, of its language model or others."""
    found = []
    for block in _BLOCK.findall(README):
        command, _, output = block.replace("\\\n", " ").partition("\n")
        command = command.removeprefix("$ ")
        asks_for_text = "smollm2" in command or "chat.py" in command
        if (
            command.split()[0] in _RUN_WITH
            and not block.startswith(_ACCOUNT)
            and asks_for_text == of_text
        ):
            found.append((command, output))
    return found


def _programs(*, of_text: bool) -> list[str]:
    return [command.split()[0] for command, _ in _examples(of_text=of_text)]


def test_there_are_examples() -> None:
    """REST, Python, reflection and a refusal; of text OpenAI's client, REST, our own and a refusal."""
    assert _programs(of_text=False) == ["curl", "python", "buf", "curl"]
    assert _programs(of_text=True) == ["python", "curl", "inferplane", "curl"]


@pytest.mark.parametrize(
    ("command", "shown"), _examples(of_text=False), ids=lambda text: text.split()[0]
)
def test_example(command: str, shown: str, mesh: Mesh) -> None:
    """The command prints what the README shows, up to an ellipsis."""
    mesh.cli("traffic", "set", "digits", "2=100")  # as the demo leaves it
    _check(command, shown, mesh)


@pytest.mark.parametrize(
    ("command", "shown"), _examples(of_text=True), ids=lambda text: text.split()[0]
)
def test_example_of_text(command: str, shown: str, text_mesh: Mesh) -> None:
    """The same of the language model: its likeliest answer to a plain question is the same everywhere."""
    _check(command, shown, text_mesh)


_PATIENCE = 150  # seconds until a request that has ended is in a report


def test_who_calls_and_what_it_cost(text_mesh: Mesh, tmp_path: Path) -> None:
    """The section's commands in their order, each with what it shows; a report is asked for until the call is in it."""
    (block,) = [block for block in _BLOCK.findall(README) if block.startswith(_ACCOUNT)]
    steps = [step.partition("\n") for step in block.removeprefix("$ ").split("\n$ ")]
    assert len(steps) == 10
    for command, _, shown in steps:
        eventually(
            partial(_prints, command, shown, text_mesh, tmp_path),
            seconds=_PATIENCE if " usage " in command else 0,
            what=f"{command} prints {shown}",
        )


def _prints(command: str, shown: str, mesh: Mesh, folder: Path) -> bool:
    """Whether the command ends well and prints what is shown, up to an ellipsis."""
    words = shlex.join(_RUN_WITH["inferplane"])
    done = subprocess.run(
        ["bash", "-c", f'inferplane() {{ {words} "$@"; }}; {command}'],
        cwd=folder,
        env=environment(mesh.state_dir, mesh.address) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    parts = [part.strip() for part in shown.split("…")]
    return all(part in done.stdout for part in parts)


def _check(command: str, shown: str, mesh: Mesh) -> None:
    program, _, rest = command.partition(" ")
    rest = rest.replace("127.0.0.1:8080", mesh.address)
    if program == "python":
        rest += f" {mesh.address}"
    line = " ".join([*_RUN_WITH[program], rest])
    done = subprocess.run(
        line,
        shell=True,
        cwd=ROOT,
        env=environment(mesh.state_dir, mesh.address) | {"INFERPLANE_API_KEY": mesh.token},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for part in shown.split("…"):
        assert part.strip() in done.stdout
