"""What the commands on backups show."""

from datetime import datetime
from typing import Any

from services.cli.adapters.backup_repository import Backup
from services.cli.adapters.tables import size
from services.cli.adapters.terminal import Terminal

_SECRETS = {
    "secrets/signing/": "signing key",
    "secrets/admin.key": "first admin's key",
    "secrets/fingerprint.key": "fingerprints' key",
    "secrets/ca/": "authority",
}
_HEADERS = ["BACKUP", "BEGUN", "RELEASE", "STORES", "RESOURCES", "ENTRIES", "ARTIFACTS", "SECRETS"]


def list_backups(screen: Terminal, backups: list[Backup], used_bytes: int) -> None:
    """Backups, one a line, oldest first."""
    if screen.as_json:
        screen.json([_as_json(backup) for backup in backups])
        return
    if not backups:
        screen.say("no backups yet")
        return
    screen.table(_HEADERS, [_row(backup) for backup in backups])
    screen.say(f"{size(used_bytes)} on the disk")


def show_created(screen: Terminal, backup: Backup) -> None:
    """A backup that has just been made."""
    if screen.as_json:
        screen.json(_as_json(backup))
        return
    manifest = backup.manifest
    registry, metering = manifest.parts["registry"], manifest.parts["metering"]
    added = registry["added"]
    fields = {
        "backup": backup.id,
        "folder": str(backup.folder),
        "stores": _stores(backup),
        "resources": f"{registry['rows']['resources']:,}",
        "artifacts": f"{size(_artifact_bytes(backup))}, {size(added['bytes'])} of it not in an earlier backup",
        "ledger": f"{metering['ledger']['entries']:,} entries",
        "secrets": _secrets(backup),
    }
    screen.table([], [[label, value] for label, value in fields.items()])
    for text in manifest.damaged:
        screen.result(f"DAMAGED {text}")
    for text in manifest.gone:
        screen.result(f"GONE {text}")


def _secrets(backup: Backup) -> str:
    secret = [path for path, file in backup.manifest.files.items() if file.secret]
    held = [
        name for place, name in _SECRETS.items() if any(path.startswith(place) for path in secret)
    ]
    return f"{', '.join(held)}: whoever reads it can sign" if held else "left out"


def show_verified(screen: Terminal, backup: Backup, problems: list[str]) -> None:
    """What a verification found."""
    if screen.as_json:
        screen.json({"backup": backup.id, "ok": not problems, "problems": problems})
        return
    screen.table(
        [],
        [
            ["backup", backup.id],
            ["verdict", f"{len(problems)} problems" if problems else "everything is there"],
        ],
    )
    for problem in problems:
        screen.result(problem)


def show_restored(screen: Terminal, backup: Backup, notes: list[str]) -> None:
    """What was restored."""
    if screen.as_json:
        screen.json({"backup": backup.id, "notes": notes})
        return
    screen.result(f"restored {backup.id}")
    for note in notes:
        screen.result(f"note: {note}")


def _as_json(backup: Backup) -> dict[str, Any]:
    manifest = backup.manifest
    registry, metering = manifest.parts["registry"], manifest.parts["metering"]
    return {
        "backup": backup.id,
        "folder": str(backup.folder),
        "begin_time": manifest.begin_time,
        "end_time": manifest.end_time,
        "release": manifest.release,
        "engines": {name: part["engine"] for name, part in manifest.parts.items()},
        "schemas": {name: part["schema"] for name, part in manifest.parts.items()},
        "rows": {name: part["rows"] for name, part in manifest.parts.items()},
        "ledger": metering["ledger"],
        "artifact_bytes": _artifact_bytes(backup),
        "added": registry["added"],
        "secrets": manifest.has_secrets,
        "damaged": manifest.damaged,
        "gone": manifest.gone,
    }


def _row(backup: Backup) -> list[str]:
    manifest = backup.manifest
    registry, metering = manifest.parts["registry"], manifest.parts["metering"]
    return [
        backup.id,
        f"{datetime.fromisoformat(manifest.begin_time):%Y-%m-%d %H:%M:%S}Z",
        manifest.release,
        _stores(backup),
        f"{registry['rows']['resources']:,}",
        f"{metering['ledger']['entries']:,}",
        size(_artifact_bytes(backup)),
        "yes" if manifest.has_secrets else "no",
    ]


def _stores(backup: Backup) -> str:
    return ", ".join(sorted({part["engine"] for part in backup.manifest.parts.values()}))


def _artifact_bytes(backup: Backup) -> int:
    return sum(one["size_bytes"] for one in backup.manifest.parts["registry"]["artifacts"])
