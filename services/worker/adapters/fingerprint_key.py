"""The secret of fingerprints: of a setting, or of a file that all workers of a machine share."""

from hashlib import blake2b
from pathlib import Path

from services.worker.adapters.shared_secret import SECRET_BYTES, shared_secret


def secret_of(setting: str, state_dir: Path) -> bytes:
    """32 bytes. Raises OSError."""
    if setting:
        return blake2b(setting.encode(), digest_size=SECRET_BYTES).digest()
    return shared_secret(state_dir / "fingerprint.key")
