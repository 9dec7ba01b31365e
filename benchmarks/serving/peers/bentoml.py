"""BentoML: becomes `bentoml serve` of the service beside this file."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import bare_models

SERVICE = Path(__file__).with_name("bentoml_service.py")

if __name__ == "__main__":
    here, settings = Path.cwd(), bare_models.settings()
    shutil.copy(SERVICE, here)  # alone: the file beside it would hide the package
    program = str(Path(sys.executable).parent / "bentoml")
    words = ["serve", "bentoml_service:Served", "--working-dir", str(here)]
    words += ["--host", "127.0.0.1", "--port", str(settings.port)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), os.environ["PYTHONPATH"]]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BENTOML_HOME": str(here / "home"),
        "BENTOML_DO_NOT_TRACK": "True",
    }
    os.execve(program, [program, *words], environment)
