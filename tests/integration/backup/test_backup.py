"""Backups of running services, restored after everything is gone."""

import asyncio
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import jwt
import pytest
from inferplane.metering.v1 import api_key_service_pb2
from inferplane.registry.v1 import model_pb2, model_service_pb2, watch_service_pb2

from services.cli.adapters import backup as acts
from services.cli.adapters.backup_repository import BackupRepository
from tests.integration.backup.backup_world import (
    SECONDS,
    Load,
    Place,
    Services,
    Silence,
    backup,
    make_key,
    parts_of,
    postgres_place,
    running,
)
from tests.integration.metering.test_ledger_process import record, request_of, total, verified
from tests.integration.registry.client import read, refused
from tests.postgres import Databases

pytestmark = pytest.mark.extended


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite"])
def places(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Place, Place]]:
    """Where the services are, and where they are restored to."""
    databases: Databases = request.getfixturevalue("postgres_databases")
    folder = Path(request.getfixturevalue("short_folder"))
    with ExitStack() as stack:
        on_postgres = stack.enter_context(postgres_place(folder / "a", databases))
        on_files = Place(folder / "b")
        both = (on_files, on_postgres), (on_postgres, on_files)
        yield both[request.param.startswith("postgres")]


async def test_what_was_acknowledged_is_there_again(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    """Saved under load, destroyed, restored on the other engine: same contents and keys, a ledger that adds up."""
    before, after = places
    repository, load = tmp_path / "repository", Load()
    async with running(before) as services:
        token = await make_key(services.metering)
        working = asyncio.create_task(load.run(services))
        async with asyncio.timeout(SECONDS):
            await load.busy.wait()
        known, rows = dict(load.versions), load.rows
        made = await backup("create", repository=repository, place=before)
        most_rows = load.rows + 7  # one batch may be stored and not answered yet
        working.cancel()
        assert made.code == 0, made.error
        assert made.out["damaged"] == []
        watch = services.registry.watches.Watch(watch_service_pb2.WatchRequest())
        newest: int = (await read(watch)).revision
        await services.kill()
    admin = (before.state / "admin.key").read_bytes()
    shutil.rmtree(before.state)

    restored = await backup("restore", repository=repository, place=after)
    assert restored.code == 0, restored.error
    assert restored.out == {"backup": made.out["backup"], "notes": []}
    assert (after.state / "admin.key").read_bytes() == admin
    async with running(after) as services:
        await _has_versions(services, known, load.versions)
        await _accepts(services, token)
        usage = await total(services.metering)
        assert rows <= usage.requests <= most_rows
        assert (await verified(services.metering)).ok
        # Readers of the store that is gone begin again, however far they were.
        watch = services.registry.watches.Watch(
            watch_service_pb2.WatchRequest(after_revision=newest)
        )
        assert (await refused(watch.read())).reason == "REVISION_UNAVAILABLE"
        # It goes on: numbers that the database draws are after those that were restored.
        assert await record(services.metering, request_of(0, 3, "another")) == 3
        await services.registry.push("afterwards@1")
        assert (await verified(services.metering)).ok


async def _has_versions(
    services: Services, known: dict[str, bytes], most: dict[str, bytes]
) -> None:
    """All that were READY before it began, and of those that came meanwhile none without its content."""
    client = services.registry
    found = {}
    for model in (await client.models.ListModels(model_service_pb2.ListModelsRequest())).models:
        request = model_service_pb2.ListModelVersionsRequest(parent=model.name)
        answer = await client.models.ListModelVersions(request)
        found.update({version.name: version for version in answer.model_versions})
    ready = {n: v for n, v in found.items() if v.state == model_pb2.VERSION_STATE_READY}
    assert set(known) <= set(ready)
    for name in ready:
        content = await client.download(name, "model.onnx")
        assert content == most.get(name, content)


async def _accepts(services: Services, token: str) -> None:
    """The key that was made before is known, and its signature verifies."""
    kid = jwt.get_unverified_header(token)["kid"]
    answer = await services.metering.keys.GetJwks(api_key_service_pb2.GetJwksRequest())
    keys = jwt.PyJWKSet.from_json(answer.jwks)
    claims = jwt.decode(token, keys[kid], ["EdDSA"], audience="inferplane")
    key = await services.metering.keys.GetApiKey(
        api_key_service_pb2.GetApiKeyRequest(name=claims["sub"])
    )
    assert key.api_key.endpoints == ["*"]


async def test_secrets_may_stay_where_they_are(short_folder: Path, tmp_path: Path) -> None:
    """Without them metering makes another signing key and another first admin; keys that are out stay good."""
    before, after = Place(short_folder / "a"), Place(short_folder / "b")
    repository = BackupRepository(tmp_path / "repository")
    async with running(before) as services:
        token = await make_key(services.metering)
        parts = parts_of(before, repository)
        with_them = acts.create(repository, parts, Silence(), secrets=True)
        without = acts.create(repository, parts, Silence(), secrets=False)
    assert (with_them.manifest.has_secrets, without.manifest.has_secrets) == (True, False)
    kept = [path for path in with_them.manifest.files if path.startswith("secrets/")]
    assert kept[0] == "secrets/admin.key"
    assert len(kept) == 2  # and the signing key
    for path in (repository.folder, *repository.folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert not (without.folder / "secrets").exists()

    order = acts.RestoreOrder(without, parts_of(after, repository), damaged=False)
    (note,) = acts.restore(repository, order, Silence())
    assert "no signing key" in note
    async with running(after) as services:
        await _accepts(services, token)
        assert (after.state / "admin.key").read_text() != (before.state / "admin.key").read_text()
