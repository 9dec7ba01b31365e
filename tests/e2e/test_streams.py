"""Streams and sequences through the edge, with tritonclient and two workers."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.mesh import ROOT, Mesh, environment, eventually
from tests.models import good

_SETTINGS = """
sequence:
  states:
    - input: state
      output: state_after
"""


def test_tritonclient_streams_and_sequences(
    mesh: Mesh, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Answers in order, errors in their place, sums of each sequence alone: on a stream, by calls, by HTTP."""
    folder = tmp_path_factory.mktemp("sums")
    (folder / "sum.onnx").write_bytes(good.running_sum())
    (folder / "settings.yaml").write_text(_SETTINGS)
    settings = str(folder / "settings.yaml")
    mesh.cli("models", "push", "sum@1", str(folder / "sum.onnx"), "--settings", settings)
    mesh.cli("deploy", "sum@1")
    # A worker that joins takes some sequences over, which then have to begin anew: not what this is about.
    eventually(lambda: mesh.well("models/sum/versions/1") == 2, seconds=150, what="both are well")
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.triton_streams", mesh.address, "sum"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(mesh.state_dir, mesh.address),
        timeout=200,
    )
    assert not done.returncode, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert "sequence" in seen["extensions"]
    assert seen["inputs"] == ["x"]
    sums = [1.0, 3.0, 6.0, 10.0]
    in_order = [[f"{s}.{step}", sums[step], True] for step in range(4) for s in (7, "seven")]
    assert seen["stream"][:8] == in_order
    elsewhere, without, last = seen["stream"][8:]
    assert "'digits' in the body, but the call was routed for 'sum'" in elsewhere[1]
    assert "parameters.sequence_id: missing" in without[1]
    assert last == ["last", 5.0, False]
    assert seen["calls"] == seen["http"] == [[1.0, 3.0, 6.0]] * 8
