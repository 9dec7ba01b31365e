"""Settings of metering, from INFERPLANE_* variables."""

import json
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_state_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from services.metering.domain import token
from services.metering.domain.issuer import TrustedIssuer, check_url
from services.metering.domain.usage import Outcome
from services.rpc.errors import InvalidArgumentError
from services.rpc.settings import Settings

_MOST_ISSUERS = 16


def _url(value: str) -> str:
    try:
        return check_url("url", value)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else ()
    except ValueError as error:
        raise ValueError(f"not JSON: {error}; allowed: a list of issuers") from error


class OidcIssuer(BaseModel):
    """Somebody else whose tokens are believed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Annotated[str, AfterValidator(_url)]
    audiences: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    project_claim: str = Field(default="project", min_length=1)
    role_claim: str = Field(default="role", min_length=1)
    endpoints_claim: str = Field(default="endpoints", min_length=1)
    jwks_uri: str = ""  # empty: the discovery document says

    def trusted(self) -> TrustedIssuer:
        """As the domain has it."""
        return TrustedIssuer(**self.model_dump())


def _distinct(issuers: tuple[OidcIssuer, ...]) -> tuple[OidcIssuer, ...]:
    said = [issuer.issuer for issuer in issuers]
    if len(set(said)) < len(said) or token.ISSUER in said:
        raise ValueError("each issuer once, and not our own; allowed: distinct issuers")
    return issuers


def _outcomes(words: object) -> object:
    if not isinstance(words, str):
        return words
    known = {outcome.name.lower(): outcome for outcome in Outcome}
    given = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [word for word in given if word not in known]:
        raise ValueError(f"{', '.join(unknown)}: allowed: some of {', '.join(known)}")
    return tuple(known[word] for word in given)


class MeteringSettings(Settings):
    """Every field is a variable: INFERPLANE_ and the field's name in capitals."""

    metering_address: str = "127.0.0.1:8084"  # host:port or unix:/path
    state_dir: Path = Field(default_factory=lambda: user_state_path("inferplane"))
    # postgresql://user@host:port/database, shared by any number of processes, which share state_dir, too.
    # Empty, or the registry's memory: or sqlite://…: a SQLite file in state_dir, for one process.
    store_url: str = ""
    store_password_file: Path | None = None  # of Postgres; read for each new connection
    max_message_bytes: int = Field(default=64 * 1024 * 1024, gt=0)  # never under 8 MiB here
    metrics_address: str = ""  # host:port; empty: off
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_style: Literal["json", "console"] = "json"
    drain_seconds: float = Field(default=30.0, ge=0)
    budget_lease_seconds: float = Field(default=10.0, ge=1, le=3600)  # without an exchange

    # ledger
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")  # ISO 4217, of all prices and sums
    billing_account: str = Field(default="inferplane", min_length=1, max_length=128)  # in FOCUS
    usage_retention_days: int = Field(default=90, ge=1, le=36500)  # of request rows; sums stay
    charge_outcomes: Annotated[tuple[Outcome, ...], NoDecode, BeforeValidator(_outcomes)] = (
        Outcome.OK,
        Outcome.CANCELLED,
        Outcome.DEADLINE,
    )  # words with commas between; others are counted and cost nothing

    # identity
    oidc_issuers: Annotated[
        tuple[OidcIssuer, ...],
        NoDecode,
        BeforeValidator(_parsed),
        AfterValidator(_distinct),
    ] = Field(default=(), max_length=_MOST_ISSUERS)  # a JSON list
    oidc_ca_file: Path | None = None  # PEM certificates trusted beside the usual ones
