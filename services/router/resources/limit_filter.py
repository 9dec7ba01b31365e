"""The filter that keeps keys and projects within their limits: our module, or what Envoy has of it by itself."""

from collections.abc import Mapping
from typing import Any

from envoy.extensions.filters.http.dynamic_modules.v3.dynamic_modules_pb2 import (
    DynamicModuleFilter,
)
from envoy.extensions.filters.http.local_ratelimit.v3.local_rate_limit_pb2 import LocalRateLimit
from google.protobuf.wrappers_pb2 import StringValue

from services.router.domain.policy import Limits
from services.router.resources import edge, endpoint_module, wire

ByName = tuple[tuple[str, Limits], ...]
ByShard = Mapping[str, ByName]

_UNLIMITED = 4_000_000_000
_FILL_SECONDS = 0.05  # Envoy's own least


class ByModule:
    """Makes the filter of requests a second and requests in flight, by lines; they are kept until a shard changes."""

    def __init__(self) -> None:
        # By shard: the limits, and their lines.
        self._lines: dict[str, tuple[ByName, str]] = {}

    def __call__(self, limits: ByShard) -> Any:
        kept = {shard: self._lines.get(shard) for shard in sorted(limits)}
        self._lines = {
            shard: lines if lines and lines[0] is limits[shard] else _written(limits[shard])
            for shard, lines in kept.items()
        }
        text = "\n".join(lines for _, lines in self._lines.values())
        return DynamicModuleFilter(
            dynamic_module_config={"name": endpoint_module.NAME, "do_not_close": True},
            filter_name="limits",
            filter_config=wire.packed(StringValue(value=text)),
        )


def _written(limits: ByName) -> tuple[ByName, str]:
    """With lines of `name rate burst concurrent shadow`."""
    lines = [
        f"{name} {of.requests_per_second:.9g} {burst(of)} {of.concurrent_requests} {int(of.shadow)}"
        for name, of in limits
    ]
    return limits, "\n".join(lines)


def by_envoy(limits: ByShard) -> Any:
    """Requests a second only; limits in shadow mode are not looked at, and each change begins all of them anew."""
    kept = [
        (name, of)
        for shard in sorted(limits)
        for name, of in limits[shard]
        if of.requests_per_second and not of.shadow
    ]
    header = (
        {"name": edge.PROJECT_HEADER, "key": "project"},
        {"name": edge.KEY_HEADER, "key": "key"},
    )
    project, key = (
        {"request_headers": {"header_name": h["name"], "descriptor_key": h["key"]}} for h in header
    )
    return LocalRateLimit(
        stat_prefix="limits",
        token_bucket=_bucket(_UNLIMITED, _UNLIMITED, 1.0),
        filter_enabled=_always("enabled") if kept else None,
        filter_enforced=_always("enforced") if kept else None,
        rate_limited_as_resource_exhausted=True,
        rate_limits=[{"actions": [project]}, {"actions": [project, key]}],
        descriptors=[_descriptor(name, of) for name, of in kept],
    )


def burst(limits: Limits) -> int:
    """Requests that may come at once."""
    return limits.burst or max(int(limits.requests_per_second), 1)


def _descriptor(name: str, limits: Limits) -> dict[str, Any]:
    parts = name.split("/")
    entries = [{"key": "project", "value": parts[1]}]
    if len(parts) == 4:
        entries.append({"key": "key", "value": parts[3]})
    seconds = max(_FILL_SECONDS, 1 / limits.requests_per_second)
    tokens = max(round(limits.requests_per_second * seconds), 1)
    return {"entries": entries, "token_bucket": _bucket(burst(limits), tokens, seconds)}


def _bucket(most: int, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        "max_tokens": most,
        "tokens_per_fill": wire.number(tokens),
        "fill_interval": wire.seconds(seconds),
    }


def _always(word: str) -> dict[str, Any]:
    return {
        "default_value": {"numerator": 100, "denominator": "HUNDRED"},
        "runtime_key": f"inferplane.limits_{word}",
    }
