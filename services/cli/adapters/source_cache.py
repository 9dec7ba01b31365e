"""Fetched model files: one folder for each content, and a note of what each source was when it was fetched."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Note:
    """What a source held."""

    content: str  # what `content_digest` says of it
    name: str  # of the file or folder
    digest: str  # SHA-256 (hex) of what was published, as the wheel; empty where there is no other


def content_digest(path: Path) -> str:
    """SHA-256 (hex) of a file; of a folder over the sorted list of its files' names and digests."""
    if not path.is_dir():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    lines = [f"{each.name} {content_digest(each)}\n" for each in sorted(path.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class SourceCache:
    """Lies in one folder; several commands may use it at once."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made before something is kept."""
        self.folder = folder

    def find(self, source: str) -> tuple[Path, Note] | None:
        """What was kept of this source, if it is still there and as it was."""
        try:
            raw = json.loads(self._note(source).read_text())
            note = Note(content=raw["content"], name=raw["name"], digest=raw["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        kept = self._content(note.content) / Path(note.name).name
        if kept.exists() and content_digest(kept) == note.content:
            return kept, note
        shutil.rmtree(self._content(note.content), ignore_errors=True)
        return None

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder on the same disk, gone at the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self.folder) as folder:
            yield Path(folder)

    def keep(self, source: str, fetched: Path, note: Note) -> Path:
        """Move a file or folder in from the workspace; returns where it lies now."""
        content = self._content(note.content)
        content.mkdir(parents=True, exist_ok=True)
        kept = content / note.name
        try:
            fetched.replace(kept)
        except OSError:
            if not kept.is_dir():  # else the same content, kept by another command
                raise
        path = self._note(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f"{path.name}.{os.getpid()}")
        written.write_text(json.dumps(asdict(note)))
        written.replace(path)
        return kept

    def _note(self, source: str) -> Path:
        return self.folder / "notes" / f"{hashlib.sha256(source.encode()).hexdigest()}.json"

    def _content(self, digest: str) -> Path:
        return self.folder / "content" / digest
