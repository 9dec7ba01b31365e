"""Addresses that this process calls."""

import pytest

from services.metering.domain.web_address import is_secure


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        pytest.param("https://example.org/a?b=c", True, id="https"),
        pytest.param("https://example.org:8443/", True, id="https with a port"),
        pytest.param("http://127.0.0.1:9/", True, id="http on this machine"),
        pytest.param("http://[::1]:9/", True, id="http on this machine by IPv6"),
        pytest.param("http://localhost/", True, id="http on this machine by its name"),
        pytest.param("http://example.org/", False, id="http elsewhere"),
        pytest.param("ftp://example.org/", False, id="another scheme"),
        pytest.param("https:///a", False, id="no host"),
        pytest.param("https://example.org:99999/", False, id="no such port"),
        pytest.param("https://[::1/", False, id="half an address"),
        pytest.param("https://exa mple.org/", False, id="a space"),
        pytest.param("https://ex\u00e4mple.org/", False, id="not ASCII"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_where_nobody_between_can_answer(url: str, secure: bool) -> None:
    """Only https, or http on this machine; what is no URL is refused, and no error."""
    assert is_secure(url) is secure
