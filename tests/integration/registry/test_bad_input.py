"""Bad input, one row each: status, reason, and a message that names field, given and allowed."""

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.registry.v1 import endpoint_pb2, model_pb2, placement_pb2
from inferplane.registry.v1 import endpoint_service_pb2 as endpoint_pb
from inferplane.registry.v1 import model_service_pb2 as model_pb
from inferplane.registry.v1 import placement_service_pb2 as placement_service_pb

from tests.integration.registry.bad_calls import (
    Row,
    create_endpoint,
    create_model,
    create_version,
    get_model,
    invalid,
    missing,
    register,
    targets,
    watch,
    with_policy,
)
from tests.integration.registry.client import Client, policy, refused

NAN, INF = float("nan"), float("inf")

ID_RULE = "allowed: 1 to 63 characters of a-z, 0-9"
WEIGHT_RULE = "allowed: a finite number greater than 0, at most 1000000"

ROWS = [
    *(
        invalid(f"a model id {says}", create_model(given), "model_id", ID_RULE)
        for says, given in {
            "that is empty": "",
            "with a slash": "a/b",
            "of dots": "..",
            "with dots inside": "a..b",
            "with an escaped dot": "%2e",
            "with NUL": "a\0b",
            "of 300 characters": "a" * 300,
            "in capitals": "Digits",
            "beginning with a dash": "-a",
            "with a line end": "a\n",
            "beyond ASCII": "mödel",
        }.items()
    ),
    invalid(
        "a long id is cut in the message", create_model("a" * 300), "model_id", "… (300 characters)"
    ),
    invalid(
        "65 tags",
        create_model("x", tags={f"k{n}": "" for n in range(65)}),
        "tags",
        "65 entries; allowed: at most 64",
    ),
    invalid(
        "a long tag key",
        create_model("x", tags={"k" * 64: ""}),
        "tags",
        "64 characters; allowed: 1 to 63",
    ),
    invalid(
        "a long tag value",
        create_model("x", tags={"k": "v" * 256}),
        "tags[k]",
        "256 characters; allowed: at most 255",
    ),
    invalid(
        "a long description",
        create_model("x", description="d" * 4097),
        "description",
        "4097 characters; allowed: at most 4096",
    ),
    invalid("a name without a model", get_model("models/"), "name", "''", ID_RULE),
    invalid("a name with dots", get_model("models/.."), "name", ID_RULE),
    invalid(
        "a name of another kind",
        get_model("endpoints/e"),
        "name",
        "'endpoints/e'",
        "allowed: models/{model}",
    ),
    missing("a model that is not there", get_model("models/none"), "models/none does not exist"),
    invalid(
        "an unknown mask path",
        lambda c: c.models.UpdateModel(
            model_pb.UpdateModelRequest(
                model=model_pb2.Model(name="models/m"), update_mask=FieldMask(paths=["etag"])
            )
        ),
        "update_mask",
        "'etag'",
        "allowed: description, tags",
    ),
    invalid(
        "a made-up page token",
        lambda c: c.models.ListModels(model_pb.ListModelsRequest(page_token="made-up")),
        "page_token",
        "'made-up'",
    ),
    invalid(
        "a negative page size",
        lambda c: c.models.ListModels(model_pb.ListModelsRequest(page_size=-1)),
        "page_size",
        "-1; allowed: 0 (for 100) to 1000",
    ),
    invalid("no format", create_version(format=0), "format", "allowed: FORMAT_ONNX"),
    invalid("no file", create_version(files=[]), ("files", "files"), "0 files; allowed: 1 to 1000"),
    invalid(
        "a file outside",
        create_version(files=[{"path": "../m.onnx", "size_bytes": 1, "sha256": "0" * 64}]),
        "files[0].path",
        "'../m.onnx'",
        "allowed: a relative path",
    ),
    invalid(
        "a short digest and a negative size at once",
        create_version(files=[{"path": "m.onnx", "size_bytes": -1, "sha256": "0"}]),
        ("files[0].size_bytes", "files[0].sha256"),
        "-1; allowed: 0 to",
        "'0'; allowed: 64 lower-case hex digits",
    ),
    invalid(
        "negative rows",
        create_version(settings=model_pb2.VersionSettings(max_batch_size=-1)),
        "settings.max_batch_size",
        "-1 is out of range; allowed: 0 to 65536",
    ),
    invalid(
        "a parent and a version id that are wrong",
        lambda c: c.models.CreateModelVersion(
            model_pb.CreateModelVersionRequest(parent="m", version_id="/")
        ),
        ("parent", "version_id"),
        "allowed: models/{model}",
        ID_RULE,
    ),
    invalid(
        "an alias to another model's version",
        lambda c: c.models.SetAlias(
            model_pb.SetAliasRequest(
                alias=model_pb2.Alias(name="models/a/aliases/x", version="models/b/versions/1")
            )
        ),
        "alias.version",
        "allowed: a version of models/a",
    ),
    missing(
        "an alias to nothing",
        lambda c: c.alias("m", "x", "9"),
        "alias.version: models/m/versions/9 does not exist",
    ),
    Row(
        "an alias to an upload",
        lambda c: c.alias("m", "x", "up"),
        "FAILED_PRECONDITION",
        "VERSION_NOT_READY",
        ("alias.version",),
        ("models/m/versions/up is UPLOADING; allowed: a READY version",),
    ),
    *(
        invalid(
            f"a weight {given}", targets(1, given), "targets[1].weight", f"{given:g}; {WEIGHT_RULE}"
        )
        for given in (0.0, -1.0, NAN, INF, -INF, 1e6 + 1)
    ),
    invalid(
        "all weights zero", targets(0, 0), ("targets[0].weight", "targets[1].weight"), WEIGHT_RULE
    ),
    invalid(
        "no target",
        create_endpoint(endpoint_pb2.Endpoint()),
        "targets",
        "0 targets; allowed: 1 to 32",
    ),
    invalid(
        "a bad endpoint id", create_endpoint(policy(m__1=1), "E/1"), "endpoint_id", "'E/1'", ID_RULE
    ),
    invalid(
        "a reserved sticky header",
        with_policy(sticky_header="x-inferplane-version"),
        "sticky_header",
        "'x-inferplane-version'",
    ),
    invalid("a pseudo-header", with_policy(sticky_header=":path"), "sticky_header", "':path'"),
    invalid(
        "a mirror of 0 %",
        with_policy(mirror={"target": "models/m/versions/2"}),
        "mirror.percent",
        "0; allowed: a finite number greater than 0, at most 100",
    ),
    invalid(
        "a negative timeout",
        with_policy(timeout=Duration(seconds=-1)),
        "timeout",
        "-1 s; allowed: greater than 0 s, at most 3600 s",
    ),
    invalid(
        "a timeout beyond all bounds",
        with_policy(timeout=Duration(seconds=2**62)),
        "timeout",
        "at most 3600 s",
    ),
    invalid(
        "11 retries",
        with_policy(retry_policy={"num_retries": 11}),
        "retry_policy.num_retries",
        "11 is out of range; allowed: 0 to 10",
    ),
    Row(
        "a target that is not there",
        create_endpoint(policy(none__1=1)),
        "NOT_FOUND",
        "TARGET_NOT_FOUND",
        ("targets[0].target",),
        ("models/none/versions/1 does not exist",),
    ),
    Row(
        "a target that is uploading",
        create_endpoint(policy(m__up=1)),
        "FAILED_PRECONDITION",
        "TARGET_NOT_SERVABLE",
        ("targets[0].target",),
        ("models/m/versions/up is UPLOADING; allowed: a READY version",),
    ),
    Row(
        "a target without a pool",
        create_endpoint(policy(m__1=1, m__2=1)),
        "FAILED_PRECONDITION",
        "TARGET_NOT_SERVABLE",
        ("targets[1].target",),
        ("models/m/versions/2 is on no pool; allowed: a version that is placed",),
    ),
    invalid(
        "an unknown mask path of an endpoint",
        lambda c: c.endpoints.UpdateEndpoint(
            endpoint_pb.UpdateEndpointRequest(
                endpoint=endpoint_pb2.Endpoint(name="endpoints/e"),
                update_mask=FieldMask(paths=["targets.weight"]),
            )
        ),
        "update_mask",
        "'targets.weight'",
        "allowed: description, targets, sticky_header",
    ),
    invalid(
        "a pool and a version that are wrong",
        lambda c: c.placements.CreatePlacement(
            placement_service_pb.CreatePlacementRequest(
                parent="default", placement=placement_pb2.Placement(version="m@1")
            )
        ),
        ("parent", "placement.version"),
        "allowed: pools/{pool}",
        "allowed: models/{model}/versions/{version}",
    ),
    Row(
        "a placement of an upload",
        lambda c: c.place("models/m/versions/up"),
        "FAILED_PRECONDITION",
        "VERSION_NOT_READY",
        ("placement.version",),
        ("is UPLOADING; allowed: a READY version",),
    ),
    Row(
        "a placement twice",
        lambda c: c.place("models/m/versions/1"),
        "ALREADY_EXISTS",
        "ALREADY_EXISTS",
        (),
        ("pools/default/placements/m@1 exists already",),
    ),
    missing(
        "a placement of nothing",
        lambda c: c.place("models/m/versions/9"),
        "placement.version: models/m/versions/9 does not exist",
    ),
    invalid(
        "a worker without a name", register(name=""), "worker.name", "allowed: workers/{worker}"
    ),
    invalid(
        "a worker that is nowhere",
        register(address="here", pool="A"),
        ("worker.pool", "worker.address"),
        "allowed: host:port or unix:/path",
    ),
    invalid(
        "a worker with a version in no state",
        register(versions=[{"version": "m@1"}]),
        ("worker.versions[0].version", "worker.versions[0].state"),
        "0; allowed: PENDING, PULLING",
    ),
    invalid(
        "a lease under a second",
        register(Duration(nanos=999_000_000)),
        "ttl",
        "0.999 s; allowed: 1 s to 60 s",
    ),
    invalid(
        "a lease over a minute", register(Duration(seconds=61)), "ttl", "61 s; allowed: 1 s to 60 s"
    ),
    invalid(
        "a start beyond the calendar",
        register(start_time={"seconds": 2**62}),
        "worker.start_time",
        "allowed: years 1 to 9999",
    ),
    invalid(
        "a watch of nothing known", watch(kinds=[0]), "kinds[0]", "0; allowed: RESOURCE_KIND_MODEL"
    ),
    invalid(
        "a watch after a negative revision",
        watch(after_revision=-1),
        "after_revision",
        "-1; allowed: 0",
    ),
]


async def test_every_row(client: Client) -> None:
    """All rows against one registry, which answers each one and is unharmed at the end."""
    await client.place(await client.push("m@1"))
    await client.push("m@2")
    await client.declare("m@up", model__onnx=b"x")
    before = (await client.models.ListModels(model_pb.ListModelsRequest())).models
    problems = []
    for row in ROWS:
        async with asyncio.timeout(60):
            refusal = await refused(row.call(client))
        told = (refusal.code.name, refusal.reason, refusal.fields)
        if told != (row.code, row.reason, row.fields):
            problems.append(f"{row.says}: {told} {refusal.message}")
        problems += [
            f"{row.says}: {text!r} is not in {refusal.message!r}"
            for text in row.texts
            if text not in refusal.message
        ]
        if not refusal.metadata:
            problems.append(f"{row.says}: no metadata")
    assert not problems, "\n".join(problems)
    assert (await client.models.ListModels(model_pb.ListModelsRequest())).models == before


def test_rows_have_names_of_their_own() -> None:
    """No row hides another."""
    assert len({row.says for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("count", [1, 50])
async def test_a_message_names_what_it_must(client: Client, count: int) -> None:
    """However many targets are wrong, each is named."""
    endpoint = policy(**{f"none__{n}": NAN for n in range(min(count, 32))})
    refusal = await refused(create_endpoint(endpoint)(client))
    assert len(refusal.fields) == min(count, 32)
