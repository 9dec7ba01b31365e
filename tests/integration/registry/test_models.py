"""Models, versions and aliases over a real server."""

import asyncio

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.registry.v1 import model_pb2
from inferplane.registry.v1 import model_service_pb2 as pb

from tests.integration.registry.client import MODEL, Client, file_of, policy, refused
from tests.models import bad


async def test_a_model_lives(client: Client) -> None:
    """Create, get, update by mask, list, delete; etags change with every update."""
    tags = {"team": "vision"}
    created = (
        await client.models.CreateModel(
            pb.CreateModelRequest(
                model_id="m", model=model_pb2.Model(description="d", tags=tags, name="ignored")
            )
        )
    ).model
    assert (created.name, created.description, dict(created.tags)) == ("models/m", "d", tags)
    update = pb.UpdateModelRequest(
        model=model_pb2.Model(name="models/m", description="new", etag=created.etag),
        update_mask=FieldMask(paths=["description"]),
    )
    updated = (await client.models.UpdateModel(update)).model
    assert (updated.description, dict(updated.tags)) == ("new", tags)
    assert updated.etag != created.etag
    assert updated.create_time == created.create_time
    again = await refused(client.models.UpdateModel(update))
    assert again.code is grpc.StatusCode.ABORTED
    assert again.metadata["etag"] == updated.etag
    assert not again.retry
    listed = (await client.models.ListModels(pb.ListModelsRequest())).models
    assert list(listed) == [updated]
    await client.models.DeleteModel(pb.DeleteModelRequest(name="models/m", etag=updated.etag))
    gone = await refused(client.models.GetModel(pb.GetModelRequest(name="models/m")))
    assert gone.code is grpc.StatusCode.NOT_FOUND


async def test_no_update_is_lost(client: Client) -> None:
    """Of twenty updates from the same etag one wins; the others are told the etag there is now."""
    await client.models.CreateModel(pb.CreateModelRequest(model_id="m"))
    model = (await client.models.GetModel(pb.GetModelRequest(name="models/m"))).model

    async def update(number: int) -> str:
        request = pb.UpdateModelRequest(
            model=model_pb2.Model(name=model.name, description=str(number), etag=model.etag)
        )
        try:
            return (await client.models.UpdateModel(request)).model.description
        except grpc.aio.AioRpcError as error:
            return "" if error.code() is grpc.StatusCode.ABORTED else error.code().name

    won = [text for text in await asyncio.gather(*(update(n) for n in range(20))) if text]
    assert len(won) == 1
    model = (await client.models.GetModel(pb.GetModelRequest(name="models/m"))).model
    assert model.description == won[0]


async def test_a_version_becomes_ready(client: Client) -> None:
    """Declared, uploaded, finished: signature, digest and size are there; the model was made too."""
    declared = await client.declare("m@1", model__onnx=MODEL, weights=b"w")
    assert declared.state == model_pb2.VERSION_STATE_UPLOADING
    assert [file.path for file in declared.files] == ["model.onnx", "weights"]
    await client.upload(declared.name, "model.onnx", MODEL)
    early = await refused(client.finish(declared.name))
    assert (early.code, early.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "ARTIFACT_INCOMPLETE",
    )
    assert "weights (0 of 1 bytes)" in early.message
    await client.upload(declared.name, "weights", b"w")
    ready = await client.finish(declared.name)
    assert ready.state == model_pb2.VERSION_STATE_READY
    assert [spec.datatype for spec in ready.outputs] == ["FP32"]
    assert list(ready.outputs[0].shape) == [-1, 2]
    assert ready.size_bytes == len(MODEL) + 1
    assert ready.digest == declared.digest
    assert await client.finish(declared.name) == ready
    assert (await client.models.GetModel(pb.GetModelRequest(name="models/m"))).model.name


async def test_declaring_again(client: Client) -> None:
    """The same files resume the upload with the newest settings; other files, or READY, is taken."""
    first = await client.declare("m@1", model__onnx=MODEL)
    request = pb.CreateModelVersionRequest(
        parent="models/m",
        version_id="1",
        model_version=model_pb2.ModelVersion(
            format=model_pb2.FORMAT_ONNX,
            files=[file_of("model.onnx", MODEL)],
            settings=model_pb2.VersionSettings(max_batch_size=8),
        ),
    )
    again = (await client.models.CreateModelVersion(request)).model_version
    assert again.settings.max_batch_size == 8
    assert again.create_time == first.create_time
    other = await refused(client.declare("m@1", model__onnx=MODEL + b"x"))
    assert (other.code, other.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS")
    await client.upload(first.name, "model.onnx", MODEL)
    await client.finish(first.name)
    ready = await refused(client.declare("m@1", model__onnx=MODEL))
    assert ready.code is grpc.StatusCode.ALREADY_EXISTS
    assert ready.metadata["digest"] == first.digest


async def test_a_refused_artifact_leaves_nothing(client: Client) -> None:
    """A pickle named .onnx is refused by name and kind, and the version and its bytes are gone."""
    name = (await client.declare("m@1", model__onnx=bad.pickled())).name
    await client.upload(name, "model.onnx", bad.pickled())
    refusal = await refused(client.finish(name))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID")
    assert "'model.onnx' is refused" in refusal.message
    assert "begins like a pickle" in refusal.message
    assert refusal.metadata["file"] == "model.onnx"
    gone = await refused(client.models.GetModelVersion(pb.GetModelVersionRequest(name=name)))
    assert gone.code is grpc.StatusCode.NOT_FOUND
    await client.declare("m@1", model__onnx=bad.pickled())
    assert await client.stored(name) == {"model.onnx": 0}


async def test_external_data_must_be_declared(client: Client) -> None:
    """External data in a declared file passes; `../` is refused."""
    weights = b"\0" * 8
    name = await client.push("m@1", bad.external("weights"), weights=weights)
    assert await client.download(name, "weights") == weights
    await client.declare("m@2", model__onnx=bad.external("../weights"))
    name = "models/m/versions/2"
    await client.upload(name, "model.onnx", bad.external("../weights"))
    refusal = await refused(client.finish(name))
    assert refusal.reason == "MODEL_INVALID"
    assert "'../weights'" in refusal.message


async def test_versions_are_listed_by_age(client: Client) -> None:
    """Oldest first, of one model or of all, page by page."""
    for short in ("b@1", "a@9", "a@1"):
        await client.push(short)

    async def listed(parent: str, size: int) -> list[str]:
        names, token = [], ""
        while True:
            page = await client.models.ListModelVersions(
                pb.ListModelVersionsRequest(parent=parent, page_size=size, page_token=token)
            )
            assert len(page.model_versions) <= size
            names += [version.name for version in page.model_versions]
            token = page.next_page_token
            if not token:
                return names

    every = ["models/b/versions/1", "models/a/versions/9", "models/a/versions/1"]
    for size in (1, 2, 3, 1000):
        assert await listed("models/-", size) == every
    assert await listed("models/a", 1) == every[1:]
    none = await refused(listed("models/none", 1))
    assert none.code is grpc.StatusCode.NOT_FOUND


async def test_what_is_served_stays(client: Client) -> None:
    """Placed, aliased or served versions, and their model, are kept; the refusal names who needs them."""
    name = await client.push("m@1")
    delete_version = pb.DeleteModelVersionRequest(name=name)
    delete_model = pb.DeleteModelRequest(name="models/m")
    refusal = await refused(client.models.DeleteModel(delete_model))
    assert refusal.reason == "IN_USE"
    assert name in refusal.message
    await client.place(name)
    await client.alias("m", "champion", "1")
    await client.expose("e", m__alias__champion=1)
    users = ["endpoints/e", "models/m/aliases/champion", "pools/default/placements/m@1"]
    refusal = await refused(client.models.DeleteModelVersion(delete_version))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.metadata["used_by"] == ", ".join(users)
    refusal = await refused(
        client.models.DeleteModel(pb.DeleteModelRequest(name="models/m", force=True))
    )
    assert refusal.metadata["used_by"] == ", ".join([users[0], users[2]])
    alias = pb.DeleteAliasRequest(name="models/m/aliases/champion")
    refusal = await refused(client.models.DeleteAlias(alias))
    assert refusal.metadata["used_by"] == users[0]


async def test_force_deletes_the_whole_model(client: Client) -> None:
    """With force, versions, aliases and their bytes go in one commit; shared bytes of others stay."""
    await client.push("m@1")
    other = await client.push("other@1")
    await client.declare("m@2", model__onnx=MODEL + b"unfinished")
    await client.alias("m", "champion", "1")
    await client.models.DeleteModel(pb.DeleteModelRequest(name="models/m", force=True))
    left = (await client.models.ListModels(pb.ListModelsRequest())).models
    assert [model.name for model in left] == ["models/other"]
    assert await client.download(other, "model.onnx") == MODEL


async def test_aliases_move(client: Client) -> None:
    """An alias is made, moved with its etag, listed and deleted."""
    await client.push("m@1")
    await client.push("m@2")
    made = await client.alias("m", "champion", "1")
    moved = (
        await client.models.SetAlias(
            pb.SetAliasRequest(
                alias=model_pb2.Alias(name=made.name, version="models/m/versions/2", etag=made.etag)
            )
        )
    ).alias
    assert moved.version == "models/m/versions/2"
    assert moved.create_time == made.create_time
    stale = await refused(client.models.SetAlias(pb.SetAliasRequest(alias=made)))
    assert stale.code is grpc.StatusCode.ABORTED
    listed = await client.models.ListAliases(pb.ListAliasesRequest(parent="models/m"))
    assert list(listed.aliases) == [moved]
    await client.models.DeleteAlias(pb.DeleteAliasRequest(name=made.name, etag=moved.etag))
    gone = await refused(client.models.GetAlias(pb.GetAliasRequest(name=made.name)))
    assert gone.code is grpc.StatusCode.NOT_FOUND


async def test_an_alias_that_is_served_moves_to_what_can_serve(client: Client) -> None:
    """Moving to a version without a pool, or onto another target of the endpoint, is refused and undone."""
    for number in "123":
        await client.push(f"m@{number}")
    for number in "12":
        await client.place(f"models/m/versions/{number}")
    await client.alias("m", "champion", "1")
    await client.expose("e", m__alias__champion=9, m__2=1)
    unplaced = await refused(client.alias("m", "champion", "3"))
    assert (unplaced.code, unplaced.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "TARGET_NOT_SERVABLE",
    )
    same = await refused(client.alias("m", "champion", "2"))
    assert same.reason == "TARGETS_NOT_DISTINCT"
    alias = await client.models.GetAlias(pb.GetAliasRequest(name="models/m/aliases/champion"))
    assert alias.alias.version == "models/m/versions/1"
    await client.place("models/m/versions/3")
    assert (await client.alias("m", "champion", "3")).version == "models/m/versions/3"


def test_policies_are_written_short() -> None:
    """The tests' own shorthand means what it says."""
    names = [target.target for target in policy(m__1=1, m__alias__x=2).targets]
    assert names == ["models/m/versions/1", "models/m/aliases/x"]
