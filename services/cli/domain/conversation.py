"""A conversation with a language model: what was said, and which of it is sent with the next question."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """Something that was said."""

    role: str  # `system`, `user` or `assistant`
    content: str


class Conversation:
    """Grows by question and answer; the system's message stays in front, whenever it is set."""

    def __init__(self, system: str = "") -> None:
        """Nothing said yet; an empty `system` is none."""
        self.system = system
        self._said: list[Message] = []

    def with_question(self, question: str) -> Sequence[Message]:
        """All that is sent to have this answered; nothing is kept of it yet."""
        system = [Message("system", self.system)] if self.system else []
        return (*system, *self._said, Message("user", question))

    def keep(self, question: str, answer: str) -> None:
        """Both were said; an answer that was stopped is kept as far as it was seen, an empty one not at all."""
        if answer:
            self._said += [Message("user", question), Message("assistant", answer)]

    def reset(self) -> None:
        """Forget what was said, but not the system's message."""
        self._said.clear()
