"""One connection to a server at a time: opened when it is wanted, opened again after it ended, not too often.

    wanted -> [waits out the backoff? then refused] -> start, handshake -> open -> ended (death, cut off, closed)
       ^                                                                                 |
       '---------------------------------------------------------------------------------'

The SDK's client lives and ends in the task that opened it, so each connection has a task of its own, in the nursery of
whoever entered the API.
"""

import os
from collections.abc import Iterator

import anyio
import anyio.abc
import mcp_types as types
import structlog
from mcp.client._transport import Transport
from mcp.client.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from actors.ports.errors import AdapterNotSetUp, LiveApiError, LiveApiMalformed, LiveApiUnavailable
from adapters.live.addresses import AddressGuard
from adapters.live.mcp import http
from adapters.live.mcp.settings import McpSettings
from adapters.live.mcp.stdio import Child, scrubbed
from adapters.live.references import is_reference, resolved, without
from adapters.redaction import RedactionSettings, Redactor

_log = structlog.get_logger(__name__)
_LONGEST_BACKOFF = 300.0
_GOOD_SECONDS = 60.0
"""A connection that lasted so long sets the backoff back."""
_TEXT = 300


class Connection:
    """An open connection.

    Attributes:
        ended: set when it is of no use any more.
        closed: set when nothing of it is left.
        listed: until when the listing that its owner made of it is good, on anyio's clock; 0 once tools have changed.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ended, self.closed = anyio.Event(), anyio.Event()
        self.why: LiveApiError | AdapterNotSetUp | None = None
        self.listed = 0.0
        self.timeouts = 0

    def end(self, why: LiveApiError | AdapterNotSetUp | None = None) -> None:
        """Have it closed."""
        self.why = self.why or why
        self.ended.set()


class Session:
    """The connections of one API, one after another.

    Attributes:
        starts: connections that were tried.
        secrets: values that the last connection was opened with.
        status: HTTP status of the last answer that was an error.
    """

    def __init__(self, name: str, settings: McpSettings, guard: AddressGuard | None) -> None:
        self._name, self._settings, self._guard = name, settings, guard
        self._redactor = Redactor(RedactionSettings())
        self.secrets: frozenset[str] = frozenset()
        self._lock = anyio.Lock()
        self._open: Connection | None = None
        self._not_before, self._failures = 0.0, 0
        self._last: Exception | None = None
        self.starts, self.status = 0, 0

    async def connection(self, tasks: anyio.abc.TaskGroup) -> Connection:
        """The open connection, or a new one as a task of `tasks`.

        Raises:
            LiveApiUnavailable: it cannot be opened, or was tried a moment ago.
            LiveApiRefused: its address is off limits.
            LiveApiMalformed: what answers does not speak the protocol.
            AdapterNotSetUp: a secret that it needs is not there.
        """
        async with self._lock:
            if self._open is not None:
                if not self._open.ended.is_set():
                    return self._open
                await self._open.closed.wait()
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                raise LiveApiUnavailable(
                    f"{self._name}: it ended {self._failures} times in a row ({self._last}); tried again in "
                    f"{wait:.0f} s", retry_after=wait,
                )  # fmt: skip
            self.starts += 1
            # Counted before: whoever waits may give up before it does.
            self._failed(LiveApiUnavailable("it did not start in time"))
            self._open = opened = await tasks.start(self._hold)
            return opened

    def close(self) -> None:
        if self._open is not None:
            self._open.end()

    async def closed(self) -> None:
        """Return once no connection is open."""
        if self._open is not None:
            await self._open.closed.wait()

    def clean(self, text: str) -> str:
        """`text` without secrets, for a log or an error."""
        return self._redactor.text(without(text, self.secrets))[0]

    def _failed(self, why: Exception) -> None:
        wait = min(_LONGEST_BACKOFF, self._settings.backoff * 2.0**self._failures)
        self._failures = min(self._failures + 1, 30)
        self._not_before, self._last = anyio.current_time() + wait, why

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[Connection]) -> None:
        """Open a connection, hand it over, and hold it until it ends."""
        child = Child(self._name, self.clean)
        connection: Connection | None = None
        opened = anyio.current_time()
        scope = anyio.CancelScope(deadline=opened + self._settings.start_timeout)
        try:
            with scope:
                async with self._client(child) as client:
                    scope.deadline = float("inf")
                    connection, opened = Connection(client), anyio.current_time()
                    self._failures -= 1  # it did start
                    self._not_before = 0.0
                    task_status.started(connection)
                    await self._until_ended(connection, child)
        except Exception as error:  # whatever a foreign program makes the SDK raise
            why = self.said(error, child)
            if connection is None:
                self._last = why
                raise why from error
            connection.end(why)
        finally:
            if connection is not None:
                connection.closed.set()
        if connection is None:
            raise self.said(TimeoutError(f"no handshake within {self._settings.start_timeout:g} s"), child)
        connection.end()
        if connection.why is not None:
            if anyio.current_time() - opened > _GOOD_SECONDS:
                self._failures = 0
            self._failed(connection.why)
            _log.info("mcp.ended", api=self._name, reason=str(connection.why))

    async def _until_ended(self, connection: Connection, child: Child) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, connection)
            group.start_soon(self._end_with, connection, child)
            await connection.ended.wait()
            group.cancel_scope.cancel()

    async def _end_with(self, connection: Connection, child: Child) -> None:
        await child.gone.wait()
        connection.end(self._end_of(child))

    def _end_of(self, child: Child) -> LiveApiError:
        if child.too_long:
            return LiveApiMalformed(
                f"{self._name}: sent a message of more than {self._settings.max_message:,} bytes (max_message)"
            )
        words = f"; its last words: {child.last_words}" if child.last_words else ""
        return LiveApiUnavailable(f"{self._name}: the server ended{words}")

    async def _follow(self, connection: Connection) -> None:
        """Hear of changed tools, as the protocol of 2026 tells of them; before, notifications come by themselves."""
        client = connection.client
        changes = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or changes is None or not changes.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    connection.listed = 0.0
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            # A listing every few minutes finds changes too.
            _log.debug("mcp.not_following", api=self._name, reason=self.clean(str(error)))

    def _client(self, child: Child) -> Client:
        async def heard(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification) and self._open is not None:
                self._open.listed = 0.0

        return Client(
            self._transport(child), mode=self._settings.protocol, cache=None, message_handler=heard,
            client_info=types.Implementation(name="evolved", version="0.1.0"),
        )  # fmt: skip

    def _transport(self, child: Child) -> Transport:
        settings = self._settings
        given = settings.environment if settings.command else settings.headers
        named = {name: resolved(value) for name, value in given.items()}
        self.secrets = frozenset(named[name] for name, value in given.items() if is_reference(value))
        if settings.command:
            return child.run(
                settings.command, environment=scrubbed(os.environ, named), directory=settings.directory,
                max_message=settings.max_message, grace=settings.grace,
            )  # fmt: skip
        return http.streams(
            settings.url, headers=named, guard=self._guard, max_message=settings.max_message,
            idle_seconds=settings.timeout + settings.start_timeout, failed=self._note,
        )  # fmt: skip

    def _note(self, status: int) -> None:
        self.status = status

    def said(self, error: BaseException, child: Child | None = None) -> LiveApiError | AdapterNotSetUp:
        """What `error`, or what is inside of it, means for whoever calls."""
        leaves = list(_leaves(error))
        for leaf in leaves:
            if isinstance(leaf, LiveApiError | AdapterNotSetUp):
                return leaf
        first = leaves[0]
        if child is not None and child.gone.is_set():
            return self._end_of(child)
        if isinstance(first, MCPError) and is_http_error(first):
            return LiveApiUnavailable(f"{self._name}: it answers with HTTP {self.status}")
        text = self.clean(str(first)[:_TEXT]).partition("\n")[0] or type(first).__name__
        if isinstance(first, ValidationError | RuntimeError):
            return LiveApiMalformed(f"{self._name}: {text}")
        return LiveApiUnavailable(f"{self._name}: {text}")


def is_http_error(error: MCPError) -> bool:
    """Whether the transport made it of an HTTP status; it says so in words only."""
    return error.code == types.INTERNAL_ERROR and error.message == "Server returned an error response"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
