"""What a model's precision costs: how its next tokens differ from those that 32-bit floats give."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Means over all places of a text."""

    kl: float  # Kullback-Leibler divergence from the floats' distribution, in nats
    argmax_agreement: float  # share of places where the same token is the likeliest
    tokens: int


class Comparison:
    """Collects places."""

    def __init__(self) -> None:
        self._divergences: list[Array] = []
        self._agreements: list[Array] = []

    def add(self, exact: Array, measured: Array) -> None:
        """Logits [places, vocabulary] of the floats, and of what is compared with them."""
        for one, other in zip(exact, measured, strict=True):
            expected, got = _log_shares(one), _log_shares(other)
            self._divergences.append(np.sum(np.exp(expected) * (expected - got)))
            self._agreements.append(one.argmax() == other.argmax())

    def result(self) -> Accuracy:
        """Over what was added, which must be something."""
        return Accuracy(
            kl=float(np.mean(self._divergences)),
            argmax_agreement=float(np.mean(self._agreements)),
            tokens=len(self._divergences),
        )


def _log_shares(logits: Array) -> Array:
    shifted: Array = logits.astype(np.float64) - logits.max()
    shares: Array = shifted - np.log(np.sum(np.exp(shifted)))
    return shares
