"""A language model from its verified files, and how it comes to be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.ports.runner import Runner
from services.worker.llm.ports.tokenizer import ChatTemplate, Tokenizer


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """All that an engine needs of a model."""

    shape: ModelShape
    runner: Runner
    tokenizer: Tokenizer
    template: ChatTemplate | None  # None: it can't be given conversations


class LanguageModelLoader(Protocol):
    """Makes models in this process."""

    def load(self, folder: Path, digest: str, settings: EngineSettings) -> LanguageModel:
        """Blocks. `folder` holds the version's verified files, `digest` names their contents.

        The graph is made in a process of its own, where a bad file harms nobody, and kept by digest and target.
        Raises LoadError with the reason: what is unsupported or wrong in the files, and its name.
        """
        ...
