"""How a watch asks: one question at a time, by the rules of the index, never in a busy loop."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from inferplane.discovery.v1 import worker_pb2

from services.rpc import consul_worker
from services.rpc.clock import SystemClock
from services.rpc.consul import Consul, ConsulAccess
from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_watch import ConsulWatch, Pace
from services.rpc.tcp_ports import free_port

_WORKERS = "/v1/health/service/inferplane-worker"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent answers; None: nothing, ever."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def listed(*names: str, index: str | None = "7", **headers: str) -> Reply:
    """An answer of health/service."""
    services = []
    for name in names:
        worker = worker_pb2.Worker(name=name, address=f"unix:/{name}.sock")
        meta = consul_worker.metadata(worker, 1, 5.0)
        check = {"CheckID": "service:x", "ServiceID": "x", "Status": "passing"}
        services.append({"Service": {"Meta": meta}, "Checks": [check]})
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    if index is not None:
        found["X-Consul-Index"] = index
    return Reply(services, headers=found)


@dataclass(slots=True)
class Agent:
    """Answers questions of a watch from a script, whose last line is repeated; notes what was asked."""

    script: Sequence[Reply | None]
    leader: Reply | None = Reply("127.0.0.1:8300")
    allowed: Reply = Reply("ACL support disabled", 401)
    stale: Reply = Reply("no", 500)
    has_no_news: bool = False  # questions that wait are never answered
    port: int = field(default_factory=free_port)
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                length = 0
                while (header := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                await reader.readexactly(length)
                reply = await self._reply(line.decode().split()[1])
                if reply is None:
                    await reader.read()
                    return
                body = json.dumps(reply.body).encode()
                head = {"Content-Length": str(len(body)), **reply.headers}
                lines = [f"HTTP/1.1 {reply.status} X", *(f"{k}: {v}" for k, v in head.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _reply(self, target: str) -> Reply | None:
        parts = urlsplit(target)
        parameters = parse_qs(parts.query, keep_blank_values=True)
        if parts.path != _WORKERS:
            return self.leader if parts.path == "/v1/status/leader" else self.allowed
        if "stale" in parameters:
            return self.stale
        async with self.news:
            self.asked.append(parameters)
            self.times.append(time.monotonic())
            self.news.notify_all()
        if self.has_no_news and "index" in parameters:
            return None
        return self.script[min(len(self.asked), len(self.script)) - 1]

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: len(self.asked) >= count)

    @property
    def indices(self) -> list[str | None]:
        """What each question waited beyond."""
        return [asked.get("index", [None])[0] for asked in self.asked]


class Hearer:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[list[str]] = []
        self.losses = 0

    def hear(self, workers: Sequence[worker_pb2.Worker]) -> None:
        self.heard.append([worker.name for worker in workers])

    def lose(self) -> None:
        self.losses += 1


@asynccontextmanager
async def watching(*agents: Agent, beat: float = 60.0) -> AsyncIterator[Hearer]:
    """A watch that asks these agents."""
    hearer = Hearer()
    servers = [await asyncio.start_server(a.serve, "127.0.0.1", a.port) for a in agents]
    access = ConsulAccess(urls=tuple(f"http://127.0.0.1:{agent.port}" for agent in agents))
    watch = ConsulWatch(
        Consul(access), hearer, ConsulRoster(), SystemClock(), Pace(wait=100, beat=beat)
    )
    task = asyncio.create_task(watch.run())
    try:
        yield hearer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for server in servers:
            server.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - it is a list that grows
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "indices"),
    [
        pytest.param(
            [listed("a"), listed("b", index="9"), None], [None, "7", "9"], id="it goes on from news"
        ),
        pytest.param(
            [listed("a"), listed("b", index="3"), listed("b", index="4"), None],
            [None, "7", None, "4"],
            id="an index that goes backwards begins anew",
        ),
        pytest.param(
            [listed("a"), listed("a", index="0"), None], [None, "7", None], id="so does zero"
        ),
        pytest.param(
            [listed("a"), listed("a", index=None), None], [None, "7", None], id="and none"
        ),
        pytest.param(
            [listed("a"), Reply("No cluster leader", 500), listed("a"), None],
            [None, "7", None, "7"],
            id="and an error",
        ),
        pytest.param(
            [listed("a"), Reply({"an": "object"}, headers={"X-Consul-Index": "8"}), None],
            [None, "7", "8"],
            id="an answer that is no list is an empty one",
        ),
    ],
)
async def test_index(script: list[Reply | None], indices: list[str | None]) -> None:
    """Each question waits beyond the index that the answer before it allows."""
    agent = Agent(script)
    async with watching(agent):
        await agent.until_asked(len(indices))
    assert agent.indices[: len(indices)] == indices
    assert all(("wait" in asked) == ("index" in asked) for asked in agent.asked)


@pytest.mark.parametrize(
    "always",
    [
        pytest.param(listed("a"), id="the same index, without waiting"),
        pytest.param(listed("a", index="0"), id="no index to wait beyond"),
        pytest.param(Reply("broken", 500), id="errors"),
    ],
)
async def test_never_busy(always: Reply) -> None:
    """An agent that answers at once, and with nothing new, is asked ever more rarely."""
    agent = Agent([always])
    async with watching(agent) as hearer:
        await agent.until_asked(4)
    assert agent.times[3] - agent.times[0] > 0.2
    assert len(hearer.heard) <= 1


async def test_news_are_told_once() -> None:
    """A list that says the same of the living is not told again."""
    agent = Agent([listed("a"), listed("a", index="8"), listed("a", "b", index="9"), None])
    async with watching(agent) as hearer:
        await agent.until_asked(4)
    assert hearer.heard == [["a"], ["a", "b"]]


async def test_agent_that_answers_nothing_else() -> None:
    """A question that waits is given up once the agent does not answer another; the next agent is asked."""
    stuck = Agent([None], leader=None)
    other = Agent([listed("b"), None])
    async with watching(stuck, other, beat=0.1) as hearer:
        await until(lambda: hearer.heard == [["b"]])
    assert len(stuck.asked) >= 1


async def test_loss_of_the_leader_is_a_loss() -> None:
    """An agent that has no leader may hold news back."""
    agent = Agent([listed("a")], leader=Reply(""), has_no_news=True)
    async with watching(agent, beat=0.1) as hearer:
        await until(lambda: hearer.losses >= 1)
    assert hearer.heard[0] == ["a"]


@pytest.mark.parametrize(
    ("stale", "heard"),
    [
        pytest.param(listed("a", X_Consul_LastContact="599000"), [["a"]], id="young enough"),
        pytest.param(listed("a", X_Consul_LastContact="601000"), [], id="too old"),
        pytest.param(listed(), [], id="empty"),
        pytest.param(Reply("No known Consul servers", 500), [], id="none"),
    ],
)
async def test_beginning_without_a_leader(stale: Reply, heard: list[list[str]]) -> None:
    """Who knows nothing begins with what some server knows, and does not call it a connection."""
    agent = Agent([Reply("No cluster leader", 500)], stale=stale)
    async with watching(agent) as hearer:
        await agent.until_asked(3)
    assert hearer.heard == heard
    assert hearer.losses == len(heard)


@pytest.mark.parametrize(
    ("reply", "allowed"),
    [
        pytest.param(listed(X_Consul_Results_Filtered_By_ACLs="true"), Reply("no", 401), id="new"),
        pytest.param(listed(), Reply([{"Allow": False}]), id="agents before 1.11"),
    ],
)
async def test_empty_for_those_who_may_not_read(reply: Reply, allowed: Reply) -> None:
    """An empty list of a token that may not read is a refusal."""
    agent = Agent([reply], allowed=allowed)
    async with watching(agent) as hearer:
        await agent.until_asked(2)
    assert hearer.heard == []


@pytest.mark.parametrize(
    "allowed", [Reply("no", 401), Reply("no", 404), Reply([{"Allow": True}]), Reply({"odd": 1})]
)
async def test_empty(allowed: Reply) -> None:
    """An empty list of a token that may read, or of an agent that can't say, is the truth at the beginning."""
    agent = Agent([listed(), None], allowed=allowed)
    async with watching(agent) as hearer:
        await until(lambda: hearer.heard == [[]])
