"""Following the policy."""

import asyncio

import pytest

from services.metering.domain.api_key import KeyInput, Role
from services.metering.domain.limits import Limits
from services.metering.domain.policy import FactKind, project_spans
from services.metering.domain.project import DEFAULT_PROJECT, ProjectInput
from services.metering.drivers.policy import Policy
from services.rpc.errors import InvalidArgumentError, OutOfRangeError, UnavailableError
from services.rpc.names import ProjectName
from tests.manual_clock import ManualClock
from tests.unit.metering.drivers.identity_world import IdentityWorld
from tests.unit.metering.identities import DAY, SLOW, project, signing


def put(policy: Policy, name: str, rate: float = 1.0) -> None:
    policy.put(project_spans(project(name, limits=Limits(requests_per_second=rate))))


async def test_everything_then_changes() -> None:
    """And who resumes gets what he missed, at once, also if that is nothing."""
    policy = Policy(ManualClock(), first_revision=100)
    follow = policy.follow(0)
    first = await anext(follow)
    assert (first.revision, first.changes) == (100, [])
    put(policy, "a")
    second = await anext(follow)
    assert [change.key[1] for change in second.changes] == ["projects/a"]
    assert (await anext(policy.follow(second.revision))).changes == []
    assert (await anext(policy.follow(first.revision))).changes == second.changes


async def test_a_slow_reader_holds_up_nobody_and_costs_nothing() -> None:
    """While it doesn't read, writes go on; then it gets each fact once, as it is."""
    policy = Policy(ManualClock(), first_revision=100)
    follow = policy.follow(0)
    await anext(follow)
    for rate in range(1, 1001):
        put(policy, "a", rate)
    put(policy, "b")
    news = await anext(follow)
    limits = {change.key[1]: change.fact for change in news.changes}
    assert limits == {"projects/a": Limits(requests_per_second=1000), "projects/b": SLOW}


async def test_odd_revisions_are_refused() -> None:
    """Negative ones are wrong, unknown ones gone."""
    policy = Policy(ManualClock(), first_revision=100)
    with pytest.raises(InvalidArgumentError):
        await anext(policy.follow(-1))
    with pytest.raises(OutOfRangeError):
        await anext(policy.follow(99))


async def test_closing_ends_all_following() -> None:
    """With an error that says to connect again; readers are counted."""
    policy = Policy(ManualClock(), first_revision=100)
    follow = policy.follow(0)
    await anext(follow)
    waiting = asyncio.ensure_future(anext(follow))
    await asyncio.sleep(0)
    assert policy.readers == 1
    policy.close()
    with pytest.raises(UnavailableError):
        await waiting
    assert policy.readers == 0


async def test_an_interrupted_reader_may_follow_again() -> None:
    """What it follows ends, and another time it goes on."""
    policy = Policy(ManualClock(), first_revision=100)
    follow = policy.follow(0)
    await anext(follow)
    policy.interrupt()
    with pytest.raises(UnavailableError):
        await anext(follow)
    again = policy.follow(100)
    await anext(again)
    policy.take([signing()])
    assert (await anext(again)).revision == 101


async def test_a_restart_knows_what_was_stored(world: IdentityWorld) -> None:
    """The new process tells the same facts; revisions of the old one are no good."""
    await world.projects.create(ProjectName("p"), ProjectInput(limits=SLOW, disabled=True))
    caller = KeyInput(role=Role.CALLER, endpoints=("*",), limits=SLOW)
    issued = [await world.keys.create(DEFAULT_PROJECT, caller, DAY) for _ in range(3)]
    await world.keys.revoke(issued[0].key.name)
    await world.keys.rotate(issued[1].key.name, DAY / 2, None)
    before = await world.facts()
    assert len(before) == 1 + 2 + 1 + 4
    again = await world.reopened()
    assert await again.facts() == before
    async with again.clock_runs():
        follow = again.policy.follow(0)
        await anext(follow)
        again.clock.advance(DAY.total_seconds() / 2)
        news = await anext(follow)
    assert (FactKind.REVOCATION, str(issued[1].key.name)) in [c.key for c in news.changes]
