"""A line of a chat as it was typed: something to be said, or one of the chat's own commands."""

from dataclasses import dataclass
from enum import Enum


class Verb(Enum):
    """What a line asks for."""

    SAY = "say"
    SYSTEM = "/system"
    RESET = "/reset"
    SET = "/set"
    HELP = "/help"
    EXIT = "/exit"
    UNKNOWN = "unknown"
    NOTHING = "nothing"


HELP = """\
/system TEXT     what the model is told before all else; without TEXT nothing
/set NAME=VALUE  how it answers: temperature=0, max_tokens=200, seed=7 …; without VALUE as at the start
/set             what is set
/reset           forgets what was said
/exit            ends; so does the end of input. Ctrl-C stops an answer
//TEXT           says /TEXT"""

_COMMANDS = {verb.value: verb for verb in Verb if verb.value.startswith("/")} | {"/quit": Verb.EXIT}


@dataclass(frozen=True, slots=True)
class ChatLine:
    """A line, understood."""

    verb: Verb
    text: str  # what follows the command; of SAY and UNKNOWN all of it


def parse(line: str) -> ChatLine:
    """What a line asks for."""
    stripped = line.strip()
    if not stripped:
        return ChatLine(Verb.NOTHING, "")
    if stripped.startswith("//"):
        return ChatLine(Verb.SAY, stripped[1:])
    if not stripped.startswith("/"):
        return ChatLine(Verb.SAY, stripped)
    command, _, rest = stripped.partition(" ")
    verb = _COMMANDS.get(command)
    if verb is None:
        return ChatLine(Verb.UNKNOWN, command)
    return ChatLine(verb, rest.strip())
