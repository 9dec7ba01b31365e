"""Contents copied by digest between two folders of contents: verified while they are copied, and whenever asked."""

import hashlib
import os
import tempfile
from pathlib import Path

from services.registry.domain.model import BlobId
from services.rpc.errors import DataLossError

_READ_BYTES = 4 * 1024 * 1024


def path_in(root: Path, blob: BlobId) -> Path:
    """Where a content lies below a folder of contents."""
    return root / "sha256" / blob.sha256[:2] / blob.sha256


def copy_blob(source: Path, target: Path, blob: BlobId) -> bool:
    """Copy a content between two folders of contents, unless it is there; whether it was copied.

    What is there has been verified when it came, and is verified again by whoever asks.
    Raises FileNotFoundError if the source has none, DataLossError if it has another.
    """
    place = path_in(target, blob)
    if place.exists() and place.stat().st_size == blob.size_bytes:
        return False
    origin = path_in(source, blob)
    with origin.open("rb") as read:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".", delete=False) as written:
            fresh = Path(written.name)
            try:
                digest = hashlib.sha256()
                while chunk := read.read(_READ_BYTES):
                    digest.update(chunk)
                    written.write(chunk)
                written.flush()
                os.fsync(written.fileno())
                _require(blob, origin, digest.hexdigest(), written.tell())
                fresh.rename(place)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
    return True


def check_blob(root: Path, blob: BlobId) -> str | None:
    """What is wrong with a content, read from its first byte to the last; None: nothing."""
    path = path_in(root, blob)
    try:
        with path.open("rb") as read:
            digest = hashlib.file_digest(read, "sha256").hexdigest()
            _require(blob, path, digest, read.tell())
    except OSError as error:
        return f"{path}: {error.strerror}"
    except DataLossError as error:
        return error.message
    return None


def _require(blob: BlobId, path: Path, sha256: str, size_bytes: int) -> None:
    if (sha256, size_bytes) != (blob.sha256, blob.size_bytes):
        raise DataLossError(
            f"{path} has {size_bytes} bytes that hash to {sha256}; it should have {blob.size_bytes}",
            metadata={"path": str(path), "sha256": sha256},
        )
