"""The folder that the processes on one database share: it and the database have the same number, drawn once.

A process with a folder of its own would make a signing key there, and the others could sign no more.
"""

import secrets
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters.database import Database
from services.metering.adapters.statements import run
from services.rpc.errors import FailedPreconditionError
from services.rpc.secret_file import read_secret, write_secret

_FILE = "folder.id"
_ID_BYTES = 16


async def require_shared(database: Database, folder: Path) -> None:
    """FailedPreconditionError if the processes on the database have another folder; who is first says which one.

    Args:
        database: of metering; one that is not shared has nothing to say.
        folder: of this process.
    """
    if database.process is None:
        return

    def work(connection: sa.Connection) -> None:
        there = read_secret(folder / _FILE)
        mine = None if there is None else there.decode(errors="replace").strip()
        known = run(connection, "SELECT id FROM metering_folder").scalar()
        if known is None:
            run(
                connection, "INSERT INTO metering_folder (id) VALUES (?)", (mine or _drawn(folder),)
            )
        elif mine != known:
            raise _of_another(folder, mine, str(known))

    # In a write, as only one process at a time is in such.
    async def look(connection: AsyncConnection) -> None:
        await connection.run_sync(work)

    await database.write(look)


def _drawn(folder: Path) -> str:
    """A new number. It is in the file before it is in the database: killed in between, the next start takes it."""
    drawn = secrets.token_hex(_ID_BYTES)
    write_secret(folder / _FILE, f"{drawn}\n".encode())
    return drawn


def _of_another(folder: Path, mine: str | None, known: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"the folder {folder} is not the one that the metering processes on this database share, which has the"
        f" signing keys: it has {'no' if mine is None else 'another'} {_FILE}. Let INFERPLANE_STATE_DIR lead all of"
        " them to one folder. If that one is lost for good, empty the database's table metering_folder: the"
        " folder of the process that is then started first counts",
        reason="FOLDER_OF_ANOTHER",
        metadata={"folder": str(folder), "id": mine or "", "wanted": known},
    )
