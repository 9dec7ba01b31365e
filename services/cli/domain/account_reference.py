"""What people type for projects and keys: `research`, `research/4f…`; parsed into resource names."""

from services.cli.domain.exit_code import UsageError
from services.rpc import names
from services.rpc.names import KeyName, ProjectName, check_id

DEFAULT_PROJECT = "default"
EVERY_PROJECT = "-"


def parse_project(text: str) -> ProjectName:
    """`research` or `projects/research`."""
    return ProjectName(check_id("project", text.removeprefix("projects/")))


def parse_key(text: str) -> KeyName:
    """`research/KEY`, `projects/research/keys/KEY`, or `KEY` of the project `default`."""
    if text.startswith("projects/"):
        return names.parse_key("key", text)
    parts = text.split("/")
    if len(parts) == 2:
        return KeyName(check_id("project", parts[0]), check_id("key", parts[1]))
    if len(parts) == 1:
        return KeyName(DEFAULT_PROJECT, check_id("key", text))
    raise UsageError(f"{text!r} names no key; allowed: PROJECT/KEY, as keys list shows it")


def parse_subject(text: str) -> ProjectName | KeyName:
    """`research` is a project, `research/KEY` a key."""
    if text.startswith("projects/") and text.count("/") == 1:
        return parse_project(text)
    return parse_key(text) if "/" in text else parse_project(text)


def parse_parent(text: str) -> str:
    """The project whose keys are asked for; `-`: of all."""
    return f"projects/{EVERY_PROJECT}" if text == EVERY_PROJECT else str(parse_project(text))


def short_key(name: str) -> str:
    """`projects/research/keys/KEY` as it is typed: `research/KEY`."""
    return name.removeprefix("projects/").replace("/keys/", "/")
