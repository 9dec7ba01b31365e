"""The command line as it is typed: help, usage errors, options, speed of what must be quick, completion."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from services.cli.__main__ import main
from services.cli.commands import entry
from services.cli.commands.app import app
from tools.bootstrap import DEVELOPMENT_COMMANDS

_ROOT = Path(__file__).parents[3]


def _commands(command: Any, path: str = "inferplane") -> Iterator[tuple[str, Any]]:
    """All commands with their paths."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


_COMMANDS = dict(_commands(typer.main.get_command(app)))
_OPTIONS = [
    pytest.param(option, id=f"{path} {option.name}")
    for path, command in _COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and not option.hidden and option.name != "help"
]


def test_commands_are_those_promised() -> None:
    """The commands of the product's description."""
    assert {path.removeprefix("inferplane ") for path in _COMMANDS} == {
        "demo", "up", "down", "status", "logs", "worker", "version", "deploy", "undeploy", "infer", "tune",
        "generate", "chat",
        "models push", "models pull", "models list", "models get", "models delete",
        "aliases set", "aliases list", "aliases delete", "traffic set",
        "projects create", "projects list", "projects get", "projects update",
        "keys create", "keys list", "keys get", "keys update", "keys rotate", "keys revoke", "keys rotate-signing",
        "limits set", "limits get",
        "backup create", "backup list", "backup verify", "backup restore", "backup prune",
        "ca init", "ca issue", "ca list", "ca renew", "ca rotate", "ca show",
        "budget set", "budget list", "budget get", "budget delete",
        "usage request", "usage export",
        "prices set", "prices list", "costs machine set", "costs machine list",
        "ledger verify", "ledger entries", "ledger balance", "ledger correct", "credits add",
        "alerts set", "alerts list", "alerts delete", "alerts told",
        "captures list", "captures purge",
        "endpoints apply", "endpoints list", "endpoints get", "endpoints delete",
    }  # fmt: skip


@pytest.mark.parametrize("option", _OPTIONS)
def test_every_option_shows_default_and_environment(option: Any) -> None:
    """An option has a variable of its own, a help text, and a default that is shown (unless it is required)."""
    assert str(option.envvar).startswith("INFERPLANE_")
    assert option.help
    assert option.required or option.default is not None or isinstance(option.show_default, str)


@pytest.mark.parametrize("path", _COMMANDS)
def test_help_shows_all_that_was_written(path: str) -> None:
    """No help has words in brackets: rich takes `[#file]` for markup and leaves it out."""
    for parameter in _COMMANDS[path].params:
        assert "[" not in (getattr(parameter, "help", None) or "")


@pytest.mark.parametrize("path", _COMMANDS)
def test_every_command_explains_itself(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` works for each command and begins with a sentence."""
    assert main([*path.split()[1:], "--help"]) == 0
    assert f"Usage: {path}" in capsys.readouterr().out
    assert str(_COMMANDS[path].help).split("\n", maxsplit=1)[0].endswith((".", ":"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param("nonsense", "No such command 'nonsense'", id="unknown command"),
        pytest.param("models pish", "Did you mean 'push'?", id="a typo"),
        pytest.param("deploy", "Missing argument 'MODEL@VERSION'", id="missing argument"),
        pytest.param("deploy m@1 --bogus", "No such option: --bogus", id="unknown option"),
        pytest.param("deploy m", "names no version", id="no version"),
        pytest.param("deploy m@1 --weight 0", "more than 0, at most 100", id="weight of zero"),
        pytest.param("deploy m@1 --weight nan", "more than 0, at most 100", id="weight of nan"),
        pytest.param("traffic set e 1", "2=90", id="no weight"),
        pytest.param("infer e --json /nowhere", "/nowhere: No such file", id="no file"),
        pytest.param("models push m /nowhere", "/nowhere: No such file", id="no file to push"),
        pytest.param("endpoints apply -f /nowhere", "/nowhere: No such file", id="no YAML file"),
    ],
)
def test_usage_errors(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str], free_address: str
) -> None:
    """Exit code 2, one clear line on stderr, nothing on stdout; as JSON if that was asked for."""
    typed = arguments.split()
    if typed[0] == "deploy" and "--weight" in typed:
        typed += ["--address", free_address]
    assert main(typed) == 2
    plain = capsys.readouterr()
    assert told in plain.err
    assert plain.err.startswith("error: ")
    assert plain.out == ""
    assert main([*typed, "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["reason"] in ("USAGE", "FILE_NOT_FOUND")
    assert told in error["message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("up --workers -1", "'--workers'"),
        ("up --log-level loud", "'--log-level'"),
        ("up --edge-address nonsense", "--edge-address: 'nonsense' is not an address"),
        ("up --edge-address unix:/x", "allowed: HOST:PORT"),
        ("up --pool A", "--pool: 'A' is not an id"),
        ("models list --output xml", "'--output'"),
    ],
)
def test_bad_option_values(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An option's bad value is refused by the option's name before anything is started."""
    state = ["--state-dir", str(tmp_path / "state")] if arguments.startswith("up") else []
    assert main([*arguments.split(), *state]) in (2, 5)
    assert told in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("models get a/b", 5), ("models get ../../etc", 5), ("endpoints get %2e", 5)],
)
def test_bad_names_are_refused_before_any_call(
    arguments: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that can't be one never leaves this process; the rule is told."""
    assert main(arguments.split()) == code
    assert "1 to 63 characters" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["", "models", "aliases", "endpoints", "traffic"])
def test_a_group_alone_shows_its_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it can do, exit code 2, and no error without words."""
    assert main(group.split()) == 2
    shown = capsys.readouterr()
    assert f"Usage: inferplane {group}".rstrip() in shown.out
    assert shown.err == ""


def test_where_help_is_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """After the message."""
    assert main(["deploy"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["Try: inferplane deploy --help"]


@pytest.mark.parametrize("path", ["", *_COMMANDS])
def test_flags_have_no_type(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag takes no value, so help shows none."""
    assert main([*path.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    assert "bool" not in shown
    assert "-h " in shown


def test_help_tells_the_commands_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    """What `./inferplane` runs itself is listed too."""
    main(["--help"])
    listed = " ".join(capsys.readouterr().out.rpartition("develops it:")[2].split()).rstrip(".")
    assert set(listed.split(", ")) == DEVELOPMENT_COMMANDS


def test_nothing_listens(capsys: pytest.CaptureFixture[str], free_address: str) -> None:
    """Exit code 4 and what to do, for gRPC and for REST."""
    for command in (["models", "list"], ["infer", "e", "--json", os.devnull], ["status"]):
        assert main([*command, "--address", free_address]) == 4
        assert capsys.readouterr().err == (
            f"error: nothing listens at {free_address}; start it with: inferplane up\n"
        )


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["x", "--output", "json"], True),
        (["x", "--output=json"], True),
        (["x", "-o", "json"], True),
        (["x", "-o", "table"], False),
        (["json"], False),
    ],
)
def test_json_is_seen_before_options_are_read(typed: list[str], wanted: bool) -> None:
    """Errors are JSON also where the command line could not be read."""
    assert entry.asks_for_json(typed) is wanted


def test_json_by_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, free_address: str
) -> None:
    """INFERPLANE_OUTPUT and INFERPLANE_ADDRESS do what the options do."""
    monkeypatch.setenv("INFERPLANE_OUTPUT", "json")
    monkeypatch.setenv("INFERPLANE_ADDRESS", free_address)
    assert main(["endpoints", "list"]) == 4
    assert json.loads(capsys.readouterr().err)["error"]["metadata"] == {"address": free_address}


def test_version_is_told_without_heavy_imports() -> None:
    """`version` needs neither typer nor gRPC, which keeps it quick; with JSON it says the same."""
    code = (
        "import sys; from services.cli.__main__ import main; main(['version']);"
        "sys.exit(any(m in sys.modules for m in ('typer', 'grpc', 'rich', 'asyncio')))"
    )
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    assert re.fullmatch(r"inferplane \d+\.\d+\.\d+\n", plain.stdout)


def test_help_needs_no_grpc() -> None:
    """`--help` imports nothing that talks to a mesh."""
    code = (
        "import sys; from services.cli.__main__ import main; main(['--help']);"
        "heavy = ('grpc', 'google.protobuf', 'psutil', 'yaml', 'structlog', 'numpy', 'tenacity');"
        "sys.exit(any(m in sys.modules for m in heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: inferplane" in done.stdout


def test_version_as_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` says what `version` says."""
    assert main(["version"]) == main(["--version"]) == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other


def test_version_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs."""
    assert main(["version", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version"}


def test_bash_completion(tmp_path: Path) -> None:
    """The script that `--show-completion` prints completes commands and options of `./inferplane` in a real bash."""
    program = tmp_path / "inferplane"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli "$@"\n')
    program.chmod(0o755)
    script = (
        f'eval "$(_INFERPLANE_COMPLETE=source_bash {program})"\n'
        'complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=();\n'
        '  _inferplane_completion "$1"; echo "${COMPREPLY[@]}"; }\n'
        f"complete -p inferplane\ncomplete_words {program} mod\n"
        f"complete_words {program} models pu\ncomplete_words {program} deploy --wei\n"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=_ROOT)
    assert done.stdout.splitlines() == [
        "complete -o default -F _inferplane_completion inferplane",
        "models",
        "push pull",
        "--weight",
    ], done.stderr


def test_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    """`inferplane … | head` ends quietly when its reader leaves."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m services.cli --help | true"],
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
