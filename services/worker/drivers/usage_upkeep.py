"""What the files of usage need from time to time: a sign of life, and to be put on the disk."""

import asyncio

import structlog

from services.worker.ports.usage import UsageFiles

_log = structlog.get_logger(__name__)

_SECONDS = 1.0


class UsageUpkeep:
    """Its loop is started by whoever composes it."""

    def __init__(self, files: UsageFiles, *, syncs: bool) -> None:
        """Assign only; `syncs`: whether what was appended is to be on the disk soon."""
        self._files = files
        self._syncs = syncs

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            self._files.see()
            if not self._syncs:
                continue
            try:
                await asyncio.to_thread(self._files.sync)
            except OSError as error:
                _log.error("usage can't be put on the disk", reason=str(error))
