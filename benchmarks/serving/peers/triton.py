"""Triton: tritonserver of the nvidia-pytriton wheel with its Python backend.

Writes the model repository, then becomes the server.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import bare_models

TYPES = {"float32": "TYPE_FP32", "int64": "TYPE_INT64"}
MODEL = Path(__file__).with_name("triton_model.py")


def config(given: bare_models.Settings, model: str) -> str:
    """A model's config.pbtxt."""
    inputs = ", ".join(
        f'{{ name: "{name}" data_type: {TYPES[kind.__name__]}'
        f" dims: [{30 if model == 'mlp' else -1}] allow_ragged_batch: {str(model != 'mlp').lower()} }}"
        for name, kind in bare_models.ROW[model].items()
    )
    output, width = bare_models.OUTPUTS[model]
    rows = given.most_rows(model)
    delay = given.window_ms * 1000
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: {delay} }}" if rows > 1 else ""
    return f"""
name: "{model}"
backend: "python"
max_batch_size: {rows}
input [ {inputs} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: [{width}] }} ]
instance_group [ {{ count: {given.workers} kind: KIND_CPU }} ]
{batching}
"""


def write_repository(given: bare_models.Settings, folder: Path) -> None:
    """Both models, each with the same program."""
    for model in bare_models.ROW:
        (folder / model / "1").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(config(given, model))
        shutil.copy(MODEL, folder / model / "1" / "model.py")


def copy_backends(wheel: Path, folder: Path) -> None:
    """The wheel's backends with the stub of this Python beside the Python backend, where it is looked for."""
    shutil.copytree(wheel / "backends", folder)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, folder / "python")
    # The stub has a search path of its own; PYTHONPATH is not in it.
    shutil.copy(bare_models.__file__, folder / "python")


def main() -> None:
    """Prepare, then become tritonserver."""
    given = bare_models.settings()
    packages = Path(sysconfig.get_path("purelib"))
    wheel = packages / "pytriton" / "tritonserver"
    write_repository(given, Path("repository"))
    copy_backends(wheel, Path("backends"))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # where the stub finds its Python
    }
    options = {
        "model-repository": str(Path("repository").absolute()),
        "backend-directory": str(Path("backends").absolute()),
        "grpc-address": "127.0.0.1",
        "grpc-port": str(given.port),
        "http-address": "127.0.0.1",
        "http-port": str(bare_models.free_port()),
        "allow-metrics": "false",
    }
    server = str(wheel / "bin" / "tritonserver")
    os.execve(server, [server, *(f"--{k}={v}" for k, v in options.items())], environment)


if __name__ == "__main__":
    main()
