"""Stop strings: found in text that comes in pieces, of which no more is held back than may begin one."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(slots=True)
class _Node:
    """A place in the tree of all stop strings (Aho and Corasick, 1975): the text so far ends with the path to it."""

    depth: int
    children: "dict[str, _Node]"
    longest: str = ""  # stop string that ends here; "": none does
    # Where the longest shorter end of the text leads; None: this is the root.
    fallback: "_Node | None" = None

    def next(self, character: str) -> "_Node":
        node = self
        while (child := node.children.get(character)) is None:
            if node.fallback is None:
                return node
            node = node.fallback
        return child


class StopTree:
    """The stop strings of a request; its texts share it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops

    @cached_property
    def root(self) -> _Node:
        """Grown when the first text begins: requests that wait are many, and thousands of nodes each."""
        root = _Node(0, {})
        for stop in self._stops:
            node = root
            for character in stop:
                node = node.children.setdefault(character, _Node(node.depth + 1, {}))
            node.longest = stop
        _link(root)
        return root


def _link(root: _Node) -> None:
    """Give each node its fallback; those nearer the root come first."""
    waiting = deque(root.children.values())
    for child in waiting:
        child.fallback = root
    while waiting:
        node = waiting.popleft()
        for character, child in node.children.items():
            assert node.fallback is not None, "only the root has none"
            child.fallback = node.fallback.next(character)
            child.longest = child.longest or child.fallback.longest
            waiting.append(child)


class StopSearch:
    """Where one text is in its search.

    A text ends before the stop string that is complete first; of those complete at the same character, the longest.
    So it ends at the same place however it was cut into tokens.
    """

    def __init__(self, tree: StopTree) -> None:
        self._tree = tree
        self._node: _Node | None = None  # None: the root
        self._held = ""  # the path to the node

    def feed(self, text: str, *, armed: bool = True) -> tuple[str, str]:
        """Text that can be told, and the stop string that ended it; not `armed`, none does."""
        root = self._tree.root
        if not root.children:
            return text, ""
        text = self._held + text
        node = self._node or root
        for place in range(len(self._held), len(text)):
            node = node.next(text[place])
            if armed and node.longest:
                self._node, self._held = None, ""
                return text[: place + 1 - len(node.longest)], node.longest
        # A whole stop string, while not armed: it can't become a longer one.
        while not node.children and node.fallback is not None:
            node = node.fallback
        self._node = node
        told = len(text) - node.depth
        self._held = text[told:]
        return text[:told], ""

    def flush(self) -> str:
        """What was held back for nothing: the text has ended."""
        held, self._held, self._node = self._held, "", None
        return held
