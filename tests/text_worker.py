"""A worker in this process that writes text: its real front and engine, with a scripted runner behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from prometheus_client import CollectorRegistry

from services.rpc.errors import NotFoundError
from services.rpc.names import VersionName
from services.rpc.tls import PLAIN, Security
from services.worker.adapters.engine_metrics import MeteredEngines
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.routing import Asked, check_routed, is_language_model
from services.worker.domain.signature import Signature
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.open_streams import OpenStreams
from services.worker.drivers.roster import Roster
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.traffic import Traffic
from services.worker.listening import Listening, listening
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.drivers.engine import Engine
from services.worker.ports.text_watch import NoTextWatch, TextWatch
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.text_answer import ReaderBounds
from services.worker.settings import WorkerSettings
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, scripted_model

VERSION = VersionName("smol", "1")
CONTEXT = 512


class PlainTemplate:
    """A `ChatTemplate` that anyone can read."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
    ) -> str:
        said = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
        return f"{said}<assistant>"


@dataclass(slots=True)
class OneText:
    """Of `Roster` what servicers use: one language model."""

    served: ServedText
    epoch: int = 0
    streams: OpenStreams = field(default_factory=OpenStreams)

    def watch(self, told: object) -> None:
        """Nothing changes."""

    def find(self, asked: Asked) -> Any:
        self.find_text(asked)
        raise is_language_model(asked)

    def find_text(self, asked: Asked) -> ServedText:
        name = self.served.spec.name
        if asked.routed_version is not None:
            check_routed(asked, name.version)
        elif asked.model_name != name.model:
            raise NotFoundError(f"model {asked.model_name!r} does not exist here")
        return self.served

    def find_all(self, asked: Asked) -> list[ServedText]:
        return [self.find_text(asked)]


@dataclass(slots=True)
class TextWorker:
    """`start` makes it listen."""

    runner: ScriptedRunner
    metrics: CollectorRegistry
    engine: Engine
    served: ServedText
    server: Listening
    address: str
    _running: asyncio.Task[None]

    @classmethod
    async def start(
        cls,
        address: str,
        *,
        runner: ScriptedRunner | None = None,
        front: str = "auto",
        reader: ReaderBounds | None = None,
        watch: TextWatch | None = None,
        security: Security = PLAIN,
        **settings: Any,
    ) -> TextWorker:
        """`settings` are the engine's."""
        runner = runner or ScriptedRunner(capacity(blocks=1024, max_blocks=128))
        metrics = CollectorRegistry()
        model = scripted_model(runner, CONTEXT)
        engine = MeteredEngines(metrics).engine(VERSION, model, EngineSettings(**settings))
        served = ServedText(
            spec=VersionSpec(
                name=VERSION,
                digest="5eed" * 16,
                files=(),
                signature=Signature((), ()),
                is_language=True,
            ),
            engine=engine,
            tokenizer=model.tokenizer,
            template=PlainTemplate(),
            shape=model.shape,
            context_length=CONTEXT,
            max_output_tokens=4096,
            statistics=VersionStatistics(),
            traffic=Traffic(),
        )
        config = WorkerSettings(worker_address=address, front=front)  # type: ignore[arg-type]
        server = listening(config, security)
        source = AnswerSource(
            cast(Roster, OneText(served)),
            lambda: True,
            "0",
            1 << 26,
            reader=reader or ReaderBounds(),
            watch=watch or NoTextWatch(),
        )
        server.serve(source)
        bound = await server.start()
        for name in ("", str(VERSION)):
            await server.set_health(name, serving=True)
        running = asyncio.create_task(engine.run())
        return cls(runner, metrics, engine, served, server, bound, running)

    async def stop(self) -> None:
        await self.server.stop(0)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
