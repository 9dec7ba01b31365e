"""What results of trying versions depend on besides the version: this machine, this code, its runtime."""

import hashlib
import os
import platform
import sys
from pathlib import Path

from services.worker.adapters.onnx_runtime import onnxruntime

_CODE = Path(__file__).parents[1]


def fingerprint() -> str:
    """The same text where the same results can be expected."""
    code = hashlib.sha256()
    for path in sorted(_CODE.rglob("*.py")):
        code.update(path.read_bytes())
    facts = (
        platform.machine(),
        _processor(),
        f"{_cpus()} CPUs",
        f"onnxruntime {onnxruntime.__version__}",
        code.hexdigest(),
    )
    return ", ".join(facts)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _processor() -> str:
    """Its model where the kernel tells: kernels are chosen by what it can do."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
