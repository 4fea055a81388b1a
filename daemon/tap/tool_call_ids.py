"""Unique ids for tool calls, for engines that repeat theirs (`call_0` in every answer).

Agents echo the ids of the tool calls that they answer; that is the surest sign of which calls belong together, if the
ids tell one answer from another. Rewritten once, on the way to the agent, an id comes back in every later request and
the engine reads it like any other.
"""

import re
from collections.abc import Callable

_CALL = re.compile(rb'("id"\s*:\s*")([^"\\]{1,256})(")')


class ToolCallIds:
    """Makes the ids of one answer."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        """
        Args:
            fresh: a new random text.
        """
        self._fresh = fresh
        self._given: list[bytes] = []
        self._told = 0

    def another(self) -> "ToolCallIds":
        """For the next answer."""
        return ToolCallIds(self._fresh)

    def again(self) -> None:
        """The same answer follows once more, for the record: it gets the ids that the agent got."""
        self._told = 0

    def rewrite(self, message: bytes) -> bytes:
        """The JSON of a message or delta with a fresh id for each tool call that has one.

        Only ids inside `tool_calls` are touched; in a stream an id comes with the first piece of its call alone.
        """
        start = message.find(b'"tool_calls"')
        if start < 0:
            return message
        return message[:start] + _CALL.sub(self._new, message[start:])

    def _new(self, match: re.Match[bytes]) -> bytes:
        if self._told == len(self._given):
            self._given.append(self._fresh().encode())
        self._told += 1
        return b"%bcall_%b%b" % (match[1], self._given[self._told - 1], match[3])
