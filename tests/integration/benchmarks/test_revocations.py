"""The benchmark of revocations, run small."""

import pytest

from benchmarks import revocations


@pytest.mark.extended  # starts metering twice, and an edge
async def test_each_stage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A revoked key is refused each time, and every stage, metering's to Envoy's, has its line."""
    await revocations.run(revocations.Plan(revoked=40, limited=20, endpoints=2, times=2))
    lines = capsys.readouterr().out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("2 revocations"))
    told = {line.partition("|")[0].strip() for line in lines[begin + 2 :] if "|" in line}
    assert len(told) == 8
    assert {"all until the first refused call", "CPU: metering", "CPU: Envoy"} <= told
