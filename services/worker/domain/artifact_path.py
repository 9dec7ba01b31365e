"""Which paths files of an artifact may have, whoever says so."""

import re

_LONGEST = 255  # bytes

_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether this is a SHA-256 in lower-case hex, and so safe as a folder's name."""
    return _DIGEST.fullmatch(text) is not None


def is_inside(path: str) -> bool:
    """Whether the path is relative and stays inside its folder."""
    return (
        0 < len(path.encode()) <= _LONGEST
        and "\0" not in path
        and "\\" not in path
        and all(segment not in ("", ".", "..") for segment in path.split("/"))
    )


def beside(path: str, location: str) -> str:
    """Where `location`, given relative to the file `path`, lies; external data is named like that."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{location}"
