"""The first admin's token in `{state_dir}/admin.key`."""

from pathlib import Path

from services.rpc.secret_file import read_secret, write_secret


class AdminTokenFile:
    """An AdminFile on disk: the token and a newline, mode 0600."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str | None:
        content = read_secret(self._path)
        return None if content is None else content.decode("ascii", errors="replace").strip()

    def write(self, token: str) -> None:
        write_secret(self._path, f"{token}\n".encode())
