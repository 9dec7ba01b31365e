"""What the README shows is what happens: its console examples are run and compared."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.mesh import ROOT, Mesh

README = (ROOT / "README.md").read_text()
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_RUN_WITH = {
    "curl": ["curl"],
    "buf": [str(Path(sys.executable).parent / "buf")],
    "python": [sys.executable],
}


def _examples() -> list[tuple[str, str]]:
    """Command and shown output of every console block that calls the demo's mesh."""
    found = []
    for block in _BLOCK.findall(README):
        command, _, output = block.replace("\\\n", " ").partition("\n")
        command = command.removeprefix("$ ")
        if command.split()[0] in _RUN_WITH:
            found.append((command, output))
    return found


def test_there_are_examples() -> None:
    """The README shows REST, Python, reflection and a refusal."""
    assert [command.split()[0] for command, _ in _examples()] == ["curl", "python", "buf", "curl"]


@pytest.mark.parametrize(("command", "shown"), _examples(), ids=lambda text: text.split()[0])
def test_example(command: str, shown: str, mesh: Mesh) -> None:
    """The command prints what the README shows, up to an ellipsis."""
    program, _, rest = command.partition(" ")
    rest = rest.replace("127.0.0.1:8080", mesh.address)
    if program == "python":
        rest += f" {mesh.address}"
    mesh.cli("traffic", "set", "digits", "2=100")  # as the demo leaves it
    line = " ".join([*_RUN_WITH[program], rest])
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for part in shown.split("…\n"):
        assert part.strip() in done.stdout
