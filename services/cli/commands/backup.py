"""Commands on backups: create, list, verify, restore, prune. They work on files and databases, not through the edge."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import Format, OutputOption, StateDirOption, terminal

if TYPE_CHECKING:
    from services.cli.adapters.backup_parts import BackupParts
    from services.cli.adapters.backup_repository import BackupRepository

app = typer.Typer(
    no_args_is_help=True,
    help="Backups of everything that a mesh knows: both stores, artifacts, secrets. It may run meanwhile.",
)

_Folder = Annotated[
    Path,
    typer.Option(
        "--repository",
        "-r",
        envvar="INFERPLANE_BACKUP_REPOSITORY",
        metavar="DIR",
        help="The folder with all backups; artifacts that several have lie there once.",
        file_okay=False,
    ),
]
_Backup = Annotated[
    str, typer.Argument(metavar="[BACKUP]", help="An id, or its beginning, or latest.")
]
_StoreUrl = Annotated[
    str,
    typer.Option(
        "--store-url",
        envvar="INFERPLANE_STORE_URL",
        metavar="URL",
        help="postgresql://user@host:port/database; {service} in it becomes registry and metering.",
        show_default="SQLite in the state directory",
    ),
]
_PasswordFile = Annotated[
    str,
    typer.Option(
        "--store-password-file",
        envvar="INFERPLANE_STORE_PASSWORD_FILE",
        metavar="FILE",
        help="Holds the password for --store-url; {service} as there.",
        show_default="none",
    ),
]
_LATEST = "latest"


def _repository(folder: Path, *, existing: bool = True) -> "BackupRepository":
    from services.cli.adapters.backup_repository import BackupRepository

    found = BackupRepository(folder)
    if existing:
        found.require()
    return found


def _parts(
    repository: "BackupRepository", state_dir: Path | None = None, url: str = "", password: str = ""
) -> "BackupParts":
    from services.cli.adapters.backup_parts import PartPrograms, Stores
    from services.cli.adapters.state_directory import default_path

    stores = Stores(state_dir=str(state_dir or default_path()), url=url, password_file=password)
    return PartPrograms(stores, repository.artifacts)


@app.command()
def create(
    *,
    repository: _Folder,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets/--no-secrets",
            envvar="INFERPLANE_BACKUP_SECRETS",
            help="Save the signing key, the first admin's key, the fingerprint key and the authority too.",
        ),
    ] = True,
    state_dir: StateDirOption = None,
    store_url: _StoreUrl = "",
    store_password_file: _PasswordFile = "",
    output: OutputOption = Format.TABLE,
) -> int:
    """Save everything; exit code 1 if something was lost or wrong already before it was saved.

    A backup with secrets lets whoever reads it sign keys: keep it as you keep those.
    """
    from services.cli.adapters import backup, backup_view
    from services.cli.adapters.backup_repository import told
    from services.cli.domain.exit_code import ExitCode

    screen = terminal(output)
    with told(repository):
        place = _repository(repository, existing=False)
        parts = _parts(place, state_dir, store_url, store_password_file)
        made = backup.create(place, parts, screen, secrets=secrets)
    backup_view.show_created(screen, made)
    return ExitCode.FAILED if made.manifest.damaged or made.manifest.gone else ExitCode.OK


@app.command("list")
def list_(*, repository: _Folder, output: OutputOption = Format.TABLE) -> None:
    """List backups, oldest first."""
    from services.cli.adapters import backup_view
    from services.cli.adapters.backup_repository import told

    with told(repository):
        found = _repository(repository)
        there = found.backups()
        backup_view.list_backups(terminal(output), there, found.used_bytes(there))


@app.command()
def verify(
    backup: _Backup = _LATEST,
    *,
    repository: _Folder,
    output: OutputOption = Format.TABLE,
) -> int:
    """Read all of a backup again: digests, databases, the ledger from its rows; exit code 1 if anything is wrong."""
    from services.cli.adapters import backup as acts
    from services.cli.adapters import backup_view
    from services.cli.adapters.backup_repository import told
    from services.cli.domain.exit_code import ExitCode

    screen = terminal(output)
    with told(repository):
        found = _repository(repository)
        wanted = found.find(backup)
        problems = acts.verify(found, wanted, _parts(found))
    backup_view.show_verified(screen, wanted, problems)
    return ExitCode.FAILED if problems else ExitCode.OK


@app.command()
def restore(
    backup: _Backup = _LATEST,
    *,
    repository: _Folder,
    damaged: Annotated[
        bool,
        typer.Option(
            "--damaged",
            envvar="INFERPLANE_BACKUP_DAMAGED",
            help="Restore what is whole of a backup that is damaged.",
            show_default="off",
        ),
    ] = False,
    state_dir: StateDirOption = None,
    store_url: _StoreUrl = "",
    store_password_file: _PasswordFile = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Put a backup, verified first, into an empty state directory, or into empty databases of Postgres.

    Either engine takes what was saved from the other: so a mesh of `up` moves to a cluster, and back.
    """
    from services.cli.adapters import backup as acts
    from services.cli.adapters import backup_view
    from services.cli.adapters.backup_repository import told

    screen = terminal(output)
    with told(repository):
        found = _repository(repository)
        wanted = found.find(backup)
        parts = _parts(found, state_dir, store_url, store_password_file)
        notes = acts.restore(found, acts.RestoreOrder(wanted, parts, damaged), screen)
    backup_view.show_restored(screen, wanted, notes)


@app.command()
def prune(
    *,
    repository: _Folder,
    keep: Annotated[
        int,
        typer.Option(
            "--keep", envvar="INFERPLANE_BACKUP_KEEP", min=1, help="How many of the newest stay."
        ),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """Remove all but the newest backups, and artifacts that no other backup has."""
    from services.cli.adapters import backup
    from services.cli.adapters.backup_repository import told
    from services.cli.adapters.tables import size

    screen = terminal(output)
    with told(repository):
        removed, freed = backup.prune(_repository(repository), keep, screen.say)
    if screen.as_json:
        screen.json({"removed_backups": removed, "freed_bytes": freed})
    else:
        screen.result(f"{removed} backups removed, {size(freed)} freed")
