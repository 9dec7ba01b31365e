"""The files of a cluster: an authority, a certificate and secrets for each holder, made once and renewed in time."""

import json
import secrets
import uuid
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from services.cli.adapters.ca import CertificateAuthority
from services.cli.adapters.certificates import Subject, serial_of
from services.cli.setup.holders import CONSUL_ADMIN, CONSUL_TOKENS, Holder
from services.rpc.errors import FailedPreconditionError
from services.rpc.secret_file import read_secret, write_secret
from services.rpc.tls import CERTIFICATE, KEY

AUTHORITY = (
    "authority"  # folder of the authority and of the first copies of secrets; no service has it
)
TLS = "tls"
SECRETS = "secrets"
CONSUL_CONFIG = "acl.json"
_DAYS = 90.0
_EARLY = timedelta(days=30)  # before its end a certificate is issued again
_AUTHORITY_DAYS = 3650


class Outfit:
    """What lies under one root; may be made again at any time, and changes nothing that is good."""

    def __init__(self, root: Path, consul_key: str) -> None:
        """Nothing is touched yet.

        Args:
            root: has a folder for each holder, and one for the authority.
            consul_key: what Consul's configuration calls the token of whoever may do all (it was renamed once).
        """
        self._root = root
        self._consul_key = consul_key
        self._authority = CertificateAuthority(root / AUTHORITY)

    def make(self, holders: tuple[Holder, ...], now: datetime) -> list[str]:
        """Make what is missing, renew what ends soon; tells what was done. Raises FailedPreconditionError."""
        told = self._make_authority(now)
        told += [f"certificate renewed: {one.name}" for one in self._authority.renew(now, _EARLY)]
        for holder in holders:
            told += self._issue(holder, now)
            for name in holder.secrets:
                self._hand_out(holder, name)
        self._write_consul(self._root / "consul" / SECRETS)
        return told

    def _make_authority(self, now: datetime) -> list[str]:
        try:
            self._authority.state()
        except FailedPreconditionError:
            self._authority.begin(_AUTHORITY_DAYS, None, now)
            return ["authority made"]
        return []

    def _issue(self, holder: Holder, now: datetime) -> list[str]:
        folder = self._root / holder.name / TLS
        if self._is_issued(holder.name, folder):
            return []
        subject = Subject(name=holder.name, kind=holder.kind, dns=holder.dns)
        self._authority.issue(subject, _DAYS, folder, now)
        return [f"certificate issued: {holder.name}"]

    def _is_issued(self, name: str, folder: Path) -> bool:
        """Whether the folder has what this authority, and not one that was lost, issued last, and its key."""
        record = self._authority.state().find(name)
        try:
            found = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
            has_key = bool((folder / KEY).read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        return has_key and record is not None and serial_of(found) == record.serial

    def _hand_out(self, holder: Holder, name: str) -> None:
        folder = self._root / holder.name / SECRETS
        folder.mkdir(mode=0o700, exist_ok=True)
        wanted = self._secret(name)
        if read_secret(folder / name) != wanted:
            write_secret(folder / name, wanted)

    def _secret(self, name: str) -> bytes:
        """The first copy, made if there is none."""
        folder = self._root / AUTHORITY / SECRETS
        folder.mkdir(mode=0o700, exist_ok=True)
        found = read_secret(folder / name)
        if found is None:
            made = str(uuid.uuid4()) if name in CONSUL_TOKENS else secrets.token_urlsafe(32)
            found = made.encode()
            write_secret(folder / name, found)
        return found

    def _write_consul(self, folder: Path) -> None:
        """The part of Consul's configuration that is secret."""
        if not folder.is_dir():
            return
        admin = self._secret(CONSUL_ADMIN).decode()
        tokens = {self._consul_key: admin, "agent": admin}
        text = json.dumps({"acl": {"tokens": tokens}}).encode()
        if read_secret(folder / CONSUL_CONFIG) != text:
            write_secret(folder / CONSUL_CONFIG, text)
