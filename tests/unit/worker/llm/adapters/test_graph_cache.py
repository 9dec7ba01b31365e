"""The cache of graphs on disk."""

import os
import threading
import time
from pathlib import Path

import pytest

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_cache import GraphCache
from services.worker.llm.adapters.graph_files import write_graph
from services.worker.llm.adapters.graph_names import GRAPH_FILE, WEIGHTS_FILE
from services.worker.llm.domain.engine_settings import Target
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

MUCH = 1024**3
WAIT = 30.0  # seconds, at most


class Maker:
    """Writes a tiny model's graph, and counts."""

    def __init__(self, folder: Path) -> None:
        self.file = write_tiny(folder / "model.gguf", Tiny(layers=1))
        self.made = 0

    def __call__(self, fresh: Path) -> None:
        self.made += 1
        write_graph(self.file, fresh, Target.PORTABLE)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def test_a_graph_is_made_once(tmp_path: Path, maker: Maker) -> None:
    """The second time it is there, with what was known of it."""
    for _ in range(2):
        with GraphCache(tmp_path / "graphs", MUCH).hold("a", maker) as (folder, facts):
            assert (folder / WEIGHTS_FILE).is_file()
            assert (facts.target, facts.exact, facts.shape.layers) == (Target.PORTABLE, False, 1)
    assert maker.made == 1


def test_those_who_want_it_at_once_wait_for_the_one_who_makes_it(
    tmp_path: Path, maker: Maker
) -> None:
    """Eight threads, one graph; each has its own locks, as processes have."""
    held = []

    def hold() -> None:
        with GraphCache(tmp_path / "graphs", MUCH).hold("a", maker) as (folder, _):
            held.append(folder)

    threads = [threading.Thread(target=hold) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert (len(held), maker.made) == (8, 1)


def test_a_graph_that_is_not_whole_is_made_again(tmp_path: Path, maker: Maker) -> None:
    """Its weights have lost their end."""
    cache = GraphCache(tmp_path / "graphs", MUCH)
    with cache.hold("a", maker) as (folder, _):
        weights = folder / WEIGHTS_FILE
        size = weights.stat().st_size
    os.truncate(weights, size - 1)
    with cache.hold("a", maker):
        assert weights.stat().st_size == size
    assert maker.made == 2


@pytest.mark.parametrize("name", [GRAPH_FILE, WEIGHTS_FILE, "model.json"])
def test_a_graph_that_the_disk_has_changed_is_made_again(
    tmp_path: Path, maker: Maker, name: str
) -> None:
    """One bit is another, in any of its files: nobody computes with it."""
    cache = GraphCache(tmp_path / "graphs", MUCH)
    with cache.hold("a", maker) as (folder, _):
        whole = (folder / name).read_bytes()
    spoilt = bytearray(whole)
    spoilt[len(spoilt) // 2] ^= 1
    (folder / name).write_bytes(spoilt)
    with cache.hold("a", maker):
        assert (folder / name).read_bytes() == whole
    assert maker.made == 2


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    """The error comes out, and no folder stays."""

    def fail(fresh: Path) -> None:
        (fresh / WEIGHTS_FILE).write_bytes(b"half")
        raise LoadError("no such tensor")

    cache = GraphCache(tmp_path / "graphs", MUCH)
    with pytest.raises(LoadError, match="no such tensor"), cache.hold("a", fail):
        pass
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["a.lock"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path, maker: Maker) -> None:
    """Its unfinished folder has no owner any more."""
    leftover = tmp_path / "graphs" / "a.new-xyz"
    leftover.mkdir(parents=True)
    with GraphCache(tmp_path / "graphs", MUCH).hold("a", maker):
        assert not leftover.exists()


def test_the_least_recently_used_go_when_there_are_too_many(tmp_path: Path, maker: Maker) -> None:
    """There is room for two: of three, the one that was used first goes, not the one that is held."""
    root = tmp_path / "graphs"
    with GraphCache(root, MUCH).hold("first", maker) as (folder, _):
        size = sum(file.stat().st_size for file in folder.iterdir())
    cache = GraphCache(root, size)
    with cache.hold("held", maker):
        _age(root / "held", 20)
        _age(root / "first", 10)
        with cache.hold("second", maker):
            assert _kept(root) == {"held", "second"}


def test_what_nobody_has_used_for_long_goes(tmp_path: Path, maker: Maker) -> None:
    """After 31 days, when the next one is made."""
    root = tmp_path / "graphs"
    cache = GraphCache(root, MUCH)
    for key, days in (("old", 31), ("used", 29)):
        with cache.hold(key, maker):
            pass
        _age(root / key, days * 24 * 3600)
    with cache.hold("new", maker):
        assert _kept(root) == {"used", "new"}


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, maker: Maker) -> None:
    """A file lies where the folder should be."""
    (tmp_path / "graphs").write_text("")
    cache = GraphCache(tmp_path / "graphs", MUCH)
    with pytest.raises(LoadError, match="graphs can't be kept"), cache.hold("a", maker):
        pass


def _age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder, (then, then))


def _kept(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}
