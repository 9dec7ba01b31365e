"""What makes language models serve on this worker."""

from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.ports.engine import TextEngine
from services.worker.llm.ports.language_model import LanguageModel, LanguageModelLoader
from services.worker.ports.compute import Compute


class RunningEngine(TextEngine, Compute, Protocol):
    """An engine that takes requests, and computes while it is run."""


class Engines(Protocol):
    """Makes engines, and shows what they measure."""

    def engine(
        self, version: VersionName, model: LanguageModel, settings: EngineSettings
    ) -> RunningEngine:
        """An engine for a model; its metrics go on from those of the version's engine before."""
        ...

    def hide(self, version: VersionName) -> None:
        """The version is gone: its metrics go too."""
        ...


@dataclass(frozen=True, slots=True)
class Languages:
    """What all language models need."""

    loader: LanguageModelLoader
    engines: Engines
    defaults: EngineSettings
