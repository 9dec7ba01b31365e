"""Programs start without what only some of them need later: imports are most of what a start costs."""

import subprocess
import sys

import pytest

# What is imported where it is used: a database that must be migrated, Postgres, an export, a webhook, a certificate,
# a language model.
ABSENT = {
    "services.metering.__main__": (
        "alembic",
        "psycopg",
        "pyarrow",
        "httpx",
        "jwt",
        "cryptography.x509",
    ),
    "services.registry.__main__": (
        "alembic",
        "psycopg",
        "httpx",
        "numpy",
        "onnx",
        "cryptography.x509",
    ),
    "services.router.__main__": ("sqlalchemy", "httpx", "numpy"),
    "services.worker.__main__": (
        "cryptography.x509",
        "httpx",
        "jinja2",
        "onnx",
        "services.modelfiles",
        "sqlalchemy",
        "tokenizers",
    ),
    "services.worker.tensor_probe": ("grpc", "pydantic", "structlog", "asyncio", "tokenizers"),
    "services.registry.adapters.onnx_probe": ("grpc", "pydantic", "structlog", "asyncio"),
    "services.cli.adapters.catalog": ("structlog", "rich", "prometheus_client", "cryptography"),
}


@pytest.mark.parametrize("program", ABSENT)
def test_a_program_starts_without_what_it_may_need_later(program: str) -> None:
    """Nothing that its start imports imports these, however far away."""
    code = f"import sys, {program}; print(*sorted(set({ABSENT[program]!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
