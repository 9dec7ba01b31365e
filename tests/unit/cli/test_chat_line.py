"""Lines of a chat, and what is sent of a conversation."""

import pytest

from services.cli.domain.chat_line import HELP, ChatLine, Verb, parse
from services.cli.domain.conversation import Conversation, Message
from services.cli.domain.generation_pace import GenerationPace


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello\n", ChatLine(Verb.SAY, "hello")),
        ("  \n", ChatLine(Verb.NOTHING, "")),
        ("/system Be brief. \n", ChatLine(Verb.SYSTEM, "Be brief.")),
        ("/system", ChatLine(Verb.SYSTEM, "")),
        ("/set top_k=4", ChatLine(Verb.SET, "top_k=4")),
        ("/quit", ChatLine(Verb.EXIT, "")),
        ("/exit", ChatLine(Verb.EXIT, "")),
        ("/etc/passwd?", ChatLine(Verb.UNKNOWN, "/etc/passwd?")),
        ("//etc", ChatLine(Verb.SAY, "/etc")),
    ],
)
def test_lines(line: str, meant: ChatLine) -> None:
    """A slash begins a command of the chat's own; two of them say one."""
    assert parse(line) == meant


def test_help_has_every_command() -> None:
    """What can be typed is told."""
    verbs = [verb.value for verb in Verb if verb.value.startswith("/") and verb is not Verb.HELP]
    assert all(verb in HELP for verb in verbs)


def test_a_conversation_grows_by_what_was_answered() -> None:
    """The system's message stays in front; a question without an answer is forgotten, as is all by a reset."""
    talk = Conversation("Be brief.")
    assert talk.with_question("a") == (Message("system", "Be brief."), Message("user", "a"))
    talk.keep("a", "")
    talk.keep("b", "B")
    talk.system = ""
    said = (Message("user", "b"), Message("assistant", "B"))
    assert talk.with_question("c") == (*said, Message("user", "c"))
    talk.reset()
    assert talk.with_question("d") == (Message("user", "d"),)


@pytest.mark.parametrize(
    ("tokens", "line"),
    [
        (11, "11 tokens, 100 tok/s; first after 40 ms; prompt 20 tokens, 16 of them cached"),
        (1, "1 token; first after 40 ms; prompt 20 tokens, 16 of them cached"),
    ],
)
def test_pace(tokens: int, line: str) -> None:
    """Speed is that of the tokens after the first; of one token there is none."""
    pace = GenerationPace(
        prompt_tokens=20,
        cached_tokens=16,
        completion_tokens=tokens,
        texts=1,
        first_token=0.04,
        total=0.14,
    )
    assert pace.line() == line
