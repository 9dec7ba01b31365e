"""Wheels as a package index has them, in a folder that pip is pointed at."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def write_wheel(
    folder: Path, files: Mapping[str, bytes], *, name: str = "tinymodel", lies: bool = False
) -> Path:
    """A wheel of version 1.0 with these files; `lies`: its record names other digests."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-1.0.dist-info"
    content = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, body in content.items():
        digest = hashlib.sha256(body + (b"!" if lies else b"")).digest()
        packed = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        rows.append(f"{path},sha256={packed},{len(body)}")
    record = "\n".join([*rows, f"{about}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in content.items():
            archive.writestr(path, body)
        archive.writestr(f"{about}/RECORD", record)
    return wheel
