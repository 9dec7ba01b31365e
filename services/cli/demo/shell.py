"""Runs the platform's own commands as a user types them, and shows them."""

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from services.rpc.settings import environment_for_children


@dataclass(frozen=True, slots=True)
class Shell:
    """`inferplane …` commands against one mesh."""

    console: Console
    state_dir: Path
    address: str

    def run(self, *arguments: str, quiet: bool = False) -> None:
        """Show the command, run it, and end the demo with its exit code if it fails."""
        self.expect(self.attempt(*arguments, quiet=quiet), *arguments)

    def attempt(self, *arguments: str, quiet: bool = False) -> int:
        """Show the command, run it, and return its exit code."""
        if not quiet:
            typed = f"$ inferplane {shlex.join(arguments)}"
            self.console.print(Text(typed, style="bold cyan"), soft_wrap=True)
        done = subprocess.run(
            [sys.executable, "-m", "services.cli", *arguments],
            env=environment_for_children(state_dir=str(self.state_dir), address=self.address),
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.DEVNULL if quiet else None,
            check=False,
        )
        return done.returncode

    def expect(self, code: int, *arguments: str) -> None:
        """End the demo with this exit code unless it is 0."""
        if code:
            self.console.print(f"inferplane {arguments[0]} ended with {code}", style="red")
            raise typer.Exit(code)
