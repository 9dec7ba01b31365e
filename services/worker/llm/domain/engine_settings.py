"""How a language model is run: what a version's settings say, completed by the worker's defaults."""

from dataclasses import dataclass
from enum import Enum


class Target(Enum):
    """What a graph is made for."""

    AUTO = "auto"  # NATIVE where its operators are there, else PORTABLE; CUDA where the providers begin with it
    NATIVE = "native"  # our operators on CPUs
    PORTABLE = "portable"  # ONNX Runtime's own operators on CPUs
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Bounds of one engine."""

    kv_cache_bytes: int = 512 * 1024**2
    max_running_requests: int = 32
    max_step_tokens: int = 128  # running requests' next tokens first, then pieces of prompts
    max_queue_requests: int = 1024
    context_length: int = 0  # tokens of prompt and answer together; 0: what the model was made for
    max_output_tokens: int = 8192  # n times max_tokens of one request
    prefix_cache: bool = True
    max_tenant_share: float = 1.0  # of the cache, that one tenant's running requests may hold
    target: Target = Target.AUTO
    threads: int = 0  # 0: as many as CPUs
    execution_providers: tuple[str, ...] = ("CPUExecutionProvider",)
