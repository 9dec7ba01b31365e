"""Artifacts on the move: uploads and downloads through the edge that go on where they stopped."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO

import grpc
import tenacity
from inferplane.registry.v1 import artifact_service_pb2, model_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge
from services.cli.adapters.local_file import BLOCK, LocalFile
from services.cli.ports.report import Report
from services.rpc.errors import DataLossError, FailedPreconditionError

_TRIES = 8  # in a row without a byte moving; about a minute with the back-off below
_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,  # a stream reset in the middle
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,  # the server's side of a stream that ended
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,  # the broken upload before this one is still open at the registry
        grpc.StatusCode.OUT_OF_RANGE,  # more had arrived than was confirmed
    }
)


class Resumption:
    """Decides whether a transfer that broke is taken up again: yes while it moves, else a few times."""

    def __init__(self, report: Report) -> None:
        """Nothing has moved yet."""
        self._report = report
        self._moved = 0
        self._seen = 0
        self._stored = 0
        self._idle_failures = 0

    def moved(self, count: int) -> None:
        """So many bytes have gone over the wire."""
        self._moved += count
        self._report.advance(count)

    def saw(self, stored: int) -> None:
        """So many bytes have arrived; another push of the same files may have sent them."""
        if stored > self._stored:
            self._stored = stored
            self._idle_failures = 0

    def _goes_on(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, grpc.aio.AioRpcError) or error.code() not in _PASSING:
            return False
        self._idle_failures = 1 if self._moved > self._seen else self._idle_failures + 1
        self._seen = self._moved
        return self._idle_failures < _TRIES

    def _wait(self, _state: tenacity.RetryCallState) -> float:
        return float(min(10.0, 0.2 * 2 ** (self._idle_failures - 1)))

    def _note(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        told = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
        self._report.say(f"the transfer broke ({told}); it goes on from where it stopped")

    def attempts(self) -> tenacity.AsyncRetrying:
        """Attempts for `async for attempt in …: with attempt: …`."""
        return tenacity.AsyncRetrying(
            retry=self._goes_on, wait=self._wait, before_sleep=self._note, reraise=True
        )


async def upload(edge: Edge, name: str, files: Sequence[LocalFile], report: Report) -> None:
    """Send what the registry lacks of `files` for the UPLOADING version `name`."""
    resumption = Resumption(report)
    begun = False
    async for attempt in resumption.attempts():
        with attempt:
            stored = await _stored(edge, name)
            resumption.saw(sum(stored.values()))
            if not begun:
                total, done = sum(f.size for f in files), sum(stored.values())
                report.begin("uploading", total, done)
                begun = True
            for file in files:
                # A file of no bytes has to be told of too, so "complete" is asked of what is listed.
                if stored.get(file.path, -1) < file.size or file.size == 0:
                    await _upload_file(edge, name, file, stored.get(file.path, 0), resumption)
    report.finish()


async def _stored(edge: Edge, name: str) -> dict[str, int]:
    request = artifact_service_pb2.GetUploadRequest(name=name)
    response = await edge.artifacts.GetUpload(request, timeout=CALL_SECONDS)
    return {file.path: file.stored_bytes for file in response.files}


async def _upload_file(
    edge: Edge, name: str, file: LocalFile, offset: int, resumption: Resumption
) -> None:
    start = artifact_service_pb2.UploadArtifactRequest.Start(
        name=name, path=file.path, offset=offset
    )

    async def messages() -> AsyncIterator[artifact_service_pb2.UploadArtifactRequest]:
        yield artifact_service_pb2.UploadArtifactRequest(start=start)
        with await asyncio.to_thread(file.source.open, "rb") as stream:
            stream.seek(offset)
            while block := await asyncio.to_thread(stream.read, BLOCK):
                yield artifact_service_pb2.UploadArtifactRequest(chunk=block)
                resumption.moved(len(block))

    response = await edge.artifacts.UploadArtifact(messages())
    if not response.complete:
        raise FailedPreconditionError(
            f"{file.source}: {response.stored_bytes} of {file.size} bytes arrived and no more came;"
            " the file shrank while it was sent",
            reason="FILE_CHANGED",
        )


async def download(
    edge: Edge, version: model_pb2.ModelVersion, folder: Path, report: Report
) -> list[Path]:
    """Fetch the files of a version into `folder`, each verified before it takes its name."""
    resumption = Resumption(report)
    targets = [_inside(folder, file.path) for file in version.files]
    done = await asyncio.to_thread(_bytes_there, version, targets)
    report.begin("downloading", version.size_bytes, done)
    for file, target in zip(version.files, targets, strict=True):
        if not await asyncio.to_thread(_is_complete, target, file):
            await _download_file(edge, version.name, file, target, resumption)
    report.finish()
    return targets


def _inside(folder: Path, path: str) -> Path:
    """Where a file goes; a registry that names a place outside is not believed."""
    target = folder / path
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise FailedPreconditionError(
            f"{path!r} is outside of {folder}", reason="PATH_OUTSIDE", metadata={"path": path}
        )
    return target


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _bytes_there(version: model_pb2.ModelVersion, targets: Sequence[Path]) -> int:
    count = 0
    for file, target in zip(version.files, targets, strict=True):
        for candidate in (target, _part(target)):
            if candidate.is_file():
                count += min(candidate.stat().st_size, file.size_bytes)
                break
    return count


def _is_complete(target: Path, file: model_pb2.ArtifactFile) -> bool:
    if not target.is_file() or target.stat().st_size != file.size_bytes:
        return False
    with target.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


async def _download_file(
    edge: Edge, name: str, file: model_pb2.ArtifactFile, target: Path, resumption: Resumption
) -> None:
    part = _part(target)
    await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
    async for attempt in resumption.attempts():
        with attempt, await asyncio.to_thread(_open_to_append, part) as stream:
            await _receive(edge, name, file, stream, resumption)
    with await asyncio.to_thread(part.open, "rb") as stream:
        digest = await asyncio.to_thread(hashlib.file_digest, stream, "sha256")
    if digest.hexdigest() != file.sha256:
        await asyncio.to_thread(part.unlink)
        raise DataLossError(
            f"{file.path}: what arrived has SHA-256 {digest.hexdigest()}, not {file.sha256};"
            " it was thrown away",
            metadata={"path": file.path},
        )
    await asyncio.to_thread(part.replace, target)


def _open_to_append(path: Path) -> BinaryIO:
    # O_NOFOLLOW: a link planted under the partial file's name must not lead elsewhere.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    return os.fdopen(descriptor, "ab")


async def _receive(
    edge: Edge,
    name: str,
    file: model_pb2.ArtifactFile,
    stream: BinaryIO,
    resumption: Resumption,
) -> None:
    offset = stream.tell()
    if offset > file.size_bytes:  # left by another version
        stream.truncate(0)
        offset = 0
    if offset == file.size_bytes:
        return
    request = artifact_service_pb2.DownloadArtifactRequest(name=name, path=file.path, offset=offset)
    async for response in edge.artifacts.DownloadArtifact(request):
        await asyncio.to_thread(stream.write, response.chunk)
        resumption.moved(len(response.chunk))
