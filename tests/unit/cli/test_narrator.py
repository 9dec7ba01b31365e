"""What the terminal is told while a mesh runs."""

import io
import json
import threading

import pytest

from services.cli.adapters.narrator import Narrator


def _line(level: str, event: str, **fields: object) -> str:
    return json.dumps({"event": event, "level": level, **fields}) + "\n"


class _Heard:
    """A narrator and what it wrote."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.stream = io.StringIO()
        self.narrator = Narrator(verbose=verbose, stream=self.stream)
        self.narrator.begin()

    def end(self) -> list[str]:
        """Everything it wrote, one line after the other."""
        self.narrator.end()
        return self.stream.getvalue().splitlines()


def test_only_what_matters_is_shown() -> None:
    """While it starts: errors and lines that are no log; later warnings too; never information."""
    heard = _Heard()
    for settled in (False, True):
        for level in ("info", "warning", "error"):
            heard.narrator.line("router", _line(level, f"{level} {settled}"))
        heard.narrator.line("router", f"Traceback {settled}\n")
        heard.narrator.settle()
    told = [line.split(maxsplit=2 if "Trace" not in line else 1)[-1] for line in heard.end()]
    assert told == [
        "error False",
        "Traceback False",
        "warning True",
        "error True",
        "Traceback True",
    ]


def test_repeated_warning_is_shown_once() -> None:
    """A warning that is given again and again is shown once for each service, whatever its fields."""
    heard = _Heard()
    heard.narrator.settle()
    for attempt in range(5):
        for service in ("router", "worker-1"):
            heard.narrator.line(service, _line("warning", "lost peer", attempt=attempt))
    assert len(heard.end()) == 2


def test_verbose_shows_everything() -> None:
    """All lines, starts and ends."""
    heard = _Heard(verbose=True)
    heard.narrator.started("router", 7)
    for _ in range(2):
        heard.narrator.line("router", _line("info", "listening", address="x:1"))
    heard.narrator.stopped("router", "exited with code 0")
    told = [" ".join(line.split()) for line in heard.end()]
    assert told == [
        "router runs as process 7",
        "router info listening address=x:1",
        "router info listening address=x:1",
        "router exited with code 0",
    ]


def test_death_is_told_with_the_end_of_the_log() -> None:
    """A crash loop shows what the service wrote last."""
    heard = _Heard()
    heard.narrator.died("worker-1", "was killed by signal 9", 0.1, [])
    heard.narrator.died("worker-1", "exited with code 1", 10.0, [_line("error", "no disk")])
    assert heard.end() == [
        "worker-1 was killed by signal 9; it is started again in 0.1 s",
        "worker-1 exited with code 1; it is started again in 10 s",
        "worker-1 dies again and again. The end of its log:",
        "  no disk",
    ]


def test_hushed_while_it_ends() -> None:
    """What children say while they are ended is only in the logs; who had to be killed is told."""
    heard = _Heard()
    heard.narrator.hush()
    heard.narrator.line("router", _line("error", "lost peer"))
    heard.narrator.died("router", "exited with code 1", 0.1, [])
    heard.narrator.stopped("router", "exited with code 0")
    heard.narrator.stopped("worker-1", "was killed by signal 9")
    assert heard.end() == ["worker-1 was killed by signal 9"]


class _Stuck(io.StringIO):
    """A terminal that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.let_go.wait(10)
        return super().write(text)


def test_stuck_terminal_holds_up_nothing() -> None:
    """Lines beyond the backlog are dropped at once and counted; nothing waits for the terminal."""
    stream = _Stuck()
    narrator = Narrator(verbose=True, stream=stream)
    narrator.begin()
    narrator.say("first")
    assert stream.asked.wait(10)
    for number in range(1500):
        narrator.say(str(number))
    stream.let_go.set()
    narrator.end()
    told = stream.getvalue().splitlines()
    assert told[:2] == ["first", "(500 lines are only in the logs)"]
    assert told[-1] == "999"


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_lost_terminal_is_no_failure(error: type[Exception]) -> None:
    """A terminal that went away ends nothing."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    narrator = Narrator(verbose=True, stream=Gone())
    narrator.begin()
    narrator.say("x")
    narrator.say("y")
    narrator.end()
