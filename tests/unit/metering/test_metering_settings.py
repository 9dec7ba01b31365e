"""Metering's settings."""

import json

import pytest

from services.metering.settings import MeteringSettings
from services.rpc.settings import SettingsError, load

ISSUER = {"issuer": "https://a.example", "audiences": ["x"]}


def test_issuers_are_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """None unless said; claims have names of their own unless said."""
    monkeypatch.setenv("INFERPLANE_OIDC_ISSUERS", "")
    assert load(MeteringSettings).oidc_issuers == ()
    monkeypatch.setenv("INFERPLANE_OIDC_ISSUERS", json.dumps([{**ISSUER, "role_claim": "r"}]))
    (issuer,) = load(MeteringSettings).oidc_issuers
    trusted = issuer.trusted()
    assert (trusted.audiences, trusted.role_claim, trusted.project_claim) == (
        ("x",),
        "r",
        "project",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("oops", "not JSON", id="no JSON"),
        pytest.param("{}", "valid tuple", id="no list"),
        pytest.param(
            json.dumps([{**ISSUER, "issuer": "http://a.example"}]), "allowed: https://", id="HTTP"
        ),
        pytest.param(json.dumps([{**ISSUER, "audiences": []}]), "AUDIENCES", id="for nobody"),
        pytest.param(json.dumps([{**ISSUER, "audience": "y"}]), "AUDIENCE=", id="a misspelt field"),
        pytest.param(json.dumps([ISSUER, ISSUER]), "distinct issuers", id="twice"),
        pytest.param(
            json.dumps([{**ISSUER, "issuer": f"https://{i}"} for i in range(17)]),
            "at most 16",
            id="too many",
        ),
    ],
)
def test_issuers_that_are_wrong(text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable and what is allowed."""
    monkeypatch.setenv("INFERPLANE_OIDC_ISSUERS", text)
    with pytest.raises(SettingsError, match="INFERPLANE_OIDC_ISSUERS") as caught:
        load(MeteringSettings)
    assert words in str(caught.value)
