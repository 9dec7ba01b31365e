"""Settings: read from the environment once, frozen, and clear when wrong."""

import pytest
from pydantic import ValidationError

from services.rpc import settings


class _Sample(settings.Settings):
    lease_seconds: float = 5.0
    pool: str = "default"


def test_variables_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable replaces the default, an override replaces both, and the result can't change."""
    monkeypatch.setenv("INFERPLANE_POOL", "gpu")
    monkeypatch.setenv("INFERPLANE_LEASE_SECONDS", "9")
    loaded = settings.load(_Sample, lease_seconds=2.5)
    assert (loaded.pool, loaded.lease_seconds) == ("gpu", 2.5)
    with pytest.raises(ValidationError, match="frozen"):
        loaded.pool = "other"


def test_bad_value_names_variable_value_and_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad value is refused with the variable's name, what it held and what it should."""
    monkeypatch.setenv("INFERPLANE_LEASE_SECONDS", "soon")
    with pytest.raises(settings.SettingsError, match=r"INFERPLANE_LEASE_SECONDS='soon'.*number"):
        settings.load(_Sample)
