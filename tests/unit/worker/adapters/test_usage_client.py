"""What the worker tells metering of its rows."""

import grpc
import numpy as np
import pytest

from services.worker.adapters.usage_client import MeteringUsage
from services.worker.domain.usage_row import ROW, UsageRows
from services.worker.ports.usage import UsageRefusedError


async def test_a_damaged_row_is_refused_like_one_that_metering_refuses() -> None:
    """Numbers that fit no message end no worker: who sends can find the row and go on with the others."""
    rows = np.zeros(2, ROW)
    rows["attempt"][1] = 1 << 40
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(UsageRefusedError, match="out of range"):
            await MeteringUsage(channel, "w", "p").record("s", 0, UsageRows(0, rows, {}))
