"""Settings of metering, from INFERPLANE_* variables."""

from pathlib import Path
from typing import Literal

from platformdirs import user_state_path
from pydantic import Field

from services.rpc.settings import Settings


class MeteringSettings(Settings):
    """Every field is a variable: INFERPLANE_ and the field's name in capitals."""

    metering_address: str = "127.0.0.1:8084"  # host:port or unix:/path
    state_dir: Path = Field(default_factory=lambda: user_state_path("inferplane"))
    max_message_bytes: int = Field(default=64 * 1024 * 1024, gt=0)  # never under 8 MiB here
    metrics_address: str = ""  # host:port; empty: off
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_style: Literal["json", "console"] = "json"
    drain_seconds: float = Field(default=30.0, ge=0)
    budget_lease_seconds: float = Field(default=10.0, ge=1, le=3600)  # without an exchange
