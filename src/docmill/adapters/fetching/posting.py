"""Posts to an address that somebody else chose, under the same guard as fetching.

Redirects are not followed: a receiver that moved has to be told so by its owner. Of the answer only the status and
`Retry-After` are read. What its body says is nobody's business here, and could come from a place that it must not show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic

import httpx2

from docmill.adapters.fetching.guarded import GuardedFetcher
from docmill.core.errors import Invalid, Unavailable
from docmill.core.webhooks import Answer, retry_after


class GuardedPoster:
    def __init__(self, guard: GuardedFetcher) -> None:
        self._guard = guard

    def check(self, url: str) -> None:
        self._guard.checked(url)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answer:
        began = monotonic()

        def failed(code: str, why: str) -> Answer:
            return Answer(None, code, why, took_ms=_ms_since(began))

        try:
            async with asyncio.timeout(seconds):
                target, addresses = await self._guard.pinned(url)
                asked = self._guard.asked("POST", target, addresses, headers=headers, content=body)
                async with asked as response:
                    return _answer(response, _ms_since(began))
        except Invalid as refused:
            return failed(refused.code, str(refused.facts.get("why", "")))
        except Unavailable as away:
            return failed("webhook_unreachable", str(away.facts.get("why", "")))
        except (TimeoutError, httpx2.TimeoutException):
            return failed("webhook_timeout", f"no answer within {seconds:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # The error's own text may hold addresses of our networks.
            return failed("webhook_unreachable", type(error).__name__)


def _answer(response: httpx2.Response, took_ms: int) -> Answer:
    status = response.status_code
    again = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
    if 200 <= status < 300:
        return Answer(status, took_ms=took_ms)
    code = "webhook_gone" if status == 410 else "webhook_redirected" if 300 <= status < 400 else "webhook_refused"
    return Answer(status, code, f"the receiver answered {status}", again, took_ms)


def _ms_since(began: float) -> int:
    return round((monotonic() - began) * 1000)
