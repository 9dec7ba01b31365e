"""A runner for a graph, whatever it was made for."""

from collections.abc import Sequence
from pathlib import Path

from services.worker.adapters.onnx_runtime import onnxruntime
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.cuda_runner import CudaRunner
from services.worker.llm.adapters.graph_files import GraphFacts
from services.worker.llm.adapters.graph_names import GRAPH_FILE
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.adapters.native_runner import NativeRunner
from services.worker.llm.adapters.portable_runner import PortableRunner
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.ports.runner import Runner


def open_runner(
    folder: Path, facts: GraphFacts, settings: EngineSettings, session: SessionSettings
) -> Runner:
    """Load the graph in `folder` and take its cache. Raises LoadError."""
    check_providers(session.providers)
    graph = folder / GRAPH_FILE
    if facts.target is Target.NATIVE:
        return NativeRunner(graph, facts.shape, settings, session, facts.cache_dtype)
    if facts.target is Target.PORTABLE:
        return PortableRunner(graph, facts.shape, settings, session)
    return CudaRunner(graph, facts.shape, settings, session)


def check_providers(wanted: Sequence[str]) -> None:
    """Raises LoadError if one is not there."""
    available = onnxruntime.get_available_providers()
    missing = [provider for provider in wanted if provider not in available]
    if missing:
        raise LoadError(f"execution providers {missing} are not on this worker; it has {available}")
