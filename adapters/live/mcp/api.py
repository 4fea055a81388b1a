"""`McpApi`: the tools of one MCP server as a `LiveApi`."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import anyio
import anyio.abc
import mcp_types as types
import structlog
from mcp.shared.exceptions import MCPError

from actors.ports.errors import AdapterNotSetUp, LiveApiError, LiveApiMalformed, LiveApiUnavailable, LiveToolUnknown
from adapters.live import CallResult, Operation
from adapters.live.addresses import AddressGuard
from adapters.live.mcp.content import result
from adapters.live.mcp.session import Connection, Session, is_http_error
from adapters.live.mcp.settings import McpSettings
from adapters.live.names import tool_names
from adapters.live.schemas import parameters, without_references

_log = structlog.get_logger(__name__)
_RELIST_SECONDS = 300.0
"""After these its tools are listed again, if it did not say before that they changed."""
_PAGES = 200
"""Pages of one listing; a server whose paging does not end is told by it."""
_TIMEOUTS = 3
"""Calls in a row without an answer, after which the connection is given up."""
_CLOSE_SECONDS = 15.0
_WHY_SECONDS = 1.0
_DESCRIPTION = 8192
"""Characters of a description that are kept."""


class _Listing(NamedTuple):
    operations: tuple[Operation, ...] = ()
    originals: Mapping[str, str] = {}
    """The server's own name by ours."""


class McpApi:
    """One server. An async context manager: connections live in the task that entered it.

    Attributes:
        skipped: tools of the last listing that were left out: repeated names, or more than `max_tools`.
    """

    def __init__(self, name: str, settings: McpSettings, *, guard: AddressGuard | None = None) -> None:
        """
        Args:
            name: for errors and logs.
            guard: decides which addresses a `url` may lead to; None: any, because the operator wrote it down.
        """
        self.name = name
        self._settings = settings
        self._session = Session(name, settings, guard)
        self._listing = _Listing()
        self._listing_lock = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None
        self.skipped = 0

    @property
    def starts(self) -> int:
        """Connections that were tried."""
        return self._session.starts

    def secrets(self) -> frozenset[str]:
        """What the server was last started or called with and nobody else should see."""
        return self._session.secrets

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        self._session.close()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._session.closed()
        tasks.cancel_scope.cancel()
        return await tasks.__aexit__(kind, error, trace)

    async def tools(self) -> Sequence[Operation]:
        """Its operations, in the server's order; asked for again once it says that they changed, or now and then."""
        return (await self._listed(await self._connection())).operations

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        connection = await self._connection()
        listing = await self._listed(connection)
        original = listing.originals.get(tool)
        if original is None:
            raise LiveToolUnknown(f"{self.name}: no tool {tool!r}; it has {len(listing.operations)}")
        try:
            with anyio.fail_after(self._settings.timeout):
                answer = await connection.client.call_tool(original, dict(arguments))
        except Exception as error:  # whatever a foreign program makes the SDK raise
            return await self._not_answered(error, connection, tool)
        connection.timeouts = 0
        return result(answer)

    def read_only(self, tool: str) -> bool:
        return any(one.name == tool and one.claims_read_only for one in self._listing.operations)

    async def aclose(self) -> None:
        """End the connection; the next use of an API that is still entered opens another."""
        self._session.close()
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self._session.closed()

    async def _connection(self) -> Connection:
        if self._tasks is None:
            raise LiveApiUnavailable(f"{self.name}: not open; use it within `async with`")
        return await self._session.connection(self._tasks)

    async def _listed(self, connection: Connection) -> _Listing:
        async with self._listing_lock:
            if anyio.current_time() >= connection.listed:
                # Before it is asked: a change that is told meanwhile makes it old again.
                connection.listed = anyio.current_time() + _RELIST_SECONDS
                try:
                    with anyio.fail_after(self._settings.start_timeout):
                        self._listing = self._made(await self._pages(connection))
                except Exception as error:  # as in `call`
                    connection.listed = 0.0
                    await self._not_answered(error, connection, "", raising=True)
            return self._listing

    async def _pages(self, connection: Connection) -> list[types.Tool]:
        found: list[types.Tool] = []
        cursor: str | None = None
        cursors: set[str] = set()
        for _ in range(_PAGES):
            page = await connection.client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            # More than are taken are counted as left out; a cursor that comes again would bring the same tools again.
            if cursor is None or cursor in cursors or len(found) > self._settings.max_tools:
                return found
            cursors.add(cursor)
        raise LiveApiMalformed(f"{self.name}: tools/list does not end after {_PAGES} pages")

    def _made(self, tools: Sequence[types.Tool]) -> _Listing:
        first = {tool.name: tool for tool in reversed(tools)}
        kept = [tool for tool in tools if first[tool.name] is tool][: self._settings.max_tools]
        names = tool_names(tool.name for tool in kept)
        if (skipped := len(tools) - len(kept)) and skipped != self.skipped:
            _log.warning("mcp.tools_left_out", api=self.name, count=skipped, taken=len(kept))
        self.skipped = skipped
        return _Listing(
            tuple(_operation(tool, names[tool.name]) for tool in kept), {ours: theirs for theirs, ours in names.items()}
        )

    async def _not_answered(
        self, error: Exception, connection: Connection, tool: str, *, raising: bool = False
    ) -> CallResult:
        """What became of a call: an answer if the server says that it failed, else raised."""
        if isinstance(error, LiveApiError | AdapterNotSetUp):
            raise error
        if isinstance(error, TimeoutError):
            connection.timeouts += 1
            why = LiveApiUnavailable(f"{self.name}: {tool or 'tools/list'}: no answer within the deadline")
            if connection.timeouts >= _TIMEOUTS:
                connection.end(why)
            raise why from error
        if isinstance(error, MCPError):
            text = self._session.clean(error.message)
            if error.code == types.PARSE_ERROR or (raising and not _is_gone(error)):
                raise LiveApiMalformed(f"{self.name}: {text}") from error
            if is_http_error(error):
                raise self._session.said(error) from error
            if not _is_gone(error):
                return CallResult(text=text, error=True)
        if isinstance(error, MCPError):
            # What it ended of is known in a moment.
            with anyio.move_on_after(_WHY_SECONDS):
                await connection.ended.wait()
        why = connection.why or self._session.said(error)
        if isinstance(why, LiveApiUnavailable):
            connection.end(why)
        raise why from error


def _is_gone(error: MCPError) -> bool:
    """Whether the connection is of no use any more; that the server forgot us, the transport says in words only."""
    return error.code == types.CONNECTION_CLOSED or (
        error.code == types.INVALID_REQUEST and error.message == "Session terminated"
    )


def _operation(tool: types.Tool, name: str) -> Operation:
    notes = tool.annotations
    return Operation(
        name=name,
        title="" if tool.name == name else tool.name,
        description=(tool.description or tool.title or "")[:_DESCRIPTION],
        parameters=parameters(tool.input_schema),
        returns=without_references(tool.output_schema) if tool.output_schema else None,
        claims_read_only=bool(notes and notes.read_only_hint),
    )
