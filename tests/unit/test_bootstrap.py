"""The bootstrap: what is made on first use, what is said when it can't be, what is left alone."""

import ast
import base64
import fcntl
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import bootstrap
from tools.bootstrap import Places, SetupError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "inferplane"

# The environment that runs these tests, so that the script has nothing to set up.
THIS_ENVIRONMENT = {"INFERPLANE_VENV": sys.prefix}
# Runs the script as another Python would: older, or without a part of the standard library.
AS_PYTHON_3_10 = "sys.version_info = (3, 10, 13, 'final', 0)"
WITHOUT_ENSUREPIP = "sys.modules['ensurepip'] = None"


def run_script(
    preparation: str, arguments: list[str], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    code = f"import runpy, sys; {preparation}; sys.argv = {[str(SCRIPT), *arguments]}; "
    code += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )


def wheel(folder: Path) -> tuple[Path, str]:
    """A package `plain` 1.0 that one can install, and the hash of its file."""
    files = {
        "plain.py": "SPOKEN = 'installed'\n",
        "plain-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n",
        "plain-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},\n"
        for name, text in files.items()
    )
    path = folder / "plain-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, "plain-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A checkout whose locks hold one package, found where the user's pip configuration says."""
    (tmp_path / "wheels").mkdir()
    _, digest = wheel(tmp_path / "wheels")
    (tmp_path / "lock").mkdir()
    for kind in ("runtime", "dev"):
        (tmp_path / "lock" / f"{kind}.txt").write_text(
            f"plain==1.0 --hash=sha256:{digest}\n# {kind}\n"
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return Places(root=tmp_path, venv=tmp_path / ".venv")


def pretend_ready(here: Places, kind: str) -> None:
    here.python.parent.mkdir(parents=True)
    here.python.symlink_to(sys.executable)
    here.stamp.write_text(bootstrap.venv_stamp(here, kind))


def test_old_pythons_can_parse_the_script() -> None:
    """The script is read by Python 3.7's grammar, so that an old Python can say that it is too old."""
    ast.parse(SCRIPT.read_text(), feature_version=(3, 7))


def test_an_old_python_says_what_is_needed(tmp_path: Path) -> None:
    """With no newer Python on PATH, an old one names itself, the oldest that will do, and how to get it."""
    done = run_script(AS_PYTHON_3_10, ["version"], {"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "apt install python3" in done.stderr


def test_an_old_python_starts_a_newer_one(tmp_path: Path) -> None:
    """An old Python passes over a shim that runs nothing and becomes the newer one behind it on PATH."""
    shim = tmp_path / "python3.14"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    (tmp_path / "python3.13").symlink_to(sys.executable)
    done = run_script(
        AS_PYTHON_3_10, ["test", "--help"], {"PATH": str(tmp_path), **THIS_ENVIRONMENT}
    )
    assert done.returncode == 0, done.stderr
    assert "usage: inferplane test" in done.stdout


def test_a_python_without_ensurepip_says_how_to_get_it(tmp_path: Path) -> None:
    """Debian's bare python3 is told which package it lacks; nothing is left behind."""
    venv = tmp_path / "venv"
    done = run_script(
        WITHOUT_ENSUREPIP, ["version"], {"PATH": "/usr/bin:/bin", "INFERPLANE_VENV": str(venv)}
    )
    assert done.returncode == 1
    assert "lacks the standard module ensurepip" in done.stderr
    assert "apt install python3-venv" in done.stderr
    assert "Traceback" not in done.stderr
    assert not venv.exists()


def test_it_runs_by_symlink_from_a_directory_with_packages_of_the_same_name(tmp_path: Path) -> None:
    """The caller's directory is no import path: a `tools` package lying there is not ours."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    link = tmp_path / "ip"
    link.symlink_to(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(link), "test", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: inferplane test" in done.stdout


def test_the_exit_code_is_the_commands_own() -> None:
    """What a command ends with is what the caller sees."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "lock", "--no-such"], capture_output=True, check=False
    )
    assert done.returncode == 2


def test_first_use_makes_the_environment(checkout: Places) -> None:
    """From nothing: packages installed and compiled, the checkout importable, and nothing left to do."""
    checkout.generated.mkdir()
    bootstrap.set_up_venv(checkout, "runtime")
    code = "import plain, sys; print(plain.SPOKEN, plain.__cached__, *sys.path)"
    told = subprocess.run(
        [checkout.python, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told[0] == "installed"
    assert Path(told[1]).exists()
    assert {str(checkout.root), str(checkout.generated)} <= {*told}
    assert bootstrap.venv_is_ready(checkout, "runtime")
    assert not bootstrap.venv_is_ready(checkout, "dev")


@pytest.mark.extended  # makes a whole environment
def test_an_interrupted_set_up_is_made_anew(checkout: Places) -> None:
    """An environment without its stamp is unfinished, and what it holds is not trusted."""
    checkout.venv.mkdir()
    (checkout.venv / "pyvenv.cfg").write_text("half")
    leftover = checkout.venv / "leftover"
    leftover.write_text("half")
    bootstrap.set_up_venv(checkout, "runtime")
    assert not leftover.exists()
    assert bootstrap.venv_is_ready(checkout, "runtime")


@pytest.mark.extended  # makes a whole environment
def test_changed_locks_are_installed_in_place(checkout: Places) -> None:
    """When only the locks changed the environment is kept, and a development environment stays one."""
    bootstrap.set_up_venv(checkout, "dev")
    kept = checkout.venv / "kept"
    kept.touch()
    for kind in ("runtime", "dev"):
        checkout.lock_file(kind).write_text(checkout.lock_file(kind).read_text() + "# changed\n")
    assert not bootstrap.venv_is_ready(checkout, "runtime")
    bootstrap.set_up_venv(checkout, "runtime")
    assert kept.exists()
    assert bootstrap.venv_is_ready(checkout, "dev")


@pytest.mark.extended  # makes a whole environment
def test_a_wrong_hash_is_refused_in_pips_words(checkout: Places) -> None:
    """A package that is not the locked one fails the set-up, and the next use tries again."""
    checkout.lock_file("runtime").write_text(f"plain==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(SetupError, match="DO NOT MATCH THE HASHES"):
        bootstrap.set_up_venv(checkout, "runtime")
    assert not bootstrap.venv_is_ready(checkout, "runtime")


@pytest.mark.parametrize(
    ("made", "asked", "ready"),
    [
        pytest.param("runtime", "runtime", True, id="runtime serves runtime"),
        pytest.param("runtime", "dev", False, id="runtime lacks what dev needs"),
        pytest.param("dev", "runtime", True, id="dev serves runtime"),
        pytest.param("dev", "dev", True, id="dev serves dev"),
    ],
)
def test_what_an_environment_serves(checkout: Places, made: str, asked: str, ready: bool) -> None:
    """The development environment includes the runtime's, not the other way round."""
    pretend_ready(checkout, made)
    assert bootstrap.venv_is_ready(checkout, asked) is ready


def test_a_moved_checkout_is_not_ready(checkout: Places, tmp_path: Path) -> None:
    """Environments name absolute paths, so one that came from elsewhere is made anew."""
    pretend_ready(checkout, "runtime")
    moved = Places(root=tmp_path / "elsewhere", venv=checkout.venv)
    (moved.root / "lock").mkdir(parents=True)
    for kind in ("runtime", "dev"):
        moved.lock_file(kind).write_bytes(checkout.lock_file(kind).read_bytes())
    assert not bootstrap.venv_is_ready(moved, "runtime")


def test_a_python_that_is_gone_is_not_ready(checkout: Places) -> None:
    """An environment whose Python was removed is made anew."""
    pretend_ready(checkout, "runtime")
    checkout.python.unlink()
    checkout.python.symlink_to("/nowhere/python3.11")
    assert not bootstrap.venv_is_ready(checkout, "runtime")


def test_a_folder_that_is_no_environment_is_not_deleted(checkout: Places) -> None:
    """INFERPLANE_VENV may point anywhere; what is there and is no environment stays."""
    checkout.venv.mkdir()
    treasure = checkout.venv / "treasure"
    treasure.touch()
    with pytest.raises(SetupError, match="no virtual environment"):
        bootstrap.make_venv(checkout)
    assert treasure.exists()


def test_a_second_first_use_waits(tmp_path: Path) -> None:
    """While one set-up runs a second one says that it waits, and goes on when the first is done."""
    lock = tmp_path / "lock"
    code = "import sys; from pathlib import Path; from tools.bootstrap import one_at_a_time\n"
    code += f"with one_at_a_time(Path({str(lock)!r})): print('mine')"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert "Waiting for another inferplane" in second.stderr.readline()
        assert second.poll() is None
    out, _ = second.communicate(timeout=30)
    assert out == "mine\n"


@pytest.mark.parametrize(
    "change", ["protos/a/v1/a.proto", "tools/generation.py", "lock/runtime.txt"]
)
def test_what_makes_generated_code_stale(checkout: Places, change: str) -> None:
    """Code is generated anew when a proto, the way of generating or the generators change."""
    for name in ("protos/a/v1/a.proto", "tools/generation.py"):
        (checkout.root / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout.root / name).write_text("before")
    checkout.generated.mkdir()
    checkout.generated_stamp.write_text(bootstrap.generation_stamp(checkout))
    assert bootstrap.generated_is_ready(checkout)
    (checkout.root / change).write_text("after")
    assert not bootstrap.generated_is_ready(checkout)
