"""The demo's project: who calls, with a key of its own, and what that cost."""

import json
import os
import time
from dataclasses import replace

from services.cli.demo import digits, minilm, smollm2
from services.cli.demo.shell import Shell

PROJECT = "demo"
_COUNTED_SECONDS = 30.0  # longest wait until workers have told all that they did
_LOOK_SECONDS = 1.5  # workers tell at least once a second
_PRICES = (  # in the ledger's currency, for so many
    ("request", "0.10", "1000", digits.MODEL_ID),
    ("request", "0.20", "1000", minilm.MODEL_ID),
    ("input-token", "0.05", "1000000", smollm2.MODEL_ID),
    ("output-token", "0.20", "1000000", smollm2.MODEL_ID),
)
_ENDPOINTS = (digits.MODEL_ID, minilm.MODEL_ID, smollm2.MODEL_ID)


def open_account(shell: Shell) -> Shell:
    """Make a project and a key that may call the demo's endpoints and nothing else; the shell with that key."""
    shell.run("projects", "create", PROJECT, "--tag", "team=examples")
    named = [part for endpoint in _ENDPOINTS for part in ("--endpoint", endpoint)]
    token = shell.read("keys", "create", "--project", PROJECT, *named, "--quiet")
    descriptor = os.open(shell.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    shell.console.print(
        f"(its token, shown this once, is now in {shell.key_file})", style="dim", soft_wrap=True
    )
    for unit, amount, per, model in _PRICES:
        shell.run("prices", "set", unit, amount, "--per", per, "--model", model, says=False)
    return replace(shell, token=token)


def show_usage(shell: Shell) -> None:
    """What the ledger has of the project's calls, and the proof that it adds up."""
    _wait_until_counted(shell)
    shell.run("usage", "--by", "endpoint", "--project", PROJECT)
    shell.run("ledger", "verify")


def _wait_until_counted(shell: Shell) -> None:
    """Return when nothing was added between two looks, for what was called last is counted last."""
    seen, end = -1, time.monotonic() + _COUNTED_SECONDS
    while time.monotonic() < end:
        report = json.loads(shell.ask("usage", "--project", PROJECT, "--output", "json"))
        counted = int(report["total"]["requests"])
        if counted == seen and counted > 0:
            return
        seen = counted
        time.sleep(_LOOK_SECONDS)
