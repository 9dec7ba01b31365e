"""Command line of the development commands; `./inferplane test` and its like arrive here."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import checks, generation, locks, native, protos
from tools.bootstrap import SetupError, one_at_a_time, places

TEST_HELP = """usage: inferplane test [--extended | PYTEST ARGUMENT ...]

Without arguments: ruff (rules, format), strict types, import contracts, buf lint, buf breaking, then all tests that
need nothing but Python. Every step runs even if one before it failed; the exit code is 0 only if all passed.

With --extended: the tests that need Postgres (a package has it), Consul (where it is found), or minutes.

With arguments: only pytest, with these arguments, e.g.
  inferplane test tests/unit/router -x
  inferplane test -k watch
  inferplane test tests/contract -m extended
"""


def parser() -> argparse.ArgumentParser:
    """Options of all development commands."""
    whole = argparse.ArgumentParser(prog="inferplane", description="Development commands.")
    commands = whole.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "test", help="all checks and tests, or pytest with arguments", add_help=False
    )
    lint = commands.add_parser("lint", help="ruff, import contracts, buf lint, buf breaking")
    lint.add_argument("--fix", action="store_true", help="let ruff change what it can, and format")
    commands.add_parser("typecheck", help="mypy, strict")
    commands.add_parser("codegen", help="code and descriptor set from protos/, into generated/")
    lock = commands.add_parser("lock", help="lock/*.txt from pyproject.toml")
    lock.add_argument("--upgrade", action="store_true", help="take newer versions where allowed")
    operators = commands.add_parser("operators", help="build the libraries in C++")
    operators.add_argument(
        "--zig", action="store_true", help="with the compiler of the package ziglang, fetched first"
    )
    commands.add_parser(
        "release-protos", help="make protos/ the baseline of breaking-change checks"
    )
    return whole


def test(root: Path, arguments: Sequence[str]) -> int:
    """All checks and tests, or only pytest if it is told what to do."""
    if arguments in (["--help"], ["-h"]):
        print(TEST_HELP, end="")
        return 0
    # The tests start our programs a thousand times: none shall compile its modules, which takes a fifth of a start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments == ["--extended"]:
        return 0 if checks.run_tests(root, "extended") else 1
    if arguments:
        return checks.run_checks(root, [checks.pytest_check(arguments)])
    protos.lay_out_dependencies(root)
    static = [*checks.style_checks(), *checks.import_checks(), *checks.proto_checks(root)]
    failed = checks.run_checks(root, static)
    return failed if checks.run_tests(root, beside=checks.type_checks(root)) else 1


def lint(root: Path, *, fix: bool) -> int:
    """All checks that neither know types nor run code."""
    protos.lay_out_dependencies(root)
    return checks.run_checks(
        root, [*checks.style_checks(fix=fix), *checks.import_checks(), *checks.proto_checks(root)]
    )


def run(root: Path, arguments: Sequence[str]) -> int:
    """Runs one development command and gives its exit code."""
    if arguments[:1] == ["test"]:
        return test(root, arguments[1:])
    options = parser().parse_args(arguments)
    match options.command:
        case "lint":
            return lint(root, fix=options.fix)
        case "typecheck":
            return checks.run_checks(root, checks.type_checks(root))
        case "codegen":
            with one_at_a_time(places().setup_lock):
                generation.generate()
            print("generated/ is that of protos/.")
        case "lock":
            locks.compile_locks(root, upgrade=options.upgrade)
        case "operators":
            with one_at_a_time(places().setup_lock):
                native.build(places(), with_zig=options.zig)
            print("The libraries in C++ are built; what runs takes them when it is started again.")
        case "release-protos":
            protos.release(root)
    return 0


def main() -> None:
    """Entry of `python -m tools`."""
    try:
        sys.exit(run(places().root, sys.argv[1:]))
    except SetupError as error:
        sys.exit(f"inferplane: error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"inferplane: error: {error.cmd[0]} ended with {error.returncode}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
