"""Settings of the registry, from INFERPLANE_* variables."""

from pathlib import Path
from typing import Literal

from platformdirs import user_state_path
from pydantic import Field

from services.rpc.consul_settings import DiscoverySettings


class RegistrySettings(DiscoverySettings):
    """Every field is a variable: INFERPLANE_ and the field's name in capitals."""

    registry_address: str = "127.0.0.1:8081"  # host:port or unix:/path
    state_dir: Path = Field(default_factory=lambda: user_state_path("inferplane"))
    router_address: str = ""  # asked whether what was loaded is routed; empty: nobody is
    store_url: str = ""  # memory:, sqlite:///path or postgresql://user@host:port/database; empty: SQLite in state_dir
    store_password_file: Path | None = None  # file with Postgres' password
    takeover_seconds: float = Field(
        default=6.0, ge=1
    )  # silence after which another registry serves; Postgres only
    max_message_bytes: int = Field(default=64 * 1024 * 1024, gt=0)  # never under 8 MiB here
    metrics_address: str = ""  # host:port; empty: off
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_style: Literal["json", "console"] = "json"
    drain_seconds: float = Field(default=30.0, ge=0)
    upload_ttl_seconds: float = Field(default=3600.0, gt=0)
    max_file_bytes: int = Field(default=100 * 1024**3, gt=0)
    inspect_seconds: float = Field(default=120.0, gt=0)
    load_seconds: float = Field(default=300.0, gt=0)
