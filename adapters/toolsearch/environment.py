"""`SearchingEnvironment`: an environment of which each episode shows only the tools that its goal seems to need.

    reset -> the k tools found for the goal, and `search_tools`
    search_tools(query) -> k more of them from the next turn on
    a tool that is not shown -> a mistake, answered with a word on search_tools

Everything else is the environment's own: its tasks, its verdicts, its answers. `Episode.tools` is read again before
every turn, and each new tool changes the prompt's beginning: the trajectory has one more token row from there on.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import anyio
import msgspec

from actors.messages import Task, ToolCall
from actors.ports.environments import Environment, Episode, Graded, Observation, Profile, Split, Stateful
from actors.ports.errors import EnvironmentFailed
from adapters.toolsearch.index import ToolIndex

SEARCH_TOOL = "search_tools"
_KEPT_INDEXES = 8
"""Tool lists that are kept indexed: attempts of one environment nearly always have the same."""
_SHOWN_ROUNDS = 8
"""An episode shows at most so many times k tools; those that nobody called go first."""
_FINISHED = msgspec.json.encode({"error": "over"}).decode()


class SearchingEnvironment:
    """`environment` with tool search in front of it.

    Args:
        k: tools shown at the start, beside those that the environment's profile names, and brought by each search.
    """

    def __init__(self, environment: Environment, index_factory: Callable[[], ToolIndex], k: int) -> None:
        if k < 1:
            raise ValueError("sandbox.tools_shown: 1 or more tools, or 0 for no search")
        self.name = environment.name
        self._environment, self._make, self._k = environment, index_factory, k
        self._indexes: OrderedDict[bytes, ToolIndex] = OrderedDict()
        self._lock = anyio.Lock()

    def profile(self) -> Profile:
        """Of the environment underneath."""
        return self._environment.profile()

    def tools(self) -> list[dict[str, Any]]:
        """All of them: an episode shows a part."""
        return self._environment.tools()

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """Of the environment underneath."""
        return self._environment.sample(seed, split, families)

    async def reset(self, task: Task) -> Episode:
        """Begin an attempt, with what is found for `task.goal`."""
        inner = await self._environment.reset(task)
        try:
            return await self._opened(inner, task.goal)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await inner.aclose()
            raise

    async def _opened(self, inner: Episode, goal: str) -> Episode:
        if any(tool_name(tool) == SEARCH_TOOL for tool in inner.tools):
            raise EnvironmentFailed(
                f"{self.name} has a tool of its own named {SEARCH_TOOL}; set sandbox.tools_shown = 0"
            )
        kind = _StatefulEpisode if isinstance(inner, Stateful) else SearchingEpisode
        episode = kind(inner, goal, self._k, self.profile().always, self._index)
        await episode.open()
        return cast(Episode, episode)

    async def _index(self, tools: Sequence[dict[str, Any]]) -> ToolIndex:
        key = msgspec.json.encode(tools)
        # One at a time: a group of attempts begins at once, and one of them is to fill the index.
        async with self._lock:
            index = self._indexes.get(key)
            if index is None:
                index = self._make()
                await index.add(tools)
                self._indexes[key] = index
                while len(self._indexes) > _KEPT_INDEXES:
                    self._indexes.popitem(last=False)
            self._indexes.move_to_end(key)
        return index


class SearchingEpisode:
    """An attempt that shows a part of its tools."""

    def __init__(self, inner: Episode, goal: str, k: int, always: Sequence[str], index: Callable[..., Any]) -> None:
        self._inner, self._goal, self._k, self._always, self._index = inner, goal, k, tuple(always), index
        self.messages: list[dict[str, Any]] = inner.messages
        self._shown: OrderedDict[str, None] = OrderedDict()
        """By when they were found or called last."""
        self._before: set[str] = set()
        self._over = False

    async def open(self) -> None:
        """Look for the goal's tools."""
        self._before = {tool_name(tool) for tool in self._inner.tools}
        await self._bring(self._goal, "")

    @property
    def tools(self) -> list[dict[str, Any]]:
        """What is shown now: those always shown, those found and still there, and the search itself last."""
        own = [tool for tool in self._inner.tools if tool_name(tool) in {*self._shown, *self._always}]
        return [*own, search_tool(self._k)]

    @property
    def graded(self) -> bool:
        """As the environment's episode."""
        return isinstance(self._inner, Graded) and self._inner.graded

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """Calls of the search and of tools that are not shown are answered here, the others by the environment."""
        visible = {tool_name(tool) for tool in self.tools} - {SEARCH_TOOL}
        theirs = [call for call in calls if call.name in visible]
        if len(theirs) == len(calls):
            return await self._pass(theirs, text)
        if self._over:
            return Observation(_FINISHED, True)
        own = [_message(call, await self._answer(call)) for call in calls if call.name not in visible]
        if not theirs:
            return Observation("\n".join(message["content"] for message in own), False, tuple(own))
        seen = await self._pass(theirs, text)
        theirs_said = seen.messages or (_message(theirs[0], seen.text),)
        words = "\n".join([*(message["content"] for message in own), seen.text])
        return Observation(words, seen.done, (*own, *theirs_said))

    async def evaluate(self) -> float:
        """The environment's verdict."""
        return await self._inner.evaluate()

    async def aclose(self) -> None:
        """Let go of the environment's episode."""
        await self._inner.aclose()

    async def _pass(self, calls: Sequence[ToolCall], text: str) -> Observation:
        for call in calls:
            if call.name in self._shown:
                self._shown.move_to_end(call.name)
        seen = await self._inner.step(calls, text)
        self._over = seen.done
        names = [tool_name(tool) for tool in self._inner.tools]
        # What the environment brings in the middle is there because it is needed now.
        for name in [name for name in names if name not in self._before][: self._k]:
            self._show(name)
        self._before = set(names)
        return seen

    async def _answer(self, call: ToolCall) -> str:
        if call.name != SEARCH_TOOL:
            return _told({"error": f"no tool {call.name!r} is shown; find tools with {SEARCH_TOOL}(query)"})
        query = _query(call.arguments)
        if query is None:
            return _told({"error": f'{SEARCH_TOOL} wants {{"query": "what the tool should do"}}'})
        found = await self._bring(self._goal, query)
        if not found:
            return _told({"found": [], "note": "nothing fits; ask in other words"})
        return _told({"found": found, "note": "you can call them from now on"})

    async def _bring(self, goal: str, query: str) -> list[dict[str, str]]:
        index: ToolIndex = await self._index(self._inner.tools)
        found = await index.search(query or goal, k=self._k)
        for one in reversed(found):
            self._show(one.operation.name)
        return [{"name": one.operation.name, "description": one.operation.description[:200]} for one in found]

    def _show(self, name: str) -> None:
        self._shown[name] = None
        self._shown.move_to_end(name)
        while len(self._shown) > self._k * _SHOWN_ROUNDS:
            self._shown.popitem(last=False)


class _StatefulEpisode(SearchingEpisode):
    async def state(self) -> dict[str, Any]:
        """Of the environment's episode."""
        return await cast(Stateful, self._inner).state()


def search_tool(k: int) -> dict[str, Any]:
    """The function tool that brings more."""
    return {
        "type": "function",
        "function": {
            "name": SEARCH_TOOL,
            "description": f"Find more tools: brings up to {k} that fit the query. Not all tools are shown to you.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
                "required": ["query"],
            },
        },
    }


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name of a function tool; empty if it has none."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def _query(arguments: str) -> str | None:
    try:
        given = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    query = given.get("query") if isinstance(given, dict) else None
    return query if isinstance(query, str) and query.strip() else None


def _message(call: ToolCall, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call.id or "none"}


def _told(answer: dict[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)
