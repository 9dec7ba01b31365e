"""Settings name the variable that is wrong; the release is the project's."""

import tomllib
from pathlib import Path

import pytest

from services.rpc import settings
from services.worker.__main__ import RELEASE
from services.worker.settings import WorkerSettings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("worker_address", "nowhere"),
        ("registry_address", "unix:relative"),
        ("pool", "Has Spaces"),
        ("lease_seconds", "0.1"),
        ("cache_bytes", "many"),
        ("max_batch_size", "0"),
        ("capture", '{"rules": [{"projects": ["*"]}]}'),
        ("capture", '{"rules": [{"endpoints": ["*"], "fraction": 2}]}'),
        ("capture", '{"redact": ["("]}'),
        ("capture", '{"rule": []}'),
    ],
)
def test_a_bad_value_names_its_variable(
    field: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variable, value and what is expected, before anything starts."""
    monkeypatch.setenv(f"INFERPLANE_{field.upper()}", value)
    with pytest.raises(settings.SettingsError, match=f"INFERPLANE_{field.upper()}"):
        settings.load(WorkerSettings)


def test_providers_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As people write lists in variables."""
    monkeypatch.setenv("INFERPLANE_EXECUTION_PROVIDERS", "A, B")
    assert settings.load(WorkerSettings).execution_providers == ("A", "B")


def test_what_is_captured_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules with bounds of their own; by default there are none."""
    assert not settings.load(WorkerSettings).capture.rules
    said = '{"rules": [{"endpoints": ["chat"], "fraction": 0.5}], "redact": ["ACME-[0-9]+"]}'
    monkeypatch.setenv("INFERPLANE_CAPTURE", said)
    (rule,) = settings.load(WorkerSettings).capture.rules
    assert rule.rule().endpoints == {"chat"}
    assert rule.rule().retention_days == 7


def test_defaults_are_enough() -> None:
    """A worker starts without any variable."""
    assert settings.load(WorkerSettings).pool == "default"


def test_the_release_is_the_projects() -> None:
    """What workers report is what pyproject.toml says."""
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == RELEASE
