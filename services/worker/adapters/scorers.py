"""The scorer that a setting names: none, ours, or anybody's."""

from importlib import import_module
from pathlib import Path

from services.worker.adapters import offence_files
from services.worker.adapters.offence_files import ScorerBuildError
from services.worker.adapters.offence_scorer import OffenceScorer
from services.worker.ports.scorer import Scorer

NONE = "none"
OFFENCE = "offence"


class ScorerError(Exception):
    """The setting names nothing that scores; the text says why."""


def scorer_of(setting: str, folder: Path) -> Scorer | None:
    """`none`, `offence`, or `package.module:factory`, called without arguments. Blocks. Raises ScorerError."""
    if setting == NONE:
        return None
    try:
        if setting == OFFENCE:
            return OffenceScorer(offence_files.files(folder))
        return _foreign(setting)
    except (ScorerBuildError, OSError) as error:
        raise ScorerError(f"scorer {setting!r}: {error}") from error


def _foreign(setting: str) -> Scorer:
    module, _, name = setting.partition(":")
    try:
        scorer: Scorer = getattr(import_module(module), name)()
        if not scorer.labels:
            raise ScorerError(f"scorer {setting!r} has no labels; allowed: at least one")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ScorerError(
            f"scorer {setting!r} can't be made ({error}); allowed: {NONE}, {OFFENCE},"
            " or package.module:factory"
        ) from error
    return scorer
