"""A model's graph in a folder: written from its files once, read by every process that serves it."""

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_names import GRAPH_FILE, WEIGHTS_FILE
from services.worker.llm.domain.engine_settings import Target
from services.worker.llm.domain.model_shape import ModelShape

_FACTS_FILE = "model.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """What must be known of a graph to run it."""

    target: Target
    exact: bool  # weights, and keys and values, are 32-bit floats: to compare with
    shape: ModelShape

    @property
    def cache_dtype(self) -> Any:
        """Of keys and values."""
        return np.float32 if self.exact else np.float16


def write_graph(place: Path, folder: Path, target: Target, *, exact: bool = False) -> None:
    """Write the graph of the model at `place` (a file, or a folder with its files) to `folder`. Raises LoadError."""
    # What writes graphs takes long to import, and no process that only runs them needs it.
    from services.worker.llm.adapters import cuda_graph, native_graph, portable_graph
    from services.worker.llm.adapters.graph_writer import GraphWriter
    from services.worker.llm.adapters.model_files import open_weights

    weights = open_weights(place, exact=exact)
    facts = GraphFacts(target=target, exact=exact, shape=weights.plan.shape)
    try:
        with GraphWriter(folder) as writer:
            if target is Target.NATIVE:
                native_graph.write(writer, weights, facts.cache_dtype)
            elif target is Target.PORTABLE:
                portable_graph.write(writer, weights)
            else:
                cuda_graph.write(writer, weights)
        said = {
            "target": target.value,
            "exact": exact,
            "shape": dataclasses.asdict(facts.shape),
            "digests": {name: _digest(folder / name) for name in (GRAPH_FILE, WEIGHTS_FILE)},
        }
        sealed = {"facts": said, "digest": hashlib.sha256(orjson.dumps(said)).hexdigest()}
        (folder / _FACTS_FILE).write_bytes(orjson.dumps(sealed))
        for name in (GRAPH_FILE, WEIGHTS_FILE, _FACTS_FILE):
            _flush(folder / name)
    except OSError as error:
        raise LoadError(f"its graph can't be written: {error.strerror or error}") from error


def read_facts(folder: Path) -> GraphFacts | None:
    """Of a whole graph; None: there is none, or a disk has changed it, which would be wrong answers and no error."""
    try:
        sealed = orjson.loads((folder / _FACTS_FILE).read_bytes())
        said = sealed["facts"]
        if hashlib.sha256(orjson.dumps(said)).hexdigest() != sealed["digest"]:
            return None
        if any(_digest(folder / name) != digest for name, digest in said["digests"].items()):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    shape = said["shape"]
    shape["windows"] = tuple(shape["windows"])
    return GraphFacts(target=Target(said["target"]), exact=said["exact"], shape=ModelShape(**shape))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """To the disk: a file that lost its end with the machine's power would be taken for whole."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
