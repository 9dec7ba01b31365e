"""GGUF files byte by byte, so that every field can lie."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

STRING, ARRAY, UINT32, FLOAT32 = 8, 9, 4, 6


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: str, value: int) -> bytes:
    return key(name, UINT32, struct.pack("<I", value))


def array(name: str, kind: int, length: int, values: bytes) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", kind, length) + values)


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<{len(dims)}Q", *dims)
    return text(name) + struct.pack("<I", len(dims)) + sizes + struct.pack("<IQ", kind, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGguf:
    """Parts as they are written; counts are right unless said otherwise."""

    magic: bytes = b"GGUF"
    version: bytes = struct.pack("<I", 3)
    tensor_count: int | None = None
    key_count: int | None = None
    keys: tuple[bytes, ...] = (key("general.architecture", STRING, text("llama")),)
    tensors: tuple[bytes, ...] = field(default=(tensor("t", (32,)),))
    content: bytes = bytes(128)

    def write(self, path: Path) -> Path:
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        keys = len(self.keys) if self.key_count is None else self.key_count
        header = self.magic + self.version + struct.pack("<QQ", tensors, keys)
        header += b"".join(self.keys) + b"".join(self.tensors)
        path.write_bytes(header + bytes(-len(header) % 32) + self.content)
        return path
