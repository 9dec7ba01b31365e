"""How the edge is called: with which API key, and by TLS or not. The one place for gRPC and HTTP."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import grpc
from pydantic import SecretStr

from services.cli.adapters import edge_target
from services.cli.adapters.edge_target import EdgeTarget
from services.cli.adapters.keyed_channel import KeyedChannel
from services.cli.adapters.state_directory import StateDirectory, default_path
from services.cli.domain.exit_code import UsageError
from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.loopback import is_here
from services.rpc.settings import PREFIX, Settings, load

API_KEY_OPTION = "--api-key"


class _Environment(Settings):
    """Where a key may be said without an option."""

    api_key: SecretStr = SecretStr("")
    state_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """An API key that calls carry."""

    token: str
    origin: str  # where it was found, as errors tell it

    def __repr__(self) -> str:
        return f"Credential(origin={self.origin!r})"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries."""
        return (("authorization", f"Bearer {self.token}"),)


_given: ContextVar[Credential | None] = ContextVar("api_key", default=None)


def give(token: str, origin: str) -> None:
    """From now on calls of this context carry this key, wherever they go."""
    _given.set(_checked(token, origin))


@contextmanager
def given(token: str, origin: str) -> Iterator[None]:
    """The same within the block only."""
    before = _given.set(_checked(token, origin))
    try:
        yield
    finally:
        _given.reset(before)


def credential(address: str) -> Credential | None:
    """The key for calls to `address`: that given, or the environment's, or the state directory's."""
    found = _given.get()
    if found is not None:
        return found
    environment = load(_Environment)
    if said := environment.api_key.get_secret_value():
        return _checked(said, f"{PREFIX}API_KEY")
    return _of_state(StateDirectory(environment.state_dir or default_path()), address)


def origin(address: str) -> str | None:
    """Where the key for calls to `address` was found; None without one."""
    found = credential(address)
    return found.origin if found else None


def headers(address: str) -> dict[str, str]:
    """What an HTTP request to `address` carries."""
    found = credential(address)
    if found is None:
        return {}
    _warn_of_plain(edge_target.parse(address))
    return dict(found.metadata)


def metadata(address: str) -> tuple[tuple[str, str], ...]:
    """What a gRPC call to `address` carries, where the channel adds nothing by itself."""
    found = credential(address)
    return found.metadata if found else ()


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to `address` whose calls carry the key, if there is one."""
    target = edge_target.parse(address)
    channel = edge_target.open_channel(target)
    found = credential(address)
    if found is None:
        return channel
    _warn_of_plain(target)
    return KeyedChannel(channel, found.metadata)


def _warn_of_plain(target: EdgeTarget) -> None:
    address = target.address
    if target.is_secure or address.path is not None or is_here(address.host):
        return
    sys.stderr.write(
        f"warning: the API key goes to {address} in plain text, for whoever listens on the way;"
        f" where that edge speaks TLS: --address https://{address}\n"
    )


def edge_here() -> str | None:
    """How the edge of the mesh is called that runs on the state directory; None: none runs there."""
    state = StateDirectory(load(_Environment).state_dir or default_path())
    running = state.running_services()
    if running is None or not addresses.parse(running.edge).port:
        return None
    return edge_target.from_here(running.edge, is_secure=running.edge_is_secure)


def credential_of(state: StateDirectory) -> Credential | None:
    """The admin key of a state directory, whatever runs on it."""
    token = state.read_admin_key()
    return _checked(token, str(state.admin_key)) if token else None


def _of_state(state: StateDirectory, address: str) -> Credential | None:
    """The admin key of the mesh that runs on the directory: for its own edge only, it is nobody else's to see."""
    running = state.running_services()
    called = edge_target.parse(address).address
    if running is None or not _is_same(addresses.parse(running.edge), called):
        return None
    return credential_of(state)


def _is_same(edge: Address, called: Address) -> bool:
    """Whether a call to one address reaches the edge that listens at another of this machine."""
    if edge == called:
        return True
    return (
        bool(edge.port) and edge.port == called.port and is_here(edge.host) and is_here(called.host)
    )


def _checked(token: str, origin: str) -> Credential:
    """Headers can't carry everything that can be typed."""
    plain = token.strip()
    if not plain or not plain.isascii() or not plain.isprintable() or " " in plain:
        raise UsageError(f"{origin}: is no API key; allowed: the token as it was shown")
    return Credential(plain, origin)
