"""A file that comes in pieces: whole at its place, or not there."""

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from services.cli.domain.exit_code import UsageError


async def write(pieces: AsyncIterator[bytes], file: str) -> int:
    """Write to `file`, or for `-` to standard output; returns the number of bytes."""
    if file == "-":
        count = 0
        async for piece in pieces:
            sys.stdout.buffer.write(piece)
            count += len(piece)
        sys.stdout.buffer.flush()
        return count
    try:
        with _whole(Path(file)) as part:
            async for piece in pieces:
                part.write(piece)
            return part.tell()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """Who reads the place sees what was there, or all of what is new."""
    # Usage is nobody else's to read: a temporary file is its owner's alone, and stays so.
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as part:
        made = Path(part.name)
        try:
            yield part
            part.flush()
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)  # only there if it did not come to its place
