"""MLServer: writes its settings and becomes the server."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import bare_models

RUNTIME = Path(__file__).with_name("mlserver_runtime.py")


def write(given: bare_models.Settings, folder: Path) -> None:
    """Settings of the server and of both models."""
    server = {
        "host": "127.0.0.1",
        "grpc_port": given.port,
        "http_port": bare_models.free_port(),
        "metrics_port": bare_models.free_port(),
        "parallel_workers": given.workers,  # 0: in the server's own process
        "debug": False,
    }
    (folder / "settings.json").write_text(json.dumps(server))
    for name in bare_models.ROW:
        model: dict[str, object] = {"name": name, "implementation": "mlserver_runtime.Model"}
        if given.most_rows(name) > 1:
            model["max_batch_size"] = given.most_rows(name)
            model["max_batch_time"] = given.window_ms / 1000
        (folder / name).mkdir()
        (folder / name / "model-settings.json").write_text(json.dumps(model))


if __name__ == "__main__":
    here = Path.cwd()
    write(bare_models.settings(), here)
    shutil.copy(RUNTIME, here)  # alone: the file beside it would hide the package
    program = str(Path(sys.executable).parent / "mlserver")
    path = os.pathsep.join([str(here), os.environ["PYTHONPATH"]])
    os.execve(program, [program, "start", str(here)], {**os.environ, "PYTHONPATH": path})
