"""What one Envoy wants, was sent and holds of one kind of resource: the delta protocol's state, without its messages.

At most one update per kind is on its way; the next follows its ACK or NACK. A refused update of several resources is
sent again one by one, so that one bad resource doesn't keep the good ones away; a resource refused alone is not sent
again until its content changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.router.domain.snapshot import Resource

ALL = "*"  # as a name: every resource of the kind (xDS protocol, "How the client specifies what resources to return")
_ABSENT = ""  # as a version: the client was told that there is no such resource


@dataclass(frozen=True, slots=True)
class Update:
    """What one response carries."""

    nonce: str
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """Version by name, as the client holds them once it acknowledges."""
        return {r.name: r.version for r in self.resources} | dict.fromkeys(self.removed, _ABSENT)


@dataclass(frozen=True, slots=True)
class Difference:
    """What a client lacks of a snapshot."""

    missing: tuple[Resource, ...] = ()  # new or changed
    superfluous: tuple[str, ...] = ()  # gone, or asked for and not there

    def __bool__(self) -> bool:
        return bool(self.missing or self.superfluous)


@dataclass(slots=True)
class Subscription:
    """State of one kind on one stream; whoever owns it carries the messages."""

    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    # name → version that the client has acknowledged or came with.
    _held: dict[str, str] = field(default_factory=dict)
    # name → content of what it has acknowledged on this stream.
    _known: dict[str, Resource] = field(default_factory=dict)
    # Held, but to be sent again.
    _again: set[str] = field(default_factory=set)
    # name → version that it refused when sent alone.
    _refused: dict[str, str] = field(default_factory=dict)
    # Part of a refused update; each is tried alone.
    _suspects: set[str] = field(default_factory=set)
    _nonce: str | None = None  # of the update on its way
    _sent: dict[str, str] = field(default_factory=dict)
    _sent_content: dict[str, Resource] = field(default_factory=dict)
    _sent_alone: bool = False

    def begin(self, names: Iterable[str], held: Mapping[str, str]) -> None:
        """Take the stream's first request: no name at all means every resource (the protocol's older form)."""
        wanted = set(names)
        self.wildcard = not wanted or ALL in wanted
        self.names = wanted - {ALL}
        self._held = dict(held)

    def subscribe(self, names: Iterable[str]) -> None:
        """Want more. A name asked for again is sent again: the client may have lost what it had."""
        for name in names:
            if name == ALL:
                self.wildcard = True
                continue
            self.names.add(name)
            self.forget(name)

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Want less; the client drops these by itself."""
        for name in names:
            if name == ALL:
                self.wildcard = False
                for held in [n for n in self._held if n not in self.names]:
                    self._drop(held)
                continue
            self.names.discard(name)
            if not self.wildcard:
                self._drop(name)
            elif self._held.get(name) == _ABSENT:
                self.forget(name)

    def forget(self, name: str) -> None:
        """Take it that the client has lost this resource, also if it is on its way."""
        self._held.pop(name, None)
        self._known.pop(name, None)
        self._again.discard(name)
        self._refused.pop(name, None)
        self._sent.pop(name, None)

    def repeat(self, name: str) -> None:
        """The client still uses this resource, and needs it once more."""
        if name in self.names and name in self._held:
            self._again.add(name)
            self._sent.pop(name, None)

    def _drop(self, name: str) -> None:
        self.forget(name)
        self._suspects.discard(name)

    def is_busy(self) -> bool:
        """Whether an update is on its way."""
        return self._nonce is not None

    def holds(self, name: str) -> bool:
        """Whether the client has acknowledged some version of this resource, and isn't being told to drop it."""
        return self._held.get(name, _ABSENT) != _ABSENT and self._sent.get(name) != _ABSENT

    def holds_version(self, name: str, version: str) -> bool:
        """Whether the client has acknowledged this very version, and isn't being told another."""
        return (
            self.has_version(name, version) and name not in self._sent and name not in self._again
        )

    def has_version(self, name: str, version: str) -> bool:
        """Whether what the client acknowledged last is this very version."""
        return self._held.get(name) == version

    def to_repeat(self, name: str) -> Resource | None:
        """What the client has and needs once more, where its content is known."""
        return self._known.get(name) if name in self._again else None

    def refused(self, name: str, version: str) -> bool:
        """Whether the client has refused this very version."""
        return self._refused.get(name) == version

    def difference(self, wanted: Mapping[str, Resource]) -> Difference:
        """What the client lacks of `wanted`, whether it refused it or not."""
        names = set(wanted) | set(self._held) if self.wildcard else set()
        missing: list[Resource] = []
        superfluous: list[str] = []
        for name in sorted(names | self.names):
            resource = wanted.get(name)
            held = self._held.get(name)
            if resource is not None:
                if held != resource.version or name in self._again:
                    missing.append(resource)
            elif held != _ABSENT and (held is not None or name in self.names):
                superfluous.append(name)
        return Difference(tuple(missing), tuple(superfluous))

    def sendable(self, difference: Difference) -> Difference:
        """The part of a difference that makes sense to send: nothing refused; one alone while there are suspects."""
        missing = [r for r in difference.missing if not self.refused(r.name, r.version)]
        gone = [n for n in difference.superfluous if not self.refused(n, _ABSENT)]
        good = [r for r in missing if r.name not in self._suspects]
        good_gone = [n for n in gone if n not in self._suspects]
        if good or good_gone:
            return Difference(tuple(good), tuple(good_gone))
        if missing:
            return Difference(missing=(missing[0],))
        return Difference(superfluous=tuple(gone[:1]))

    def send(self, update: Update) -> None:
        """Note that `update` is on its way."""
        if self._nonce is not None:
            raise ValueError("an update is on its way already")
        self._nonce = update.nonce
        self._sent = update.versions()
        self._sent_content = {resource.name: resource for resource in update.resources}
        self._sent_alone = len(self._sent) == 1

    def acknowledge(self, nonce: str) -> bool:
        """Take an ACK; False if it isn't for the update on its way."""
        if nonce != self._nonce:
            return False
        for name, version in self._sent.items():
            if version == _ABSENT and name not in self.names:
                self._held.pop(name, None)
            else:
                self._held[name] = version
            self._note_content(name)
            self._refused.pop(name, None)
            self._suspects.discard(name)
        self._nonce, self._sent = None, {}
        return True

    def _note_content(self, name: str) -> None:
        self._again.discard(name)
        content = self._sent_content.get(name)
        if content is None:
            self._known.pop(name, None)
        else:
            self._known[name] = content

    def refuse(self, nonce: str) -> bool:
        """Take a NACK; False if it isn't for the update on its way."""
        if nonce != self._nonce:
            return False
        if self._sent_alone:
            self._refused.update(self._sent)
            self._suspects -= set(self._sent)
        else:
            self._suspects |= set(self._sent)
        self._nonce, self._sent = None, {}
        return True
