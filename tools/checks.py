"""The checks that a change must pass: each a named command, run one after the other, all of them even if one fails."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools import protos, second_run
from tools.second_run import FirstRun

_COMPUTING_TESTS = (
    "tests/contract",
    "tests/unit/metering",
    "tests/unit/modelfiles",
    "tests/unit/registry/domain",
    "tests/unit/router/domain",
    "tests/unit/router/native",
    "tests/unit/router/resources",
    "tests/unit/worker/domain",
    "tests/unit/worker/llm/adapters",
    "tests/unit/worker/llm/domain",
)
_COMPUTING = "tests of the repository, and those that only compute"
_MESH_TESTS = ("tests/e2e",)
_EDGE_TESTS = ("tests/integration/cli", "tests/integration/router")
_WORKER_TESTS = ("tests/integration/benchmarks", "tests/integration/worker")
_INTERRUPTED = 2  # pytest's exit code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lane:
    """Commands that run beside the others; what they print follows at the end."""

    name: str
    command: Sequence[str]
    niceness: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    command: Sequence[str]
    shown: bool = False  # whether its output is of interest when it passes, too
    skip_reason: str = ""  # why it can't run yet; empty if it can


def python_sources(root: Path) -> list[str]:
    """What the type checker reads: our packages, and the bootstrap script, which has no suffix."""
    names = ("services", "tools", "tests", "benchmarks")
    return [name for name in names if any((root / name).rglob("*.py"))]


def style_checks(*, fix: bool = False) -> list[Check]:
    """Ruff: rules and format."""
    ruff = [sys.executable, "-m", "ruff"]
    return [
        Check(
            name="ruff rules",
            command=[
                *ruff,
                "check",
                "--quiet",
                "--output-format=concise",
                *(["--fix"] if fix else []),
            ],
        ),
        Check(
            name="ruff format",
            command=[*ruff, "format", "--quiet", *([] if fix else ["--check", "--diff"])],
        ),
    ]


def type_checks(root: Path) -> list[Check]:
    """Mypy, strict."""
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary"]
    return [
        Check(name="types", command=[*mypy, *python_sources(root)]),
        Check(name="types of the script", command=[*mypy, "inferplane"]),
    ]


def import_checks() -> list[Check]:
    """Import contracts: layers, independence of services, pure domain."""
    lint_imports = str(Path(sys.executable).parent / "lint-imports")
    return [Check(name="import contracts", command=[lint_imports, "--no-logo"])]


def proto_checks(root: Path) -> list[Check]:
    """Buf: rules, and no breaking change."""
    released = (root / protos.RELEASED).exists()
    return [
        Check(name="buf lint", command=protos.lint_command()),
        Check(
            name="buf breaking",
            command=protos.breaking_command(),
            skip_reason="" if released else f"no baseline yet ({protos.RELEASED})",
        ),
    ]


def pytest_check(arguments: Sequence[str]) -> Check:
    """The tests."""
    return Check(name="tests", command=[sys.executable, "-m", "pytest", *arguments], shown=True)


def run_tests(root: Path, chosen: str = "not extended", beside: Sequence[Check] = ()) -> bool:
    """All tests with these marks, in lanes side by side: most of the time they wait for processes.

    Args:
        root: of the repository.
        chosen: as pytest's `-m` takes it; tests/README.md says what is `extended`.
        beside: checks that take a while, and run meanwhile.
    """
    only = ("-m", chosen)
    paths = _paths_of_lanes(root)
    runs = [FirstRun(root, str(number)) for number in range(len(paths) + 1)]
    lanes = [
        *(_Lane(name=check.name, command=check.command) for check in beside),
        *(
            _Lane(
                name=name,
                command=_pytest(run, *only, *of_lane),
                # Those that only compute may give way to those that wait for processes.
                niceness=10 if name == _COMPUTING else 0,
            )
            for (name, of_lane), run in zip(paths.items(), runs[1:], strict=True)
        ),
    ]
    elsewhere = [f"--ignore={path}" for of_lane in paths.values() for path in of_lane]
    codes = _run_lanes(root, _pytest(runs[0], *only, *elsewhere), lanes)
    others, of_tests = codes[1 : len(beside) + 1], [codes[0], *codes[len(beside) + 1 :]]
    if any(others) or any(code not in {0, second_run.FAILED} for code in of_tests):
        return False
    failed = [test for run in runs for test in run.failed()]
    if second_run.deserves_another(failed, _COMPUTING_TESTS):
        return second_run.passes(root, failed)
    return not any(of_tests)


def _run_lanes(root: Path, shown: Sequence[str], lanes: Sequence[_Lane]) -> list[int]:
    """Run a command whose output is seen at once, and others whose output follows; their exit codes, in this order."""
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in lanes]
        running = [
            stack.enter_context(
                subprocess.Popen(
                    ["nice", "-n", str(lane.niceness), *lane.command],
                    cwd=root,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
            for lane, output in zip(lanes, outputs, strict=True)
        ]
        codes = [run_interruptibly(shown, root)]
        if codes == [_INTERRUPTED]:  # so are the others, then
            for process in running:
                process.send_signal(signal.SIGINT)
        for lane, process, output in zip(lanes, running, outputs, strict=True):
            codes.append(process.wait())
            print(f"-- {lane.name}: {'FAILED' if codes[-1] else 'ok'}", flush=True)
            output.seek(0)
            if told := output.read().rstrip():
                print(told, flush=True)
    return codes


def _pytest(run: FirstRun, *arguments: str) -> Sequence[str]:
    return pytest_check([*run.arguments(), *arguments]).command


def _paths_of_lanes(root: Path) -> dict[str, Sequence[str]]:
    own = sorted(str(path.relative_to(root)) for path in (root / "tests/unit").glob("test_*.py"))
    return {
        _COMPUTING: [*own, *_COMPUTING_TESTS],
        "tests of whole meshes": _MESH_TESTS,
        "tests of the edge and of the command line": _EDGE_TESTS,
        "tests of worker processes and of benchmarks": _WORKER_TESTS,
    }


def run_interruptibly(command: Sequence[str], root: Path) -> int:
    """Runs a command that has things to clean up: a SIGTERM or Ctrl-C meant for us reaches it, and it may finish."""
    process: subprocess.Popen[bytes] | None = None
    early = False  # a signal came before there was anybody to pass it on to

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal early
        if process is None:
            early = True
        else:
            process.send_signal(signal.SIGINT)

    old = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with subprocess.Popen(command, cwd=root, start_new_session=True) as process:
            if early:
                process.send_signal(signal.SIGINT)
            return process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def run_check(root: Path, check: Check) -> bool:
    """Runs one check and says how it went; its output follows if it failed."""
    if check.skip_reason:
        print(f"-- {check.name}: {check.skip_reason}", flush=True)
        return True
    begun = time.monotonic()
    if check.shown:
        print(f"-- {check.name}", flush=True)
        output, code = "", run_interruptibly(check.command, root)
    else:
        done = subprocess.run(
            check.command,
            cwd=root,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, code = done.stdout, done.returncode
    verdict = "FAILED" if code else "ok"
    print(f"-- {check.name}: {verdict} ({time.monotonic() - begun:.1f} s)", flush=True)
    if code and output:
        print(output.rstrip(), flush=True)
    return code == 0


def run_checks(
    root: Path, checks: Sequence[Check], run: Callable[[Path, Check], bool] = run_check
) -> int:
    """Runs all checks and gives the exit code: 1 if any failed."""
    failed = [check.name for check in checks if not run(root, check)]
    if failed:
        print(f"-- failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0
