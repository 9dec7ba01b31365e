"""Files on disk: fetched once, verified always, resumed, bounded, shared between workers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.rpc.names import VersionName
from services.worker.adapters.artifact_cache import DiskArtifactCache
from services.worker.adapters.file_lock import FileLock
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.load_state import LoadError
from services.worker.ports.registry import ConnectionLostError
from tests.unit.worker.specs import spec_of_files

FILES = {"model.onnx": b"0123456789" * 10, "data/w.bin": b"weights"}


class Files:
    """A FileSource from memory, in chunks of 16 bytes; it breaks where it is told to."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.asked: list[tuple[str, int]] = []
        self.breaks: list[int] = []  # bytes after which the next downloads break

    async def download(self, version: VersionName, path: str, offset: int) -> AsyncIterator[bytes]:
        self.asked.append((path, offset))
        stop = self.breaks.pop(0) if self.breaks else None
        data = self.files[path]
        for start in range(offset, len(data), 16):
            if stop is not None and start - offset >= stop:
                raise ConnectionLostError("broken")
            yield data[start : start + 16]


def cache(root: Path, files: Files, most: int = 1 << 20, owner: str = "w") -> DiskArtifactCache:
    return DiskArtifactCache(root, files, most, owner)


async def contents(kept: DiskArtifactCache, spec: VersionSpec) -> dict[str, bytes]:
    async with kept.hold(spec) as folder:
        return {
            p.relative_to(folder).as_posix(): p.read_bytes()
            for p in folder.rglob("*")
            if p.is_file()
        }


async def test_files_are_fetched_once(tmp_path: Path) -> None:
    """The second use reads the disk, also by another worker."""
    files, spec = Files(FILES), spec_of_files(FILES)
    assert await contents(cache(tmp_path, files), spec) == FILES
    assert await contents(cache(tmp_path, files, owner="other"), spec) == FILES
    assert len(files.asked) == 2


async def test_fetching_resumes_at_the_missing_byte(tmp_path: Path) -> None:
    """Within one attempt, and after a worker died in the middle."""
    files, spec = (
        Files({"a.onnx": FILES["model.onnx"]}),
        spec_of_files({"a.onnx": FILES["model.onnx"]}),
    )
    files.breaks = [32, 16]
    assert await contents(cache(tmp_path, files), spec) == files.files
    assert files.asked == [("a.onnx", 0), ("a.onnx", 32), ("a.onnx", 48)]
    left = tmp_path / "second" / "partial" / spec.digest
    left.mkdir(parents=True)
    (left / "a.onnx").write_bytes(FILES["model.onnx"][:50])
    files.asked.clear()
    assert await contents(cache(tmp_path / "second", files), spec) == files.files
    assert files.asked == [("a.onnx", 50)]


async def test_wrong_bytes_are_never_used(tmp_path: Path) -> None:
    """The digest is verified before the folder gets its name; what was wrong is fetched anew next time."""
    files, spec = Files(FILES), spec_of_files(FILES)
    files.files["data/w.bin"] = b"WEIGHTS"
    with pytest.raises(LoadError, match=r"'data/w\.bin' has SHA-256"):
        await contents(cache(tmp_path, files), spec)
    assert not (tmp_path / spec.digest).exists()
    files.files["data/w.bin"] = b"weights"
    assert await contents(cache(tmp_path, files), spec) == FILES
    assert [path for path, _ in files.asked].count("model.onnx") == 1


@pytest.mark.parametrize("harm", ["change", "cut", "link", "remove"])
async def test_a_corrupt_cache_is_fetched_anew(tmp_path: Path, harm: str) -> None:
    """Size, bytes and kind of file are looked at before each use."""
    files, spec = Files(FILES), spec_of_files(FILES)
    await contents(cache(tmp_path, files), spec)
    path = tmp_path / spec.digest / "data/w.bin"
    if harm == "change":
        path.write_bytes(b"weighty")
    elif harm == "cut":
        path.write_bytes(b"w")
    else:
        path.unlink()
        if harm == "link":
            path.symlink_to("/etc/hostname")
    assert await contents(cache(tmp_path, files), spec) == FILES


async def test_longer_than_declared_is_refused_at_the_first_byte_too_many(tmp_path: Path) -> None:
    """A registry cannot fill the disk."""
    files, spec = Files(FILES), spec_of_files(FILES)
    files.files["model.onnx"] += b"x" * 1000
    with pytest.raises(LoadError, match="longer than the 100 bytes"):
        await contents(cache(tmp_path, files), spec)


async def test_shorter_than_declared_ends_with_a_reason(tmp_path: Path) -> None:
    """A file that never grows to its size is not asked for for ever."""
    files, spec = Files(FILES), spec_of_files(FILES)
    files.files["data/w.bin"] = b"we"
    with pytest.raises(LoadError, match="ended after 2 of 7 bytes"):
        await contents(cache(tmp_path, files), spec)


async def test_what_is_loaded_stays_and_the_oldest_goes(tmp_path: Path) -> None:
    """Over the bound, folders that nobody holds are evicted, those used longest ago first."""
    names = ("a", "b", "c", "d")
    artifacts = {name: {"model.onnx": name.encode() * 100} for name in names}
    specs = {name: spec_of_files(files) for name, files in artifacts.items()}
    kept = {name: cache(tmp_path, Files(files), most=250) for name, files in artifacts.items()}
    async with kept["a"].hold(specs["a"]) as held:
        await contents(kept["b"], specs["b"])
        await contents(kept["c"], specs["c"])
        assert held.exists()
        assert not (tmp_path / specs["b"].digest).exists()
        assert (tmp_path / specs["c"].digest).exists()
    await contents(kept["d"], specs["d"])
    assert not (tmp_path / specs["a"].digest).exists()


async def test_two_uses_at_once_fetch_once(tmp_path: Path) -> None:
    """Versions with the same artifact share it."""
    files, spec = Files(FILES), spec_of_files(FILES)
    kept = cache(tmp_path, files)
    both = await asyncio.gather(contents(kept, spec), contents(kept, spec))
    assert list(both) == [FILES, FILES]
    assert len(files.asked) == 2


async def test_a_worker_that_fetches_does_not_hold_up_another(tmp_path: Path) -> None:
    """While the shared partial folder is locked, fetching goes into an own one."""
    files, spec = Files(FILES), spec_of_files(FILES)
    (tmp_path / "partial").mkdir()
    lock = FileLock(tmp_path / "partial" / f"{spec.digest}.lock")
    assert lock.try_alone()
    assert await contents(cache(tmp_path, files), spec) == FILES
    lock.release()


@pytest.mark.parametrize("path", ["../x.onnx", "/x.onnx", "a//x.onnx"])
async def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, path: str) -> None:
    """Whatever the registry says."""
    with pytest.raises(LoadError, match="leaves the version's folder"):
        await contents(cache(tmp_path, Files({path: b"x"})), spec_of_files({path: b"x"}))


async def test_a_disk_that_refuses_is_a_reason(tmp_path: Path) -> None:
    """A cache folder that cannot be made ends as a load that failed."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LoadError, match="cannot keep the files"):
        await contents(cache(tmp_path / "file", Files(FILES)), spec_of_files(FILES))
