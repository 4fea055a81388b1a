"""`remote_episode`: an episode that is played elsewhere, in a worker process or behind HTTP.

A `Link` carries the calls; what is here is the same for both: the tools as they were last told, and `state`
only where the episode at the other end has one, so that `isinstance(episode, Stateful)` says the truth about it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from actors.messages import ToolCall
from actors.ports.environments import Observation


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt begins, as the other end tells it."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    stateful: bool = False


class Stepped(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn led to, as the other end tells it."""

    text: str
    done: bool
    messages: tuple[dict[str, Any], ...] = ()
    tools: list[dict[str, Any]] | None = None
    """As they are from now on; none: as before."""


class Link(Protocol):
    """The way to one episode; every call raises EnvironmentFailed if there is no answer to be had."""

    async def step(self, calls: Sequence[ToolCall], text: str) -> Stepped: ...

    async def evaluate(self) -> float: ...

    async def state(self) -> dict[str, Any]: ...

    async def aclose(self) -> None: ...


class RemoteEpisode:
    """An `Episode` at the other end of a link."""

    def __init__(self, link: Link, opening: Opening) -> None:
        self._link = link
        self.messages: list[dict[str, Any]] = opening.messages
        self.tools: list[dict[str, Any]] = opening.tools

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        found = await self._link.step([_sendable(call) for call in calls], _utf8(text))
        if found.tools is not None:
            self.tools = found.tools
        return Observation(found.text, found.done, found.messages)

    async def evaluate(self) -> float:
        return await self._link.evaluate()

    async def aclose(self) -> None:
        await self._link.aclose()


class _Stateful(RemoteEpisode):
    async def state(self) -> dict[str, Any]:
        return await self._link.state()


def remote_episode(link: Link, opening: Opening) -> RemoteEpisode:
    """The episode at the other end of `link`, with `state` if it has one there."""
    return (_Stateful if opening.stateful else RemoteEpisode)(link, opening)


def _sendable(call: ToolCall) -> ToolCall:
    return ToolCall(_utf8(call.name), _utf8(call.arguments), _utf8(call.id))


def _utf8(text: str) -> str:
    """A model may write half a surrogate pair, which no wire carries."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
