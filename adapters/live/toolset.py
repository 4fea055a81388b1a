"""`LiveTools`: the tools of several live APIs as one `LiveApi`, each tool named API__TOOL.

An API that does not answer is left out and told by `missing`; the others' tools are there all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from actors.ports.errors import AdapterError, LiveToolUnknown
from adapters.live import CallResult, LiveApi, Operation
from adapters.live.names import tool_names

SEPARATOR = "__"


class LiveTools:
    """A `LiveApi` over whatever `apis` gives at the moment.

    Attributes:
        missing: what is wrong with those APIs whose tools the last listing lacks, by name.
    """

    name = "live"

    def __init__(self, apis: Callable[[], Mapping[str, LiveApi]]) -> None:
        """
        Args:
            apis: by the name that goes before their tools'; they stay their owner's to close.
        """
        self._apis = apis
        self._routes: dict[str, tuple[str, str]] = {}
        self.missing: dict[str, str] = {}

    async def tools(self) -> Sequence[Operation]:
        """All tools, API by API; asks all APIs at once. Raises nothing of theirs."""
        apis = dict(self._apis())
        listed: dict[str, Sequence[Operation]] = {}
        missing: dict[str, str] = {}

        async def ask(name: str, api: LiveApi) -> None:
            try:
                listed[name] = await api.tools()
            except AdapterError as error:
                missing[name] = str(error)

        async with anyio.create_task_group() as group:
            for name, api in apis.items():
                group.start_soon(ask, name, api)
        found = [(name, operation) for name in apis for operation in listed.get(name, ())]
        names = tool_names(f"{name}{SEPARATOR}{operation.name}" for name, operation in found)
        routes: dict[str, tuple[str, str]] = {}
        tools: list[Operation] = []
        for name, operation in found:
            full = names[f"{name}{SEPARATOR}{operation.name}"]
            routes[full] = (name, operation.name)
            tags = (name, *operation.tags)
            tools.append(
                msgspec.structs.replace(operation, name=full, title=operation.title or operation.name, tags=tags)
            )
        self._routes, self.missing = routes, missing
        return tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        if tool not in self._routes:
            await self.tools()
        name, own = self._routes.get(tool, ("", ""))
        api = self._apis().get(name)
        if api is None:
            raise LiveToolUnknown(
                f"no tool {tool!r}" + "".join(f"; {n} is missing: {w}" for n, w in self.missing.items())
            )
        return await api.call(own, arguments)

    def read_only(self, tool: str) -> bool:
        name, own = self._routes.get(tool, ("", ""))
        api = self._apis().get(name)
        return api is not None and api.read_only(own)

    async def aclose(self) -> None:
        """Nothing: the APIs are their owner's."""
