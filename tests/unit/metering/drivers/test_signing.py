"""Signing keys and the first admin over restarts."""

import json
from datetime import timedelta

import pytest

from services.metering.domain.api_key import ApiKey, KeyInput, Role
from services.metering.domain.policy import FactKind
from services.metering.domain.project import DEFAULT_PROJECT, ProjectInput
from services.metering.drivers.api_keys import KeyListing
from services.rpc.errors import InternalError, InvalidArgumentError
from services.rpc.names import parse_key
from services.rpc.page import page_request
from tests.unit.metering.drivers.identity_world import IdentityWorld, unverified
from tests.unit.metering.identities import DAY

CALLER = KeyInput(role=Role.CALLER, endpoints=("*",))


async def kids(world: IdentityWorld) -> list[str]:
    return [key["kid"] for key in json.loads(await world.signing.jwks())["keys"]]


async def published(world: IdentityWorld) -> set[str]:
    return {name for kind, name in await world.facts() if kind is FactKind.SIGNING_KEY}


async def admins(world: IdentityWorld) -> list[ApiKey]:
    page = await world.keys.list(KeyListing(None, False), page_request("l", 0, ""))
    return [key for key in page.items if key.role is Role.ADMIN]


async def test_a_restart_signs_with_the_same_key(world: IdentityWorld) -> None:
    """And keeps the admin that there is."""
    token = world.admin_file.read()
    again = await world.reopened()
    assert await kids(again) == await kids(world) == world.pem_files()
    assert again.admin_file.read() == token
    assert len(await admins(again)) == 1


async def test_after_a_rotation_both_verify_and_one_signs(world: IdentityWorld) -> None:
    """The old private half is destroyed; at the end of the overlap the old public half goes."""
    (old,) = await kids(world)
    new = await world.signing.rotate(DAY)
    assert set(await kids(world)) == {old, new}
    assert await published(world) == {old, new}
    assert world.pem_files() == [new]
    assert (await world.keys.create(DEFAULT_PROJECT, CALLER, None)).key.kid == new
    async with world.clock_runs():
        follow = world.policy.follow((await anext(world.policy.follow(0))).revision)
        await anext(follow)
        world.clock.advance(DAY.total_seconds())
        news = await anext(follow)
    assert [(change.key, change.fact) for change in news.changes] == [
        ((FactKind.SIGNING_KEY, old), None)
    ]
    assert await kids(world) == [new]


async def test_a_rotation_without_overlap_ends_all_tokens(world: IdentityWorld) -> None:
    """Also of keys that were to verify for longer; keys signed before are listed no more."""
    first = await world.signing.rotate(None)
    await world.keys.create(DEFAULT_PROJECT, CALLER, None)
    new = await world.signing.rotate(timedelta())
    assert await published(world) == {new} != {first}
    page = await world.keys.list(KeyListing(None, False), page_request("l", 0, ""))
    assert page.items == []
    # Nobody could ask for a key now: the next start makes an admin.
    again = await world.reopened()
    (admin,) = await admins(again)
    assert admin.kid == new


async def test_overlaps_have_bounds(world: IdentityWorld) -> None:
    """None is negative or longer than any token."""
    for overlap in (-DAY, 367 * DAY):
        with pytest.raises(InvalidArgumentError):
            await world.signing.rotate(overlap)


async def test_without_its_private_half_another_key_signs(world: IdentityWorld) -> None:
    """Tokens that are out stay good: their public half was stored."""
    (old,) = await kids(world)
    (world.folder / "signing" / f"{old}.pem").unlink()
    again = await world.reopened()
    assert len(await kids(again)) == 2
    assert [old, *again.pem_files()] == sorted(await kids(again), key=lambda kid: kid != old)


async def test_a_left_over_private_key_is_removed(world: IdentityWorld) -> None:
    """Of a rotation that was killed before it was stored."""
    (current,) = await kids(world)
    world.signer.make()
    assert len(world.pem_files()) == 2
    assert (await world.reopened()).pem_files() == [current]


async def test_the_first_admin(world: IdentityWorld) -> None:
    """In the default project, for everything, for as long as a key can live."""
    token = world.admin_file.read()
    assert token is not None
    (admin,) = await admins(world)
    assert admin.name == parse_key("sub", str(unverified(token)["sub"]))
    assert (admin.name.parent, admin.endpoints, admin.label) == (
        DEFAULT_PROJECT,
        ("*",),
        "first admin",
    )
    assert admin.expire_time - admin.create_time == 366 * DAY


async def test_a_start_killed_between_file_and_store_adopts_the_key(world: IdentityWorld) -> None:
    """The token in the file becomes the admin's: no second one is made, and none is unknown."""
    (kid,) = await kids(world)
    (path,) = (world.folder / "signing").glob("*.pem")
    fresh = IdentityWorld(world.folder, world.clock)
    public = (await world.store.read(lambda view: view.signing_keys()))[0]
    await fresh.store.write(lambda transaction: transaction.put_signing_key(public))
    token = world.admin_file.read()
    await fresh.start()
    assert fresh.admin_file.read() == token
    assert await admins(fresh) == await admins(world)
    assert path.stem == kid


@pytest.mark.parametrize("left", ["", "rubbish", "a.b.c"])
async def test_a_file_with_something_else_is_replaced_if_no_admin_lives(
    world: IdentityWorld, left: str
) -> None:
    """And left alone while one does: an operator may keep it empty."""
    world.admin_file.write(left)
    again = await world.reopened()
    assert again.admin_file.read() == left
    for admin in await admins(again):
        await again.keys.revoke(admin.name)
    last = await again.reopened()
    token = last.admin_file.read()
    assert token is not None
    assert [key.name.key for key in await admins(last)] == [unverified(token)["jti"]]


async def test_a_revoked_admins_token_is_not_adopted(world: IdentityWorld) -> None:
    """It lies in the file, but its key is known as revoked."""
    (admin,) = await admins(world)
    await world.keys.revoke(admin.name)
    again = await world.reopened()
    (other,) = await admins(again)
    assert other.name != admin.name


async def test_who_lost_the_file_gets_another_by_a_restart(world: IdentityWorld) -> None:
    """The key before goes on until it is revoked."""
    (world.folder / "admin.key").unlink()
    again = await world.reopened()
    assert again.admin_file.read() is not None
    assert len(await admins(again)) == 2


async def test_a_disabled_default_project_locks_nobody_out_for_good(world: IdentityWorld) -> None:
    """If no admin is left it is enabled again by a restart."""
    await world.projects.update(DEFAULT_PROJECT, ProjectInput(disabled=True), ["disabled"], "")
    again = await world.reopened()
    assert not (await again.projects.get(DEFAULT_PROJECT)).disabled
    assert (FactKind.REVOCATION, "projects/default") not in await again.facts()


async def test_no_key_is_made_without_a_signing_key(world: IdentityWorld) -> None:
    """It would be our fault."""
    fresh = IdentityWorld(world.folder)
    await fresh.projects.create(DEFAULT_PROJECT, ProjectInput())
    with pytest.raises(InternalError):
        await fresh.keys.create(DEFAULT_PROJECT, CALLER, None)
