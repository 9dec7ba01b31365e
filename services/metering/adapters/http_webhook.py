"""Webhooks over HTTP: a JSON POST, tried a few times."""

import httpx
import structlog
from tenacity import (
    AsyncRetrying,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
)

from services.metering.domain.money import format_amount
from services.metering.domain.period import Grain, period_of
from services.metering.domain.spending import Notice

_log = structlog.get_logger(__name__)

_SECONDS = 10.0  # for one try
_TRIES = 3


class HttpWebhook:
    """A Webhook. Certificates are verified; redirects are not followed."""

    def __init__(self, client: httpx.AsyncClient, currency: str) -> None:
        self._client = client
        self._currency = currency

    async def post(self, notice: Notice) -> bool:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(_TRIES),
            wait=wait_exponential_jitter(multiplier=0.2, max=2.0),
            retry=retry_if_exception_type(httpx.HTTPError),
        )
        try:
            await retrying(self._post_once, notice)
        except RetryError as error:
            _log.warning(
                "webhook did not take a notice",
                notice=notice.name,
                reason=str(error.last_attempt.exception()),
            )
            return False
        except httpx.InvalidURL as error:
            _log.warning("webhook has no address", notice=notice.name, reason=str(error))
            return False
        return True

    async def _post_once(self, notice: Notice) -> None:
        answer = await self._client.post(
            notice.webhook,
            headers={"idempotency-key": notice.name},
            json={
                "name": notice.name,
                "project": notice.project,
                "alert": notice.alert,
                "month": period_of(Grain.MONTH, notice.month),
                "percent": notice.percent,
                "spent": format_amount(notice.spent),
                "monthly_amount": format_amount(notice.monthly_amount),
                "currency": self._currency,
            },
            timeout=_SECONDS,
        )
        answer.raise_for_status()
