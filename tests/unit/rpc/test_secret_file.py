"""Files with secrets."""

import os
import stat
from pathlib import Path

import pytest

from services.metering.adapters.admin_token_file import AdminTokenFile
from services.rpc.errors import FailedPreconditionError
from services.rpc.secret_file import read_secret, write_secret


def test_it_is_for_this_user_alone(tmp_path: Path) -> None:
    """Whatever the umask is, and also when it replaces a file that was open to all."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        write_secret(path, b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_one_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    """It may have been read or changed: a person has to look."""
    path = tmp_path / "secret"
    write_secret(path, b"x")
    path.chmod(mode)
    with pytest.raises(FailedPreconditionError, match=f"mode {mode:o}"):
        read_secret(path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """And nothing beside it."""
    path = tmp_path / "folder"
    path.mkdir()
    (path / "inside").touch()
    with pytest.raises(OSError, match="folder"):
        write_secret(path, b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_the_admins_file_is_one_line(tmp_path: Path) -> None:
    """As people and shells like it."""
    file = AdminTokenFile(tmp_path / "admin.key")
    assert file.read() is None
    file.write("a.b.c")
    assert (tmp_path / "admin.key").read_text() == "a.b.c\n"
    assert file.read() == "a.b.c"
