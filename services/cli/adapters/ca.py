"""The acts of our own authority: begin, issue, take a new key into use while the old one is still trusted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from services.cli.adapters import certificate_folder, certificates, envoy_secrets
from services.cli.adapters.ca_store import CaState, CaStore, IssuedRecord, Signer
from services.cli.adapters.certificates import Issued, Subject
from services.rpc.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from services.rpc.secret_file import write_secret
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY

SOON = timedelta(days=14)  # before its end a certificate is spoken of


class CertificateAuthority:
    """One authority in one folder; `now` is when an act happens."""

    def __init__(self, folder: Path) -> None:
        """Nothing is touched yet."""
        self._store = CaStore(folder.expanduser().absolute())

    def begin(self, days: int, key: Path | None, now: datetime) -> Signer:
        """Make the first key. AlreadyExistsError if there is one."""
        with self._store.held():
            if self._store.state().signers:
                raise AlreadyExistsError(
                    f"there is an authority in {self._store.folder}; a new key comes with: inferplane ca rotate",
                    reason="AUTHORITY_EXISTS",
                    metadata={"folder": str(self._store.folder)},
                )
            signer = self._new_signer(days, key, now)
            self._store.save(CaState((signer,)))
            return signer

    def issue(
        self, subject: Subject, days: float, folder: Path | None, now: datetime
    ) -> IssuedRecord:
        """A certificate in `folder`, in place of what is there; None: one named for the subject, beside ours."""
        with self._store.held():
            state = self._store.existing()
            before = state.find(subject.name)
            place = folder or (Path(before.folder) if before else self._place(subject.name))
            record, state = self._issue(state, subject, days, place.expanduser().absolute(), now)
            self._store.save(state)
            return record

    def renew(self, now: datetime, within: timedelta | None = None) -> list[IssuedRecord]:
        """Issue again what ends within this time; None: all. Signed by the newest key."""
        with self._store.held():
            state = self._store.existing()
            renewed = []
            for old in state.issued:
                if within is not None and old.end - now > within:
                    continue
                subject = Subject(
                    name=old.name, kind=old.kind, dns=old.dns, addresses=old.addresses
                )
                record, state = self._issue(state, subject, old.days, Path(old.folder), now)
                self._store.save(state)
                renewed.append(record)
            return renewed

    def add_key(self, days: int, key: Path | None, now: datetime) -> Signer:
        """A new key that signs from now on; certificates that the old ones signed are trusted as before.

        All folders trust the new key once this returns, before the first certificate is signed by it.
        """
        with self._store.held():
            state = self._store.existing()
            signer = self._new_signer(days, key, now)
            state = replace(state, signers=(signer, *state.signers))
            self._store.save(state)
            self._spread(state)
            return signer

    def retire(self) -> list[Signer]:
        """Trust the newest key only; what others signed is worth nothing then. Returns those that are gone."""
        with self._store.held():
            state = self._store.existing()
            newest, *gone = state.signers
            left = [record.name for record in state.issued if record.issuer != newest.serial]
            if left:
                self._refuse_retiring(left)
            state = replace(state, signers=(newest,))
            self._store.save(state)
            self._spread(state)
            return gone

    def state(self) -> CaState:
        """What there is. FailedPreconditionError without an authority."""
        return self._store.existing()

    def find(self, name: str) -> IssuedRecord:
        """One certificate. NotFoundError."""
        record = self._store.existing().find(name)
        if record is None:
            raise NotFoundError(
                f"no certificate {name!r} was issued here",
                reason="NO_CERTIFICATE",
                metadata={"name": name},
            )
        return record

    def warnings(self, now: datetime) -> list[str]:
        """What ends soon, or has ended; nothing where there is no authority."""
        state = self._store.state()
        told = [(f"certificate {one.name} ({one.kind.value})", one.end) for one in state.issued]
        told += [(f"authority {one.serial[:8]}", one.end) for one in state.signers]
        return [_ending(what, end, now) for what, end in told if end - now < SOON]

    def _place(self, name: str) -> Path:
        return self._store.folder.parent / "tls" / name

    def _new_signer(self, days: int, key: Path | None, now: datetime) -> Signer:
        made = certificates.make_authority(now, days)
        place = key or self._store.folder / f"key-{made.serial[:8]}.pem"
        place = place.expanduser().absolute()
        if place.exists():
            raise AlreadyExistsError(
                f"{place} exists; no key is written over another",
                reason="KEY_EXISTS",
                metadata={"key": str(place)},
            )
        write_secret(place, made.key)
        return Signer(
            made.serial,
            made.certificate.decode(),
            str(place),
            made.parsed.not_valid_after_utc.isoformat(),
        )

    def _issue(
        self, state: CaState, subject: Subject, days: float, folder: Path, now: datetime
    ) -> tuple[IssuedRecord, CaState]:
        made = certificates.issue(self._store.signer(state), subject, now, days)
        self._put(folder, made, state)
        record = IssuedRecord(
            name=subject.name,
            kind=subject.kind,
            dns=subject.dns,
            addresses=subject.addresses,
            days=days,
            folder=str(folder),
            serial=made.serial,
            issuer=state.signers[0].serial,
            ends=made.parsed.not_valid_after_utc.isoformat(),
        )
        return record, state.with_issued(record)

    def _put(self, folder: Path, made: Issued, state: CaState) -> None:
        files = {CERTIFICATE: made.certificate, KEY: made.key, AUTHORITIES: state.bundle}
        certificate_folder.replace(folder, {**files, **envoy_secrets.files(folder)})

    def _spread(self, state: CaState) -> None:
        """Have all folders trust what is trusted now, with the certificates that they have."""
        for record in state.issued:
            folder = Path(record.folder)
            try:
                made = Issued((folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes())
            except FileNotFoundError:  # taken away by somebody, perhaps to another machine
                continue
            self._put(folder, made, state)

    def _refuse_retiring(self, left: list[str]) -> None:
        names = ", ".join(left)
        raise FailedPreconditionError(
            f"signed by an older key still: {names}; issue them again first, with: inferplane ca renew --all",
            reason="STILL_IN_USE",
            metadata={"names": names},
        )


def _ending(what: str, end: datetime, now: datetime) -> str:
    if end <= now:
        return f"{what} has ended on {end:%Y-%m-%d}; issue it again: inferplane ca renew"
    days = (end - now) / timedelta(days=1)
    return f"{what} ends in {days:.0f} days; issue it again: inferplane ca renew"


def now() -> datetime:
    """This machine's time."""
    return datetime.now(UTC)
