"""Which API key calls carry, and who never sees it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.cli.adapters import access
from services.cli.adapters.access import (
    credential,
    edge_here,
    given,
    headers,
    open_channel,
    origin,
)
from services.cli.adapters.edge import to_error
from services.cli.adapters.state_directory import RunningProcess, Services, StateDirectory
from services.cli.domain.exit_code import UsageError, exit_code_of

_EDGE = "127.0.0.1:8080"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    """A state directory on which a mesh runs at port 8080, with an admin key."""
    monkeypatch.delenv("INFERPLANE_API_KEY", raising=False)
    monkeypatch.setenv("INFERPLANE_STATE_DIR", str(tmp_path))
    made = StateDirectory(tmp_path)
    made.prepare()
    me = RunningProcess.of("supervisor", os.getpid())
    assert me is not None
    made.write_processes([me])
    made.write_services(Services(registry="unix:/r", router="unix:/t", edge=_EDGE))
    made.admin_key.write_text("token-of-file\n")
    return made


@pytest.mark.parametrize("address", [_EDGE, "localhost:8080", "[::1]:8080", "127.0.0.2:8080"])
@pytest.mark.usefixtures("state")
def test_own_mesh_is_called_with_its_admin_key(address: str) -> None:
    """However this machine is named."""
    assert headers(address) == {"authorization": "Bearer token-of-file"}


@pytest.mark.parametrize("address", ["127.0.0.1:8081", "10.0.0.1:8080", "example.org:8080"])
@pytest.mark.usefixtures("state")
def test_nobody_else_sees_the_admin_key(address: str) -> None:
    """Another port or another machine is told nothing."""
    assert headers(address) == {}


def test_admin_key_of_a_mesh_that_is_gone_stays_here(state: StateDirectory) -> None:
    """Who listens at the port once the supervisor is dead may be anybody."""
    state.write_processes([RunningProcess("supervisor", os.getpid(), 1.0)])
    assert headers(_EDGE) == {}


@pytest.mark.parametrize(
    ("edge", "is_secure", "called"),
    [
        ("127.0.0.1:9000", False, "127.0.0.1:9000"),
        ("0.0.0.0:9000", False, "127.0.0.1:9000"),
        ("[::]:9000", True, "https://[::1]:9000"),
        ("10.0.0.1:9000", True, "https://10.0.0.1:9000"),
        ("127.0.0.1:0", False, None),
    ],
)
def test_the_mesh_that_runs_here_is_called_where_it_listens(
    state: StateDirectory, edge: str, called: str | None, *, is_secure: bool
) -> None:
    """Under an address that a client can connect to."""
    services = Services(registry="unix:/r", router="unix:/t", edge=edge, edge_is_secure=is_secure)
    state.write_services(services)
    assert edge_here() == called


def test_a_mesh_that_is_gone_is_not_called(state: StateDirectory) -> None:
    """Its port may be anybody's."""
    state.write_processes([RunningProcess("supervisor", os.getpid(), 1.0)])
    assert edge_here() is None


def test_order_of_keys(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given wins over the variable, and that over the file; the origin says which it was."""
    assert origin(_EDGE) == str(state.admin_key)
    monkeypatch.setenv("INFERPLANE_API_KEY", "token-of-variable")
    assert (headers("x:1")["authorization"], origin("x:1")) == (
        "Bearer token-of-variable",
        "INFERPLANE_API_KEY",
    )
    with given("token-given", "--api-key"):
        assert headers(_EDGE)["authorization"] == "Bearer token-given"
    assert origin(_EDGE) == "INFERPLANE_API_KEY"


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ü"], ids=ascii)
def test_what_no_header_can_carry_is_refused(token: str) -> None:
    """And the refusal does not repeat it."""
    with pytest.raises(UsageError, match="--api-key: is no API key"), given(token, "--api-key"):
        raise AssertionError("it was taken")


def test_a_key_is_not_shown() -> None:
    """Not in a trace, nor in a log of the value."""
    with given("secret-token", "--api-key"):
        assert "secret-token" not in repr(credential("x:1"))


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]
)
def test_refusals_say_which_key_was_sent(
    code: grpc.StatusCode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With one: whose; without: how to say it. Exit code 5."""
    monkeypatch.delenv("INFERPLANE_API_KEY", raising=False)
    monkeypatch.setenv("INFERPLANE_STATE_DIR", str(tmp_path))
    refused = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")
    error = to_error(refused, _EDGE)
    assert "No API key was sent" in error.message
    assert exit_code_of(error) == 5
    with given("t", "--api-key"):
        assert (
            to_error(refused, _EDGE).message == "no\nThe API key that was sent is that of --api-key"
        )


def test_a_refusal_for_the_role_says_which_there_are() -> None:
    """Whoever may not call a method is told what the roles are for."""
    code = grpc.StatusCode.PERMISSION_DENIED
    text = "the API key's role 'caller' may not call this method"
    refused = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)
    with given("t", "--api-key"):
        assert "inferplane keys create --role" in to_error(refused, _EDGE).message


@pytest.fixture
async def heard() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that takes any call of any kind and remembers its metadata; its address."""
    calls: list[dict[str, Any]] = []

    class Echo(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            calls.append(dict(details.invocation_metadata))
            kind = details.method.rpartition("/")[2]

            async def one(request: Any, _: Any) -> bytes:
                if not isinstance(request, bytes):
                    return b"".join([part async for part in request])
                return request

            async def many(request: Any, _: Any) -> AsyncIterator[bytes]:
                if isinstance(request, bytes):
                    yield request
                else:
                    async for part in request:
                        yield part

            return {
                "uu": grpc.unary_unary_rpc_method_handler(one),
                "su": grpc.stream_unary_rpc_method_handler(one),
                "us": grpc.unary_stream_rpc_method_handler(many),
                "ss": grpc.stream_stream_rpc_method_handler(many),
            }[kind]

    server = grpc.aio.server(handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", calls
    await server.stop(None)


async def test_every_kind_of_call_carries_the_key(
    heard: tuple[str, list[dict[str, Any]]],
) -> None:
    """Unary and streams either way; metadata of the call's own stays; writing by hand works."""
    address, calls = heard

    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    with given("t", "--api-key"):
        channel: Any
        async with open_channel(address) as channel:
            own = (("x-own", "1"),)
            assert await channel.unary_unary("/s/uu")(b"x", metadata=own, timeout=30) == b"x"
            assert await channel.stream_unary("/s/su")(parts(), timeout=30) == b"ab"
            assert [p async for p in channel.unary_stream("/s/us")(b"x", timeout=30)] == [b"x"]
            written: Any = channel.stream_stream("/s/ss")(timeout=30)
            await written.write(b"y")
            await written.done_writing()
            assert [p async for p in written] == [b"y"]
    assert [call["authorization"] for call in calls] == ["Bearer t"] * 4
    assert calls[0]["x-own"] == "1"


async def test_without_a_key_calls_are_bare(
    heard: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No header at all."""
    monkeypatch.delenv("INFERPLANE_API_KEY", raising=False)
    monkeypatch.setenv("INFERPLANE_STATE_DIR", str(tmp_path))
    address, calls = heard
    channel: Any
    async with open_channel(address) as channel:
        assert await channel.unary_unary("/s/uu")(b"x", timeout=30) == b"x"
    assert "authorization" not in calls[0]
    assert access.origin(address) is None
