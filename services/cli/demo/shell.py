"""Runs the platform's own commands as a user types them, and shows them."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from services.rpc.settings import PREFIX, environment_for_children

_COMMAND = [sys.executable, "-m", "services.cli"]


@dataclass(frozen=True, slots=True)
class Shell:
    """`inferplane …` commands against one mesh."""

    console: Console
    state_dir: Path
    address: str
    # The key that inference is called with; commands have the first admin's.
    token: str = field(default="", repr=False)

    @property
    def key_file(self) -> Path:
        """Where the demo keeps the token of its project."""
        return self.state_dir.with_name("demo.key")

    def run(self, *arguments: str, quiet: bool = False, says: bool = True) -> None:
        """Show the command, run it, and end the demo with its exit code if it fails.

        `quiet`: neither the command nor what it prints is shown; `says` false: what it prints is not.
        """
        if says:
            code = self.attempt(*arguments, quiet=quiet)
        else:
            self._show(arguments)
            code = self.attempt(*arguments, quiet=True)
        self.expect(code, *arguments)

    def call(self, *arguments: str) -> None:
        """The same with the key of the demo's own project."""
        self.expect(self._start(arguments, self._environment(self.token)), *arguments)

    def attempt(self, *arguments: str, quiet: bool = False) -> int:
        """Show the command, run it, and return its exit code."""
        return self._start(arguments, self._environment(), quiet=quiet)

    def read(self, *arguments: str) -> str:
        """Show the command, run it, and return what it printed instead of showing that."""
        self._show(arguments)
        return self.ask(*arguments)

    def ask(self, *arguments: str) -> str:
        """What a command prints; nothing is shown."""
        done = subprocess.run(
            [*_COMMAND, *arguments], env=self._environment(), stdout=subprocess.PIPE, check=False
        )
        self.expect(done.returncode, *arguments)
        return done.stdout.decode().strip()

    def _environment(self, token: str = "") -> dict[str, str]:
        """Without what the user's own shell says of another mesh."""
        found = environment_for_children(state_dir=str(self.state_dir), address=self.address)
        # Its edge is its own, for this machine: no TLS, whatever the user's has.
        for name in ("API_KEY", "EDGE_CERTIFICATE", "EDGE_CLIENT_CERTIFICATE"):
            found.pop(f"{PREFIX}{name}", None)
        return found | ({f"{PREFIX}API_KEY": token} if token else {})

    def _start(
        self, arguments: Sequence[str], environment: dict[str, str], *, quiet: bool = False
    ) -> int:
        if not quiet:
            self._show(arguments)
        output = subprocess.DEVNULL if quiet else None
        done = subprocess.run(
            [*_COMMAND, *arguments], env=environment, stdout=output, stderr=output, check=False
        )
        return done.returncode

    def _show(self, arguments: Sequence[str]) -> None:
        typed = f"$ inferplane {shlex.join(arguments)}"
        self.console.print(Text(typed, style="bold cyan"), soft_wrap=True)

    def expect(self, code: int, *arguments: str) -> None:
        """End the demo with this exit code unless it is 0."""
        if code:
            self.console.print(f"inferplane {arguments[0]} ended with {code}", style="red")
            raise typer.Exit(code)
