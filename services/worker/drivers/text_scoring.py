"""Scores of texts that have ended: of their prompts and of their answers, under labels of their own."""

from collections.abc import Mapping, Sequence

from services.worker.drivers.ended_text import EndedText
from services.worker.ports.scorer import Scorer

LONGEST_SCORED = 32 * 1024  # characters; of longer texts, their beginning


def score(scorer: Scorer, texts: Sequence[EndedText]) -> list[Mapping[str, float]]:
    """One for each; blocks. Raises what the scorer raises."""
    inputs = ["\n".join(text.prompts_said(LONGEST_SCORED))[:LONGEST_SCORED] for text in texts]
    outputs = ["\n".join(text.answers)[:LONGEST_SCORED] for text in texts]
    scored = scorer.score([*inputs, *outputs])
    if len(scored) != 2 * len(texts):
        raise ValueError(f"{len(scored)} scores of {2 * len(texts)} texts")
    return [
        {f"input_{label}": float(of_input[label]) for label in scorer.labels}
        | {f"output_{label}": float(of_output[label]) for label in scorer.labels}
        for of_input, of_output in zip(scored[: len(texts)], scored[len(texts) :], strict=True)
    ]
