"""The commands against a real mesh: push to inference, changes of traffic, failures and what they tell."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from inferplane.registry.v1 import model_pb2

from services.cli.adapters.edge import connect
from services.cli.adapters.inference import InferenceCall, infer
from services.cli.adapters.local_file import collect
from services.cli.adapters.push import PushOrder, push
from services.cli.adapters.rollout import Rollout, roll_out
from services.rpc.names import VersionName
from tests.integration.cli.running_mesh import RunningMesh, running_mesh
from tests.models import bad, good
from tests.unit.cli.small_mesh import HeardReport

_INPUT = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """One mesh for all tests here; each uses models and endpoints of its own."""
    variables = {"INFERPLANE_TUNE_SECONDS": "0.5"}
    with running_mesh(tmp_path_factory.mktemp("state"), "--workers", "1", **variables) as running:
        yield running


def _write(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def _ok(mesh: RunningMesh, *arguments: str, stdin: str = "") -> Any:
    """Run a command with JSON output; its result."""
    done = mesh.cli_inside(*arguments, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def _refused(mesh: RunningMesh, code: int, *arguments: str, stdin: str = "") -> dict[str, Any]:
    """Run a command that must fail with this exit code; its error, which is the last line of stderr."""
    done = mesh.cli_inside(*arguments, "-o", "json", stdin=stdin)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    error: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
    return error


def _push(mesh: RunningMesh, tmp_path: Path, reference: str, factor: float = 2) -> Any:
    return _ok(
        mesh, "models", "push", reference, _write(tmp_path, "m.onnx", good.affine(factor, 2))
    )


def _y(mesh: RunningMesh, endpoint: str, *options: str) -> tuple[str, list[float]]:
    """What an endpoint answers to 1, 2: the version and the first output."""
    answer = _ok(mesh, "infer", endpoint, "--json", "-", *options, stdin=json.dumps(_INPUT))
    return answer["model_version"], answer["outputs"][0]["data"]


async def test_the_same_at_the_same_time(mesh: RunningMesh, tmp_path: Path) -> None:
    """Five pushes of one version, then three deploys of it, all at once: all succeed, and one thing is there."""
    report = HeardReport()
    files = collect(Path(_write(tmp_path, "m.onnx", good.affine(2, 2))), report)
    order = PushOrder(
        model="same",
        version="1",
        description="d",
        tags={},
        lineage={},
        settings=model_pb2.VersionSettings(),
    )
    rollout = Rollout(
        version=VersionName("same", "1"),
        endpoint="same",
        percent=None,
        pool="default",
        seconds=30,
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(mesh.key())
        edges = [await stack.enter_async_context(connect(mesh.address)) for _ in range(5)]
        pushed = await asyncio.gather(*(push(edge, order, files, report) for edge in edges))
        assert [version.digest for version in pushed] == [pushed[0].digest] * 5
        done = await asyncio.gather(*(roll_out(edge, rollout, report) for edge in edges[:3]))
    assert [out.endpoint.etag for out in done] == [done[0].endpoint.etag] * 3
    assert await asyncio.to_thread(_y, mesh, "same") == ("1", [2, 4])


def test_from_push_to_traffic(mesh: RunningMesh, tmp_path: Path) -> None:
    """The main road: push two versions, deploy the first, add the second at 10 %, move everything, roll back.

    1. `push` without a version numbers them 1 and 2 and prints the signature.
    2. `deploy` makes the endpoint; `infer` is answered by version 1.
    3. `deploy --weight 10` gives the second 10 % and leaves 90 %.
    4. `traffic set` moves everything to the second; `undeploy` is refused while it serves.
    """
    first, second = _push(mesh, tmp_path, "road", 2), _push(mesh, tmp_path, "road", 3)
    assert [v["name"] for v in (first, second)] == [f"models/road/versions/{n}" for n in (1, 2)]
    assert first["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}]
    deployed = mesh.cli_inside("deploy", "road@1")
    assert deployed.returncode == 0
    assert ": ready" in deployed.stderr
    assert "next: inferplane infer road --json FILE" in deployed.stderr
    assert _y(mesh, "road") == ("1", [2, 4])
    endpoint = _ok(mesh, "deploy", "road@2", "--weight", "10")
    assert [(t["target"][-1], t["weight"]) for t in endpoint["targets"]] == [("1", 90), ("2", 10)]
    assert _y(mesh, "road", "--version", "2") == ("2", [3, 6])
    refused = _refused(mesh, 5, "undeploy", "road@2")
    assert "road" in refused["message"]
    moved = _ok(mesh, "traffic", "set", "road", "2=1")
    assert [t["target"] for t in moved["targets"]] == ["models/road/versions/2"]
    assert _y(mesh, "road") == ("2", [3, 6])
    _ok(mesh, "undeploy", "road@1")
    assert _refused(mesh, 3, "undeploy", "road@1")["reason"] == "NOT_PLACED"


def test_deploy_of_what_fails_leaves_traffic_alone(mesh: RunningMesh, tmp_path: Path) -> None:
    """A version that can't be loaded: exit code 5 with the worker's reason; the endpoint's split is as it was."""
    _push(mesh, tmp_path, "frail@1")
    before = _ok(mesh, "deploy", "frail@1")
    _ok(mesh, "models", "push", "frail@2", _write(tmp_path, "h.onnx", bad.hungry()))
    error = _refused(mesh, 5, "deploy", "frail@2", "--weight", "50")
    assert error["reason"] == "LOAD_FAILED"
    assert error["metadata"]["load_error"]
    assert error["metadata"]["load_error"] in error["message"]
    assert _ok(mesh, "endpoints", "get", "frail") == before
    assert _y(mesh, "frail") == ("1", [2, 4])
    status = mesh.cli_inside("status", "--once").stdout
    assert error["metadata"]["load_error"][:40] in status
    _ok(mesh, "undeploy", "frail@2")


def test_deploy_without_a_worker_says_so(mesh: RunningMesh, tmp_path: Path) -> None:
    """A pool without workers: exit code 4 after the timeout, and how to run one."""
    _push(mesh, tmp_path, "lonely@1")
    error = _refused(mesh, 4, "deploy", "lonely@1", "--pool", "gpu", "--timeout", "0.5")
    assert error["reason"] == "NO_WORKER"
    assert "inferplane worker --pool gpu" in error["message"]
    assert _refused(mesh, 3, "endpoints", "get", "lonely")["status"] == "NOT_FOUND"


def test_tune(mesh: RunningMesh, tmp_path: Path) -> None:
    """A version that is served is measured by its worker, answers meanwhile, and keeps what was found."""
    _push(mesh, tmp_path, "tuned@1")
    assert _refused(mesh, 5, "tune", "tuned@1")["reason"] == "NOT_PLACED"
    _ok(mesh, "deploy", "tuned@1")
    tuned = _ok(mesh, "tune", "tuned@1")
    assert tuned["before"]["rows_per_second"] is None
    assert tuned["after"]["ratio"] > 0
    assert tuned["model_version"]["tuning"]["instances"] == tuned["after"]["instances"]
    assert _ok(mesh, "models", "get", "tuned@1") == tuned["model_version"]
    assert _y(mesh, "tuned") == ("1", [2, 4])


def test_push_again_changes_nothing(mesh: RunningMesh, tmp_path: Path) -> None:
    """The same files under the same name are there already; other files under it are refused."""
    assert _push(mesh, tmp_path, "twice@1") == _push(mesh, tmp_path, "twice@1")
    assert _push(mesh, tmp_path, "twice")["name"] == "models/twice/versions/1"
    path = _write(tmp_path, "m.onnx", good.affine(9, 2))
    error = _refused(mesh, 5, "models", "push", "twice@1", path)
    assert error["status"] == "ALREADY_EXISTS"


def test_push_of_a_folder_and_pull(mesh: RunningMesh, tmp_path: Path) -> None:
    """External data goes along, tags and lineage are kept, and what is pulled has the bytes that were pushed."""
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    files = {"m.onnx": bad.external("data/w.bin"), "data/w.bin": b"\x00\x00\x80\x3f" * 2}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    settings = _write(tmp_path, "s.yaml", b"{max_batch_size: 4, max_queue_rows: 99, cpus: [0]}")
    pushed = _ok(
        mesh,
        *("models", "push", "folder", str(folder), "--tag", "team=vision", "--lineage", "run=7"),
        *("--description", "adds", "--max-batch-size", "8", "--max-queue-delay-us", "500"),
        *("--settings", settings),
    )
    assert [file["path"] for file in pushed["files"]] == ["data/w.bin", "m.onnx"]
    assert pushed["lineage"] == {"run": "7"}
    assert pushed["settings"]["max_batch_size"] == 8  # the flag's, not the file's
    assert (pushed["settings"]["max_queue_rows"], pushed["settings"]["cpus"]) == ("99", [0])
    model = _ok(mesh, "models", "get", "folder")
    assert (model["description"], model["tags"]) == ("adds", {"team": "vision"})
    target = tmp_path / "pulled"
    _ok(mesh, "models", "pull", "folder@1", str(target))
    assert {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*.*")} == files
    # What is there already is not fetched again; half of a file is completed.
    (target / "m.onnx").unlink()
    (target / "m.onnx.part").write_bytes(files["m.onnx"][:10])
    _ok(mesh, "models", "pull", "folder@1", str(target))
    assert (target / "m.onnx").read_bytes() == files["m.onnx"]
    (target / "m.onnx").unlink()
    (target / "m.onnx.part").write_bytes(b"x" * 10)
    error = _refused(mesh, 1, "models", "pull", "folder@1", str(target))
    assert error["status"] == "DATA_LOSS"
    assert not (target / "m.onnx").exists()


def test_push_of_settings_that_do_not_fit(mesh: RunningMesh, tmp_path: Path) -> None:
    """The field is told with what the model has; the same version takes other settings without sending again."""
    path = _write(tmp_path, "m.onnx", good.affine(2, 2))
    settings = _write(tmp_path, "s.yaml", b"padded_inputs: [{name: x, axis: 1}]")
    done = mesh.cli_inside("models", "push", "unfit", path, "--settings", settings)
    assert done.returncode == 5
    assert "settings.padded_inputs[0].axis: 1 of 'x', which has shape [?, 2]" in done.stderr
    assert "with other settings: inferplane models push unfit@1 PATH" in done.stderr
    settings = _write(tmp_path, "s.yaml", b"batch_axis: BATCH_AXIS_FIRST")
    pushed = _ok(mesh, "models", "push", "unfit@1", path, "--settings", settings)
    assert pushed["settings"]["batch_axis"] == "BATCH_AXIS_FIRST"


def test_push_refuses_links(mesh: RunningMesh, tmp_path: Path) -> None:
    """Symbolic and hard links are refused by name, before anything is sent."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(good.affine(2))
    link = folder / "data.bin"
    link.symlink_to("/etc/passwd")
    error = _refused(mesh, 5, "models", "push", "links", str(folder))
    assert error["reason"] == "FILE_NOT_REGULAR"
    assert f"{link}: is a symbolic link to /etc/passwd" in error["message"]
    link.unlink()
    link.hardlink_to(folder / "m.onnx")
    assert "hard link" in _refused(mesh, 5, "models", "push", "links", str(folder))["message"]
    _refused(mesh, 3, "models", "get", "links")
    missing = _refused(mesh, 2, "models", "push", "links", str(tmp_path / "none"))
    assert "No such file" in missing["message"]


def test_push_of_no_model_is_refused_with_the_reason(mesh: RunningMesh, tmp_path: Path) -> None:
    """A pickle named .onnx does not stay."""
    path = _write(tmp_path, "m.onnx", bad.pickled())
    assert _refused(mesh, 5, "models", "push", "pickle@1", path)["reason"] == "MODEL_INVALID"
    _refused(mesh, 3, "models", "get", "pickle@1")


def test_apply(mesh: RunningMesh, tmp_path: Path) -> None:
    """Created, then unchanged, then configured; an unknown field is refused with its path, and nothing is applied."""
    _push(mesh, tmp_path, "written@1")
    _ok(mesh, "deploy", "written@1", "--endpoint", "other")
    text = (
        "name: endpoints/written\ntargets:\n- target: models/written/versions/1\n  weight: 1\n"
        "timeout: 2.5s\n---\nname: written-too\ntargets:\n"
        "- {target: models/written/versions/1, weight: 3}\n"
    )
    applied = [
        [one["applied"] for one in _ok(mesh, "endpoints", "apply", "-f", "-", stdin=body)]
        for body in (text, text, text.replace("2.5s", "3s"))
    ]
    assert applied == [["created"] * 2, ["unchanged"] * 2, ["configured", "unchanged"]]
    assert _ok(mesh, "endpoints", "get", "written")["timeout"] == "3s"
    typo = text.replace("weight: 3", "wieght: 3")
    error = _refused(mesh, 2, "endpoints", "apply", "-f", "-", stdin=typo)
    assert "document 2: unknown field `targets[0].wieght`" in error["message"]
    names = [e["name"] for e in _ok(mesh, "endpoints", "list")]
    assert {"endpoints/other", "endpoints/written", "endpoints/written-too"} <= set(names)
    _ok(mesh, "endpoints", "delete", "written-too")
    _refused(mesh, 3, "endpoints", "delete", "written-too")


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "targets: []", "name: 7"])
def test_apply_of_no_endpoint_is_refused(mesh: RunningMesh, text: str) -> None:
    """What is no YAML, or YAML of something else, is told as that."""
    error = _refused(mesh, 2, "endpoints", "apply", "-f", "-", stdin=text)
    assert error["message"].startswith("-")


def test_traffic_by_alias(mesh: RunningMesh, tmp_path: Path) -> None:
    """Aliases are targets, are moved and listed; a bad weight and an unknown target are told by name."""
    for factor in (2, 3):
        _push(mesh, tmp_path, "moving", factor)
    for version in ("1", "2"):
        _ok(mesh, "deploy", f"moving@{version}")
    _ok(mesh, "aliases", "set", "moving@1", "champion")
    split = _ok(mesh, "traffic", "set", "moving", "champion=3", "moving@2=1")
    assert [t["target"] for t in split["targets"]] == [
        "models/moving/aliases/champion",
        "models/moving/versions/2",
    ]
    _ok(mesh, "traffic", "set", "moving", "champion=1")
    _ok(mesh, "aliases", "set", "moving@2", "champion")
    assert _ok(mesh, "aliases", "list", "moving")[0]["version"] == "models/moving/versions/2"
    assert (
        _refused(mesh, 5, "aliases", "delete", "moving@champion")["status"] == "FAILED_PRECONDITION"
    )
    bad_weight = _refused(mesh, 5, "traffic", "set", "moving", "1=-1")
    assert bad_weight["violations"][0]["field"] == "targets[0].weight"
    assert (
        "neither a version nor an alias '9'"
        in _refused(mesh, 3, "traffic", "set", "moving", "9=1")["message"]
    )
    assert _refused(mesh, 2, "traffic", "set", "moving", "9")["reason"] == "USAGE"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param("{", 5, id="no JSON"),
        pytest.param('{"inputs": []}', 5, id="input missing"),
        pytest.param(json.dumps(_INPUT).replace("FP32", "INT32"), 5, id="wrong datatype"),
    ],
)
def test_infer_tells_the_server_s_error(
    mesh: RunningMesh, tmp_path: Path, body: str, code: int
) -> None:
    """A bad request ends with exit code 5 and the worker's own words."""
    _push(mesh, tmp_path, "judged@1")
    if mesh.cli_inside("endpoints", "get", "judged").returncode:
        _ok(mesh, "deploy", "judged@1")
    error = _refused(mesh, code, "infer", "judged", "--json", "-", stdin=body)
    assert error["status"] == "INVALID_ARGUMENT"
    assert error["message"]


def test_infer_on_what_is_not_there(mesh: RunningMesh, tmp_path: Path) -> None:
    """An unknown endpoint is exit code 3, a missing file a usage error."""
    body = _write(tmp_path, "r.json", json.dumps(_INPUT).encode())
    assert "nowhere" in _refused(mesh, 3, "infer", "nowhere", "--json", body)["message"]
    assert (
        _refused(mesh, 2, "infer", "nowhere", "--json", str(tmp_path / "no"))["reason"] == "USAGE"
    )


def test_status_counts_calls(mesh: RunningMesh, tmp_path: Path) -> None:
    """Status has the endpoint with shares and ready workers, and counts what was called."""
    _push(mesh, tmp_path, "counted@1")
    _ok(mesh, "deploy", "counted@1")
    ended = threading.Event()

    def call() -> None:
        body = json.dumps(_INPUT).encode()
        while not ended.is_set():
            infer(InferenceCall(mesh.address, "counted", None, body, seconds=30))

    with mesh.key():
        caller = threading.Thread(target=copy_context().run, args=(call,))
    caller.start()
    try:
        status = _ok(mesh, "status", "--interval", "3")
    finally:
        ended.set()
        caller.join()
    endpoint = next(e for e in status["endpoints"] if e["name"] == "endpoints/counted")
    target = endpoint["targets"][0]
    assert (target["declared_share"], target["effective_share"], target["ready_workers"]) == (
        1,
        1,
        1,
    )
    rate = status["rates"]["models/counted/versions/1"]
    assert rate["calls_per_second"] > 0
    assert rate["mean_ms"] > 0
    assert status["router"]["registry_connected"] is True
    assert status["workers"][0]["pool"] == "default"
    text = mesh.cli_inside("status").stdout
    assert "counted@1" in text
    assert "in sync" in text


def test_list_and_delete(mesh: RunningMesh, tmp_path: Path) -> None:
    """Models and versions are listed and deleted; what is served is not."""
    _push(mesh, tmp_path, "gone@1")
    assert "gone" in [m["name"].split("/")[1] for m in _ok(mesh, "models", "list")]
    assert [v["name"] for v in _ok(mesh, "models", "list", "gone")] == ["models/gone/versions/1"]
    table = mesh.cli_inside("models", "list", "gone").stdout.splitlines()
    assert table[0].split()[:3] == ["VERSION", "STATE", "SIZE"]
    assert table[1].startswith("gone@1")
    _ok(mesh, "deploy", "gone@1")
    assert _refused(mesh, 5, "models", "delete", "gone@1")["status"] == "FAILED_PRECONDITION"
    _ok(mesh, "endpoints", "delete", "gone")
    _ok(mesh, "undeploy", "gone@1")
    refused = _refused(mesh, 5, "models", "delete", "gone")
    assert refused["status"] == "FAILED_PRECONDITION"
    assert "inferplane models delete gone --force" in refused["message"]
    _ok(mesh, "models", "delete", "gone", "--force")
    assert _refused(mesh, 3, "models", "list", "gone")["status"] == "NOT_FOUND"
