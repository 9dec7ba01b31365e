"""Loading language models, graphs written in a real child process."""

import subprocess
import sys
from pathlib import Path

import pytest

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_child import BuildBounds
from services.worker.llm.adapters.model_loader import FileModelLoader, graph_key, writers
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.ports.language_model import LanguageModel
from tests.unit.worker.llm.adapters.graph_steps import go_on, in_pieces, library, request
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

SETTINGS = EngineSettings(
    kv_cache_bytes=1024**2, max_running_requests=4, threads=1, target=Target.PORTABLE
)


def load(folder: Path, target: Target = Target.PORTABLE, **bounds: float) -> LanguageModel:
    """The model whose files are in `folder`/files."""
    loader = FileModelLoader(folder / "graphs", bounds=BuildBounds(**bounds))  # type: ignore[arg-type]
    settings = EngineSettings(kv_cache_bytes=1024**2, threads=1, target=target)
    return loader.load(folder / "files", "digest", settings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tiny model's."""
    (tmp_path / "files").mkdir()
    return write_tiny(tmp_path / "files" / "model.gguf", Tiny())


@pytest.mark.usefixtures("file")
def test_a_model_comes_with_all_that_an_engine_needs(tmp_path: Path) -> None:
    """Its shape, a runner that answers, its tokenizer and its template; the graph is kept for the next worker."""
    library()
    model = load(tmp_path, Target.AUTO)
    assert (model.shape.architecture, model.runner.capacity.slots) == ("llama", False)
    assert model.template is not None
    text = model.template.render([{"role": "user", "content": "hello"}])
    asked = request(model.runner, model.tokenizer.encode(text, special=True))
    in_pieces(model.runner, asked, [5])
    go_on(model.runner, [asked], 3)
    model.runner.close()
    kept = tmp_path / "graphs" / graph_key("digest", Target.NATIVE)
    made = (kept / "model.json").stat().st_mtime_ns
    load(tmp_path, Target.AUTO).runner.close()
    assert (kept / "model.json").stat().st_mtime_ns == made


def test_a_bad_file_is_refused_with_the_child_s_reason(tmp_path: Path, file: Path) -> None:
    """The name of what is missing, and nothing of this machine's folders."""
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LoadError, match="tensor") as refused:
        load(tmp_path)
    assert str(tmp_path) not in str(refused.value)


@pytest.mark.usefixtures("file")
def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """The reason says how long that was."""
    with pytest.raises(LoadError, match=r"still starting after 0\.01 s"):
        load(tmp_path, seconds=0.01)


@pytest.mark.usefixtures("file")
def test_a_child_that_takes_too_much_memory_is_told(tmp_path: Path) -> None:
    """Not even its own code fits into 100 MB of addresses."""
    with pytest.raises(LoadError, match=r"100000000 bytes"):
        load(tmp_path, memory_bytes=100_000_000)


@pytest.mark.usefixtures("file")
def test_execution_providers_that_are_not_here_are_named(tmp_path: Path) -> None:
    """They are looked for before a graph is written."""
    with pytest.raises(LoadError, match="CUDAExecutionProvider"):
        load(tmp_path, Target.CUDA)


def test_keys_differ_by_files_and_target() -> None:
    """Two models, two targets: four graphs."""
    keys = {graph_key(d, t) for d in ("a", "b") for t in (Target.NATIVE, Target.PORTABLE)}
    assert len(keys) == 4


_LOADED = """
import sys
from services.worker.llm.adapters import cuda_graph, native_graph, portable_graph, graph_files
from services.worker.llm.adapters import graph_writer, model_files
for name, module in sys.modules.items():
    if name.startswith("services.") and not hasattr(module, "__path__"):
        print(module.__file__)
"""
_DECIDES_NOTHING = {"load_state.py", "engine_settings.py", "model_weights.py"}  # names and errors


def test_graphs_are_written_anew_when_any_code_changes_that_writes_them() -> None:
    """All that writers import counts for the key: also what reads sizes and scales out of a file."""
    called = [sys.executable, "-c", _LOADED]
    loaded = subprocess.run(called, capture_output=True, text=True, check=True).stdout.split()
    counted = {str(path) for path in writers()}
    assert {path for path in loaded if Path(path).name not in _DECIDES_NOTHING} <= counted
