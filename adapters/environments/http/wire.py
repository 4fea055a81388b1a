"""`Wire`: requests to an environment service, bounded in time, tries and bytes."""

import random
import ssl
from typing import Any, TypeVar

import anyio
import httpx
import msgspec

from actors.ports.errors import EnvironmentFailed
from adapters.environments.http.shapes import MAX_BYTES, ServiceRequest

T = TypeVar("T")
_PASSING = frozenset({429, 502, 503, 504})
"""Statuses after which asking again may help."""
_ASKED_AGAIN = 2
"""Times that a question is put which is answered while the caller's thread waits."""
_WORDS = 500


class Unanswered(EnvironmentFailed):
    """No answer to be had.

    Attributes:
        passing: asking again may help.
    """

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Answer(msgspec.Struct):
    """The body of an answer."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    success: bool = True
    profile: msgspec.Raw = msgspec.Raw(b"null")


class _Complaint(msgspec.Struct):
    kind: str = ""
    message: str = ""


class _Error(msgspec.Struct):
    error: _Complaint | None = None


class Wire:
    """The way to one service.

    Args:
        url: base address.
        key: sent as a bearer's token; empty: none. It is in no message and no log.
        timeout: seconds for each request as a whole; of one that the caller's thread waits for, for each of its phases.
        attempts: times that a request is made that may be made twice.
    """

    def __init__(self, url: str, *, key: str, timeout: float, attempts: int) -> None:
        self.url, self._timeout, self._attempts = url.rstrip("/"), timeout, attempts
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # One context of certificates for both clients: loading them takes as long as all the rest.
        common: dict[str, Any] = {
            "headers": headers, "timeout": timeout, "trust_env": False, "verify": ssl.create_default_context(),
        }  # fmt: skip
        self._waiting = httpx.Client(**common)
        self._async = httpx.AsyncClient(**common)

    def ask(self, route: str, request: ServiceRequest) -> Answer:
        """The answer, waited for in this thread; asked twice if the connection fails."""
        for attempt in range(1, _ASKED_AGAIN + 1):
            try:
                with self._waiting.stream("POST", f"{self.url}/{route}", **_sent(request)) as response:
                    return _read(response, _bounded(response))
            except httpx.HTTPError as error:
                if attempt == _ASKED_AGAIN:
                    raise _away(self.url, route, error) from None
        raise AssertionError("unreachable")

    async def call(self, route: str, request: ServiceRequest, *, again: bool = False) -> Answer:
        """The answer.

        Args:
            again: asking twice does no harm.
        """
        problem = Unanswered(f"{self.url}/{route} was not asked")
        for attempt in range(1, (self._attempts if again else 1) + 1):
            try:
                with anyio.fail_after(self._timeout):
                    return await self._once(route, request)
            except (httpx.HTTPError, TimeoutError) as error:
                problem = _away(self.url, route, error)
            except Unanswered as error:
                problem = error
                if not error.passing:
                    break
            if again and attempt < self._attempts:
                await anyio.sleep(0.2 * 2.0**attempt * (0.5 + random.random()))
        raise problem

    async def _once(self, route: str, request: ServiceRequest) -> Answer:
        async with self._async.stream("POST", f"{self.url}/{route}", **_sent(request)) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                _check(len(body))
            return _read(response, bytes(body))

    async def aclose(self) -> None:
        self._waiting.close()
        with anyio.CancelScope(shield=True):
            await self._async.aclose()


def decoded(raw: msgspec.Raw, type_: type[T]) -> T:
    """A part of an answer.

    Raises:
        Unanswered: it is not what it should be.
    """
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unanswered(f"the environment service's answer is not in its shape: {error}") from error


def _sent(request: ServiceRequest) -> dict[str, Any]:
    return {"content": msgspec.json.encode(request), "headers": {"content-type": "application/json"}}


def _bounded(response: httpx.Response) -> bytes:
    parts, size = list[bytes](), 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        _check(size)
        parts.append(chunk)
    return b"".join(parts)


def _check(size: int) -> None:
    if size > MAX_BYTES:
        raise Unanswered(f"the environment service's answer is over {MAX_BYTES} bytes")


def _read(response: httpx.Response, body: bytes) -> Answer:
    if response.status_code == 200:
        return decoded(msgspec.Raw(body), Answer)
    try:
        told = msgspec.json.decode(body, type=_Error).error or _Complaint()
    except (msgspec.DecodeError, RecursionError):
        told = _Complaint()
    words = told.message[:_WORDS] or f"HTTP {response.status_code}"
    if response.status_code == 422 and told.kind == "refused":
        raise ValueError(words)
    if response.status_code in (401, 403):
        words = f"{words}; name the service's key in key_file or key_env"
    # Where the environment itself broke down, whoever plays decides what to do about it.
    passing = response.status_code in _PASSING and told.kind != "environment_failed"
    raise Unanswered(f"environment service: {words}", passing)


def _away(url: str, route: str, error: Exception) -> Unanswered:
    return Unanswered(f"{url}/{route} does not answer: {type(error).__name__}")
