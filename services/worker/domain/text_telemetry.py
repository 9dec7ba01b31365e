"""What is known of a text that has ended, without the text."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

FINGERPRINT_BYTES = 16

_LENGTH = struct.Struct("<Q")
_KEY_USE = b"prompt-of-projec"  # sets these keys apart from others of the same secret


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTelemetry:
    """Of one call, which may have continued several prompts."""

    prompt_fingerprint: bytes = b""  # 16 bytes; empty: none was made
    input_characters: int = 0
    output_characters: int = 0  # handed to the caller


def fingerprint(
    secret: bytes, project: str, now: datetime, prompts: Sequence[Sequence[int]]
) -> bytes:
    """Keyed digest of the prompts' tokens: who has no key can neither find the prompt nor try guesses.

    Equal for equal tokens of one project in one month (UTC); each project and month has a key of its own, so that
    nobody can follow a prompt from project to project, or for ever. `secret` has at most 64 bytes.
    """
    month = f"{now.astimezone(UTC):%Y-%m}"
    key = blake2b(f"{month} {project}".encode(), key=secret, person=_KEY_USE).digest()
    digest = blake2b(key=key, digest_size=FINGERPRINT_BYTES)
    for prompt in prompts:  # each after its length, so that no two lists are the same bytes
        digest.update(_LENGTH.pack(len(prompt)))
        digest.update(struct.pack(f"<{len(prompt)}I", *prompt))
    return digest.digest()
