"""Turns of tenants, and what is forgotten."""

from __future__ import annotations

import numpy as np

from services.worker.llm.domain.continuation import Continuation
from services.worker.llm.domain.kv_cache import BlockTable
from services.worker.llm.domain.waiting_line import WaitingLine


def text(line: WaitingLine, number: int, tenant: str = "", priority: int = 0) -> Continuation:
    """One that waits."""
    made = Continuation(
        number=number,
        index=0,
        priority=priority,
        tokens=(1,),
        prompt_tokens=1,
        table=BlockTable(tenant, priority, None, np.zeros(1, np.int32)),
        share=line.share(tenant, priority),
    )
    line.join(made)
    return made


def taken(line: WaitingLine, cost: float = 10.0) -> list[int]:
    """Numbers in the order in which they are taken; each is charged at once."""
    numbers = []
    for text in line.in_order(()):
        line.take(text)
        line.began(text)
        text.share.served += cost
        numbers.append(text.number)
    line.check()
    return numbers


def test_one_tenant_goes_in_order_of_arrival() -> None:
    """Also one that comes back after it was preempted: it stands where it stood."""
    line = WaitingLine()
    texts = [text(line, number) for number in (1, 2, 3)]
    line.take(texts[0])
    line.put(texts[0])
    assert taken(line) == [1, 2, 3]


def test_priorities_go_before_turns() -> None:
    """Whatever was served."""
    line = WaitingLine()
    text(line, 1, "a", 5)
    text(line, 2, "b", -5)
    text(line, 3, "a", 0)
    assert taken(line) == [2, 3, 1]


def test_tenants_alternate_and_who_comes_later_starts_where_the_others_are() -> None:
    """Nobody has saved up turns by being away."""
    line = WaitingLine()
    for number in range(4):
        text(line, number, "a")
    assert taken(line) == [0, 1, 2, 3]
    for number in range(10, 14):
        text(line, number, "a")
    for number in range(20, 24):
        text(line, number, "b")
    order = taken(line)
    assert order[:6] == [20, 10, 21, 11, 22, 12]


def test_what_is_not_taken_is_yielded_once_and_stays() -> None:
    """And a tenant that is passed over is not asked again."""
    line = WaitingLine()
    for number in (1, 3):
        text(line, number, "a")
    for number in (2, 4):
        text(line, number, "b")
    assert [text.number for text in line.in_order(())] == [1, 2, 3, 4]
    passed: set[str] = set()
    seen = []
    for waiting in line.in_order(passed):
        seen.append(waiting.number)
        passed.add("a")
    assert seen == [1, 2, 4]
    assert len(line) == 4


def test_nothing_is_kept_of_tenants_that_have_left() -> None:
    """Names of tenants come from outside: none may stay."""
    line = WaitingLine()
    for number in range(100):
        gone = text(line, number, f"tenant {number}", number % 3)
        line.take(gone)
        line.leave(gone)
    line.check()
    assert not line._levels
