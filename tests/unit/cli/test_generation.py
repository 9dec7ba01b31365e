"""generate and chat against a scripted service: what is sent, what is shown, what happens when it breaks."""

import asyncio
import contextlib
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.cli.adapters.chat import Chat, ChatSettings
from services.cli.adapters.chat_loop import chat
from services.cli.adapters.edge import connect
from services.cli.adapters.generation import sampling_settings
from services.cli.adapters.generation_screen import printable
from services.cli.adapters.terminal import Terminal
from services.cli.domain.exit_code import UsageError
from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError, UnavailableError
from tests.unit.cli.writing_mesh import Writer, writing

_ROOT = Path(__file__).parents[3]
_SECONDS = 30.0
_PACE = "11 tokens, 100 tok/s; first after 40 ms; prompt 20 tokens, 16 of them cached"


@pytest.fixture
def writer() -> Writer:
    """What the service writes, and what it was asked."""
    return Writer()


@pytest.fixture
async def address(writer: Writer) -> AsyncIterator[str]:
    """Where it is served."""
    async with writing(writer) as served:
        yield served


async def _cli(address: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run a command; its exit code, and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.cli", *arguments, "--address", address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=_ROOT,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), _SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_text_is_streamed(address: str, writer: Writer) -> None:
    """The answer is on stdout and ends its line; how fast it was is on stderr; options are sent as they are."""
    options = ("--temperature", "0", "--max-tokens", "7", "--stop", "a", "--stop", "b", "--seed=-1")
    code, out, err = await _cli(address, "generate", "smol", "Once", *options, "--priority=-3")
    assert (code, out, err) == (0, "Hello\nyou\n", _PACE + "\n")
    (asked,) = writer.asked
    assert (asked.model_name, asked.prompt.text, asked.priority) == ("smol", "Once", -3)
    wanted = {"temperature": 0, "max_tokens": 7, "stop": ["a", "b"], "seed": -1}
    assert asked.sampling == sampling_settings(wanted, "")


async def test_several_answers_and_logprobs(address: str, writer: Writer) -> None:
    """Several come at once, each with its tokens; the prompt may come from standard input and be a question."""
    arguments = ("generate", "smol", "-", "--system", "Be brief.", "-n", "2", "--top-logprobs", "1")
    code, out, err = await _cli(address, *arguments, stdin="größe?".encode())
    assert code == 0, err
    assert [line.split("  ")[0] for line in out.splitlines()[:5]] == [
        *("--- 0", "Hello", "you", "TOKEN", "'a'"),
    ]
    assert r"'\\xf0\\x9f' -1.5000" in out
    (asked,) = writer.asked
    assert [(m.role, m.content) for m in asked.prompt.conversation.messages] == [
        ("system", "Be brief."),
        ("user", "größe?"),
    ]
    assert asked.sampling.logprobs


async def test_refusals_name_what_is_wrong(address: str, writer: Writer) -> None:
    """What can't be meant is refused here, the rest by the service; both are told by field with the house's codes."""
    code, _, err = await _cli(address, "generate", "smol", "x", "--max-tokens", "99999999999")
    assert (code, writer.asked) == (2, [])
    assert "max_tokens: 99999999999" in err
    code, _, err = await _cli(address, "generate", "smol", "x", "-n2", "--stream")
    assert (code, writer.asked) == (2, [])
    code, _, err = await _cli(address, "generate", "smol", "-", stdin=b"\xff")
    assert (code, writer.asked) == (2, [])
    writer.error = InvalidArgumentError.of_field("sampling.top_p", "2 given; allowed: 0 to 1")
    code, out, err = await _cli(address, "generate", "smol", "x", "--top-p", "2")
    assert (code, out) == (5, "")
    assert err.startswith("error: ")
    assert "sampling.top_p" in err


async def test_ctrl_c_ends_a_text(address: str, writer: Writer) -> None:
    """What was written stays, the call is cancelled, the exit code says so."""
    writer.holds_after = 1
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.cli", "generate", "smol", "Once", "--address", address),
        stdout=asyncio.subprocess.PIPE,
        cwd=_ROOT,
    )
    await asyncio.wait_for(writer.held.wait(), _SECONDS)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.read(3), _SECONDS) == b"Hel"
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), _SECONDS) == 130
    await asyncio.wait_for(writer.gone.wait(), _SECONDS)


def _settings(**fields: Any) -> ChatSettings:
    defaults: dict[str, Any] = {
        "endpoint": "smol",
        "version": None,
        "system": "",
        "sampling": sampling_settings({"temperature": 0.5}, ""),
        "seconds": _SECONDS,
        "interactive": True,
    }
    return ChatSettings(**(defaults | fields))


async def test_a_chat_remembers(
    address: str, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each question is sent with what was said before it and with what is set; commands send nothing."""
    async with connect(address) as edge:
        talk = Chat(edge, _settings(system="Be brief."), Terminal(as_json=False))
        assert await talk.take("one")
        for line in ("/set temperature=0", "/set stop=.", "/set max_tokens=", "/help", "", "/what"):
            assert await talk.take(line)
        assert await talk.take("two")
        assert await talk.take("/reset")
        assert await talk.take("/system")
        assert await talk.take("three")
        assert not await talk.take("/exit")
    said = [[m.content for m in a.prompt.conversation.messages] for a in writer.asked]
    assert said == [
        ["Be brief.", "one"],
        ["Be brief.", "one", "Hello\nyou", "two"],
        ["three"],
    ]
    assert writer.asked[2].sampling == sampling_settings({"temperature": 0, "stop": ["."]}, "")
    printed = capsys.readouterr()
    assert printed.out == "Hello\nyou\n" * 3
    assert printed.err.count(_PACE) == 3
    assert "error: /what is no command" in printed.err


async def test_what_a_chat_began_with_comes_back(
    address: str, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting without a value is again what the chat began with; nothing, if that was nothing."""
    async with connect(address) as edge:
        talk = Chat(edge, _settings(), Terminal(as_json=False))
        for line in ("/set temperature=0", "/set top_k=4", "/set temperature=", "/set top_k="):
            await talk.take(line)
    assert capsys.readouterr().err.splitlines()[-1] == "temperature=0.5"


async def test_a_chat_with_nobody_does_not_begin() -> None:
    """Somebody at a terminal is told at once that nothing listens, not after the first question."""
    with pytest.raises(UnavailableError, match="nothing listens"):
        await asyncio.to_thread(
            chat, "127.0.0.1:1", _settings(), Terminal(as_json=False), ["never said"]
        )


@pytest.mark.parametrize(
    "line", ["/set x=1", "/set n=2", "/set top_k=a", "/set top_k", "/set temperature=warm"]
)
async def test_wrong_settings_are_told(
    line: str, address: str, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name or value that is none is told with what is allowed, and changes nothing."""
    async with connect(address) as edge:
        talk = Chat(edge, _settings(), Terminal(as_json=False))
        await talk.take(line)
        assert "error: " in capsys.readouterr().err
        await talk.take("/set")
    assert capsys.readouterr().err == "temperature=0.5\n"


async def test_a_failed_answer(
    address: str, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody who sits there is told, and goes on without that question; a script ends with the failure."""
    writer.breaks = UnavailableError("the worker went away")
    async with connect(address) as edge:
        talk = Chat(edge, _settings(), Terminal(as_json=False))
        assert await talk.take("one")
        printed = capsys.readouterr()
        assert printed.out == "Hello\nyou\n"
        assert "error: the worker went away" in printed.err
        writer.breaks = None
        await talk.take("two")
        assert len(writer.asked[-1].prompt.conversation.messages) == 1
        writer.error = ResourceExhaustedError("too much waits", retry_after=2)
        with pytest.raises(ResourceExhaustedError, match="too much waits"):
            await Chat(edge, _settings(interactive=False), Terminal(as_json=False)).take("three")


async def test_lines_from_a_pipe(address: str, writer: Writer) -> None:
    """Each line is answered until their end, without a prompt; `--once` takes none."""
    code, out, _ = await _cli(address, "chat", "smol", stdin=b"one\n\ntwo")
    assert (code, out, len(writer.asked)) == (0, "Hello\nyou\n" * 2, 2)
    code, out, _ = await _cli(address, "chat", "smol", "--once", "three", stdin=b"four\n")
    assert (code, out, len(writer.asked)) == (0, "Hello\nyou\n", 3)
    assert writer.asked[-1].sampling.temperature == 0.7
    code, _, err = await _cli(address, "chat", "smol", "--once", " ")
    assert (code, err, len(writer.asked)) == (2, "error: --once: empty; allowed: a text\n", 3)


async def _until(stream: asyncio.StreamReader, text: bytes) -> bytes:
    return await asyncio.wait_for(stream.readuntil(text), _SECONDS)


async def test_ctrl_c_at_a_terminal(address: str, writer: Writer) -> None:
    """1. The first Ctrl-C stops the answer alone. 2. What was seen is kept. 3. The next, at the prompt, ends it."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.cli", "chat", "smol", "--address", address),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=_ROOT,
        env={**os.environ, "TERM": "dumb"},
        preexec_fn=_own_terminal,
    )
    os.close(theirs)
    screen = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    file = os.fdopen(ours, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(screen), file)
    try:
        await _talk(process, ours, screen, writer)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()


async def _talk(
    process: asyncio.subprocess.Process, ours: int, screen: asyncio.StreamReader, writer: Writer
) -> None:
    await _until(screen, b">>> ")
    writer.holds_after = 2
    os.write(ours, b"one\n")
    await _until(screen, b"lo\r\n")
    os.write(ours, b"\x03")
    await _until(screen, b"stopped")
    await asyncio.wait_for(writer.gone.wait(), _SECONDS)
    writer.holds_after = None
    await _until(screen, b">>> ")
    os.write(ours, b"two\n")
    await _until(screen, _PACE.encode())
    await _until(screen, b">>> ")
    said = [m.content for m in writer.asked[-1].prompt.conversation.messages]
    assert said == ["one", "Hello\n", "two"]
    assert await asyncio.wait_for(_interrupted(process, ours), _SECONDS) == 0


async def _interrupted(process: asyncio.subprocess.Process, terminal: int) -> int:
    """Press Ctrl-C until it has ended: Python loses one that comes between the prompt and the wait for a key.

    But not while it ends, which may take its time: then it would end by the signal.
    """
    while True:
        os.write(terminal, b"\x03")
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), _SECONDS / 3)


def _own_terminal() -> None:
    """Make the child's stdin its controlling terminal, so that Ctrl-C there is a signal."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_control_characters_stay_off_the_screen() -> None:
    """Texts can't move the cursor, ring the bell or rename the window; line ends and tabs stay."""
    assert printable("a\x1b[2Jb\x07\r\n\tc\x9b1mé\x7f") == "a[2Jb\n\tc1mé"


def test_sampling_is_checked_here() -> None:
    """What the message can't hold is told by its name."""
    with pytest.raises(UsageError, match="top_k"):
        sampling_settings({"top_k": 2**40}, "sampling")
