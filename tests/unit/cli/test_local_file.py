"""Files that become an artifact: listed in order, hashed, and refused where they could lead elsewhere."""

import hashlib
import os
from pathlib import Path

import pytest

from services.cli.adapters.local_file import collect
from services.cli.domain.exit_code import UsageError
from services.rpc.errors import FailedPreconditionError
from tests.unit.cli.small_mesh import HeardReport


def test_single_file_has_its_own_name(tmp_path: Path, report: HeardReport) -> None:
    """One file is an artifact with one path."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"graph")
    (file,) = collect(path, report)
    assert (file.path, file.size) == ("m.onnx", 5)
    assert file.sha256 == hashlib.sha256(b"graph").hexdigest()
    assert report.begun == [("hashing", 5, 0)]
    assert report.moved == 5


def test_folder_is_listed_by_path(tmp_path: Path, report: HeardReport) -> None:
    """Sub-folders are part of the path, and the order is that of the paths."""
    for name in ("z/a.bin", "m.onnx", "a/b/c.bin"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert [file.path for file in collect(tmp_path, report)] == ["a/b/c.bin", "m.onnx", "z/a.bin"]


def _link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def _folder_link(path: Path, other: Path) -> None:
    path.symlink_to(other.parent)


def _hard_link(path: Path, other: Path) -> None:
    path.hardlink_to(other)


def _pipe(path: Path, _other: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (_link, "is a symbolic link to"),
        (_folder_link, "is a symbolic link to"),
        (_hard_link, r"is a hard link \(2 names"),
        (_pipe, "is no regular file"),
    ],
)
@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in a folder"])
def test_special_files_are_refused(
    tmp_path: Path, report: HeardReport, make: object, found: str, inside: bool
) -> None:
    """Links and special files are refused by path, as the argument and deep in a folder."""
    assert callable(make)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_bytes(b"x")
    folder = tmp_path / "model" / "sub"
    folder.mkdir(parents=True)
    path = folder / "w.bin"
    make(path, elsewhere / "secret")
    with pytest.raises(FailedPreconditionError, match=f"{path}: {found}") as refused:
        collect(tmp_path / "model" if inside else path, report)
    assert refused.value.metadata == {"path": str(path)}


def test_nothing_to_push(tmp_path: Path, report: HeardReport) -> None:
    """A missing path and an empty folder are told."""
    with pytest.raises(UsageError, match="No such file"):
        collect(tmp_path / "none", report)
    with pytest.raises(FailedPreconditionError, match="holds no file"):
        collect(tmp_path, report)
