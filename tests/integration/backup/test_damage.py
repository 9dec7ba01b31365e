"""What a backup says of itself when it, or what it was made of, was damaged; what is refused; what pruning leaves."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.cli.adapters import backup as acts
from services.cli.adapters.backup_repository import Backup, BackupRepository
from services.cli.adapters.ca import CertificateAuthority
from services.cli.adapters.certificates import Subject
from services.cli.adapters.state_directory import StateDirectory
from services.registry.backup import RegistryPart
from services.rpc.backup_part import BackupPlace, StoreSettings
from services.rpc.errors import DataLossError, FailedPreconditionError, NotFoundError
from services.rpc.peer_kind import PeerKind
from services.rpc.secret_file import write_secret
from services.rpc.settings import load
from tests.integration.backup.backup_world import PartsHere, Place, Silence, parts_of
from tests.upgrade import released

_SHA256 = "2b1635513a063f445be51e66cf447b514c0195f491046bab74de1628a3c05776"
_VERSION = "models/affine/versions/1"


def _artifact(root: Path) -> Path:
    return root / "sha256" / _SHA256[:2] / _SHA256


def _a_state(folder: Path) -> Path:
    """A state directory as the first release left it."""
    for service in ("registry", "metering"):
        released.write(service, folder / service / f"{service}.db")
    artifact = _artifact(folder / "registry" / "registry.blobs")
    artifact.parent.mkdir(parents=True)
    shutil.copy(Path(released.__file__).with_name("affine.onnx"), artifact)
    write_secret(folder / "admin.key", b"a token\n")
    return folder


def _parts(repository: BackupRepository, state: Path) -> PartsHere:
    return parts_of(Place(state), repository)


def _create(repository: BackupRepository, state: Path) -> Backup:
    return acts.create(repository, _parts(repository, state), Silence(), secrets=True)


def _verify(repository: BackupRepository) -> list[str]:
    return acts.verify(repository, repository.find("latest"), _parts(repository, Path("/nowhere")))


def _restore(repository: BackupRepository, state: Path, *, damaged: bool = False) -> list[str]:
    order = acts.RestoreOrder(repository.find("latest"), _parts(repository, state), damaged)
    return acts.restore(repository, order, Silence())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A state and a repository with one backup of it; tests take copies."""
    folder = tmp_path_factory.mktemp("made")
    state = _a_state(folder / "state")
    _create(BackupRepository(folder / "repository"), state)
    return state, folder / "repository"


@pytest.fixture
def repository(made: tuple[Path, Path], tmp_path: Path) -> BackupRepository:
    """A copy of the repository, which a test may damage."""
    return BackupRepository(shutil.copytree(made[1], tmp_path / "repository"))


def _folder(root: Path) -> Path:
    (only,) = BackupRepository(root).backups()
    return only.folder


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a database": (
        lambda root: _flip(_folder(root) / "metering.db"),
        "metering.db was changed",
    ),
    "a database is gone": (
        lambda root: (_folder(root) / "registry.db").unlink(),
        "registry.db is missing",
    ),
    "a bit of an artifact": (
        lambda root: _flip(_artifact(root / "artifacts")),
        f"of {_VERSION}",
    ),
    "an artifact is gone": (
        lambda root: _artifact(root / "artifacts").unlink(),
        "No such file",
    ),
    "a file that was never in it": (
        lambda root: (_folder(root) / "more.db").write_text("x"),
        "more.db is no part of the backup",
    ),
    "a manifest that was written over": (
        lambda root: _replace(_folder(root) / "manifest.json", '"0.1.0"', '"0.1.1"'),
        "manifest.json was changed",
    ),
    "a secret that all may read": (
        lambda root: (_folder(root) / "secrets" / "admin.key").chmod(0o644),
        "admin.key is a secret that others may read",
    ),
}


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(("damage", "said"), _DAMAGES.values(), ids=_DAMAGES.keys())
def test_damage_is_found_and_not_restored(
    damage: Callable[[Path], object], said: str, repository: BackupRepository, tmp_path: Path
) -> None:
    """Whatever changed since: verify names it, restore refuses and has written nothing."""
    damage(repository.folder)
    assert said in "; ".join(_verify(repository))
    with pytest.raises(DataLossError) as caught:
        _restore(repository, tmp_path / "target")
    assert caught.value.reason == "BACKUP_DAMAGED"
    assert not list((tmp_path / "target").rglob("*.db"))


def test_what_was_lost_before_is_told(tmp_path: Path) -> None:
    """An artifact that is gone where it was: the rest is saved, and comes back if that is wanted."""
    state, repository = _a_state(tmp_path / "state"), BackupRepository(tmp_path / "repository")
    _artifact(state / "registry" / "registry.blobs").unlink()
    (told,) = _create(repository, state).manifest.damaged
    assert f"content {_SHA256} of {_VERSION} is lost" in told
    with pytest.raises(DataLossError):
        _restore(repository, tmp_path / "target")
    notes = _restore(repository, tmp_path / "target", damaged=True)
    assert any(_VERSION in note for note in notes)
    assert (tmp_path / "target" / "registry" / "registry.db").exists()


def test_what_an_earlier_backup_still_has_is_told_too(
    made: tuple[Path, Path], repository: BackupRepository, tmp_path: Path
) -> None:
    """An artifact that is gone where it was, but in the repository: the backup is whole, and its owner is told."""
    state = Path(shutil.copytree(made[0], tmp_path / "state"))
    _artifact(state / "registry" / "registry.blobs").unlink()
    manifest = _create(repository, state).manifest
    assert manifest.damaged == []
    (told,) = manifest.gone
    assert f"content {_SHA256} of {_VERSION} is gone" in told
    assert _verify(repository) == []


def test_a_version_that_is_deleted_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    """Its content is gone when its turn comes: the database is copied again, and nothing is damaged."""
    state, repository = _a_state(tmp_path / "state"), BackupRepository(tmp_path / "repository")
    database = state / "registry" / "registry.db"
    settings = load(StoreSettings, state_dir=state, store_url="", store_password_file=None)

    class Deleting(RegistryPart):
        """Whose versions are deleted between the copy of the database and that of the contents."""

        def save(self, target: Path) -> None:
            super().save(target)
            _empty(database)
            _artifact(database.with_suffix(".blobs")).unlink(missing_ok=True)

    (tmp_path / "folder").mkdir()
    told = Deleting(settings).create(BackupPlace(tmp_path / "folder", repository.artifacts))
    assert (told["damaged"], told["artifacts"], told["rows"]["resources"]) == ([], [], 0)


def test_a_ledger_that_was_rewritten_is_told(tmp_path: Path) -> None:
    """The copy is counted again when it is made: damage is found while older backups are still there."""
    state, repository = _a_state(tmp_path / "state"), BackupRepository(tmp_path / "repository")
    with closing(sqlite3.connect(state / "metering" / "metering.db")) as connection:
        connection.execute("DROP TRIGGER ledger_postings_no_update")
        connection.execute("UPDATE ledger_postings SET amount = amount + 1 WHERE id = 9")
        connection.commit()
    told = _create(repository, state).manifest.damaged
    assert any("ledger: BROKEN_CHAIN" in one for one in told)


def test_nothing_is_written_over(made: tuple[Path, Path], tmp_path: Path) -> None:
    """A restore wants an empty place: a database, or the first admin's key, is reason enough to refuse."""
    state, repository = made[0], BackupRepository(made[1])
    for occupied in ("registry/registry.db", "metering/metering.db", "admin.key", "ca/x.pem"):
        target = tmp_path / occupied.replace("/", "-")
        (target / occupied).parent.mkdir(parents=True)
        write_secret(target / occupied, b"mine\n")
        with pytest.raises(FailedPreconditionError) as caught:
            _restore(repository, target)
        assert caught.value.reason == "NOT_EMPTY"
        files = [path for path in target.rglob("*") if path.is_file() and path.name != "lock"]
        assert [str(path.relative_to(target)) for path in files] == [occupied]
    assert _verify(repository) == []
    assert (state / "admin.key").exists()


def test_secrets_that_are_the_same_are_no_obstacle(made: tuple[Path, Path], tmp_path: Path) -> None:
    """When a database alone was lost, they are still where they belong."""
    (tmp_path / "target").mkdir()
    shutil.copy(made[0] / "admin.key", tmp_path / "target" / "admin.key")
    _restore(BackupRepository(made[1]), tmp_path / "target")
    assert (tmp_path / "target" / "metering" / "metering.db").exists()


def test_a_running_mesh_is_not_restored_over(made: tuple[Path, Path], tmp_path: Path) -> None:
    """As long as `up` holds the state directory, whatever is in it."""
    directory = StateDirectory(tmp_path / "state")
    directory.prepare()
    with directory.held(), pytest.raises(FailedPreconditionError) as caught:
        _restore(BackupRepository(made[1]), directory.path)
    assert caught.value.reason == "ALREADY_RUNNING"


def test_artifacts_are_kept_once_and_as_long_as_one_backup_has_them(
    made: tuple[Path, Path], repository: BackupRepository, tmp_path: Path
) -> None:
    """A second backup adds none; pruning removes what only the removed ones had."""
    state = Path(shutil.copytree(made[0], tmp_path / "state"))
    second = _create(repository, state)
    assert second.manifest.parts["registry"]["added"] == {"count": 0, "bytes": 0}
    assert acts.prune(repository, 1, Silence().say)[0] == 1
    assert _artifact(repository.artifacts).exists()
    assert _verify(repository) == []

    _empty(state / "registry" / "registry.db")
    third = _create(repository, state)
    assert acts.prune(repository, 1, Silence().say)[0] == 1
    assert not _artifact(repository.artifacts).exists()
    assert [one.id for one in repository.backups()] == [third.id]
    assert _verify(repository) == []


def _empty(database: Path) -> None:
    """Delete all that a registry has."""
    with closing(sqlite3.connect(database)) as connection:
        for table in ("links", "blob_uses", "resources"):
            connection.execute(f"DELETE FROM {table}")
        connection.commit()


def test_one_that_was_not_completed_is_none(
    made: tuple[Path, Path], repository: BackupRepository
) -> None:
    """What a crash left is no backup, and gone with the next one that is made."""
    left = repository.folder / "backups" / ".new-crashed"
    left.mkdir()
    (left / "registry.db").touch()
    assert len(repository.backups()) == 1
    _create(repository, made[0])
    assert not left.exists()
    assert len(repository.backups()) == 2


def test_one_command_at_a_time_changes_a_repository(
    made: tuple[Path, Path], repository: BackupRepository
) -> None:
    """Others are told, not kept waiting; who only reads is in nobody's way."""
    with repository.held(alone=False):
        assert _verify(repository) == []
        with pytest.raises(FailedPreconditionError) as caught:
            _create(repository, made[0])
    assert caught.value.reason == "REPOSITORY_IN_USE"


def test_backups_are_found_by_the_beginning_of_their_names(
    made: tuple[Path, Path], repository: BackupRepository
) -> None:
    """Or as the newest; a beginning that several have is told with all of them."""
    first = repository.find("latest")
    second = _create(repository, made[0])
    assert repository.find("latest").id == second.id
    assert repository.find(first.id[:16]).id == first.id
    with pytest.raises(FailedPreconditionError, match=f"{first.id}, {second.id}"):
        repository.find("20")
    with pytest.raises(NotFoundError):
        repository.find("1999")


def test_what_is_no_repository_is_told(tmp_path: Path) -> None:
    """A folder of something else, one that isn't there, and a state without stores."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(NotFoundError):
        BackupRepository(tmp_path / "none").require()
    with pytest.raises(FailedPreconditionError, match="something else"):
        _create(BackupRepository(tmp_path / "other"), tmp_path / "state")
    repository = BackupRepository(tmp_path / "new")
    with pytest.raises(FailedPreconditionError, match="there is no database"):
        _create(repository, tmp_path / "state")
    assert list((tmp_path / "new" / "backups").iterdir()) == []
    with pytest.raises(NotFoundError, match="inferplane backup create"):
        repository.find("latest")


def test_the_authority_moves_with_its_folder(tmp_path: Path) -> None:
    """Its record names its key's place: restored elsewhere, it names the new one, and signs."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    state, repository = _a_state(tmp_path / "state"), BackupRepository(tmp_path / "repository")
    CertificateAuthority(state / "ca").begin(3650, None, now)
    _create(repository, state)
    shutil.rmtree(state)
    _restore(repository, tmp_path / "target")
    moved = CertificateAuthority(tmp_path / "target" / "ca")
    assert moved.state().signers[0].key.startswith(str(tmp_path / "target"))
    moved.issue(Subject(name="w", kind=PeerKind.WORKER), 90, None, now)


def test_the_authority_stays_away_from_workers(tmp_path: Path) -> None:
    """Where each service has a folder of its own, no folder gets the key that makes members of a mesh."""
    state, repository = _a_state(tmp_path / "state"), BackupRepository(tmp_path / "repository")
    write_secret(state / "fingerprint.key", b"of prompts")
    CertificateAuthority(state / "ca").begin(3650, None, datetime(2030, 1, 1, tzinfo=UTC))
    _create(repository, state)
    _restore(repository, tmp_path / "cluster" / "{service}")
    assert (tmp_path / "cluster" / "mesh" / "fingerprint.key").exists()
    assert (tmp_path / "cluster" / "metering" / "admin.key").exists()
    assert not (tmp_path / "cluster" / "mesh" / "ca").exists()
