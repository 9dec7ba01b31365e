"""What the commands on the authority show."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from services.cli.adapters import ca
from services.cli.adapters.ca import CertificateAuthority
from services.cli.adapters.ca_store import IssuedRecord, Signer
from services.cli.adapters.terminal import Terminal


def list_issued(screen: Terminal, issued: Sequence[IssuedRecord]) -> None:
    """Certificates, one a line."""
    if screen.as_json:
        screen.json([asdict(record) for record in issued])
        return
    if not issued:
        screen.say("no certificates")
        return
    screen.table(
        ["NAME", "KIND", "ENDS", "SERIAL", "FOLDER"],
        [[r.name, r.kind.value, _day(r.ends), r.serial[:16], r.folder] for r in issued],
    )


def show_issued(screen: Terminal, record: IssuedRecord) -> None:
    """One certificate."""
    if screen.as_json:
        screen.json(asdict(record))
        return
    fields = {
        "name": record.name,
        "kind": record.kind.value,
        "dns": ", ".join(record.dns),
        "ip": ", ".join(record.addresses),
        "ends": record.ends,
        "serial": record.serial,
        "folder": record.folder,
    }
    screen.table([], [[label, value] for label, value in fields.items() if value])


def show_signers(screen: Terminal, signers: Sequence[Signer]) -> None:
    """Whom certificates are checked with; the first signs."""
    if screen.as_json:
        screen.json([asdict(signer) for signer in signers])
        return
    rows = [
        [signer.serial[:16], "signs" if number == 0 else "trusted", _day(signer.ends), signer.key]
        for number, signer in enumerate(signers)
    ]
    screen.table(["AUTHORITY", "USE", "ENDS", "KEY"], rows)


def rotate(
    screen: Terminal, authority: CertificateAuthority, *, days: int, key: Path | None, settle: float
) -> None:
    """A new key: first all trust it, then it signs."""
    signer = authority.add_key(days, key, ca.now())
    screen.say(f"all folders trust authority {signer.serial[:8]} too; it signs in {settle:g} s")
    time.sleep(settle)  # running Envoys read their files once more within it
    list_issued(screen, authority.renew(ca.now()))
    screen.say("when all copies are replaced: inferplane ca rotate --retire")


def _day(text: str) -> str:
    return text[:10]
