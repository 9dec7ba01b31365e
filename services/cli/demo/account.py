"""The demo's project: who calls, with a key of its own."""

import os
from dataclasses import replace

from services.cli.demo import digits, minilm, smollm2
from services.cli.demo.shell import Shell

PROJECT = "demo"
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
    return replace(shell, token=token)
