"""A load as a client makes it: so many calls at once, or calls at given times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from benchmarks.llm.call import Answer, Asked
from benchmarks.llm.connection import Connection, connect

_LONGEST_CALL = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run asks."""

    asked: tuple[Asked, ...]
    concurrency: int  # 0: each at its time


def run(address: str, load: Load) -> list[Answer]:
    """Ask all of it; answers in the order of the questions."""
    return uvloop.run(_run(address, load))


async def _run(address: str, load: Load) -> list[Answer]:
    if not load.concurrency:
        return await _open(address, load.asked)
    connections = [await connect(address) for _ in range(load.concurrency)]
    answers: dict[int, Answer] = {}
    left = iter(enumerate(load.asked))

    async def client(connection: Connection) -> None:
        for number, asked in left:
            answers[number] = Answer(asked=asked, began=time.perf_counter())
            connection = await _ask(address, connection, answers[number])
        connection.close()

    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(client(connection))
    return [answers[number] for number in sorted(answers)]


async def _ask(address: str, connection: Connection, answer: Answer) -> Connection:
    """Asked, on a new connection if the server has closed this one: some do after each answer, a moment too late."""
    if connection.is_open:
        await connection.call(answer, "benchmark", _LONGEST_CALL)
        if not answer.error.startswith("connection lost") or answer.pieces:
            return connection
        answer.error = ""
    connection = await connect(address)
    await connection.call(answer, "benchmark", _LONGEST_CALL)
    return connection


async def _open(address: str, asked: Sequence[Asked]) -> list[Answer]:
    idle: list[Connection] = []
    begin = time.perf_counter()

    async def one(question: Asked) -> Answer:
        await asyncio.sleep(max(0.0, begin + question.due - time.perf_counter()))
        answer = Answer(asked=question, began=begin + question.due)
        while idle and not idle[-1].is_open:
            idle.pop()
        connection = idle.pop() if idle else await connect(address)
        connection = await _ask(address, connection, answer)
        if connection.is_open:
            idle.append(connection)
        return answer

    answers = await asyncio.gather(*map(one, asked))
    for connection in idle:
        connection.close()
    return list(answers)
