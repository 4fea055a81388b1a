"""Kinds of live APIs: what settings each has, and how one is made of them.

    kind -> settings type -> settings (whoever registers converts and checks) -> `make` -> LiveApi

A kind's packages are imported when one is made: the extra `mcp` is wanted by those alone who use it.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from actors.ports.errors import AdapterNotSetUp
from adapters.live import LiveApi
from adapters.live.addresses import AddressGuard

LiveKind = Literal["openapi", "mcp", "callables"]
KINDS: tuple[LiveKind, ...] = get_args(LiveKind)


class Kind(NamedTuple):
    """One kind."""

    settings: type[msgspec.Struct]
    make: Callable[[str, Any, AddressGuard | None], LiveApi]
    """Of name, settings, and what guards its addresses (None: the operator wrote them down)."""


def kind(name: str) -> Kind:
    """
    Raises:
        AdapterNotSetUp: its package is not installed.
    """
    return {"openapi": _openapi, "mcp": _mcp, "callables": _callables}[name]()


def _openapi() -> Kind:
    from adapters.live.openapi import OpenApiApi, OpenApiSettings
    from adapters.live.pinned import PinnedTransport

    def make(name: str, settings: Any, guard: AddressGuard | None) -> LiveApi:
        return OpenApiApi(name, settings, transport=None if guard is None else PinnedTransport(guard))

    return Kind(OpenApiSettings, make)


def _mcp() -> Kind:
    try:
        from adapters.live.mcp import McpApi, McpSettings
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] not in ("mcp", "mcp_types", "httpx2", "pydantic"):
            raise
        raise AdapterNotSetUp(
            "MCP servers need the package mcp; install the extra: pip install 'evolved[mcp]'"
        ) from error

    return Kind(McpSettings, lambda name, settings, guard: McpApi(name, settings, guard=guard))


def _callables() -> Kind:
    from adapters.live.callables import CallablesApi, CallablesSettings

    return Kind(CallablesSettings, lambda name, settings, guard: CallablesApi.from_settings(name, settings))
