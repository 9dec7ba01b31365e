"""Generated code: that it is whole, and that what Envoy loads is in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tools import generation
from tools.bootstrap import SetupError, places


def test_the_descriptor_set_stands_alone() -> None:
    """Envoy gets every proto of ours with all that they import, imports first."""
    whole = descriptor_pb2.FileDescriptorSet.FromString(
        (places().generated / generation.DESCRIPTOR_SET).read_bytes()
    )
    seen: set[str] = set()
    for file in whole.file:
        assert set(file.dependency) <= seen, file.name
        seen.add(file.name)
    protos = places().root / "protos"
    assert {str(path.relative_to(protos)) for path in protos.rglob("*.proto")} <= seen
    assert "google/api/annotations.proto" in seen


def test_each_proto_has_module_and_stub() -> None:
    """For each proto there are a module and a typed stub."""
    here = places()
    for proto in (here.root / "protos").rglob("*.proto"):
        module = here.generated / proto.relative_to(here.root / "protos")
        for suffix in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi"):
            assert (module.parent / (module.stem + suffix)).exists()


def test_a_finished_folder_replaces_the_old_one(tmp_path: Path) -> None:
    """Nothing of the older generation stays."""
    old, fresh = tmp_path / "generated", tmp_path / "generated.new"
    for folder, name in ((old, "gone"), (fresh, "new")):
        folder.mkdir()
        (folder / name).touch()
    generation.replace(old, fresh)
    assert [path.name for path in tmp_path.rglob("*")] == ["generated", "new"]


def test_a_missing_generator_is_named() -> None:
    """A package that is not installed is named."""
    with pytest.raises(SetupError, match="no_such_package"):
        generation.package_folder("no_such_package")


def test_two_generations_at_once_are_both_whole(tmp_path: Path) -> None:
    """Who generates while another does waits for it; neither sees the other's unfinished files."""
    for folder in ("tools", "protos", "lock"):
        shutil.copytree(places().root / folder, tmp_path / folder)
    command = [sys.executable, "-m", "tools", "codegen"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    told = [each.communicate(timeout=60)[1].decode() for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert (tmp_path / "generated" / generation.DESCRIPTOR_SET).exists()
    assert not (tmp_path / "generated.new").exists()
