"""The supervisor with real processes: restarts, crash loops, the order of ending, nothing left behind."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.cli.adapters.state_directory import RunningProcess
from services.cli.domain.child_life import RestartPolicy
from services.cli.drivers import launch
from services.cli.drivers.child import ChildSpec, Start
from services.cli.drivers.supervisor import Supervisor
from tests.integration.cli.conftest import HeardNarration, Spec

_SLEEP = "import signal; print('here', flush=True); signal.pause()"
_OBEY = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
    "print('here', flush=True); signal.pause()"
)
_STUBBORN = (
    "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'no\\n'));"
    "print('here', flush=True)\nwhile True: signal.pause()"
)
_QUICK = RestartPolicy(first_delay=0.01, longest_delay=0.05, loop_after=3)


async def _no_drain(_seconds: float) -> None:
    return


@asynccontextmanager
async def _running(
    stages: list[list[ChildSpec]],
    heard: HeardNarration,
    drain: Callable[[float], Awaitable[None]] = _no_drain,
    grace: float = 10.0,
) -> AsyncIterator[tuple[Supervisor, asyncio.Event]]:
    """A supervisor at work; the event ends it, and so does leaving the block."""
    stop = asyncio.Event()

    async def until() -> None:
        await stop.wait()

    supervisor = Supervisor(stages, heard, lambda: None, _QUICK)
    task = asyncio.create_task(supervisor.run(until(), drain, grace))
    try:
        yield supervisor, stop
    finally:
        stop.set()
        await task


async def test_what_dies_is_started_again(
    heard: HeardNarration, spec: Spec, tmp_path: Path
) -> None:
    """A child killed with SIGKILL is back as another process, and its log has both lives."""
    async with _running([[spec("a", _SLEEP)]], heard):
        await heard.until(lambda: heard.of("line", "a"))
        os.kill(heard.of("started", "a")[0][2], signal.SIGKILL)
        await heard.until(lambda: len(heard.of("line", "a")) == 2)
    assert heard.of("died", "a")[0][2:] == ("was killed by signal 9", 0.01, [])
    assert len({event[2] for event in heard.of("started", "a")}) == 2
    assert (tmp_path / "a.log").read_text() == "here\nhere\n"


async def test_crash_loop_is_told_with_the_last_lines(heard: HeardNarration, spec: Spec) -> None:
    """From the third short life on the narration gets the end of the log."""
    broken = spec("a", "import os, sys; print('no key', os.environ['START']); sys.exit(7)")
    async with _running([[broken]], heard) as (supervisor, _):
        await heard.until(lambda: len(heard.of("died", "a")) >= 3)
        assert supervisor.children[0].life.is_crash_looping
    told = [event[4] for event in heard.of("died", "a")][:3]
    assert told == [[], [], ["no key 3"]]
    assert heard.of("died", "a")[0][2] == "exited with code 7"


async def test_ends_in_the_order_of_its_stages(heard: HeardNarration, spec: Spec) -> None:
    """Draining comes first; a stage is asked to end only when the one before has ended."""
    drained: list[float] = []

    async def drain(seconds: float) -> None:
        drained.append(seconds)
        assert not heard.of("stopped")

    stages = [[spec("edge", _OBEY)], [spec("w1", _OBEY), spec("w2", _OBEY)], [spec("last", _OBEY)]]
    async with _running(stages, heard, drain):
        await heard.until(lambda: len(heard.of("line")) == 4)
    stopped = [event[1] for event in heard.of("stopped")]
    assert stopped[0] == "edge"
    assert set(stopped[1:3]) == {"w1", "w2"}
    assert stopped[3] == "last"
    assert {event[2] for event in heard.of("stopped")} == {"exited with code 0"}
    assert drained == [10.0]


async def test_who_does_not_obey_is_killed_after_the_grace(
    heard: HeardNarration, spec: Spec
) -> None:
    """SIGTERM first, SIGKILL when the time is over; the others still end by themselves."""
    stages = [[spec("stubborn", _STUBBORN)]]
    async with _running(stages, heard, grace=0.3):
        await heard.until(lambda: heard.of("line"))
    assert heard.of("line")[-1][2] == "no"
    assert heard.of("stopped") == [("stopped", "stubborn", "was killed by signal 9")]


async def test_hurry_ends_everything_at_once(heard: HeardNarration, spec: Spec) -> None:
    """A second request to end does not wait for drain or grace."""
    draining = asyncio.Event()

    async def drain(_seconds: float) -> None:
        draining.set()
        await asyncio.Event().wait()

    stages = [[spec("a", _STUBBORN)], [spec("b", _STUBBORN)]]
    async with _running(stages, heard, drain, grace=60) as (supervisor, stop):
        await heard.until(lambda: len(heard.of("line")) == 2)
        begun = time.monotonic()
        stop.set()
        await draining.wait()
        supervisor.hurry()
    assert time.monotonic() - begun < 30
    assert len(heard.of("stopped")) == 2


async def test_gate_holds_the_first_start_back(heard: HeardNarration, spec: Spec) -> None:
    """A gated child starts when its gate opens, and ending does not wait for a gate that never opens."""
    gate = asyncio.Event()

    async def opened() -> None:
        await gate.wait()

    async def never() -> None:
        await asyncio.Event().wait()

    stages = [[spec("open", _OBEY, opened)], [spec("shut", _OBEY, never)]]
    async with _running(stages, heard) as (supervisor, _):
        await asyncio.sleep(0)
        assert [child.pid for child in supervisor.children] == [None, None]
        gate.set()
        await heard.until(lambda: heard.of("line", "open"))
    assert not heard.of("started", "shut")


async def test_what_a_child_started_ends_with_it(heard: HeardNarration, spec: Spec) -> None:
    """A grandchild does not outlive a child that was killed."""
    code = (
        "import signal, subprocess, sys;"
        f"p = subprocess.Popen([sys.executable, '-S', '-c', {_SLEEP!r}]);"
        "print('pid', p.pid, flush=True); signal.pause()"
    )
    async with _running([[spec("a", code)]], heard):
        await heard.until(lambda: any(e[2].startswith("pid") for e in heard.of("line")))
        told = next(e[2] for e in heard.of("line") if e[2].startswith("pid"))
        grandchild = RunningProcess.of("grandchild", int(told.split()[1]))
        assert grandchild is not None
        os.kill(heard.of("started")[0][2], signal.SIGKILL)
        assert await asyncio.to_thread(grandchild.wait, 30)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_launched_command_dies_with_its_parent(tmp_path: Path) -> None:
    """A command started through `launch.py` is killed when the process that started it is killed."""
    parent_code = (
        "import os, subprocess, sys, signal;"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', {launch.__file__!r}, str(os.getpid()),"
        f" sys.executable, '-S', '-c', {_SLEEP!r}], stdout=subprocess.PIPE);"
        "p.stdout.readline(); print(p.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = RunningProcess.of("child", int(parent.stdout.readline()))
        assert child is not None
        parent.kill()
        assert child.wait(30)


async def test_what_can_t_be_started_is_tried_again(
    heard: HeardNarration, spec: Spec, tmp_path: Path
) -> None:
    """A start that fails for want of something is told and tried again, like a death."""
    good = spec("a", _OBEY)

    def prepare(number: int) -> Start:
        if number < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return good.prepare(number)

    async with _running([[ChildSpec("a", prepare, tmp_path / "a.log")]], heard):
        await heard.until(lambda: heard.of("line", "a"))
    told = "could not be started ([Errno 28] No space left on device)"
    assert [event[2] for event in heard.of("died")] == [told, told]


async def test_program_that_is_not_there_is_told_in_the_log(
    heard: HeardNarration, tmp_path: Path
) -> None:
    """A command that does not exist dies with the reason in its log."""

    def prepare(_number: int) -> Start:
        return Start(("/nowhere/envoy",), {}, "")

    async with _running([[ChildSpec("a", prepare, tmp_path / "a.log")]], heard):
        await heard.until(lambda: heard.of("died", "a"))
    assert (tmp_path / "a.log").read_text().startswith("/nowhere/envoy: No such file")


async def test_long_lines_and_odd_bytes_reach_the_log(
    heard: HeardNarration, spec: Spec, tmp_path: Path
) -> None:
    """A line longer than the reader's limit is cut, bytes that are no UTF-8 are kept, nothing hangs."""
    code = (
        "import os, signal; os.write(1, b'x' * 3_000_000 + b'\\n\\xff\\nend'); os.write(2, b'!');"
        "os.close(1); os.close(2); signal.pause()"
    )
    async with _running([[spec("a", code)]], heard):
        await heard.until(lambda: any(e[2] == "end!" for e in heard.of("line")))
    raw = (tmp_path / "a.log").read_bytes()
    assert raw.replace(b"\n", b"") == b"x" * 3_000_000 + b"\xffend!"
