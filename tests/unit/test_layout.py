"""The layout of the code: what no linter holds and a reader relies on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("services", "tools") for path in (ROOT / folder).rglob("*.py"))
SERVICES = [path for path in SOURCES if path.is_relative_to(ROOT / "services")]
DOMAIN = [
    path
    for path in SERVICES
    if path.parent.name == "domain" or "domain" in path.relative_to(ROOT).parts
]
ENVIRONMENT_READERS = {
    ROOT / "services" / "rpc" / "settings.py",
    # Also started as a file, without packages, every few seconds in each container; reads one variable.
    ROOT / "services" / "rpc" / "health.py",
}
CLOCKS = {"now", "utcnow", "today", "monotonic", "monotonic_ns", "perf_counter", "time_ns"}
VAGUE_NAMES = {
    "util",
    "utils",
    "helper",
    "helpers",
    "common",
    "base",
    "misc",
    "manager",
    "info",
    "data",
}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_source = pytest.mark.parametrize("path", SOURCES, ids=name_of)
each_service_source = pytest.mark.parametrize("path", SERVICES, ids=name_of)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_command(function: Function) -> bool:
    """Whether it is a command of the command line, whose parameters are its options."""
    return any(
        "command" in ast.unparse(decorator) or "callback" in ast.unparse(decorator)
        for decorator in function.decorator_list
    )


def environment_reads(tree: ast.Module) -> list[int]:
    """Lines that read the environment."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {
            "os.environ",
            "os.getenv",
            "os.environb",
        }:
            lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            lines += [
                node.lineno
                for alias in node.names
                if alias.name in {"environ", "getenv", "environb"}
            ]
    return lines


def clock_reads(tree: ast.Module) -> list[int]:
    """Lines that call a clock."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
    ]


@each_service_source
def test_one_module_reads_the_environment(path: Path) -> None:
    """Only services/rpc/settings.py reads the environment, and the health check, which stands alone."""
    if path not in ENVIRONMENT_READERS:
        assert environment_reads(tree_of(path)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "import os\nf(**os.environ)",
    ],
)
def test_reads_of_the_environment_are_seen(code: str) -> None:
    """The check sees each way of reading it."""
    assert environment_reads(ast.parse(code))


def test_the_domain_has_no_clock() -> None:
    """In the domain `now` is an argument."""
    assert {
        name_of(path): clock_reads(tree_of(path)) for path in DOMAIN if clock_reads(tree_of(path))
    } == {}


def test_reads_of_a_clock_are_seen() -> None:
    """The check sees a call of datetime's clock."""
    assert clock_reads(ast.parse("from datetime import datetime, UTC\nx = datetime.now(UTC)")) == [
        2
    ]


@each_source
def test_a_module_says_what_it_is(path: Path) -> None:
    """Each module that holds anything starts with a docstring."""
    tree = tree_of(path)
    assert not tree.body or ast.get_docstring(tree)


@each_source
def test_a_module_is_named_for_what_it_owns(path: Path) -> None:
    """No module is named for being vague."""
    assert path.stem not in VAGUE_NAMES


@each_source
def test_files_and_functions_are_short(path: Path) -> None:
    """Files, functions and parameter lists stay within what one can hold in mind."""
    text = path.read_text()
    assert text.count("\n") < MAX_FILE_LINES
    long = {
        f.name: n
        for f in functions(ast.parse(text))
        if (n := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert long == {}


@each_source
def test_parameters_are_few(path: Path) -> None:
    """Past five parameters there is a dataclass, except for commands, whose parameters are options."""
    many = {}
    for function in functions(tree_of(path)):
        given = function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        count = len([name for name in names if name not in {"self", "cls"}])
        if count > MAX_PARAMETERS and not is_command(function):
            many[function.name] = count
    assert many == {}
