"""The authority's folder: its keys, whom it trusts, and what it has issued."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from services.cli.adapters.certificates import Issued
from services.rpc.errors import FailedPreconditionError
from services.rpc.peer_kind import PeerKind
from services.rpc.secret_file import write_secret

_RECORD = "authority.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedRecord:
    """A certificate that was issued, as it is to be issued again."""

    name: str
    kind: PeerKind
    dns: tuple[str, ...]
    addresses: tuple[str, ...]
    days: float
    folder: str
    serial: str
    issuer: str  # serial of the authority
    ends: str  # ISO 8601

    @property
    def end(self) -> datetime:
        """When it ends."""
        return datetime.fromisoformat(self.ends)


@dataclass(frozen=True, slots=True)
class Signer:
    """One authority."""

    serial: str
    certificate: str  # PEM
    key: str  # path of the file
    ends: str  # ISO 8601

    @property
    def end(self) -> datetime:
        """When it ends."""
        return datetime.fromisoformat(self.ends)


@dataclass(frozen=True, slots=True)
class CaState:
    """All that is written down. The first signer signs; all are trusted."""

    signers: tuple[Signer, ...] = ()
    issued: tuple[IssuedRecord, ...] = ()

    @property
    def bundle(self) -> bytes:
        """Whom certificates of this authority are checked with."""
        return "".join(signer.certificate for signer in self.signers).encode()

    def find(self, name: str) -> IssuedRecord | None:
        """What was issued under a name."""
        return next((record for record in self.issued if record.name == name), None)

    def with_issued(self, record: IssuedRecord) -> "CaState":
        """The same, with this in the place of what the name had."""
        others = [other for other in self.issued if other.name != record.name]
        return replace(self, issued=tuple(sorted([*others, record], key=lambda one: one.name)))


class CaStore:
    """Reads and writes one authority's folder; readable by this user only."""

    def __init__(self, folder: Path) -> None:
        """Nothing is touched yet."""
        self.folder = folder

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else changes it meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def state(self) -> CaState:
        """What is written down; empty where there is no authority."""
        try:
            read: Any = json.loads((self.folder / _RECORD).read_text())
        except FileNotFoundError:
            return CaState()
        issued = [
            IssuedRecord(
                **{
                    **record,
                    "kind": PeerKind(record["kind"]),
                    "dns": tuple(record["dns"]),
                    "addresses": tuple(record["addresses"]),
                }
            )
            for record in read["issued"]
        ]
        return CaState(tuple(Signer(**signer) for signer in read["signers"]), tuple(issued))

    def existing(self) -> CaState:
        """The same; FailedPreconditionError where there is no authority."""
        state = self.state()
        if not state.signers:
            raise FailedPreconditionError(
                f"there is no authority in {self.folder}; make one with: inferplane ca init",
                reason="NO_AUTHORITY",
                metadata={"folder": str(self.folder)},
            )
        return state

    def save(self, state: CaState) -> None:
        """Write it down at once."""
        write_secret(self.folder / _RECORD, json.dumps(asdict(state), indent=1).encode())

    def signer(self, state: CaState) -> Issued:
        """The authority that signs, with its key. FailedPreconditionError if the key is not there."""
        newest = state.signers[0]
        try:
            key = Path(newest.key).read_bytes()
        except OSError as error:
            raise FailedPreconditionError(
                f"the authority's key {newest.key} can't be read: {error.strerror}",
                reason="NO_AUTHORITY_KEY",
                metadata={"key": newest.key},
            ) from error
        return Issued(newest.certificate.encode(), key)
