"""Language models in a whole registry: declared, uploaded, described, or refused with their reason."""

from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import pytest
from inferplane.registry.v1 import model_pb2, model_service_pb2

from tests.integration.registry.client import Client, file_of, refused
from tests.unit.modelfiles.raw_gguf import RawGguf, tensor
from tests.unit.worker.llm.tiny_folders import write_folder
from tests.unit.worker.llm.tiny_models import ALL, Tiny, write_tiny

GGUF, SAFETENSORS = model_pb2.FORMAT_GGUF, model_pb2.FORMAT_SAFETENSORS


async def declare(
    client: Client,
    files: Mapping[str, bytes],
    kind: model_pb2.Format.ValueType = GGUF,
    settings: model_pb2.VersionSettings | None = None,
) -> model_pb2.ModelVersion:
    request = model_service_pb2.CreateModelVersionRequest(
        parent="models/m",
        version_id="1",
        model_version=model_pb2.ModelVersion(
            format=kind,
            files=[file_of(path, content) for path, content in files.items()],
            settings=settings,
        ),
    )
    return (await client.models.CreateModelVersion(request)).model_version


async def push(
    client: Client, files: Mapping[str, bytes], kind: model_pb2.Format.ValueType = GGUF
) -> model_pb2.ModelVersion:
    name = (await declare(client, files, kind)).name
    for path, content in files.items():
        await client.upload(name, path, content)
    return await client.finish(name)


async def test_a_gguf_file_is_described(client: Client, folder: Path) -> None:
    """The version is READY, has no tensors, and says what its file says."""
    content = write_tiny(folder / "m.gguf", ALL["gemma3"]).read_bytes()
    version = await push(client, {"gemma.gguf": content})
    assert version.state == model_pb2.VERSION_STATE_READY
    assert (len(version.inputs), len(version.outputs)) == (0, 0)
    said = version.language_model
    assert (said.architecture, said.layer_count, said.precision) == ("gemma3", 7, "F32")
    assert (said.context_length, said.vocabulary_size) == (256, 288)
    assert said.has_chat_template


async def test_a_model_of_transformers_is_described(client: Client, folder: Path) -> None:
    """Several files are one model, wherever the registry keeps their contents."""
    written = write_folder(folder / "m", ALL["qwen2"])
    files = {path.name: path.read_bytes() for path in written.iterdir()}
    version = await push(client, files, SAFETENSORS)
    assert version.language_model.architecture == "qwen2"
    assert version.language_model.has_chat_template


def whole(folder: Path) -> bytes:
    return write_tiny(folder / "m.gguf").read_bytes()


def raw(**parts: object) -> Callable[[Path], bytes]:
    return lambda folder: RawGguf(**parts).write(folder / "r.gguf").read_bytes()  # type: ignore[arg-type]


BAD: Mapping[str, tuple[Callable[[Path], bytes], str]] = {
    "truncated": (lambda folder: whole(folder)[:-5000], "a file that is not cut off"),
    "truncated in its header": (
        lambda folder: whole(folder)[:700],
        "the file has no room for more",
    ),
    "no GGUF": (lambda _: b"\0" * 4096, "magic: b'\\x00\\x00\\x00\\x00'; allowed: b'GGUF'"),
    "empty": (lambda _: b"", "file: 0 bytes; allowed: a GGUF file"),
    "a count that lies": (raw(tensor_count=2**60), "number of tensors: 1152921504606846976"),
    "a tensor of size zero": (raw(tensors=(tensor("t", (0,)),)), "no size of 0"),
    "an offset past the end": (
        raw(tensors=(tensor("t", (32,), offset=2**40),)),
        "a file that is not cut off",
    ),
    "an architecture that is not served": (
        lambda folder: write_tiny(
            folder / "m.gguf", Tiny(keys={"general.architecture": "deepseek2"})
        ).read_bytes(),
        "'deepseek2' is not supported; allowed: llama, qwen2, qwen3, gemma3, phi3",
    ),
}


@pytest.mark.parametrize(("make", "said"), BAD.values(), ids=BAD.keys())
async def test_bad_files_are_refused(
    client: Client, folder: Path, make: Callable[[Path], bytes], said: str
) -> None:
    """INVALID_ARGUMENT says the place, what is there and what is allowed; the version does not stay."""
    refusal = await refused(push(client, {"m.gguf": make(folder)}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID")
    assert said in refusal.message
    assert refusal.metadata["file"] == "m.gguf"
    gone = model_service_pb2.GetModelVersionRequest(name="models/m/versions/1")
    assert (await refused(client.models.GetModelVersion(gone))).code is grpc.StatusCode.NOT_FOUND


async def test_settings_are_those_of_its_kind(client: Client, folder: Path) -> None:
    """What a language model would never use is refused when it's declared, a too long context once it's read."""
    content = whole(folder)
    wrong = model_pb2.VersionSettings(max_batch_size=8)
    wrong.generation.max_tenant_percent = 101
    refusal = await refused(declare(client, {"m.gguf": content}, settings=wrong))
    assert set(refusal.fields) == {
        "settings.max_batch_size",
        "settings.generation.max_tenant_percent",
    }
    long = model_pb2.VersionSettings(intra_op_threads=1)
    long.generation.context_length = 257
    name = (await declare(client, {"m.gguf": content}, settings=long)).name
    await client.upload(name, "m.gguf", content)
    refusal = await refused(client.finish(name))
    assert refusal.fields == ("settings.generation.context_length",)
    long.generation.context_length = 256
    await declare(client, {"m.gguf": content}, settings=long)
    assert (await client.finish(name)).settings.generation.context_length == 256
