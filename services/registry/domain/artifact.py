"""Rules for the artifact that a version declares: its files, its digest."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from services.registry.domain.model import ArtifactFile, Format
from services.rpc.names import shown
from services.rpc.violations import Violations

MAX_FILES = 1000
MAX_PATH_BYTES = 255
PATH_RULE = (
    "a relative path with '/', without empty, '.' or '..' segments, NUL or backslash,"
    f" at most {MAX_PATH_BYTES} bytes"
)
_ENDINGS = {Format.ONNX: ".onnx", Format.GGUF: ".gguf"}
_CONFIG = "config.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_EMPTY_SHA256 = hashlib.sha256().hexdigest()


def is_path(path: str) -> bool:
    """Whether this is a path that a file of an artifact may have."""
    return (
        bool(path)
        and len(path.encode()) <= MAX_PATH_BYTES
        and "\0" not in path
        and "\\" not in path
        and all(segment not in {"", ".", ".."} for segment in path.split("/"))
    )


def artifact_digest(files: Iterable[ArtifactFile]) -> str:
    """SHA-256 over `path NUL size NUL sha256 LF` of every file, in the order of their paths."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.path}\0{file.size_bytes}\0{file.sha256}\n".encode())
    return digest.hexdigest()


def model_path(paths: Iterable[str], kind: Format) -> str:
    """The file of a checked artifact that the others belong to."""
    if kind is Format.SAFETENSORS:
        return _CONFIG
    (found,) = (path for path in paths if path.endswith(_ENDINGS[kind]))
    return found


def check_files(
    violations: Violations, files: Sequence[ArtifactFile], kind: Format | None, max_file_bytes: int
) -> tuple[ArtifactFile, ...]:
    """The declared files, sorted by path."""
    violations.require(
        1 <= len(files) <= MAX_FILES, "files", f"{len(files)} files; allowed: 1 to {MAX_FILES}"
    )
    for index, file in enumerate(files):
        _check_file(violations, f"files[{index}]", file, max_file_bytes)
    _check_distinct(violations, files)
    paths = sorted(file.path for file in files)
    if kind is Format.SAFETENSORS:
        _check_transformers(violations, paths)
    elif kind is not None:
        _check_one_model(violations, paths, kind)
    return tuple(sorted(files))


def _check_one_model(violations: Violations, paths: Sequence[str], kind: Format) -> None:
    ending = _ENDINGS[kind]
    models = [path for path in paths if path.endswith(ending)]
    if len(models) != 1:
        given = ", ".join(shown(path) for path in models[:5]) or "none"
        others = "and external data" if kind is Format.ONNX else "and no other files"
        violations.add(
            "files",
            f"{len(models)} files end in '{ending}' ({given}); allowed: exactly one, {others}",
        )
    elif kind is Format.GGUF and len(paths) > 1:
        other = next(path for path in paths if path != models[0])
        violations.add("files", f"{shown(other)} beside {shown(models[0])}; allowed: one file")


def _check_transformers(violations: Violations, paths: Sequence[str]) -> None:
    for name in (_CONFIG, "tokenizer.json"):
        violations.require(name in paths, "files", f"no '{name}'; allowed: models that have it")
    violations.require(
        any(path.endswith(".safetensors") for path in paths),
        "files",
        "none ends in '.safetensors'; allowed: at least one",
    )


def _check_file(violations: Violations, field: str, file: ArtifactFile, most: int) -> None:
    violations.require(
        is_path(file.path), f"{field}.path", f"{shown(file.path)}; allowed: {PATH_RULE}"
    )
    violations.require(
        0 <= file.size_bytes <= most,
        f"{field}.size_bytes",
        f"{file.size_bytes}; allowed: 0 to {most}",
    )
    if not _SHA256.fullmatch(file.sha256):
        violations.add(
            f"{field}.sha256", f"{shown(file.sha256)}; allowed: 64 lower-case hex digits"
        )
    elif (file.size_bytes == 0) != (file.sha256 == _EMPTY_SHA256):
        violations.add(
            f"{field}.sha256",
            f"{file.sha256} does not go with {file.size_bytes} bytes;"
            f" allowed: {_EMPTY_SHA256} for empty files, and for them only",
        )


def _check_distinct(violations: Violations, files: Sequence[ArtifactFile]) -> None:
    # With `/` sorted before everything else, a folder's files follow right behind a file of its name.
    paths = sorted(file.path.split("/") for file in files)
    for one, next_one in pairwise(paths):
        if one == next_one:
            violations.add("files", f"path {shown('/'.join(one))} is declared twice; allowed: once")
        elif next_one[: len(one)] == one:
            violations.add(
                "files",
                f"path {shown('/'.join(one))} is a file and the folder of"
                f" {shown('/'.join(next_one))}; allowed: one of both",
            )
