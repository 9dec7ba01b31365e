"""The worker's settings; each field is one INFERPLANE_* variable."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from services.rpc import address, names
from services.rpc.consul_settings import DiscoverySettings
from services.rpc.errors import InvalidArgumentError
from services.worker.capture_setting import CaptureSetting


class WorkerSettings(DiscoverySettings):
    """Read once, at start."""

    # Of peers: one address, several by commas, or a name of several; so with the others below.
    registry_address: str = "127.0.0.1:8081"
    discovery_address: str = ""  # empty: the registry's
    worker_address: str = "127.0.0.1:0"  # port 0: any free one
    # Where the edge reaches this worker: an IP address and port (0: the one listened on). Empty: where it listens, or,
    # where that is every interface, the address by which it reaches the registry.
    advertised_address: str = ""
    # How a unix socket is served: `auto` by the fast front where its codec is installed, else by grpcio.
    front: Literal["auto", "grpcio"] = "auto"
    state_dir: Path = Field(default_factory=lambda: platformdirs.user_state_path("inferplane"))
    # Where requests are counted and budgets are asked for; empty: nothing is counted and nothing is bounded.
    metering_address: str = ""
    # When rows of usage are put on the disk: before the answer leaves, each second, or when the system likes.
    usage_fsync: Literal["always", "interval", "never"] = "interval"
    usage_outbox_bytes: int = Field(default=1024**3, ge=64 * 1024)  # that may wait for metering
    pool: str = "default"
    zone: str = ""
    max_message_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    metrics_address: str = ""  # host:port; empty: no metrics
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_style: Literal["json", "console"] = "json"
    drain_seconds: float = Field(default=30.0, gt=0)
    lease_seconds: float = Field(default=5.0, ge=1, le=60)

    cache_bytes: int = Field(default=20 * 1024**3, gt=0)  # files on disk beyond what is loaded
    load_timeout_seconds: float = Field(default=60.0, gt=0)  # for trying a version
    load_memory_bytes: int = Field(default=8 * 1024**3, ge=0)  # address space of a try; 0: no bound
    tune_seconds: float = Field(default=5.0, gt=0)  # for measuring a version, where that is wanted
    loads_at_once: int = Field(default=2, gt=0)

    max_batch_size: int = Field(default=32, gt=0)  # rows; for versions that don't say
    max_queue_rows: int = Field(default=4096, gt=0)  # per version
    max_queue_bytes: int = Field(default=512 * 1024**2, gt=0)  # per version
    # What would wait longer is refused, beyond four batches; 0: rows and bytes alone bound the queue.
    max_queue_seconds: float = Field(default=2.0, ge=0)
    concurrent_runs: int = Field(default=2, gt=0)  # instances of a version that doesn't say
    intra_op_threads: int = Field(default=1, gt=0)
    # What the runs of all versions may hold at once; 0: three quarters of the memory this process may have.
    run_memory_bytes: int = Field(default=0, ge=0)
    # A run may last so long, or ten times the longest before it; then its version is not READY until it ends.
    stall_seconds: float = Field(default=10.0, gt=0)
    # In order of preference; as a variable separated by commas.
    execution_providers: Annotated[tuple[str, ...], NoDecode] = ("CPUExecutionProvider",)

    # Language models; for versions that don't say.
    kv_cache_bytes: int = Field(default=512 * 1024**2, gt=0)  # keys and values, per version
    max_running_requests: int = Field(default=32, gt=0)  # computed in one step
    max_step_tokens: int = Field(default=128, gt=0)
    max_queue_requests: int = Field(default=1024, gt=0)
    max_output_tokens: int = Field(default=8192, gt=0)  # of all answers to one request
    generation_target: Literal["auto", "native", "portable", "cuda"] = "auto"
    engine_threads: int = Field(default=0, ge=0)  # of a language model; 0: as many as CPUs
    # What happens to requests of callers with budgets once leases have ended and metering still does not answer.
    budget_failure: Literal["open", "closed"] = "open"

    # A reader of a stream that takes nothing for so long, or lets so much wait, is taken for gone.
    stalled_reader_seconds: float = Field(default=60.0, gt=0)
    stalled_reader_bytes: int = Field(default=1024**2, gt=0)

    # What is known of texts. None of them is kept, unless `capture` says so (capture_setting.py), as JSON.
    capture: CaptureSetting = CaptureSetting()
    safety_scorer: str = "none"  # or `offence`, or package.module:factory
    # Of prompts' fingerprints; equal on all machines whose fingerprints are to be compared. Empty: this machine's own.
    fingerprint_key: str = Field(default="", repr=False)

    @field_validator("advertised_address")
    @classmethod
    def _is_callable(cls, value: str) -> str:
        if value:
            _reraising(_check_callable, value)
        return value

    @field_validator("worker_address", "metrics_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            _reraising(address.parse, value)
        return value

    @field_validator("registry_address", "discovery_address", "metering_address")
    @classmethod
    def _are_peers(cls, value: str) -> str:
        if value:
            _reraising(address.parse_peers, value)
        return value

    @field_validator("execution_providers", mode="before")
    @classmethod
    def _by_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("pool")
    @classmethod
    def _is_id(cls, value: str) -> str:
        _reraising(partial(names.check_id, "pool"), value)
        return value


def _check_callable(value: str) -> None:
    """Envoy looks up no names of workers."""
    if address.parse(value).is_name:
        raise InvalidArgumentError.of_field(
            "advertised_address", f"{value!r} is a name; allowed: an IP address and port"
        )


def _reraising(check: Callable[[str], object], value: str) -> None:
    """Pydantic collects ValueErrors only."""
    try:
        check(value)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error
