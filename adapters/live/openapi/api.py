"""`OpenApiApi`: the operations of one OpenAPI 3.0 or 3.1 document, called over HTTP.

    arguments -> checked against the schema -> request -> server -> answer checked -> CallResult

An agent's mistake is answered and never sent; a server's own error is an answer as well. What can be called at all, and
what is shown of an answer, is for the guard around it to decide (`adapters.live.guarded`).
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import structlog

from actors.ports.errors import AdapterNotSetUp, LiveApiError, LiveApiMalformed, LiveApiUnavailable, LiveToolUnknown
from adapters.chat.keys import checked_url
from adapters.live import CallResult, Operation
from adapters.live.openapi.answers import told
from adapters.live.openapi.auth import Credentials, Proof, origin
from adapters.live.openapi.document import Document, parse
from adapters.live.openapi.operations import read
from adapters.live.openapi.plans import Plan, Skipped
from adapters.live.openapi.requests import Mistake, Prepared, prepare
from adapters.live.openapi.settings import OpenApiSettings
from adapters.live.openapi.styles import encoded
from adapters.live.openapi.transport import Answer, Transport
from adapters.live.validation import Checker

_log = structlog.get_logger(__name__)
_SHOWN_SKIPS = 5
_DOCUMENT_BYTES = 16 << 20
"""GitHub's, one of the largest, has 12 MB."""
_RESPONSE_BYTES = 1 << 20
"""What is read of an answer: fifty times what an agent is shown of it."""


class _Loaded:
    """A document, read."""

    def __init__(self, server: httpx.URL, plans: Sequence[Plan], skipped: Sequence[Skipped], at: float) -> None:
        self.server, self.skipped, self.at = server, tuple(skipped), at
        self.plans = {plan.operation.name: plan for plan in plans}
        self.operations = tuple(plan.operation for plan in plans)
        self.arguments: dict[str, Checker] = {}
        self.answers: dict[str, dict[str, Checker]] = {}


class OpenApiApi:
    """A `LiveApi`.

    Args:
        name: what the operator calls it.
        settings: where it is and how it is called.
        environment: where `key_env` is looked up.
        transport: of httpx, for the document, tokens and calls alike; None: the network.

    Raises:
        AdapterNotSetUp: a setting cannot be used, or a key is not there.
    """

    def __init__(
        self,
        name: str,
        settings: OpenApiSettings,
        *,
        environment: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for setting, value in (("server", settings.server), ("document", settings.document)):
            if "://" in value:
                _require_url(setting, value)
        if not settings.document:
            raise AdapterNotSetUp("document: name a file or an http(s) URL")
        if settings.server and "://" not in settings.server:
            raise AdapterNotSetUp("server: an http(s) URL is wanted")
        self.name = name
        self._settings, self._clock = settings, clock
        self._transport = Transport(transport)
        self._credentials = Credentials(settings.auth, environment=environment, post=self._post, clock=clock)
        self._loading = anyio.Lock()
        self._loaded: _Loaded | None = None
        self.counts: Counter[str] = Counter()
        """What happened: calls, mistakes, errors, mismatches, truncated, timeouts, renewed, skipped_..., and so on."""

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Operations of the document that are not offered; empty before it is read."""
        return self._loaded.skipped if self._loaded else ()

    def secrets(self) -> frozenset[str]:
        return self._credentials.secrets()

    async def tools(self) -> Sequence[Operation]:
        """The document's operations, in its order; read again when they are older than `refresh`."""
        loaded = self._loaded
        if loaded is None or self._clock() - loaded.at >= self._settings.refresh:
            loaded = await self._load(loaded)
        return loaded.operations

    def read_only(self, tool: str) -> bool:
        plan = self._loaded.plans.get(tool) if self._loaded else None
        return plan is not None and plan.operation.claims_read_only

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Send one request, or a second with a new token if the first one's is refused."""
        loaded = self._loaded or await self._load(None)
        plan = loaded.plans.get(tool)
        if plan is None:
            raise LiveToolUnknown(f"{self.name} has no operation {tool[:100]!r}")
        checker = loaded.arguments.get(tool)
        if checker is None:
            checker = loaded.arguments[tool] = Checker(plan.operation.parameters)
        given, complaints = checker.arguments(arguments)
        if complaints:
            return self._mistaken(complaints)
        try:
            prepared = prepare(plan, given)
        except Mistake as mistake:
            return self._mistaken([str(mistake)])
        self.counts["calls"] += 1
        try:
            with anyio.fail_after(self._settings.timeout):
                answer = await self._send(loaded, plan, prepared)
        except TimeoutError:
            self.counts["timeouts"] += 1
            raise LiveApiUnavailable(f"{tool}: no answer within {self._settings.timeout:g} s") from None
        result = told(plan, answer, loaded.answers.setdefault(tool, {}), self._clock())
        self.counts["errors"] += result.error
        self.counts["mismatches"] += bool(result.mismatch)
        self.counts["truncated"] += result.truncated
        return result

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _mistaken(self, complaints: Sequence[str]) -> CallResult:
        self.counts["mistakes"] += 1
        return CallResult(text="Not called: " + "; ".join(complaints), error=True)

    async def _send(self, loaded: _Loaded, plan: Plan, prepared: Prepared) -> Answer:
        if not self._credentials.known(plan.security):
            self.counts["unauthenticated"] += 1
        proof = await self._credentials.prove(plan.security)
        answer = await self._request(loaded.server, prepared, proof)
        if answer.status == 401 and proof.renewable:
            # It was refused before anything was done, so a write may be sent again.
            self.counts["renewed"] += 1
            proof = await self._credentials.prove(plan.security, anew=True)
            answer = await self._request(loaded.server, prepared, proof)
        return answer

    async def _request(self, server: httpx.URL, prepared: Prepared, proof: Proof) -> Answer:
        proven = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in proof.query)
        query = "&".join(part for part in (prepared.query, proven) if part)
        path = str(server.raw_path, "ascii").partition("?")[0].rstrip("/") + prepared.path
        # Spaces and the like may stand in the document's own path.
        raw = "".join(c if c.isascii() and c.isprintable() and c != " " else encoded(c) for c in path)
        url = server.copy_with(raw_path=(raw + (f"?{query}" if query else "")).encode("ascii"))
        return await self._transport.send(
            prepared.method,
            url,
            limit=_RESPONSE_BYTES,
            headers={**prepared.headers, **proof.headers},
            cookies={**prepared.cookies, **proof.cookies},
            content=prepared.content,
        )

    async def _post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str], limit: int
    ) -> tuple[int, bytes]:
        """For tokens."""
        kind = {"content-type": "application/x-www-form-urlencoded", **headers}
        answer = await self._transport.send(
            "POST", httpx.URL(url), limit=limit, headers=kind, content=urlencode(form).encode()
        )
        return answer.status, answer.data

    async def _load(self, before: _Loaded | None) -> _Loaded:
        async with self._loading:
            if self._loaded is not None and self._loaded is not before:
                return self._loaded  # while this one waited
            try:
                loaded = await self._read()
            except (LiveApiError, AdapterNotSetUp) as error:
                if before is None:
                    raise
                # What was read before is better than nothing; it is asked for again after `refresh`.
                self.counts["reload_failed"] += 1
                _log.warning("openapi_reload_failed", api=self.name, error=str(error))
                before.at = self._clock()
                return before
            self._loaded = loaded
            return loaded

    async def _read(self) -> _Loaded:
        data, url = await self._document()
        document = await anyio.to_thread.run_sync(parse, data, url)
        server = _server(document, self._settings)
        if self._settings.auth and not self._settings.server and url and origin(server) != origin(httpx.URL(url)):
            raise AdapterNotSetUp(
                f"server: the document's server is another host than its own, {server.host}; name it in `server` if it"
                " is to be sent keys"
            )
        self._credentials.bind(document, str(server))
        plans, skipped = await anyio.to_thread.run_sync(read, document, self._settings, self._credentials.provided())
        for reason, count in Counter(one.reason for one in skipped).items():
            self.counts[f"skipped_{reason}"] = count
        if skipped:
            told = [f"{one.where}: {one.reason} {one.detail}".strip() for one in skipped[:_SHOWN_SKIPS]]
            _log.warning("openapi_operations_skipped", api=self.name, count=len(skipped), first=told)
        return _Loaded(server, plans, skipped, self._clock())

    async def _document(self) -> tuple[bytes, str]:
        where, limit = self._settings.document, _DOCUMENT_BYTES
        if "://" not in where:
            try:
                data = await anyio.to_thread.run_sync(_read_file, where, limit + 1)
            except OSError as error:
                raise AdapterNotSetUp(f"document = {where!r} cannot be read: {error.strerror}; name a file") from None
            url = ""
        else:
            url = where
            try:
                with anyio.fail_after(self._settings.timeout):
                    answer = await self._transport.send("GET", httpx.URL(where), limit=limit + 1)
            except TimeoutError:
                raise LiveApiUnavailable(f"{self.name}: no document within {self._settings.timeout:g} s") from None
            if not 200 <= answer.status < 300:
                raise LiveApiUnavailable(f"{self.name}: the document's URL answers with status {answer.status}")
            data = answer.data
        if len(data) > limit:
            raise LiveApiMalformed(f"{self.name}: the document has more than {limit:,} bytes")
        return data, url


def _read_file(path: str, limit: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(limit)


def _require_url(setting: str, value: str) -> None:
    try:
        checked_url(value)
    except ValueError as error:
        raise AdapterNotSetUp(f"{setting}: {error}") from None


def _server(document: Document, settings: OpenApiSettings) -> httpx.URL:
    if settings.server:
        return httpx.URL(settings.server)
    servers: Any = document.root.get("servers") or [{"url": "/"}]
    first = servers[0] if isinstance(servers, list) else None
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str):
        raise LiveApiMalformed("servers of the document holds no url; name one in `server`")
    variables = first.get("variables") if isinstance(first, dict) else None
    for name, variable in (variables if isinstance(variables, dict) else {}).items():
        if isinstance(variable, dict):
            url = url.replace("{" + str(name) + "}", str(variable.get("default", "")))
    try:
        found = httpx.URL(document.url).join(url) if document.url else httpx.URL(url)
        _require_url("servers", str(found))
    except (httpx.InvalidURL, AdapterNotSetUp):
        raise LiveApiMalformed("the document names no http(s) server of its own; name one in `server`") from None
    return found
