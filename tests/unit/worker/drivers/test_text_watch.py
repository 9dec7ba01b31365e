"""What a watched call leaves behind: fingerprint and lengths at once, scores and captures a little later."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import structlog

from services.rpc.names import VersionName
from services.worker.domain.caller import Caller
from services.worker.domain.capture_rule import CaptureRule
from services.worker.domain.redaction import RULES, own_rules
from services.worker.drivers import text_desk
from services.worker.drivers.text_desk import DeskEvent, DeskParts, TextDesk
from services.worker.drivers.text_watch import WatchedTexts, WatchSettings
from services.worker.llm.domain.generation import GenerationRequest, Piece
from services.worker.ports.capture_store import CapturedLine
from services.worker.ports.scorer import Scorer, Scores
from services.worker.ports.text_watch import NoTextWatch, WatchedCall
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, scripted_model

TOKENIZER = scripted_model(ScriptedRunner(capacity())).tokenizer
ALL = CaptureRule(endpoints=frozenset({"*"}), projects=frozenset({"*"}))
SECRET = b"s" * 32


class Lengthy:
    """A scorer by length; knows one text that it can't read."""

    labels = ("long",)

    def score(self, texts: Sequence[str]) -> Sequence[Scores]:
        if any("unreadable" in text for text in texts):
            raise ZeroDivisionError(texts[0])
        return [{"long": min(1.0, len(text) / 100)} for text in texts]


@dataclass
class Shelf:
    """A `CaptureStore` in memory; full when it is told so."""

    lines: list[CapturedLine] = field(default_factory=list)
    tidied: int = 0
    full: bool = False
    told: Callable[[], object] = lambda: None  # after lines are kept

    def keep(self, lines: Sequence[CapturedLine]) -> None:
        if self.full:
            raise OSError("no space left")
        self.lines += lines
        self.told()

    def tidy(self) -> None:
        self.tidied += 1


def call(number: int = 0, project: str = "lab") -> WatchedCall:
    return WatchedCall(
        caller=Caller(project=project, key="k", endpoint="chat"),
        request_id=number.to_bytes(16, "big"),
        version=VersionName("m", "1"),
        tokenizer=TOKENIZER,
    )


def prompt(text: str) -> GenerationRequest:
    tokens = tuple(TOKENIZER.encode(text, special=False))
    return GenerationRequest(prompt=tokens, characters=len(text))


def desk_of(
    scorer: Scorer | None = None, shelf: Shelf | None = None, own: Iterable[str] = ()
) -> TextDesk:
    redaction = (*RULES, *own_rules(list(own)))
    return TextDesk(DeskParts(scorer=scorer, captures=shelf, redaction=redaction))


def watch_of(
    desk: TextDesk, rules: Sequence[CaptureRule] = (), *, scored: bool = False
) -> WatchedTexts:
    return WatchedTexts(WatchSettings(secret=SECRET, rules=rules, scored=scored), desk)


def write(watch: WatchedTexts, asked: str, answered: str, number: int = 0) -> None:
    """One call."""
    record = watch.begin(call(number))
    record.asked([prompt(asked)])
    record.wrote([Piece(index=0, text=answered)])
    record.end()


def test_lengths_are_of_all_that_was_asked_and_handed_out() -> None:
    """Of several prompts and several answers together; nothing waits for the desk when nobody looks."""
    desk = desk_of()
    record = watch_of(desk).begin(call())
    record.asked([prompt("abc"), prompt("de")])
    record.wrote([Piece(index=0, text="x"), Piece(index=1, text="yy")])
    record.wrote([Piece(index=0, text="zzz")])
    known = record.end()
    assert (known.input_characters, known.output_characters) == (5, 6)
    assert len(known.prompt_fingerprint) == 16
    assert desk.waiting() == 0


def test_equal_prompts_of_a_project_are_seen_to_be_equal() -> None:
    """And those of two projects are not, nor are their texts anywhere in what is known."""
    watch = watch_of(desk_of())
    known = []
    for project in ("a", "a", "b"):
        record = watch.begin(call(project=project))
        record.asked([prompt("the same")])
        known.append(record.end().prompt_fingerprint)
    assert known[0] == known[1]
    assert known[0] != known[2]


def test_without_a_watch_lengths_are_known() -> None:
    """No fingerprint and no scores."""
    record = NoTextWatch().begin(call())
    record.asked([prompt("abc")])
    record.wrote([Piece(index=0, text="xy")])
    known = record.end()
    assert (known.input_characters, known.output_characters) == (3, 2)
    assert known.prompt_fingerprint == b""


async def test_scores_come_after_the_end() -> None:
    """Of the prompt and of the answer, under the request's id; a row that is sent again has them, too."""
    desk = desk_of(Lengthy())
    watch = watch_of(desk, scored=True)
    write(watch, "a" * 10, "b" * 50, number=7)
    assert watch.scores(call(7).request_id) == {}
    await desk.look()
    for _ in range(2):
        assert watch.scores(call(7).request_id) == {"input_long": 0.1, "output_long": 0.5}


async def test_a_scorer_that_fails_harms_nobody() -> None:
    """It is counted, its words, which quote the text, are not logged, and later texts are scored."""
    desk = desk_of(Lengthy())
    watch = watch_of(desk, scored=True)
    with structlog.testing.capture_logs() as logs:
        write(watch, "unreadable", "b", number=1)
        await desk.look()
    assert desk.events[DeskEvent.FAILED] == 1
    assert "unreadable" not in str(logs)
    write(watch, "readable", "b", number=2)
    await desk.look()
    assert watch.scores(call(2).request_id)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
async def test_what_is_no_score_is_none(value: float) -> None:
    """Scorers of others may say anything; it goes no further."""

    class Wrong(Lengthy):
        def score(self, texts: Sequence[str]) -> Sequence[Scores]:
            return [{"long": value} for _ in texts]

    desk = desk_of(Wrong())
    watch = watch_of(desk, scored=True)
    write(watch, "a", "b", number=1)
    await desk.look()
    assert desk.events[DeskEvent.FAILED] == 1
    assert watch.scores(call(1).request_id) == {}


async def test_too_many_texts_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded, and so are scores that nobody takes."""
    monkeypatch.setattr(text_desk, "MOST_WAITING", 20)
    monkeypatch.setattr(text_desk, "MOST_SCORES", 5)
    desk = desk_of(Lengthy())
    watch = watch_of(desk, scored=True)
    for number in range(30):
        write(watch, "a", "b", number)
    assert desk.waiting() == 20
    while desk.waiting():
        await desk.look()
    assert desk.events[DeskEvent.DROPPED] == 10
    assert desk.events[DeskEvent.SCORED] == 20
    taken = [number for number in range(30) if watch.scores(call(number).request_id)]
    assert taken == [15, 16, 17, 18, 19]


async def test_captures_are_redacted_and_bounded() -> None:
    """Nothing else reaches the store."""
    shelf = Shelf()
    desk = desk_of(Lengthy(), shelf, own=["ACME-[0-9]+"])
    rule = CaptureRule(
        endpoints=frozenset({"chat"}), projects=frozenset({"lab"}), max_bytes=64, retention_days=3
    )
    watch = watch_of(desk, [rule], scored=True)
    write(watch, "I am a@b.org, ACME-77", "b" * 100_000)
    await desk.look()
    (kept,) = shelf.lines
    said = json.loads(kept.line)
    assert kept.retention_days == 3
    assert said["prompts"] == ["I am [email], [own]"]
    assert said["answers"] == ["b" * 64]
    assert said["cut"] is True
    assert said["project"] == "lab"
    assert said["scores"]["output_long"] == 1.0


async def test_only_what_rules_name_is_captured() -> None:
    """Others are scored, and gone."""
    shelf = Shelf()
    desk = desk_of(Lengthy(), shelf)
    rule = CaptureRule(endpoints=frozenset({"other"}), projects=frozenset({"*"}))
    write(watch_of(desk, [rule], scored=True), "a", "b")
    await desk.look()
    assert shelf.lines == []
    assert desk.events[DeskEvent.SCORED] == 1


async def test_what_cannot_be_redacted_or_stored_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted each; the next text is looked at."""
    shelf = Shelf(full=True)
    desk = desk_of(None, shelf, own=[r"(a|aa)+(?:b|c)\1$"])
    watch = watch_of(desk, [ALL])
    write(watch, "a" * 5000 + "d", "", number=1)
    write(watch, "fine", "", number=2)
    with structlog.testing.capture_logs() as logs:
        await desk.look()
    assert desk.events[DeskEvent.REDACTION_FAILED] == 1
    assert desk.events[DeskEvent.CAPTURE_FAILED] == 1
    assert "fine" not in str(logs)
    assert "aaa" not in str(logs)
    shelf.full = False
    write(watch, "fine", "", number=3)
    await desk.look()
    assert len(shelf.lines) == 1


async def test_the_desk_looks_by_itself_and_tidies() -> None:
    """As soon as something comes; at the start even if nothing does."""
    shelf = Shelf()
    desk = desk_of(Lengthy(), shelf)
    watch = watch_of(desk, [ALL], scored=True)
    kept = asyncio.Event()
    shelf.told = partial(asyncio.get_running_loop().call_soon_threadsafe, kept.set)
    running = asyncio.create_task(desk.run())
    try:
        write(watch, "a", "b")
        async with asyncio.timeout(60):
            await kept.wait()
        assert shelf.tidied == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
