"""Where workers are found: settings that registry, router and worker share."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from services.rpc.settings import Settings

DEFAULT_PORT = 8500


class DiscoverySettings(Settings):
    """Every field is `INFERPLANE_` + its name in capitals."""

    # Who keeps the list of live workers: the registry itself, or Consul.
    discovery: Literal["embedded", "consul"] = "embedded"
    # Agents, http://host:port or https://host:port, several by comma: the first is asked while it answers.
    consul_address: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    consul_token_file: Path | None = None  # with an ACL token, read again for each question
    consul_ca_file: Path | None = None  # of https; None: who the system trusts

    @field_validator("consul_address")
    @classmethod
    def _is_list_of_agents(cls, value: str) -> str:
        for part in value.split(","):
            base_url(part)
        return value

    @property
    def in_consul(self) -> bool:
        """Whether workers are found by Consul."""
        return self.discovery == "consul"

    def consul_urls(self) -> tuple[str, ...]:
        """The agents, as URLs without a path."""
        return tuple(base_url(part) for part in self.consul_address.split(","))


def base_url(text: str) -> str:
    """An agent's URL with its port, without a path; ValueError says what is allowed."""
    problem = f"{text.strip()!r} is no agent; allowed: http://host:port or https://host:port"
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ValueError(problem) from error
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in {"http", "https"} or not host or extra:
        raise ValueError(problem)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
