"""Set-up and the libraries in C++: compiled when their sources change, and not again and again where that can't be."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from tools import bootstrap, native
from tools.bootstrap import Places, SetupError

# Stands where the real program does, and says what the test wants.
PROGRAM = """import pathlib, sys
pathlib.Path({calls!r}).open("a").write(" ".join(sys.argv[1:]) + "\\n")
print({out!r})
sys.stderr.write({err!r})
sys.exit({code})
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Places:
    """A checkout with one source in C++ and an environment that is this one."""
    (tmp_path / "services" / "worker" / "native").mkdir(parents=True)
    (tmp_path / "services" / "worker" / "native" / "some.cc").write_text("int some;\n")
    here = Places(root=tmp_path, venv=tmp_path / ".venv")
    here.python.parent.mkdir(parents=True)
    here.python.write_text(
        f'#!/bin/sh\nexec {shutil.which("python3")} {tmp_path}/program.py "$@"\n'
    )
    here.python.chmod(0o755)
    return here


def answers(here: Places, out: str = "", err: str = "", code: int = 0) -> None:
    """What compiling prints and ends with from now on."""
    text = PROGRAM.format(calls=str(here.root / "calls"), out=out, err=err, code=code)
    (here.root / "program.py").write_text(text)


def calls(here: Places) -> list[str]:
    return (here.root / "calls").read_text().splitlines()


def test_what_is_built_is_ready_until_sources_change(checkout: Places) -> None:
    """A changed source, or a library that is gone, is compiled again; nothing else is."""
    library = checkout.root / "some.so"
    library.touch()
    assert not bootstrap.native_is_ready(checkout)
    answers(checkout, out=str(library))
    bootstrap.ensure_native(checkout)
    assert bootstrap.native_is_ready(checkout)
    library.unlink()
    assert not bootstrap.native_is_ready(checkout)
    library.touch()
    (checkout.root / "services" / "worker" / "native" / "some.cc").write_text("int other;\n")
    assert not bootstrap.native_is_ready(checkout)


def test_a_failure_is_told_once_and_harms_nothing(
    checkout: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sources that do not compile here are not tried at every start."""
    answers(checkout, err="first line\nsome.cc: no such thing", code=1)
    bootstrap.ensure_native(checkout)
    assert "(some.cc: no such thing)" in capsys.readouterr().err
    assert bootstrap.native_is_ready(checkout)


def test_a_compiler_that_comes_later_is_used(
    checkout: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler set-up is done; once there is one, it is not."""
    answers(checkout, err="no compiler", code=1)
    bootstrap.ensure_native(checkout)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert bootstrap.native_is_ready(checkout)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert not bootstrap.native_is_ready(checkout)


def test_a_compiler_that_is_missing_is_named(
    checkout: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """Set-up says what is missing and goes on; the command says what to install, and fails."""
    answers(checkout, err="no compiler", code=1)
    bootstrap.ensure_native(checkout)
    told = capsys.readouterr().err
    assert "no C++ compiler in PATH" in told
    assert "`./inferplane operators`" in told
    with pytest.raises(SetupError, match=r"apt install g\+\+.*operators --zig"):
        native.build(checkout, with_zig=False)


def test_the_command_fails_with_the_compilers_words(checkout: Places) -> None:
    """Who asks for the libraries is told all of why there are none."""
    answers(checkout, err="first line\nsome.cc: no such thing", code=1)
    with pytest.raises(SetupError, match=r"first line\nsome.cc: no such thing"):
        native.build(checkout, with_zig=False)


def test_a_compiler_can_be_fetched(checkout: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --zig the package is installed first, pinned, and then used."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    answers(checkout, out="")
    native.build(checkout, with_zig=True)
    fetched, compiled = calls(checkout)
    assert "pip install" in fetched
    assert fetched.endswith(native.ZIG)
    assert compiled == "-I -m services.native_library --zig"
