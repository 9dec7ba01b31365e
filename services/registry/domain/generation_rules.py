"""Rules for how a language model is run."""

from services.registry.domain.fields import check_range
from services.registry.domain.version_settings import GenerationSettings
from services.rpc.violations import Violations

MAX_KV_BYTES = 1 << 50
MAX_RUNNING = 4096  # requests
MAX_STEP_TOKENS = 65_536
MAX_QUEUE = 1_000_000  # requests
MAX_CONTEXT = 16 * 1024**2  # tokens
MAX_OUTPUT = 1_000_000_000  # tokens
_RANGES = (
    ("kv_cache_bytes", MAX_KV_BYTES),
    ("max_running_requests", MAX_RUNNING),
    ("max_step_tokens", MAX_STEP_TOKENS),
    ("max_queue_requests", MAX_QUEUE),
    ("context_length", MAX_CONTEXT),
    ("max_output_tokens", MAX_OUTPUT),
    ("max_tenant_percent", 100),
)
_FIELD = "settings.generation"


def check_generation(violations: Violations, settings: GenerationSettings) -> None:
    """Numbers within their ranges."""
    for name, most in _RANGES:
        check_range(violations, f"{_FIELD}.{name}", getattr(settings, name), most)
