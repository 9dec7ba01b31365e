"""Workers and watchers at real Consul agents: stopped, restarted, with ACLs, with TLS, several, without a leader."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.router.adapters.consul_feed import ConsulFeed
from services.router.ports.feeds import WorkerSink
from services.rpc.clock import SystemClock
from services.rpc.consul import Consul, ConsulAccess, ConsulRefusedError, ConsulUnreachableError
from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_watch import ConsulWatch, Pace
from services.rpc.names import VersionName
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY
from services.worker.adapters.consul_registration import ConsulRegistration
from services.worker.ports.discovery import RegistrationError
from tests.consul_agent import ACLS, MANAGEMENT, ConsulAgent, eventually, needs_consul
from tests.discovery_parts import LEASE, V1, beating, heard, identity, report
from tests.mesh_certificates import MeshCertificates

pytestmark = [pytest.mark.extended, needs_consul]

_DEPLOY = Path(__file__).parents[3] / "deploy" / "consul"


class Clients:
    """Registrations and watches, closed at the end."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.watch: ConsulWatch | None = None  # the newest

    def registration(
        self, access: ConsulAccess, name: str, lease: float = LEASE
    ) -> ConsulRegistration:
        consul = Consul(access)
        self._stack.push_async_callback(consul.close)
        return ConsulRegistration(consul, identity(name), lease)

    def follow(
        self, access: ConsulAccess, lease: float = LEASE
    ) -> Callable[[WorkerSink], Coroutine[None, None, None]]:
        async def follow(sink: WorkerSink) -> None:
            self.watch = ConsulWatch(
                Consul(access),
                ConsulFeed(sink),
                ConsulRoster(),
                SystemClock(),
                Pace.of_lease(lease),
            )
            await self.watch.run()

        return follow

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    clients = Clients()
    yield clients
    await clients.close()


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[ConsulAgent]:
    """A development agent."""
    agent = ConsulAgent(tmp_path)
    await agent.start()
    yield agent
    agent.kill()


async def _passing(agent: ConsulAgent) -> list[str]:
    found = await agent.ask("health/service/inferplane-worker?passing")
    return sorted(one["Service"]["ID"] for one in found)


async def _passes(agent: ConsulAgent) -> bool:
    return await _passing(agent) == ["inferplane-w1"]


async def test_agent_that_stands_still(agent: ConsulAgent, clients: Clients) -> None:
    """An agent that stops for longer than all leases fails their checks when it goes on; no worker is taken off."""
    lease = 1.0
    async with (
        heard(clients.follow(agent.access, lease)) as router,
        beating(clients.registration(agent.access, "w1", lease), report(V1), lease),
        beating(clients.registration(agent.access, "w2", lease), report(V1), lease),
    ):
        await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
        seen = len(router.pictures)
        agent.freeze()
        await eventually(lambda: not router.is_connected, "the loss is noticed")
        await asyncio.sleep(2 * lease)  # their leases end meanwhile
        agent.thaw()
        await eventually(lambda: router.is_connected, "the return is noticed")
        await eventually(lambda: _is(_passing(agent), ["w1", "w2"]), "both renew")
        assert {tuple(p) for p in router.pictures[seen:]} == {("workers/w1", "workers/w2")}


async def _is(found: Coroutine[None, None, list[str]], names: list[str]) -> bool:
    return await found == [f"inferplane-{name}" for name in names]


async def test_server_that_keeps_its_data(tmp_path: Path, clients: Clients) -> None:
    """A server killed and started again with what it had on its disk: no worker is taken off, all renew."""
    lease = 1.0
    server = ConsulAgent(tmp_path)
    server.config = {
        "server": True,
        "bootstrap_expect": 1,
        "data_dir": str(tmp_path / "data"),
        "performance": {"raft_multiplier": 1},
    }
    await server.start()
    try:
        async with (
            heard(clients.follow(server.access, lease)) as router,
            beating(clients.registration(server.access, "w1", lease), report(V1), lease),
            beating(clients.registration(server.access, "w2", lease), report(V1), lease),
        ):
            await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
            seen = len(router.pictures)
            server.kill()
            await eventually(lambda: router.losses == 1, "the loss is noticed")
            await asyncio.sleep(2 * lease)  # their leases end meanwhile
            await server.start()
            await eventually(lambda: _is(_passing(server), ["w1", "w2"]), "both renew")
            await eventually(lambda: router.is_connected, "the return is noticed")
            assert {tuple(p) for p in router.pictures[seen:]} == {("workers/w1", "workers/w2")}
    finally:
        server.kill()


async def test_registration_that_vanishes(agent: ConsulAgent, clients: Clients) -> None:
    """A registration that the agent has lost is put back with the next renewal, and nobody took it for an end."""
    registration = clients.registration(agent.access, "w1")
    other = clients.registration(agent.access, "w2")
    async with heard(clients.follow(agent.access)) as router:
        await registration.renew(report(V1))
        await other.renew(report(V1))
        await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
        seen = len(router.pictures)
        await agent.ask("agent/service/deregister/inferplane-w1", "PUT")
        assert await _passing(agent) == ["inferplane-w2"]
        await registration.renew(report(V1))
        assert await _passing(agent) == ["inferplane-w1", "inferplane-w2"]
        assert set(router.pictures[seen:]) <= {("workers/w1", "workers/w2")}


async def test_beats_wake_nobody(agent: ConsulAgent, clients: Clients) -> None:
    """While nothing changes that routing needs, renewals write nothing and watchers ask nothing."""
    async with (
        heard(clients.follow(agent.access)) as router,
        beating(clients.registration(agent.access, "w1"), report(V1)) as first,
        beating(clients.registration(agent.access, "w2"), report(V1)) as second,
    ):
        await eventually(lambda: router.names == ["w1", "w2"], "both are heard")
        watch = clients.watch
        assert watch is not None
        await eventually(lambda: _is_waiting(agent), "the watch waits")
        asked, told = watch.questions, router.told
        for _ in range(25):
            await first.announce()
            await second.announce()
        # The first question after the one that brought the second worker is the last.
        assert watch.questions <= asked + 1
        assert router.told == told


async def _is_waiting(agent: ConsulAgent) -> bool:
    return len(await _passing(agent)) == 2


async def test_more_versions_than_fit(agent: ConsulAgent, clients: Clients) -> None:
    """A real agent takes the most that is written; what is left out is said by worker and list."""
    many = report(*(VersionName(f"model-{n * 7919 % 99991}", str(n)) for n in range(9000)))
    with capture_logs() as logs:
        await clients.registration(agent.access, "w1").renew(many)
    assert [line["log_level"] for line in logs if "untold" in line] == ["error"]
    async with heard(clients.follow(agent.access)) as router:
        await eventually(lambda: router.names == ["w1"], "the worker is heard")
        assert 2000 < len(router.workers[0].ready) < 9000


async def test_acls(tmp_path: Path, clients: Clients) -> None:
    """Without a token nothing is told and nothing is read, and both say so; with the documented policies all works.

    A token's file is read again when it is replaced.
    """
    agent = ConsulAgent(tmp_path, config=ACLS, token=MANAGEMENT)
    await agent.start()
    worker_file, reader_file, other = (tmp_path / name for name in ("worker", "reader", "mgmt"))
    worker_file.write_text(str(uuid.uuid4()))
    reader_file.write_text("")
    other.write_text(MANAGEMENT)
    secret = str(uuid.uuid4())
    worker, reader = (replace(agent.access, token_file=file) for file in (worker_file, reader_file))
    registration = clients.registration(worker, "w1")
    try:
        with pytest.raises(RegistrationError, match="403"):
            await registration.renew(report(V1))
        with capture_logs() as logs:
            unheard = asyncio.create_task(clients.follow(reader)(_Deaf()))
            await eventually(
                lambda: any("may not read" in str(line.get("error")) for line in logs),
                "it is said that the token may not read",
            )
            unheard.cancel()
            await asyncio.gather(unheard, return_exceptions=True)
        secrets = tmp_path / "reader-secret"
        secrets.write_text(secret)
        for _ in range(2):  # again changes nothing
            await _put_tokens(agent, other, worker=worker_file, reader=secrets)
        await registration.renew(report(V1))
        reader_file.write_text(secret)
        async with heard(clients.follow(reader)) as router:
            await eventually(lambda: router.names == ["w1"], "the worker is heard")
            reader_file.write_text("")  # the watch that runs is asked anew when the worker changes
            await registration.renew(report(V1, draining=True))
            await eventually(lambda: not router.is_connected, "the loss is noticed")
            assert router.names == ["w1"]
            reader_file.write_text(secret)
            await eventually(lambda: router.is_connected, "the token is good again")
        with pytest.raises(RegistrationError, match="403"):
            await clients.registration(replace(worker, token_file=reader_file), "w2").renew(
                report()
            )
        missing = clients.registration(replace(worker, token_file=tmp_path / "missing"), "w2")
        with pytest.raises(RegistrationError, match="can't be read as a token"):
            await missing.renew(report())
    finally:
        agent.kill()


class _Deaf:
    """Must not be told anything."""

    def hear_discovery(self, workers: Any) -> None:
        raise AssertionError("an empty list was taken for the truth")

    def lose_discovery(self) -> None:
        raise AssertionError("it was never heard")


async def _put_tokens(agent: ConsulAgent, management: Path, **files: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        _DEPLOY / "tokens.py",
        *("--address", agent.url, "--management", management),
        *(f"{_DEPLOY / name}.hcl={file}" for name, file in files.items()),
    )
    assert await process.wait() == 0


async def test_tls(tmp_path: Path, clients: Clients) -> None:
    """By https the agent's certificate must be of the given CA and for the given host."""
    made = MeshCertificates.begin(tmp_path / "ours")
    folder = made.issue("consul", PeerKind.SERVICE)
    foreign = MeshCertificates.begin(tmp_path / "foreign").issue("other", PeerKind.SERVICE)
    files = {"cert_file": str(folder / CERTIFICATE), "key_file": str(folder / KEY)}
    ca_file = folder / AUTHORITIES
    agent = ConsulAgent(tmp_path, config=files, scheme="https", ca_file=ca_file)
    await agent.start()
    try:
        access = replace(agent.access, ca_file=ca_file)
        await clients.registration(access, "w1").renew(report(V1))
        async with heard(clients.follow(access)) as router:
            await eventually(lambda: router.names == ["w1"], "the worker is heard")
        for wrong in (
            replace(access, ca_file=foreign / AUTHORITIES),
            replace(access, ca_file=None),
            replace(access, urls=(access.urls[0].replace("127.0.0.1", "localhost"),)),
            replace(access, urls=(access.urls[0].replace("https", "http"),)),
        ):
            with pytest.raises(RegistrationError):
                await clients.registration(wrong, "w2").renew(report())
        assert await _passing(agent) == ["inferplane-w1"]
    finally:
        agent.kill()


async def test_ca_that_is_replaced(tmp_path: Path) -> None:
    """A client that a new certificate has failed reads the CA's file again."""
    made = MeshCertificates.begin(tmp_path / "ours")
    folder = made.issue("consul", PeerKind.SERVICE)
    foreign = MeshCertificates.begin(tmp_path / "foreign").issue("other", PeerKind.SERVICE)
    files = {"cert_file": str(folder / CERTIFICATE), "key_file": str(folder / KEY)}
    agent = ConsulAgent(tmp_path, config=files, scheme="https", ca_file=folder / AUTHORITIES)
    await agent.start()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes((foreign / AUTHORITIES).read_bytes())
    consul = Consul(replace(agent.access, ca_file=ca_file))
    try:
        with pytest.raises(ConsulUnreachableError):
            await consul.get("status/leader", seconds=30)
        ca_file.write_bytes((folder / AUTHORITIES).read_bytes())
        assert (await consul.get("status/leader", seconds=30)).json()
    finally:
        await consul.close()
        agent.kill()


async def test_another_agent(tmp_path: Path, clients: Clients) -> None:
    """Where an agent does not answer, worker and watch go to the next, and the worker ends at both."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = ConsulAgent(tmp_path / "a"), ConsulAgent(tmp_path / "b")
    await asyncio.gather(first.start(), second.start())
    access = ConsulAccess(urls=(first.url, second.url))
    registration = clients.registration(access, "w1")
    try:
        await registration.renew(report(V1))
        assert await _passing(first) == ["inferplane-w1"]
        async with heard(clients.follow(access)) as router:
            await eventually(lambda: router.names == ["w1"], "the worker is heard")
            first.freeze()
            await registration.renew(report(V1))
            await eventually(lambda: _passes(second), "the next agent has it")
            await eventually(lambda: router.losses == 1, "the loss is noticed")
            await eventually(lambda: router.is_connected, "the other is heard")
            assert {name for picture in router.pictures for name in picture} == {"workers/w1"}
            first.thaw()
            await registration.end()
            assert await _passing(second) == []
            assert await first.ask("agent/services") == {}
    finally:
        first.kill()
        second.kill()


async def test_cluster_loses_leader_and_quorum(tmp_path: Path, clients: Clients) -> None:
    """The leader of three dies: news go on. Then another: all stay, and who begins now begins with an old list."""
    servers = _cluster(tmp_path)
    for server in servers:
        server.launch()
    access = ConsulAccess(urls=tuple(server.url for server in servers))
    try:
        for server in servers:
            await eventually(server.has_leader, "there is a leader")
        leader = await servers[0].ask("status/leader")
        servers.sort(key=lambda server: leader.endswith(f":{server.server}"), reverse=True)
        async with (
            heard(clients.follow(access)) as router,
            beating(clients.registration(access, "w1"), report(V1)),
        ):
            await eventually(lambda: router.names == ["w1"], "the worker is heard")
            servers[0].kill()
            await eventually(servers[1].has_leader, "there is another leader")
            async with beating(clients.registration(access, "w2"), report(V1)):
                await eventually(lambda: router.names == ["w1", "w2"], "news are heard")
                servers[1].kill()
                await eventually(lambda: not router.is_connected, "the loss is noticed")
                async with heard(_then_lost(clients.follow(access))) as late:
                    assert late.names == ["w1", "w2"]
            assert router.names == ["w1", "w2"]
            pictures = router.pictures[router.pictures.index(("workers/w1",)) :]
            assert all("workers/w1" in picture for picture in pictures)
    finally:
        for server in servers:
            server.kill()


def _then_lost(
    follow: Callable[[WorkerSink], Coroutine[None, None, None]],
) -> Callable[[WorkerSink], Coroutine[None, None, None]]:
    """The same; `heard` waits for a connection, of which there is only the word that it was lost."""

    async def following(sink: WorkerSink) -> None:
        await follow(_Begun(sink))

    return following


class _Begun:
    """Hears, and takes no loss for one."""

    def __init__(self, sink: WorkerSink) -> None:
        self._sink = sink

    def hear_discovery(self, workers: Any) -> None:
        self._sink.hear_discovery(workers)

    def lose_discovery(self) -> None:
        """Nobody is told."""


def _cluster(folder: Path) -> list[ConsulAgent]:
    servers = []
    for number in range(3):
        place = folder / str(number)
        place.mkdir()
        servers.append(ConsulAgent(place))
    for server in servers:
        server.config = {
            "server": True,
            "bootstrap_expect": 3,
            "data_dir": str(server.folder / "data"),
            "performance": {"raft_multiplier": 1},
            "retry_join": [f"127.0.0.1:{other.serf}" for other in servers],
            "retry_interval": "1s",
        }
    return servers


async def test_refusals_are_told_apart(agent: ConsulAgent) -> None:
    """Agents word an unknown check in their own ways, each of them means: register again."""
    consul = Consul(agent.access)
    for path, is_unknown in (("agent/check/pass/none", True), ("agent/nothing", True)):
        with pytest.raises(ConsulRefusedError) as refusal:
            await consul.put(path, seconds=30)
        assert refusal.value.is_unknown_check is is_unknown
    with pytest.raises(ConsulRefusedError) as refusal:
        await consul.put("agent/service/register", {"Name": ""}, seconds=30)
    assert not refusal.value.is_unknown_check
    await consul.close()
