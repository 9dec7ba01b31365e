"""Stands between a client and Postgres, and cuts connections in the midst of a commit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path

import sqlalchemy as sa

_SOCKET = ".s.PGSQL.5432"
_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # the message that a client sends


class Cut(Enum):
    """Where the next commit's connection is lost."""

    BEFORE = "the server never hears of the commit"
    AFTER = "the server commits, and the client never hears of it"


class PostgresProxy:
    """Passes all on until a cut is wanted; each cut is made once."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.cut: Cut | None = None
        self.cuts = 0

    async def carry(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """One connection, both ways."""
        server, forth = await asyncio.open_unix_connection(str(self._server))
        answers = asyncio.create_task(self._answers(server, back))
        try:
            while data := await client.read(65536):
                cut = self.cut if _COMMIT in data else None
                if cut is not None:
                    self.cut = None
                    self.cuts += 1
                    answers.cancel()
                    await asyncio.wait([answers])
                if cut is Cut.BEFORE:
                    break
                forth.write(data)
                await forth.drain()
                if cut is Cut.AFTER:
                    assert b"COMMIT" in await server.read(65536)
                    break
        finally:
            answers.cancel()
            for writer in (forth, back):
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    @staticmethod
    async def _answers(server: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await server.read(65536):
                back.write(data)
                await back.drain()
        back.close()


@asynccontextmanager
async def between(url: str, folder: Path) -> AsyncIterator[tuple[PostgresProxy, str]]:
    """A proxy for the database on a socket in `folder`, and the URL that leads through it."""
    parsed = sa.make_url(url)
    host = parsed.query["host"]
    assert isinstance(host, str)
    proxy = PostgresProxy(Path(host) / _SOCKET)
    server = await asyncio.start_unix_server(proxy.carry, str(folder / _SOCKET))
    try:
        yield proxy, parsed.update_query_dict({"host": str(folder)}).render_as_string()
    finally:
        server.close()
