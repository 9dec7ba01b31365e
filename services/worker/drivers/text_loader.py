"""Makes a language model that answers from its files: pulled, its graph made, loaded here, warm."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from services.worker.domain.assignment import VersionSpec
from services.worker.domain.execution import Execution
from services.worker.domain.generation_plan import engine_settings, fitted, remarks
from services.worker.domain.load_state import LoadError, LoadState
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.loaded import Loaded
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.traffic import Traffic
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.ports.engine import TextEngine
from services.worker.llm.ports.language_model import LanguageModel

_log = structlog.get_logger(__name__)


class TextLoader:
    """Loads one language model, more than once if need be."""

    def __init__(
        self,
        parts: RunnerParts,
        statistics: VersionStatistics,
        progressed: Callable[[LoadState], None],
    ) -> None:
        """Assign only.

        Args:
            parts: of the worker.
            statistics: of the version; those of what was loaded before go on.
            progressed: is told how far it has come.
        """
        self._parts = parts
        self._statistics = statistics
        self._progressed = progressed

    async def load(self, spec: VersionSpec) -> Loaded:
        """Raises LoadError."""
        languages = self._parts.languages
        if spec.unsupported or languages is None:
            raise LoadError(spec.unsupported or "language models are not served by this worker")
        async with self._parts.loads:
            self._progressed(LoadState.PULLING)
            async with AsyncExitStack() as stack:
                folder = await stack.enter_async_context(self._parts.cache.hold(spec))
                self._progressed(LoadState.LOADING)
                wanted = engine_settings(spec.settings, languages.defaults)
                load = languages.loader.load  # warm when it returns
                model = await asyncio.to_thread(load, folder, spec.digest, wanted)
                stack.callback(model.runner.close)
                self._progressed(LoadState.WARMING)
                settings = fitted(wanted, model.shape, model.runner.capacity)
                engine = languages.engines.engine(spec.name, model, settings)
                kept = stack.pop_all()
        served = self._served(spec, model, settings, engine)
        _log.info(
            "version ready",
            version=str(spec.name),
            architecture=model.shape.architecture,
            context_length=settings.context_length,
            blocks=model.runner.capacity.blocks,
        )
        told = remarks(wanted, settings, model.shape, model.runner.capacity)
        return Loaded(served, engine, _execution(settings, told), None, kept)

    def _served(
        self, spec: VersionSpec, model: LanguageModel, settings: EngineSettings, engine: TextEngine
    ) -> ServedText:
        self._statistics.queued_requests = lambda: engine.load().waiting
        self._parts.meter.show(spec.name, self._statistics)
        return ServedText(
            spec=spec,
            engine=engine,
            tokenizer=model.tokenizer,
            template=model.template,
            shape=model.shape,
            context_length=settings.context_length,
            max_output_tokens=settings.max_output_tokens,
            statistics=self._statistics,
            traffic=Traffic(self._parts.traffic),
            usage=self._parts.usage(spec),
        )


def _execution(settings: EngineSettings, warnings: tuple[str, ...]) -> Execution:
    return Execution(
        max_batch_size=settings.max_running_requests,
        instances=1,
        intra_op_threads=settings.threads,
        warnings=warnings,
    )
