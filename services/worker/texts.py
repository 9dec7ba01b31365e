"""What is made of texts, from the settings: part of the worker's composition root."""

from dataclasses import dataclass

import prometheus_client

from services.worker.adapters.capture_files import CaptureFiles
from services.worker.adapters.fingerprint_key import secret_of
from services.worker.adapters.scorers import scorer_of
from services.worker.adapters.text_metrics import TextMetrics
from services.worker.domain.redaction import RULES, own_rules
from services.worker.drivers.text_desk import DeskParts, TextDesk
from services.worker.drivers.text_watch import WatchedTexts, WatchSettings
from services.worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Texts:
    """`watch` for servicers; the desk's loop is to be run."""

    watch: WatchedTexts
    desk: TextDesk
    captures: CaptureFiles


def texts(config: WorkerSettings) -> Texts:
    """Blocks, the first time for seconds if there is a scorer. Raises ScorerError, OSError."""
    scorer = scorer_of(config.safety_scorer, config.state_dir / "cache" / "scorers")
    # Kept also without rules: what was captured before ends when its time is over.
    captures = CaptureFiles(config.state_dir / "capture", config.capture.total_bytes)
    redaction = (*own_rules(config.capture.redact), *RULES)
    desk = TextDesk(DeskParts(scorer=scorer, captures=captures, redaction=redaction))
    TextMetrics(desk, prometheus_client.REGISTRY)
    settings = WatchSettings(
        secret=secret_of(config.fingerprint_key, config.state_dir),
        rules=[rule.rule() for rule in config.capture.rules],
        scored=scorer is not None,
    )
    return Texts(WatchedTexts(settings, desk), desk, captures)
