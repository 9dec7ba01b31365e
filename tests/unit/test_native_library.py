"""Native libraries: found under the digest of their sources, built once, and never there by halves."""

import ctypes
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services import native_library
from services.native_library import BuildError, NativeLibrary, compiler


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for builds."""
    monkeypatch.setattr(native_library, "BUILDS", tmp_path / "builds")
    return tmp_path / "builds"


@pytest.fixture
def small(tmp_path: Path) -> NativeLibrary:
    """A library with one function."""
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "answer.h").write_text("#pragma once\nconstexpr int kAnswer = 42;\n")
    (tmp_path / "native" / "answer.cc").write_text(
        '#include "answer.h"\n'
        'extern "C" __attribute__((visibility("default"))) int answer() { return kAnswer; }\n'
    )
    return NativeLibrary("libsmall.so", tmp_path / "native")


def command() -> tuple[str, ...]:
    found = compiler()
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def test_what_is_built_is_found(builds: Path, small: NativeLibrary) -> None:
    """Before, there is nothing; afterwards, the library; a second time, nothing is compiled."""
    assert small.find() is None
    made = small.build(command())
    assert small.find() == made == small.build(["/no/such/compiler"])
    assert ctypes.CDLL(str(made)).answer() == 42


def test_one_given_comes_first(builds: Path, small: NativeLibrary, tmp_path: Path) -> None:
    """A library that was built elsewhere is taken if it is there."""
    elsewhere = tmp_path / "elsewhere.so"
    assert small.find(elsewhere) is None
    elsewhere.touch()
    assert small.find(elsewhere) == elsewhere


def test_changed_sources_make_another(builds: Path, small: NativeLibrary) -> None:
    """A header counts as the rest does, and what was built before goes."""
    older = small.build(command())
    (small.sources / "answer.h").write_text("constexpr int kAnswer = 43;\n")
    assert small.find() is None
    newer = small.build(command())
    assert ctypes.CDLL(str(newer)).answer() == 43
    assert not older.exists()


def test_flags_count(small: NativeLibrary) -> None:
    """Other flags are another library."""
    other = NativeLibrary(small.name, small.sources, {"answer.cc": ("-mavx2",)})
    assert other.digest() != small.digest()


def test_a_mistake_is_told_and_nothing_stays(builds: Path, small: NativeLibrary) -> None:
    """The compiler's words reach the caller; there is no library, and no unfinished file."""
    (small.sources / "answer.cc").write_text("int answer() { return kNothing; }\n")
    with pytest.raises(BuildError, match="kNothing"):
        small.build(command())
    assert small.find() is None
    assert [path.name for path in builds.iterdir()] == [".lock"]


def test_a_compiler_that_is_gone_is_named(builds: Path, small: NativeLibrary) -> None:
    """What could not be started is named."""
    with pytest.raises(BuildError, match="/no/such/compiler"):
        small.build(["/no/such/compiler"])


def test_builds_at_once_compile_once(builds: Path, small: NativeLibrary, tmp_path: Path) -> None:
    """Who builds while another does waits, and takes what the other made."""
    counting = tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho >> {tmp_path}/calls\nexec {command()[0]} "$@"\n')
    counting.chmod(0o755)
    with ThreadPoolExecutor(3) as pool:
        made = set(pool.map(small.build, [[str(counting)]] * 3))
    assert len(made) == 1
    assert len((tmp_path / "calls").read_text().splitlines()) == 2  # compiles, links


def test_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program says that there is none, in the words that set-up looks for."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(native_library, "zig", lambda: None)
    assert native_library.main([]) == 1
    assert capsys.readouterr().err == "no compiler\n"


def test_it_needs_the_standard_library_alone() -> None:
    """Set-up can run it in an environment that is not made yet."""
    code = "import services.native_library"
    root = native_library.BUILDS.parent.parent
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{str(root)!r}]; {code}"],
        check=True,
    )
