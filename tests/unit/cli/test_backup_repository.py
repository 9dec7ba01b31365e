"""The folder that backups are kept in."""

import os
import tempfile
from pathlib import Path

import pytest

from services.cli.adapters.backup_repository import BackupRepository
from services.rpc.errors import FailedPreconditionError

ANOTHER_USER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o755, 0o777], ids=["not to be written", "to be written by all"])
def test_a_folder_of_another_user_is_refused(mode: int) -> None:
    """Who does not own the folder is told so, and which user has to; the folder stays as it was."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(mode)
        os.seteuid(ANOTHER_USER)
        try:
            with pytest.raises(FailedPreconditionError) as refused:
                BackupRepository(folder).prepare()
        finally:
            os.seteuid(0)
        assert list(folder.iterdir()) == []
    assert str(folder) in str(refused.value)
    assert f"user {ANOTHER_USER} " in str(refused.value)
