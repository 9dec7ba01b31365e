"""The setting of what is captured of texts; empty: nothing."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.worker.domain.capture_rule import CaptureRule
from services.worker.domain.redaction import own_rules

_Fraction = Annotated[float, Field(gt=0, le=1)]


class _Strict(BaseModel):
    """Unknown names are refused: a word that is misspelt would capture more than was meant."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CaptureRuleSetting(_Strict):
    """See `CaptureRule`. Endpoints have no default, so that nobody's texts are kept by accident."""

    endpoints: list[str] = Field(min_length=1)  # ids, or `*`
    projects: list[str] = Field(default=["*"], min_length=1)
    fraction: _Fraction = 1.0
    max_bytes: int = Field(default=64 * 1024, gt=0, le=1024**2)
    retention_days: int = Field(default=7, ge=0, le=3650)

    def rule(self) -> CaptureRule:
        """As a value of the domain."""
        return CaptureRule(
            endpoints=frozenset(self.endpoints),
            projects=frozenset(self.projects),
            fraction=self.fraction,
            max_bytes=self.max_bytes,
            retention_days=self.retention_days,
        )


class CaptureSetting(_Strict):
    """As JSON in one variable."""

    rules: list[CaptureRuleSetting] = []  # the first that fits counts
    redact: list[str] = []  # regular expressions, beside the rules that are always there
    total_bytes: int = Field(default=1024**3, gt=0)  # of all files on this machine

    @field_validator("redact")
    @classmethod
    def _are_expressions(cls, value: list[str]) -> list[str]:
        own_rules(value)
        return value
