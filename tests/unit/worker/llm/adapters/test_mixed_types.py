"""Files whose tensors have several types, with K types among them, on every target of CPUs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.worker.llm.adapters.model_files import open_weights
from services.worker.llm.domain.engine_settings import Target
from tests.unit.worker.llm.adapters.graph_steps import CPU_TARGETS, request, step, tiny_runner
from tests.unit.worker.llm.reference_forward import reference_logits
from tests.unit.worker.llm.tiny_models import MIXED, Tiny

PROMPT = [int(token) for token in np.arange(3, 40)]
MODELS = {
    "four and six bits": MIXED,
    "five bits": replace(MIXED, precision="Q5_K", fine_precision="Q8_0"),
    "what rows of 96 fall back to": Tiny(precision="Q5_0", fine_precision="Q8_0"),
}


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: target.value)
@pytest.mark.parametrize("tiny", MODELS.values(), ids=MODELS.keys())
def test_mixed_types_are_computed(tmp_path: Path, tiny: Tiny, target: Target) -> None:
    """Query, key and value share a matrix also if they were stored differently; logits are near the exact ones."""
    runner = tiny_runner(tmp_path, tiny, target)
    asked = request(runner, PROMPT)
    step(runner, [(asked, len(PROMPT))], all_rows=True)
    expected = reference_logits(open_weights(tmp_path / "model.gguf", exact=True), PROMPT)
    off = np.array(asked.logits) - expected
    # The portable target rounds where zero lies; it is in the worst place in these blocks, always.
    assert np.sqrt((off**2).mean()) < 0.04 * expected.std()
