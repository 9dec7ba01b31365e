"""The inspector with its real probe process: whatever the bytes, the registry goes on."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from services.registry.adapters.probe_inspector import ProbeInspector
from services.registry.domain.model import Format, Signature, TensorSpec
from services.registry.ports.model_inspector import StoredFile
from services.rpc.errors import DeadlineExceededError, InvalidArgumentError
from tests.models import bad, good

SECONDS = 60


def inspect(path: Path, seconds: float = SECONDS) -> Coroutine[Any, Any, Signature]:
    stored = StoredFile(path, path.stat().st_size)
    return ProbeInspector(seconds=seconds).inspect(Format.ONNX, {"m.onnx": stored})


def stored(folder: Path, content: bytes) -> Path:
    path = folder / "content"
    path.write_bytes(content)
    return path


async def test_a_signature_comes_back(folder: Path) -> None:
    """What the probe reads arrives as values of the domain."""
    signature = await inspect(stored(folder, good.add()))
    assert signature.outputs == (TensorSpec("total", "FP32", (-1, 2)),)
    assert all(isinstance(spec, TensorSpec) for spec in signature.inputs)


@pytest.mark.parametrize("content", [b"", bad.pickled(), bad.corrupt(), bad.external("../w")])
async def test_refusals_name_the_file(folder: Path, content: bytes) -> None:
    """What is no model is INVALID_ARGUMENT with its own reason, naming the file."""
    with pytest.raises(InvalidArgumentError) as refused:
        await inspect(stored(folder, content))
    assert refused.value.reason == "MODEL_INVALID"
    assert refused.value.message.startswith("files: 'm.onnx' is refused: ")


async def test_a_large_file_of_garbage_stalls_nobody(folder: Path) -> None:
    """While the probe reads 256 MiB of zeros the event loop goes on."""
    path = folder / "content"
    with path.open("wb") as sparse:
        sparse.truncate(256 * 1024 * 1024)
    inspecting = asyncio.create_task(inspect(path))
    turns = 0
    while not inspecting.done():
        await asyncio.wait([inspecting], timeout=0.01)
        turns += 1
    assert turns > 2
    with pytest.raises(InvalidArgumentError, match="begins with the bytes 00 00"):
        await inspecting


async def test_a_file_that_unfolds_in_memory_is_refused(folder: Path) -> None:
    """32 MiB that would become gigabytes of objects meet the probe's bound, not the machine's."""
    nodes = b"\x0a\x00" * (16 * 1024 * 1024)  # GraphProto.node, empty, many times
    length = len(nodes)
    size = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14 & 0x7F | 0x80])
    size += bytes([length >> 21 & 0x7F])
    bomb = b"\x08\x0a" + b"\x3a" + size + nodes  # ir_version 10, then graph
    with pytest.raises(InvalidArgumentError) as refused:
        await inspect(stored(folder, bomb))
    assert refused.value.reason == "MODEL_INVALID"


async def test_an_inspection_that_takes_too_long_ends(folder: Path) -> None:
    """The time is bounded; the error says by how much, and that nothing is lost."""
    with pytest.raises(DeadlineExceededError, match=r"within 0\.01 s; the upload stays"):
        await inspect(stored(folder, good.add()), seconds=0.01)


async def test_a_cancelled_inspection_leaves_no_process(folder: Path) -> None:
    """Whoever waits may go; the probe goes too, and the next inspection runs."""
    path = stored(folder, good.add())
    inspector = ProbeInspector(seconds=SECONDS, at_once=1)
    file = StoredFile(path, path.stat().st_size)
    waiting = asyncio.create_task(inspector.inspect(Format.ONNX, {"m.onnx": file}))
    await asyncio.wait([waiting], timeout=0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert (await inspector.inspect(Format.ONNX, {"m.onnx": file})).outputs
