"""The import contracts of pyproject.toml: that each really breaks when it is broken."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERED = ("rpc", "registry", "router", "worker", "worker/llm", "metering", "cli")
FLAT = ("modelfiles", "native_library")
LAYERS = ("domain", "ports", "drivers", "adapters", "servicers")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of empty packages laid out like ours, under our contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    packages = [f"services/{name}/{layer}" for name in LAYERED for layer in LAYERS]
    for package in (
        *packages,
        *(f"services/{name}" for name in (*LAYERED, *FLAT)),
        "services",
        "tools",
    ):
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    return subprocess.run(
        command,
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_empty_layout_keeps_all_contracts(tree: Path) -> None:
    """Contracts hold for packages that are not there yet or empty."""
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        pytest.param("services/registry/domain/model.py", "import grpc", id="domain imports grpc"),
        pytest.param(
            "services/worker/domain/queue.py", "import asyncio", id="domain imports asyncio"
        ),
        pytest.param(
            "services/router/domain/topology.py", "import time", id="domain imports the clock"
        ),
        pytest.param(
            "services/router/domain/a.py",
            "from google.protobuf import any_pb2",
            id="domain imports messages",
        ),
        pytest.param(
            "services/router/domain/a.py",
            "from services.router import ports",
            id="domain imports ports",
        ),
        pytest.param(
            "services/router/ports/a.py",
            "from inferplane.registry.v1 import model_pb2",
            id="ports import messages",
        ),
        pytest.param(
            "services/registry/ports/a.py",
            "from services.registry import adapters",
            id="ports import adapters",
        ),
        pytest.param(
            "services/registry/drivers/a.py",
            "from services.registry import servicers",
            id="drivers import servicers",
        ),
        pytest.param(
            "services/registry/drivers/a.py",
            "from inferplane.registry.v1 import model_pb2",
            id="drivers import messages",
        ),
        pytest.param(
            "services/worker/servicers/a.py",
            "from services.worker import adapters",
            id="servicers import adapters",
        ),
        pytest.param(
            "services/registry/adapters/a.py",
            "from services import router",
            id="a service imports another",
        ),
        pytest.param(
            "services/rpc/server.py", "from services import worker", id="rpc imports a service"
        ),
        pytest.param(
            "services/modelfiles/a.py",
            "from services.registry import domain",
            id="model files import a service",
        ),
        pytest.param(
            "services/worker/llm/domain/a.py",
            "import onnxruntime",
            id="the engine's domain imports a runtime",
        ),
        pytest.param(
            "services/worker/llm/drivers/a.py",
            "from services.worker.llm import adapters",
            id="the engine's drivers import adapters",
        ),
        pytest.param(
            "services/cli/a.py",
            "from services.registry import domain",
            id="the command line imports a service",
        ),
        pytest.param("services/cli/a.py", "import tools", id="a service imports the tools"),
    ],
)
def test_a_broken_contract_is_caught(tree: Path, module: str, statement: str) -> None:
    """One forbidden import anywhere fails the check and is named."""
    (tree / module).write_text(statement + "\n")
    done = lint_imports(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert module.removesuffix(".py").replace("/", ".") in done.stdout
