"""The callers: a process of its own, so that it can be killed. What it sends and gets it appends to a file first.

Each request has a size of its own, by which its row is found: ids are the edge's, and callers never see them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
from typing import Any

import grpc
import numpy as np
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc
from inferplane.generation.v1 import generation_pb2
from inferplane.generation.v1 import generation_service_pb2 as texts
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.rpc import channel

KINDS = ("tensor", "stream", "text")
TENSOR, TEXT = "affine", "tiny"
_SHORTEST_ID = 300
_PAUSE_SECONDS = 0.3
_X = np.ones((2, 4), np.float32).tobytes()


def tokens_of(number: int) -> int:
    """How many a text of that number has."""
    return 3 + number % 30


def message(number: int) -> Any:
    """Request of a number: longer than those of all smaller numbers of its model."""
    ident = "x" * (_SHORTEST_ID + number)
    kind = KINDS[number % len(KINDS)]
    if kind == "tensor":
        made = oip.ModelInferRequest(model_name=TENSOR, id=ident)
        made.inputs.add(name="x", datatype="FP32", shape=[2, 4])
        made.raw_input_contents.append(_X)
        return made
    make = texts.GenerateStreamRequest if kind == "stream" else texts.GenerateRequest
    return make(
        model_name=TEXT,
        id=ident,
        prompt=generation_pb2.Prompt(text="hello"),
        sampling=generation_pb2.SamplingSettings(
            max_tokens=tokens_of(number), temperature=0.0, ignore_eos=True
        ),
    )


class Callers:
    """Sends numbers, so many at once."""

    def __init__(self, address: str, token: str, log: str) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        connected = channel.connect(address)
        self._oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(connected)
        self._texts = GenerationServiceStub(connected)

    async def run(self, first: int, at_once: int) -> None:
        """Numbers from this one on, once each, until killed."""
        left = itertools.count(first)

        async def one_after_the_other() -> None:
            for number in left:
                await self._call(number)

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))

    async def _call(self, number: int) -> None:
        request = message(number)
        kind = KINDS[number % len(KINDS)]
        self._note(n=number, kind=kind, size=request.ByteSize(), sent=True)
        try:
            if kind == "tensor":
                await self._oip.ModelInfer(request, metadata=self._metadata, timeout=30)
            elif kind == "text":
                whole = await self._texts.Generate(request, metadata=self._metadata, timeout=30)
                self._note(n=number, got=len(whole.choices[0].token_ids))
            else:
                await self._stream(number, request)
            self._note(n=number, end="OK")
        except grpc.aio.AioRpcError as error:
            self._note(n=number, end=error.code().name)
            await asyncio.sleep(_PAUSE_SECONDS)  # others are dead, too

    async def _stream(self, number: int, request: Any) -> None:
        call = self._texts.GenerateStream(request, metadata=self._metadata, timeout=30)
        async for one in call:
            self._note(n=number, got=sum(len(piece.token_ids) for piece in one.pieces))

    def _note(self, **said: Any) -> None:
        os.write(self._log, json.dumps(said).encode() + b"\n")


def main() -> None:
    """Read the command line and call."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "token", "log"):
        parser.add_argument(name)
    for name in ("first", "at_once"):
        parser.add_argument(name, type=int)
    said = parser.parse_args()

    async def run() -> None:
        callers = Callers(said.address, said.token, said.log)
        await callers.run(said.first, said.at_once)

    asyncio.run(run())


if __name__ == "__main__":
    main()
