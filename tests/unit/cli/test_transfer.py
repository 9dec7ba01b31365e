"""Pushes and pulls against a small mesh that breaks: they go on where they stopped."""

import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from inferplane.registry.v1 import model_pb2

from services.cli.adapters import transfer
from services.cli.adapters.edge import Edge
from services.cli.adapters.local_file import BLOCK, collect
from services.cli.adapters.push import PushOrder, push
from services.rpc.errors import DataLossError, FailedPreconditionError
from tests.unit.cli.small_mesh import HeardReport, Store, serving

_CONTENT = bytes(range(256)) * (5 * BLOCK // 256)  # five blocks


def _order(version: str | None = None) -> PushOrder:
    return PushOrder(
        model="m",
        version=version,
        description=None,
        tags={},
        lineage={},
        settings=model_pb2.VersionSettings(),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a data file and an empty file."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(b"graph")
    (folder / "w.bin").write_bytes(_CONTENT)
    (folder / "empty").write_bytes(b"")
    return folder


async def test_upload_goes_on_after_each_break(
    edge: Edge, store: Store, report: HeardReport, folder: Path
) -> None:
    """Two breaks in the middle: each next try begins where the bytes ended, and all arrive once."""
    store.break_after = [2 * BLOCK, BLOCK]
    files = collect(folder, report)
    pushed = await push(edge, _order(), files, report)
    assert pushed.state == model_pb2.VERSION_STATE_READY
    name = "models/m/versions/1"
    assert {path: store.bytes[name, path] for path in ("empty", "m.onnx", "w.bin")} == {
        "empty": b"",
        "m.onnx": b"graph",
        "w.bin": _CONTENT,
    }
    offsets = [offset for path, offset in store.uploads if path == "w.bin"]
    assert offsets == [0, 2 * BLOCK, 3 * BLOCK]
    assert sum("goes on from where it stopped" in text for text in report.said) == 2


async def test_upload_that_never_moves_is_given_up(
    edge: Edge, store: Store, report: HeardReport, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mesh that takes no byte again and again ends the push with its own error."""
    monkeypatch.setattr(transfer, "_TRIES", 3)
    store.takes_nothing = True
    with pytest.raises(grpc.aio.AioRpcError, match="no room"):
        await push(edge, _order(), collect(folder, report), report)
    assert len(store.uploads) == 3


async def test_begun_push_is_taken_up_under_its_number(
    edge: Edge, store: Store, report: HeardReport, folder: Path
) -> None:
    """A push without a version finds the unfinished one with the same files; other files get the next number."""
    files = collect(folder, report)
    store.stop_after = 2 * BLOCK
    pushing = asyncio.create_task(push(edge, _order(), files, report))
    await store.stopped.wait()
    pushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pushing
    store.stop_after = None
    again = await push(edge, _order(), files, report)
    assert again.name == "models/m/versions/1"
    assert store.bytes["models/m/versions/1", "w.bin"] == _CONTENT
    (folder / "m.onnx").write_bytes(b"another graph")
    other = await push(edge, _order(), collect(folder, report), report)
    assert other.name == "models/m/versions/2"


async def test_push_is_idempotent(edge: Edge, report: HeardReport, folder: Path) -> None:
    """The same again sends nothing; other files or settings under the name are refused."""
    files = collect(folder, report)
    first = await push(edge, _order("9"), files, report)
    assert await push(edge, _order("9"), files, report) == first
    assert report.said[-1] == "m@9 is there already, with the same files"
    batched = replace(_order("9"), settings=model_pb2.VersionSettings(max_batch_size=8))
    for order, sent in ((_order("9"), files[:1]), (batched, files)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await push(edge, order, sent, report)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_another_push_of_the_same_that_is_quicker_is_success(
    edge: Edge, store: Store, report: HeardReport, folder: Path
) -> None:
    """A push that lost the race to finish takes what is there, if it is what was asked for."""
    store.others_finish = True
    pushed = await push(edge, _order("1"), collect(folder, report), report)
    assert pushed.state == model_pb2.VERSION_STATE_READY


def test_bytes_that_another_push_sends_are_movement(report: HeardReport) -> None:
    """While more and more has arrived nobody gives up, whoever sends it."""
    resumption = transfer.Resumption(report)
    attempts = 0

    async def waits_for_another() -> None:
        nonlocal attempts
        async for attempt in resumption.attempts():
            with attempt:
                attempts += 1
                resumption.saw(min(attempts, 20))
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata()
                )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer.Resumption, "_wait", lambda _self, _state: 0)
        with pytest.raises(grpc.aio.AioRpcError):
            asyncio.run(waits_for_another())
    assert attempts == 20 + transfer._TRIES - 1


async def test_file_that_shrinks_is_refused(edge: Edge, report: HeardReport, folder: Path) -> None:
    """A file that was cut after it was hashed ends the push, naming it."""
    files = collect(folder, report)
    (folder / "w.bin").write_bytes(_CONTENT[: BLOCK + 1])
    with pytest.raises(FailedPreconditionError, match=r"w\.bin: .* the file shrank"):
        await push(edge, _order(), files, report)


async def test_file_that_changes_is_refused(edge: Edge, report: HeardReport, folder: Path) -> None:
    """Other bytes of the same length are found by their digest."""
    files = collect(folder, report)
    (folder / "w.bin").write_bytes(b"x" + _CONTENT[1:])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await push(edge, _order(), files, report)
    assert refused.value.code() is grpc.StatusCode.DATA_LOSS


async def test_download_goes_on_after_a_break(
    edge: Edge, store: Store, report: HeardReport, folder: Path, tmp_path: Path
) -> None:
    """A broken download is completed from where it stopped, verified, and only then takes its name."""
    version = await push(edge, _order(), collect(folder, report), report)
    store.break_after = [BLOCK, 2 * BLOCK]
    target = tmp_path / "pulled"
    paths = await transfer.download(edge, version, target, report)
    assert [path.name for path in paths] == ["empty", "m.onnx", "w.bin"]
    assert (target / "w.bin").read_bytes() == _CONTENT
    assert not list(target.glob("*.part"))


async def test_download_with_another_digest_is_thrown_away(
    edge: Edge, store: Store, report: HeardReport, folder: Path, tmp_path: Path
) -> None:
    """Bytes that are not what was pushed never take the file's name."""
    version = await push(edge, _order(), collect(folder, report), report)
    store.bytes[version.name, "m.onnx"] = b"hparg"
    with pytest.raises(DataLossError, match=r"^m\.onnx: "):
        await transfer.download(edge, version, tmp_path, report)
    assert not (tmp_path / "m.onnx").exists()
    assert not (tmp_path / "m.onnx.part").exists()


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x"])
async def test_download_stays_inside_its_folder(
    edge: Edge, report: HeardReport, tmp_path: Path, path: str
) -> None:
    """A registry that names a place outside is not believed."""
    version = model_pb2.ModelVersion(files=[model_pb2.ArtifactFile(path=path)])
    with pytest.raises(FailedPreconditionError, match="is outside of"):
        await transfer.download(edge, version, tmp_path, report)


async def test_planted_link_is_not_followed(
    edge: Edge, store: Store, report: HeardReport, folder: Path, tmp_path: Path
) -> None:
    """A link under the partial file's name does not lead the bytes elsewhere."""
    version = await push(edge, _order(), collect(folder, report), report)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    target = tmp_path / "pulled"
    target.mkdir()
    (target / "m.onnx.part").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        await transfer.download(edge, version, target, report)
    assert victim.read_bytes() == b"mine"


async def test_ctrl_c_keeps_what_arrived(store: Store, folder: Path) -> None:
    """The real command, interrupted in the middle: exit code 130 and what to do; what arrived stays."""
    store.stop_after = 2 * BLOCK
    async with serving(store) as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.cli", "models", "push", "m", str(folder), "--address", address),
            stderr=asyncio.subprocess.PIPE,
        )
        await store.stopped.wait()
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
    assert process.returncode == 130
    assert told.decode().splitlines() == [
        "interrupted; what arrived is kept for a while: the same command goes on from there"
    ]
    assert len(store.bytes["models/m/versions/1", "w.bin"]) == 2 * BLOCK
