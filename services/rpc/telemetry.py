"""Logs and metrics: structlog events on stderr, Prometheus metrics over HTTP."""

import logging
import sys
from typing import Literal

import prometheus_client
import structlog

from services.rpc import address as addresses


def configure_logs(
    *, service: str, level: str = "info", style: Literal["json", "console"] = "json"
) -> None:
    """Set up structlog for this process; every line carries `service`."""
    renderer: structlog.typing.Processor
    if style == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def serve_metrics(address: str) -> str:
    """Serve this process's metrics on `host:port` (port 0: any); return the bound address, "" if `address` is empty."""
    if not address:
        return ""
    wanted = addresses.parse(address, "metrics_address")
    server, _ = prometheus_client.start_http_server(wanted.port, addr=wanted.host)
    return f"{wanted.host}:{server.server_address[1]}"
