"""Streams of requests that are open on this worker, and the wish that they end: of all, or of those of one version."""

from typing import Protocol

from services.rpc.errors import UnavailableError

# From discovery's knowledge that something goes until no route leads there any more. A stream that is ended sooner is
# opened again at once, and comes back.
ROUTES_MOVE_SECONDS = 1.0


class OpenStream(Protocol):
    """One of them."""

    def uses(self, version: str) -> bool:
        """Whether it has sent requests to a version, by its resource name."""
        ...

    def end(self, why: UnavailableError) -> None:
        """Take no more requests; once those that run are answered, end so that the caller connects anew."""
        ...


class OpenStreams:
    """Lasts as long as the worker; one event loop only."""

    def __init__(self) -> None:
        self._open: set[OpenStream] = set()
        self._ending: dict[str, UnavailableError] = {}
        self._all: UnavailableError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def use(self, version: str) -> bool:
        """Whether any has sent requests to a version, by its resource name."""
        return any(stream.uses(version) for stream in self._open)

    def add(self, stream: OpenStream) -> None:
        """It has begun."""
        self._open.add(stream)

    def discard(self, stream: OpenStream) -> None:
        """It has ended."""
        self._open.discard(stream)

    def why_end(self, version: str) -> UnavailableError | None:
        """Why a stream that now asks for this version is to end after that; None: it may stay."""
        return self._all or self._ending.get(version)

    def end_all(self) -> None:
        """The worker goes."""
        self._all = UnavailableError(
            "this worker drains; open the stream again", reason="DRAINING", retry_after=0.0
        )
        for stream in list(self._open):
            stream.end(self._all)

    def end_version(self, version: str) -> None:
        """A version goes, by its resource name."""
        why = UnavailableError(
            f"{version} is being unloaded from this worker; open the stream again",
            reason="VERSION_UNLOADED",
            metadata={"version": version},
            retry_after=0.0,
        )
        self._ending[version] = why
        for stream in list(self._open):
            if stream.uses(version):
                stream.end(why)

    def forget(self, version: str) -> None:
        """The version is gone, and may come again."""
        self._ending.pop(version, None)
