"""What every store of identities does."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.metering.domain.api_key import ApiKey, KeyState, Role
from services.metering.domain.policy import CLOCK_SKEW
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityTransaction,
    KeyQuery,
    key_sort_key,
)
from services.rpc.errors import InternalError
from services.rpc.names import KeyName, ProjectName
from tests.unit.metering.identities import DAY, NOW, SLOW, key, project, signing

P = ProjectName("p")


async def put(store: IdentityStore, *records: Project | ApiKey | SigningKey) -> None:
    async def work(transaction: IdentityTransaction) -> None:
        for record in records:
            match record:
                case Project():
                    await transaction.put_project(record)
                case ApiKey():
                    await transaction.put_key(record)
                case SigningKey():
                    await transaction.put_signing_key(record)

    await store.write(work)


async def names(store: IdentityStore, **query: Any) -> list[str]:
    wanted = KeyQuery(**{"limit": 100, **query})
    return [found.name.key for found in await store.read(lambda view: view.keys(wanted))]


FULL = key(
    limits=SLOW,
    label="ünïcode",
    tags={"a": "b"},
    role=Role.ADMIN,
    endpoints=("x", "y"),
    create_time=NOW + timedelta(microseconds=1),
    revoke_time=NOW + DAY,
    successor=KeyName("p", "b"),
)


async def test_records_come_back_as_they_were(identities: IdentityStore) -> None:
    """Every field, and replaced as a whole."""
    stored = project(display_name="P", tags={"a": "b"}, limits=SLOW, disabled=True)
    retiring = signing(retire_time=NOW + DAY)
    await put(identities, project(), stored, signing(), retiring, key(), FULL)
    assert await identities.read(lambda view: view.project(P)) == stored
    assert await identities.read(lambda view: view.key(FULL.name)) == FULL
    assert await identities.read(lambda view: view.signing_keys()) == [retiring]


async def test_what_is_not_there(identities: IdentityStore) -> None:
    """Absence is None; a key is not found under another project."""
    await put(identities, project(), signing(), key())
    assert await identities.read(lambda view: view.project(ProjectName("q"))) is None
    assert await identities.read(lambda view: view.key(KeyName("p", "z"))) is None
    assert await identities.read(lambda view: view.key(KeyName("q", "a"))) is None


async def test_projects_in_pages(identities: IdentityStore) -> None:
    """In the order of their ids, from the first beyond."""
    await put(identities, *[project(name) for name in ("c", "a", "b")])
    for after, limit, wanted in (("", 2, ["a", "b"]), ("b", 2, ["c"]), ("c", 2, [])):
        found = await identities.read(lambda view, a=after, n=limit: view.projects(a, n))  # type: ignore[misc] # mypy infers no lambda with defaults
        assert [one.name.project for one in found] == wanted


async def test_keys_in_the_order_of_their_making(identities: IdentityStore) -> None:
    """Of one project or of all, page by page."""
    first, second, third = (
        key(jti, of, create_time=NOW + offset * timedelta(seconds=1))
        for jti, of, offset in (("z", "p", 0), ("y", "q", 1), ("x", "p", 2))
    )
    await put(identities, project("p"), project("q"), signing(), third, first, second)
    assert await names(identities) == ["z", "y", "x"]
    assert await names(identities, project=P) == ["z", "x"]
    assert await names(identities, limit=2) == ["z", "y"]
    assert await names(identities, after=key_sort_key(second)) == ["x"]


async def test_keys_that_live(identities: IdentityStore) -> None:
    """Not expired, not revoked, signed by a key that verifies; each end at its very moment."""
    await put(
        identities,
        project(),
        signing(),
        signing("old", retire_time=NOW + DAY),
        key("a-live"),
        key("b-expires", expire_time=NOW + DAY),
        key("c-rotated", revoke_time=NOW + DAY),
        key("d-signed-by-old", kid="old"),
    )
    before = NOW + DAY - timedelta(microseconds=1)
    assert len(await names(identities, live_at=before)) == 4
    assert await names(identities, live_at=NOW + DAY) == ["a-live"]


async def test_keys_that_the_edge_must_know_of(identities: IdentityStore) -> None:
    """Those with limits or a revocation, until the leeway after their end is over."""
    await put(
        identities,
        project(),
        signing(),
        key("a-plain"),
        key("b-limited", limits=SLOW),
        key("c-revoked", revoke_time=NOW, expire_time=NOW + DAY),
    )
    assert await names(identities, policy_at=NOW) == ["b-limited", "c-revoked"]
    end = NOW + DAY + CLOCK_SKEW
    assert "c-revoked" in await names(identities, policy_at=end - timedelta(microseconds=1))
    assert await names(identities, policy_at=end) == ["b-limited"]


async def test_counts_by_state(identities: IdentityStore) -> None:
    """Each key in one state; keys of a retired signing key have expired."""
    await put(
        identities,
        project(),
        signing(),
        signing("old", retire_time=NOW),
        key("a"),
        key("b", revoke_time=NOW + DAY),
        key("c", revoke_time=NOW),
        key("d", expire_time=NOW),
        key("e", kid="old"),
    )
    assert await identities.read(lambda view: view.count_keys(NOW)) == {
        KeyState.LIVE: 1,
        KeyState.ROTATED: 1,
        KeyState.REVOKED: 1,
        KeyState.EXPIRED: 2,
    }


async def test_whether_an_admin_is_let_in(identities: IdentityStore) -> None:
    """His key lives and his project is on."""
    admin = key("a", role=Role.ADMIN)
    await put(identities, project(), signing(), key("b"))
    assert not await identities.read(lambda view: view.admin_lives(NOW))
    await put(identities, admin)
    assert await identities.read(lambda view: view.admin_lives(NOW))
    await put(identities, project(disabled=True))
    assert not await identities.read(lambda view: view.admin_lives(NOW))
    await put(identities, project(), replace(admin, revoke_time=NOW))
    assert not await identities.read(lambda view: view.admin_lives(NOW))


@pytest.mark.parametrize("changed", [{"project": "nobody"}, {"kid": "nothing"}])
async def test_a_key_refers_to_what_is_there(
    identities: IdentityStore, changed: dict[str, str]
) -> None:
    """The rules before it should have refused it, so it is our fault; nothing is changed."""
    await put(identities, project(), signing())
    with pytest.raises(InternalError):
        await put(identities, project("new"), key(**changed))
    assert await identities.read(lambda view: view.project(ProjectName("new"))) is None


async def test_writes_run_one_after_another_and_tell_in_their_order(
    identities: IdentityStore,
) -> None:
    """Each sees what the one before wrote, and what follows from it is told before the next begins."""
    told: list[int] = []
    await put(identities, project(display_name="0"))

    async def work(transaction: IdentityTransaction) -> int:
        found = await transaction.project(P)
        assert found is not None
        number = int(found.display_name) + 1
        assert len(told) == number - 1
        await transaction.put_project(replace(found, display_name=str(number)))
        return number

    await asyncio.gather(*(identities.write(work, told.append) for _ in range(20)))
    assert told == list(range(1, 21))


async def test_a_write_that_raises_changes_nothing_and_tells_nobody(
    identities: IdentityStore,
) -> None:
    """Also what it had put before it raised."""
    told: list[None] = []

    async def work(transaction: IdentityTransaction) -> None:
        await transaction.put_project(project())
        assert await transaction.project(P) is not None
        raise InternalError("no")

    with pytest.raises(InternalError):
        await identities.write(work, told.append)
    assert await identities.read(lambda view: view.project(P)) is None
    assert not told


async def test_a_write_that_has_begun_ends_although_its_caller_is_cancelled(
    identities: IdentityStore,
) -> None:
    """It is committed and told."""
    begun, go = asyncio.Event(), asyncio.Event()
    told: list[None] = []

    async def work(transaction: IdentityTransaction) -> None:
        begun.set()
        await go.wait()
        await transaction.put_project(project())

    writing = asyncio.create_task(identities.write(work, told.append))
    await begun.wait()
    writing.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert told == [None]
    assert await identities.read(lambda view: view.project(P)) is not None


async def test_tags_are_found_together(identities: IdentityStore) -> None:
    """Those of projects and keys at once; who has none, is not there or is of another project is left out."""
    blue, red = {"team": "blü"}, {"team": "red", "a": "b"}
    await put(identities, project(tags=blue), project("q"), signing())
    await put(identities, key("a", tags=red), key("b"))
    owners = [("p", ""), ("q", ""), ("none", ""), ("p", "a"), ("p", "b"), ("q", "a"), ("p", "c")]
    found = await identities.read(lambda view: view.tags(owners))
    assert found == {("p", ""): blue, ("p", "a"): red}
    assert await identities.read(lambda view: view.tags([])) == {}
