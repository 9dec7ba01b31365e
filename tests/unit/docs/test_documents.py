"""Documents: links lead somewhere, variables exist, every setting and command is told, ports are those of settings."""

import re
from pathlib import Path

import pytest

from services.cli.commands.app import command
from services.cli.edge.settings import EdgeSettings
from services.metering.settings import MeteringSettings
from services.registry.settings import RegistrySettings
from services.router.settings import RouterSettings
from services.rpc.settings import Settings
from services.worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVICES: dict[str, type[Settings]] = {
    "registry": RegistrySettings,
    "router": RouterSettings,
    "metering": MeteringSettings,
    "worker": WorkerSettings,
    "edge": EdgeSettings,
}
SETTINGS = {name.upper() for kind in SERVICES.values() for name in kind.model_fields}
# Variables of images' builds, of files for Compose and Swarm, of tests, and of who calls an edge.
_ELSEWHERE = re.compile(
    r"(TEST|BUILD)_.*|TAG|BACKUPS|CONSUL_KEY|ADMIN_KEY_FILE|RESOLVE_IMAGE|SECRETS|CLIENT_CERTIFICATE"
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def _anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as hosts of repositories make them."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """To a file of this repository and a heading in it."""
    broken = []
    for link in _LINK.findall(_CODE.sub("", path.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in _anchors(target)
        ):
            broken.append(link)
    assert broken == []


def _command_line() -> set[str]:
    """Variables of all options."""
    found: set[str] = set()
    open_commands = [command()]
    while open_commands:
        one = open_commands.pop()
        for option in one.params:
            given = option.envvar or ()
            found.update([given] if isinstance(given, str) else given)
        open_commands += getattr(one, "commands", {}).values()
    return {name.removeprefix("INFERPLANE_") for name in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_variables_exist(path: Path) -> None:
    """Each that a document names is a setting of a service, an option, or known to belong elsewhere."""
    named = set(re.findall(r"INFERPLANE_([A-Z][A-Z0-9_]*[A-Z0-9])", path.read_text()))
    unknown = {
        name
        for name in named - SETTINGS - _command_line()
        if not _ELSEWHERE.fullmatch(name)
        and not any(known.startswith(name) for known in SETTINGS)  # of several: `EDGE_CLIENT_…`
    }
    assert unknown == set()


def test_every_setting_is_told() -> None:
    """In some document, by the name of its variable with or without the prefix."""
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    words = set(re.findall(r"[A-Z][A-Z0-9_]*[A-Z0-9]", text))
    told = {word.removeprefix("INFERPLANE_") for word in words}
    missing = sorted(name for name in SETTINGS if name not in told)
    assert missing == []


def test_ports_are_those_of_the_settings() -> None:
    """The table of who may call has each service's variable and default."""
    text = (ROOT / "docs" / "security.md").read_text()
    table = text.partition("## Who may call")[2].partition("\n\n`inferplane up`")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    told = {row[2]: row[1] for row in rows if len(row) == 5}
    for service in ("registry", "router", "metering", "worker"):
        default = SERVICES[service].model_fields[f"{service}_address"].default
        where = told[f"`INFERPLANE_{service.upper()}_ADDRESS`"]
        host, _, port = default.partition(":")
        assert host in where
        assert (port if port != "0" else "a free port") in where
    edge = RouterSettings.model_fields["edge_address"].default
    assert told["`INFERPLANE_EDGE_ADDRESS` (of the router)"] == edge


def test_every_command_is_told() -> None:
    """docs/cli.md names each command and group."""
    text = (ROOT / "docs" / "cli.md").read_text()
    groups = [name for name, one in command().commands.items() if not one.hidden]
    assert [name for name in groups if not re.search(rf"`{name}\b", text)] == []
