"""Loads language models: the graph from the cache or made there, the runner, the tokenizer, the chat template."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from services.worker.adapters.runtime_memory import RuntimeMemory
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import graph_child, operators
from services.worker.llm.adapters.graph_cache import GraphCache
from services.worker.llm.adapters.graph_child import BuildBounds, BuildOrder
from services.worker.llm.adapters.graph_files import GraphFacts
from services.worker.llm.adapters.graph_runner import check_providers, open_runner
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.drivers.warm_up import warm_up
from services.worker.llm.ports.language_model import LanguageModel
from services.worker.llm.ports.runner import Runner

_CACHE_BYTES = 20 * 1024**3
_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_SERVICES = Path(__file__).parents[3]
# The code that decides what is in a graph.
_WRITERS = (
    "modelfiles/*.py",
    "worker/llm/adapters/*_graph.py",
    "worker/llm/adapters/graph_[fnw]*.py",
    "worker/llm/adapters/model_files.py",
    "worker/llm/adapters/panels.py",
    "worker/llm/adapters/tensor_forms.py",
    "worker/llm/adapters/file_weights.py",
    "worker/llm/domain/layer_ir.py",
    "worker/llm/domain/quantised.py",
    "worker/llm/domain/model_shape.py",
)


class FileModelLoader:
    """LanguageModelLoader of verified files."""

    def __init__(
        self,
        root: Path,
        *,
        bounds: BuildBounds | None = None,
        cache_bytes: int = _CACHE_BYTES,
        memory: RuntimeMemory | None = None,
        library: Path | None = None,
    ) -> None:
        """Assign only.

        Args:
            root: where graphs are kept; made if it isn't there, shared by all workers of a machine.
            bounds: of the process that writes a graph.
            cache_bytes: of all graphs.
            memory: that tensor models' runs share.
            library: of operators, built elsewhere.
        """
        self._cache = GraphCache(root, cache_bytes)
        self._bounds = bounds or BuildBounds()
        self._memory = memory
        self._library = library

    def load(self, folder: Path, digest: str, settings: EngineSettings) -> LanguageModel:
        """Blocks until it is warm. Raises LoadError."""
        # What reads words takes its time to import, and many workers have tensor models only.
        from services.worker.llm.adapters.model_words import read_words

        target = self._target(settings)
        check_providers([*settings.execution_providers, *_providers(target, settings)])
        key = graph_key(digest, target)
        make = partial(self._make, folder, target)
        with ExitStack() as stack:
            place, facts = stack.enter_context(self._cache.hold(key, make))
            # Reading words takes as long as opening the graph.
            thread = stack.enter_context(ThreadPoolExecutor(1))
            reading = thread.submit(read_words, folder, facts.shape.vocabulary_size)
            runner = self._runner(place, facts, settings)
            failed = stack.enter_context(ExitStack())
            failed.callback(runner.close)
            words = reading.result()
            failed.pop_all()
        return LanguageModel(facts.shape, runner, words.tokenizer, words.template)

    def _target(self, settings: EngineSettings) -> Target:
        """What the graph is made for. Raises LoadError if this worker can't run it."""
        target = settings.target
        has_operators = operators.library(self._library) is not None
        if target is Target.AUTO:
            if settings.execution_providers[:1] == (_CUDA,):
                return Target.CUDA
            return Target.NATIVE if has_operators else Target.PORTABLE
        if target is Target.NATIVE and not has_operators:
            raise LoadError(
                "its settings ask for the target NATIVE, whose operators are not built here"
                " (`./inferplane operators`)"
            )
        return target

    def _make(self, folder: Path, target: Target, fresh: Path) -> None:
        graph_child.build(
            BuildOrder(place=folder, folder=fresh, target=target, bounds=self._bounds)
        )

    def _runner(self, place: Path, facts: GraphFacts, settings: EngineSettings) -> Runner:
        session = SessionSettings(
            threads=settings.threads,
            providers=_providers(facts.target, settings),
            operators=operators.library(self._library) if facts.target is Target.NATIVE else None,
            memory=self._memory,
        )
        runner = open_runner(place, facts, settings, session)
        with ExitStack() as failed:
            failed.callback(runner.close)
            warm_up(runner)
            failed.pop_all()
        return runner


def graph_key(digest: str, target: Target) -> str:
    """Of a model's files, what the graph is for, and the code that writes it."""
    key = hashlib.sha256(f"{digest} {target.value}".encode())
    for path in writers():
        key.update(path.read_bytes())
    return key.hexdigest()[:32]


def writers() -> list[Path]:
    """Files of the code that decides what is in a graph: with another one of these, graphs are written anew."""
    return [path for pattern in _WRITERS for path in sorted(_SERVICES.glob(pattern))]


def _providers(target: Target, settings: EngineSettings) -> tuple[str, ...]:
    """A CPU's graph runs on the CPU, whatever else tensor models may use here."""
    if target is not Target.CUDA:
        return (_CPU,)
    wanted = settings.execution_providers
    return wanted if _CUDA in wanted else (_CUDA, _CPU)
