"""What reports sum up."""

# In the order in which roll-ups store them; the outcomes are in the order of Outcome.
SUMS = (
    "requests",
    "ok",
    "failed",
    "cancelled",
    "deadline",
    "aborted",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "rows",
    "request_bytes",
    "response_bytes",
    "from_cache",
    "preemptions",
    "compute_ns",
    "queue_ns",
    "duration_ns",
    "lost_attempts",
    "lost_compute_ns",
    "charged",
)
