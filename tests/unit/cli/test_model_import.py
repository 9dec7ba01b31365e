"""From a source to what is pushed: real files and the real check; the hub is a small one of our own."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants
from inferplane.registry.v1 import model_pb2

from services.cli.adapters.edge import Edge
from services.cli.adapters.model_artifact import recognise
from services.cli.adapters.model_import import Importer
from services.cli.adapters.push import PushOrder, push
from services.cli.adapters.source_cache import SourceCache
from services.cli.domain.exit_code import UsageError
from services.cli.domain.model_source import parse_source
from services.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from tests.unit.cli.model_hub import COMMIT, Hub, serving
from tests.unit.cli.small_mesh import HeardReport, Store
from tests.unit.worker.llm.tiny_folders import write_folder
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", Tiny(precision="Q8_0"))


@pytest.fixture
def importer(tmp_path: Path, report: HeardReport) -> Importer:
    """Imports without measuring."""
    return Importer(cache=SourceCache(tmp_path / "sources"), report=report, accuracy=False)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_gguf_file(
    model: Path, importer: Importer, report: HeardReport, edge: Edge, store: Store
) -> None:
    """It is checked, told, and pushed with its format, where it came from, its digest and what read it."""
    found = importer.source(parse_source(f"gguf:{model}"))
    assert [file.path for file in found.files] == ["tiny.gguf"]
    assert found.lineage["source_digest"] == f"sha256:{_digest(model)}"
    assert found.lineage["architecture"] == "llama"
    assert found.lineage["precision"] == "Q8_0"
    assert "gguf " in found.lineage["checked_with"]
    assert any(said.startswith("llama, ") and "Q8_0" in said for said in report.said)
    assert importer.path(model).lineage["source"] == str(model)
    order = PushOrder(
        model="tiny",
        version=None,
        description=None,
        tags={},
        lineage=found.lineage,
        settings=model_pb2.VersionSettings(),
        format=found.format,
    )
    pushed = await push(edge, order, found.files, report)
    assert pushed.format == model_pb2.FORMAT_GGUF
    assert pushed.lineage["source"] == f"gguf:{model}"
    stored = hashlib.sha256(store.bytes[pushed.name, "tiny.gguf"])
    assert stored.hexdigest() == _digest(model)


def test_what_precision_costs(model: Path, importer: Importer, report: HeardReport) -> None:
    """It is measured on request, told, and kept as lineage."""
    found = replace(importer, accuracy=True).path(model)
    assert 0 <= float(found.lineage["accuracy_kl"]) < 0.1
    assert 0.5 < float(found.lineage["accuracy_argmax_agreement"]) <= 1
    assert any(said.startswith("against 32-bit floats: KL 0.") for said in report.said)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        pytest.param(
            lambda path: write_tiny(path, Tiny(keys={"general.architecture": "mamba"})),
            "mamba",
            id="an architecture that is not served",
        ),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1000]), "", id="cut short"),
        pytest.param(lambda path: path.write_bytes(b"GGUF"), "", id="a magic and no more"),
    ],
)
def test_what_workers_can_not_load_is_refused(
    spoil: Callable[[Path], object], told: str, model: Path, tmp_path: Path, importer: Importer
) -> None:
    """The check's own words are shown with the file's name; nothing has been sent by then."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(model.read_bytes())
    spoil(path)
    with pytest.raises(InvalidArgumentError, match=f"bad.gguf: .*{told}"):
        importer.path(path)


def test_what_is_no_language_model(tmp_path: Path, importer: Importer) -> None:
    """A name or a source that promises one is not believed; an ONNX file by its path is as it was."""
    path = tmp_path / "a.gguf"
    with pytest.raises(UsageError, match="no such file"):
        importer.source(parse_source(f"gguf:{path}"))
    path.write_bytes(b"pickle")
    with pytest.raises(FailedPreconditionError, match="does not begin with GGUF"):
        importer.source(parse_source(f"gguf:{path}"))
    onnx = tmp_path / "a.onnx"
    onnx.write_bytes(b"onnx")
    with pytest.raises(FailedPreconditionError, match="is no language model"):
        importer.source(parse_source(f"gguf:{onnx}"))
    found = importer.path(onnx)
    assert (found.format, found.lineage) == (model_pb2.FORMAT_ONNX, {})
    (tmp_path / "named.bin").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"must end in .gguf"):
        recognise(tmp_path / "named.bin")


def test_what_is_no_model(tmp_path: Path, importer: Importer) -> None:
    """A file or folder that can't be one is told with what can, before anything is sent; what isn't there as before."""
    (tmp_path / "notes.md").write_text("notes")
    for path in (tmp_path, tmp_path / "notes.md"):
        with pytest.raises(FailedPreconditionError, match=r"is no model; allowed: .*\.gguf"):
            importer.path(path)
    with pytest.raises(UsageError, match="No such file"):
        importer.path(tmp_path / "nothing")


def test_a_folder_of_transformers(tmp_path: Path) -> None:
    """Of a folder only what the model is read from is pushed."""
    wanted = {"config.json", "tokenizer.json", "model-1.safetensors", "model-2.safetensors"}
    for name in (*wanted, "README.md", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "onnx").mkdir()
    artifact = recognise(tmp_path)
    assert artifact.format == model_pb2.FORMAT_SAFETENSORS
    assert {file.path for file in artifact.files(HeardReport())} == wanted


@pytest.fixture
def point_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes the hub's client ask another hub."""

    def point(address: str) -> None:
        files = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))

    return point


def test_the_hub(
    model: Path, tmp_path: Path, importer: Importer, point_to: Callable[[str], None]
) -> None:
    """1. The one GGUF file is fetched at the commit. 2. With the commit named, nobody is asked again."""
    hub = Hub("owner/tiny", {"tiny.gguf": model.read_bytes(), "README.md": b"hello"})
    with serving(hub) as address:
        point_to(address)
        found = importer.source(parse_source("hf:owner/tiny"))
        assert found.files[0].source.parent == tmp_path / "sources" / "content" / _digest(model)
        assert found.lineage["source"] == "hf:owner/tiny"
        assert not any(path.endswith("README.md") for path in hub.asked)
        asked = len(hub.asked)
        again = importer.source(parse_source(f"hf:owner/tiny@{COMMIT}"))
        assert (again.files, len(hub.asked)) == (found.files, asked)


def test_what_the_hub_has_not(
    importer: Importer, point_to: Callable[[str], None], free_address: str
) -> None:
    """A repository that is not there, one with a choice, one without a model, and no hub at all are told apart."""
    with serving(Hub("owner/two", {"a.gguf": b"GGUF", "b.gguf": b"GGUF"})) as address:
        point_to(address)
        with pytest.raises(NotFoundError, match="hf:owner/absent: the hub refuses"):
            importer.source(parse_source("hf:owner/absent"))
        with pytest.raises(FailedPreconditionError, match=r"hf:owner/two#FILE; files: a.gguf, b"):
            importer.source(parse_source("hf:owner/two"))
        with pytest.raises(FailedPreconditionError, match=r"has no file c.gguf"):
            importer.source(parse_source("hf:owner/two#c.gguf"))
    point_to(f"http://{free_address}")
    with pytest.raises(UnavailableError, match=r"can't be reached: .*hf:/FOLDER"):
        importer.source(parse_source("hf:owner/tiny"))


def test_a_folder_from_the_hub(
    tmp_path: Path, importer: Importer, point_to: Callable[[str], None]
) -> None:
    """1. Only what the model is read from is fetched, and kept in one folder. 2. A spoiled file is fetched anew."""
    write_folder(tmp_path / "tiny", Tiny(family="qwen2", biases=True))
    files = {path.name: path.read_bytes() for path in (tmp_path / "tiny").iterdir()}
    hub = Hub("owner/tiny", {**files, "README.md": b"hello", "onnx/model.onnx": b"x"})
    with serving(hub) as address:
        point_to(address)
        source = parse_source(f"hf:owner/tiny@{COMMIT}")
        found = importer.source(source)
        assert found.format == model_pb2.FORMAT_SAFETENSORS
        assert {file.path for file in found.files} == set(files)
        kept = found.files[0].source.parent
        assert {path.name for path in kept.iterdir()} == set(files)
        (kept / "config.json").write_bytes(b"{}")
        assert importer.source(source).lineage == found.lineage
