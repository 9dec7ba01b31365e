"""Who takes part: a server of text in one of its settings, and how it is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.llm.llama_cpp import VERSION, LlamaCpp
from benchmarks.llm.model_files import ModelFiles
from benchmarks.serving.contender import Running, clean_environment
from benchmarks.serving.environments import Environments, version
from benchmarks.serving.process_tree import ProcessTree
from services.cli.adapters.mesh import cores
from services.rpc.tcp_ports import free_port

REQUIREMENTS = Path(__file__).parent / "requirements"
_FRONT = Path(__file__).parent / "peers" / "openvino_front.py"
_CACHE_GIB = 1  # of keys and values; for all who take a size
_SLOTS = 16
_CONTEXT = 1024  # tokens of prompt and answer, of the longest request


def _nothing(_: Running) -> dict[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table."""

    name: str  # of the server
    variant: str  # what sets it apart from its other rows; empty: nothing
    what: str  # version and settings, for the legend
    start: Callable[[Path], Running]  # in an empty folder
    before: Callable[[], None] = lambda: None  # what is not timed: installing, building, pushing
    counters: Callable[[Running], Mapping[str, float]] = _nothing  # its own, while it runs
    scenarios: tuple[str, ...] = ()  # empty: whatever is asked for
    first_token: Callable[[Running], float] | None = None  # None: by the API of all

    @property
    def title(self) -> str:
        return f"{self.name} / {self.variant}" if self.variant else self.name


@dataclass(frozen=True, slots=True)
class Catalog:
    """The peers; what they need lies below one folder."""

    folder: Path

    @property
    def files(self) -> ModelFiles:
        return ModelFiles(self.folder / "llm")

    @property
    def llama(self) -> LlamaCpp:
        return LlamaCpp(self.folder)

    def openvino(self) -> list[Contender]:
        """Continuous batching in two settings; the better counts."""
        return [self._openvino(tokens) for tokens in (256, 512)]

    def _openvino(self, step_tokens: int) -> Contender:
        genai = version("openvino", "openvino-genai", REQUIREMENTS)
        environments = Environments(self.folder, REQUIREMENTS)

        def before() -> None:
            environments.python("openvino")
            self.files.original()

        def start(folder: Path) -> Running:
            port = free_port()
            settings = {
                "port": port,
                "threads": cores(),
                "max_num_batched_tokens": step_tokens,
                "cache_gib": _CACHE_GIB,
            }
            command = [str(environments.python("openvino")), str(_FRONT)]
            environment = clean_environment(BENCHMARK_SETTINGS=json.dumps(settings))
            del environment["OMP_NUM_THREADS"]
            command.append(str(self.files.original()))
            tree = ProcessTree.start(command, environment, folder, "openvino")
            return Running(f"127.0.0.1:{port}", [tree])

        return Contender(
            name="openvino",
            variant=str(step_tokens),
            what=f"OpenVINO GenAI {genai}, ContinuousBatchingPipeline, max_num_batched_tokens"
            f" {step_tokens}, prefix caching, cache {_CACHE_GIB} GiB, behind our front",
            start=start,
            before=before,
        )

    def llama_cpp(self, slow: tuple[str, ...] = ()) -> list[Contender]:
        """The same file, with scenarios of its own if given, and the form that it computes fastest."""
        return [
            replace(self._llama_cpp("same file", self.files.original), scenarios=slow),
            self._llama_cpp("Q4_0", partial(self.files.repacked, self.llama)),
        ]

    def _llama_cpp(self, variant: str, file: Callable[[], Path]) -> Contender:
        def before() -> None:
            self.llama.make()
            file()

        return Contender(
            name="llama.cpp",
            variant=variant,
            what=f"llama-server of llama-cpp-python {VERSION}'s source, built for this CPU",
            start=lambda folder: start_llama(self.llama, file(), folder, slots=_SLOTS),
            before=before,
        )


def start_llama(
    llama: LlamaCpp, file: Path, folder: Path, switches: Sequence[str] = (), *, slots: int
) -> Running:
    """llama-server with so many requests at once."""
    port = free_port()
    options = {
        "--model": str(file),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--threads": str(cores()),
        "--parallel": str(slots),
        "--ctx-size": str(_CONTEXT * slots),
    }
    words = (word for option in options.items() for word in option)
    command = [str(llama.server), *words, *switches]
    environment = clean_environment()
    del environment["OMP_NUM_THREADS"]
    tree = ProcessTree.start(command, environment, folder, "llama")
    return Running(f"127.0.0.1:{port}", [tree])
