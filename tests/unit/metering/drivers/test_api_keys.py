"""Use cases of keys and projects."""

from datetime import timedelta

import jwt
import pytest

from services.metering.domain.api_key import KeyInput, Role
from services.metering.domain.etag import etag_of
from services.metering.domain.policy import FactKind, Revocation
from services.metering.domain.project import ProjectInput
from services.metering.drivers.api_keys import IssuedKey, KeyListing
from services.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from services.rpc.names import KeyName, ProjectName
from services.rpc.page import page_request
from tests.unit.metering.drivers.identity_world import IdentityWorld, unverified
from tests.unit.metering.identities import DAY, SLOW

DEFAULT = ProjectName("default")
CALLER = KeyInput(role=Role.CALLER, endpoints=("chat",), limits=SLOW, label="mine")


async def made(world: IdentityWorld, given: KeyInput = CALLER) -> IssuedKey:
    return await world.keys.create(DEFAULT, given, None)


async def test_a_token_says_what_its_key_is(world: IdentityWorld) -> None:
    """Signed by the key that the edge knows, and without the label."""
    issued = await made(world)
    (jwk,) = jwt.PyJWKSet.from_json(await world.signing.jwks()).keys
    header = jwt.get_unverified_header(issued.token)
    assert header == {"alg": "EdDSA", "kid": jwk.key_id, "typ": "JWT"}
    began = int(world.clock.now().timestamp())
    assert jwt.decode(
        issued.token,
        jwk,
        ["EdDSA"],
        audience="inferplane",
        options={"verify_nbf": False, "verify_iat": False},
    ) == {
        "iss": "inferplane",
        "aud": "inferplane",
        "sub": str(issued.key.name),
        "project": "default",
        "role": "caller",
        "endpoints": ["chat"],
        "jti": issued.key.name.key,
        "iat": began,
        "nbf": began,
        "exp": began + 90 * 24 * 3600,
    }


async def test_no_store_holds_a_token(world: IdentityWorld) -> None:
    """It is shown once."""
    issued = await made(world)
    stored = repr(await world.keys.get(issued.key.name))
    assert issued.token not in stored
    assert issued.token.rpartition(".")[2] not in stored


async def test_keys_of_nobody_are_refused(world: IdentityWorld) -> None:
    """The project must be there; so must a key that is read."""
    with pytest.raises(NotFoundError, match="projects/nobody does not exist"):
        await world.keys.create(ProjectName("nobody"), CALLER, None)
    with pytest.raises(NotFoundError):
        await world.keys.get(KeyName("default", "none"))
    with pytest.raises(NotFoundError):
        await world.keys.list(KeyListing(ProjectName("no"), False), page_request("l", 0, ""))


async def test_a_rotated_key_goes_on_for_its_overlap(world: IdentityWorld) -> None:
    """Then the clock revokes it; the successor lives as long as the old one was made for."""
    old = (await world.keys.create(DEFAULT, CALLER, 7 * DAY)).key
    world.clock.advance(3600)
    issued = await world.keys.rotate(old.name, None, None)
    assert issued.key.expire_time - issued.key.create_time == 7 * DAY
    revocation = (FactKind.REVOCATION, str(old.name))
    async with world.clock_runs():
        follow = world.policy.follow(0)
        assert revocation not in {change.key for change in (await anext(follow)).changes}
        world.clock.advance(DAY.total_seconds())
        news = await anext(follow)
    assert {change.key: change.fact for change in news.changes} == {
        revocation: Revocation(old.expire_time)
    }
    with pytest.raises(FailedPreconditionError):
        await world.keys.rotate(old.name, None, None)


async def test_rotation_without_overlap_is_at_once(world: IdentityWorld) -> None:
    """No timer is needed; and the lifetime may be another."""
    old = (await made(world)).key
    issued = await world.keys.rotate(old.name, timedelta(), 3 * DAY)
    assert (FactKind.REVOCATION, str(old.name)) in await world.facts()
    assert issued.key.expire_time - issued.key.create_time == 3 * DAY
    with pytest.raises(InvalidArgumentError) as caught:
        await world.keys.rotate(issued.key.name, -DAY, timedelta())
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["overlap", "lifetime"]


async def test_readers_know_of_a_revocation_before_its_caller(world: IdentityWorld) -> None:
    """When `revoke` returns the fact is there; revoking again changes nothing."""
    name = (await made(world)).key.name
    first = await world.keys.revoke(name)
    assert (FactKind.REVOCATION, str(name)) in await world.facts()
    world.clock.advance(60)
    assert await world.keys.revoke(name) == first


async def test_listing_leaves_out_what_has_ended(world: IdentityWorld) -> None:
    """Unless it is asked for; of all projects if none is named."""
    await world.projects.create(ProjectName("p"), ProjectInput())
    ended = (await made(world)).key
    await world.keys.revoke(ended.name)
    other = (await world.keys.create(ProjectName("p"), CALLER, None)).key

    async def names(project: ProjectName | None, ended: bool) -> list[KeyName]:
        page = await world.keys.list(KeyListing(project, ended), page_request("l", 0, ""))
        return [key.name for key in page.items if key.label == "mine"]

    assert await names(None, False) == [other.name]
    assert await names(DEFAULT, False) == []
    assert set(await names(None, True)) == {ended.name, other.name}


async def test_changes_need_the_newest_etag_if_one_is_given(world: IdentityWorld) -> None:
    """An older one is refused; none is no check."""
    key = (await made(world)).key
    old = etag_of(key)
    changed = await world.keys.update(key.name, KeyInput(label="new"), ["label"], old)
    assert (changed.label, changed.limits) == ("new", SLOW)
    with pytest.raises(AbortedError):
        await world.keys.update(key.name, KeyInput(), [], old)
    await world.keys.update(key.name, KeyInput(), ["limits"], "")
    assert (FactKind.LIMITS, str(key.name)) not in await world.facts()


async def test_projects(world: IdentityWorld) -> None:
    """Made once, changed with an etag, disabled at once."""
    name = ProjectName("p")
    created = await world.projects.create(name, ProjectInput(limits=SLOW))
    with pytest.raises(AlreadyExistsError):
        await world.projects.create(name, ProjectInput())
    assert await world.projects.get(name) == created
    page = await world.projects.list(page_request("projects", 1, ""))
    assert [project.name for project in page.items] == [DEFAULT]
    rest = await world.projects.list(page_request("projects", 1, page.next_page_token))
    assert (rest.items, rest.next_page_token) == ([created], "")
    await world.projects.update(name, ProjectInput(disabled=True), ["disabled"], etag_of(created))
    assert (await world.facts())[FactKind.REVOCATION, "projects/p"] == Revocation(None)
    with pytest.raises(AbortedError):
        await world.projects.update(name, ProjectInput(), [], etag_of(created))
    with pytest.raises(NotFoundError):
        await world.projects.update(ProjectName("q"), ProjectInput(), [], "")


async def test_tokens_of_one_second_differ(world: IdentityWorld) -> None:
    """Ids are drawn, and long enough that nobody guesses one."""
    issued = [await made(world) for _ in range(3)]
    names = {one.key.name.key for one in issued}
    assert len(names) == 3
    assert all(len(name) == 32 for name in names)
    assert {unverified(one.token)["jti"] for one in issued} == names
