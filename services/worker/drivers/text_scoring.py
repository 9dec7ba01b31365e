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
        {f"input_{label}": _checked(of_input[label]) for label in scorer.labels}
        | {f"output_{label}": _checked(of_output[label]) for label in scorer.labels}
        for of_input, of_output in zip(scored[: len(texts)], scored[len(texts) :], strict=True)
    ]


def _checked(value: float) -> float:
    if not 0.0 <= value <= 1.0:  # also of what is no number
        raise ValueError(f"{value} is no score; allowed: 0 to 1")
    return float(value)
