"""A line of a service's log, as people read it: services write JSON objects, anything else is shown as it is."""

import json
from dataclasses import dataclass

_LEVELS = {
    "trace": 0,
    "debug": 0,
    "info": 1,
    "warning": 2,
    "warn": 2,
    "error": 3,
    "critical": 4,
    "exception": 3,
}
WARNING = _LEVELS["warning"]
ERROR = _LEVELS["error"]
_OWN_FIELDS = frozenset({"timestamp", "level", "event", "service", "logger", "exception"})


@dataclass(frozen=True, slots=True)
class LogLine:
    """One parsed line."""

    service: str
    level: int  # as in `_LEVELS`
    level_name: str
    time: str  # ISO 8601, UTC; empty: not told
    text: str  # event and its fields
    event: str  # without its fields; empty: the line is no JSON object

    @property
    def clock(self) -> str:
        """Time of day, to the millisecond."""
        return self.time[11:23].rstrip("Z") if len(self.time) >= 19 else ""


def parse(service: str, raw: str) -> LogLine:
    """Read one line; a line that is no JSON object is a warning, for well-behaved services write none."""
    raw = raw.rstrip("\r\n")
    try:
        record = json.loads(raw)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        return LogLine(service, WARNING, "", "", raw, "")
    name = str(record.get("level", "info")).lower()
    fields = [f"{key}={_shown(value)}" for key, value in record.items() if key not in _OWN_FIELDS]
    event = str(record.get("event", ""))
    text = " ".join([event, *fields]).strip()
    if "exception" in record:
        text = f"{text}\n{record['exception']}"
    time = str(record.get("timestamp", ""))
    return LogLine(service, _LEVELS.get(name, WARNING), name, time, text, event)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
