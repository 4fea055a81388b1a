"""An episode that repairs what the policy does: the instrument of `probing`.

The policy plays as it learnt to. When it calls a tool that is gone, or a call that should work is refused, the episode
tries edits of that call in its place: another tool with the same arguments, another tool before it, or both. The policy
is told the result of the edit that worked as if its own call had given it, so it plays on in the world that it knows,
and the rest of the episode tells whether the edit was right.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import Step, ToolCall
from actors.ports.environments import Episode, Observation
from actors.tool_results.tool_calls import Reader, ToolCallResult, ToolSpec, arguments_of, tool_specs, values


class Repair(msgspec.Struct, frozen=True):
    """In place of `tool`, call `before` (if any) and then `name`."""

    tool: str
    """Name under which the policy calls it."""
    name: str
    before: str = ""


class Beliefs(msgspec.Struct, frozen=True):
    """What earlier episodes of a round have shown."""

    adopted: dict[str, Repair] = {}
    """By the policy's tool: applied without waiting for a refusal."""
    doubtful: frozenset[Repair] = frozenset()
    """Edits whose calls worked in episodes that all failed: tried last."""
    settled: frozenset[str] = frozenset()
    """New tools that are known to stand in for some tool: no other needs them."""


class RepairLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one episode."""

    edits: int = 6
    """Edits tried in one episode."""
    calls: int = 48
    """Calls made in one episode, those of the policy included."""


class RepairedEpisode:
    """An `Episode` around another one.

    Args:
        inner: the episode as the environment gave it, fresh.
        goal: of its task.
        new: names of tools that were not there before the drift.
        former: names of tools that were there once: a call of one is worth repairing, any other name is made up.
        beliefs: what earlier episodes have shown.
        limits: bounds.
    """

    def __init__(
        self,
        inner: Episode,
        goal: str,
        *,
        new: frozenset[str],
        former: frozenset[str],
        beliefs: Beliefs,
        limits: RepairLimits,
    ) -> None:
        self.messages: list[dict[str, Any]] = inner.messages
        self.tools: list[dict[str, Any]] = inner.tools
        self.steps: list[Step] = []
        """Every call that was really made, refusals included."""
        self.calls: list[ToolCallResult] = []
        """The same, read."""
        self.used: dict[Repair, None] = {}
        """Edits that worked in this episode, in order."""
        self.troubles: set[str] = set()
        """Tools whose call could not be made to work."""
        self.tried = 0
        """Edits tried."""
        self._inner, self._new, self._former, self._limits = inner, new, former, limits
        self._adopted, self._beliefs = dict(beliefs.adopted), beliefs
        self._specs = tool_specs(inner.tools)
        self._reader = Reader(goal)
        self._last = Observation("", False)

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """The policy's turn, repaired where it must be."""
        arguments = arguments_of(calls[0]) if len(calls) == 1 else None
        if arguments is None or len(self.calls) >= self._limits.calls:
            return await self._pass(calls, text)
        tool = calls[0].name
        edit = self._adopted.get(tool, Repair(tool, tool))
        origins = self._reader.origins(arguments)
        # A call should work if nothing in it is a guess. One that uses no result yet may be refused for good reasons.
        guessed, grounded = None in origins.values(), any(origins.values())
        refusal: Observation | None = None
        if edit.name in self._specs:
            call = await self._apply(edit, arguments)
            refusal = self._last
            if not call.error or refusal.done:
                return refusal
        existed = tool in self._specs or tool in self._former
        if existed and not guessed and (grounded or refusal is None) and await self._repair(edit, arguments):
            return self._last
        if self._last.done:
            return self._last
        return refusal if refusal is not None else await self._pass(calls, text)

    async def evaluate(self) -> float:
        """The verified outcome of what was really done."""
        return await self._inner.evaluate()

    async def aclose(self) -> None:
        """Let go of the episode underneath."""
        await self._inner.aclose()

    async def _repair(self, failed: Repair, arguments: dict[str, Any]) -> bool:
        """Try edits in place of `failed` until one works; whether one did."""
        for proposal in self._proposals(failed, arguments):
            if self._last.done or self.tried >= self._limits.edits or len(self.calls) >= self._limits.calls:
                break
            self.tried += 1
            if not (await self._apply(proposal, arguments)).error:
                self._adopted[failed.tool] = proposal
                return True
        self.troubles.add(failed.tool)
        return False

    async def _pass(self, calls: Sequence[ToolCall], text: str) -> Observation:
        self._last = await self._inner.step(calls, text)
        self._record(tuple(calls), text, self._last)
        return self._last

    def _record(self, calls: tuple[ToolCall, ...], text: str, seen: Observation) -> None:
        step = Step(
            exchange_id=f"probe-{len(self.steps)}",
            text=text,
            tool_calls=calls,
            observation="" if seen.done else seen.text,
        )
        self.steps.append(step)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ToolCallResult:
        made = ToolCall(tool, json.dumps(arguments))
        self._last = await self._inner.step([made], "")
        self._record((made,), "", self._last)
        call = self._reader.add(tool, arguments, self._last.text)
        self.calls.append(call)
        return call

    async def _apply(self, edit: Repair, arguments: dict[str, Any]) -> ToolCallResult:
        """Make the edited call; the last call that was made, or the first that failed."""
        if edit.before and not self._was_called(edit.before, arguments):
            filled = self._fill(self._specs[edit.before], arguments) if edit.before in self._specs else None
            if filled is not None:
                call = await self._call(edit.before, filled)
                if call.error or self._last.done:
                    return call
        call = await self._call(edit.name, arguments)
        if not call.error and edit != Repair(edit.tool, edit.tool):
            self.used[edit] = None
        return call

    def _was_called(self, tool: str, arguments: dict[str, Any]) -> bool:
        wanted = values(arguments)
        return any(call.tool == tool and not call.error and values(call.arguments) & wanted for call in self.calls)

    def _proposals(self, failed: Repair, arguments: dict[str, Any]) -> list[Repair]:
        """Edits of a call that failed as `failed`, the simple and likely ones first."""
        gone = failed.name not in self._specs
        names = self._substitutes(arguments) if gone else [failed.name]
        singles = [Repair(failed.tool, name) for name in names] if gone else []
        pairs = [
            Repair(failed.tool, name, before)
            for name in names
            for before in self._insertions(failed.tool, name, arguments)
        ]
        return sorted((*singles, *pairs), key=self._beliefs.doubtful.__contains__)

    def _substitutes(self, arguments: dict[str, Any]) -> list[str]:
        """New tools that take just these arguments and stand in for no other tool yet."""
        taken = {edit.name for edit in self.used} | self._beliefs.settled
        return [
            name
            for name, spec in self._specs.items()
            if name in self._new and name not in taken and spec.takes(arguments)
        ]

    def _insertions(self, tool: str, name: str, arguments: dict[str, Any]) -> list[str]:
        """Tools that could have to come before `name`: new ones first.

        They can be filled, speak of the same thing as the refused call, and were not called on it yet.
        """
        candidates: list[str] = []
        for other, spec in self._specs.items():
            if other not in (tool, name) and spec.required and not self._was_called(other, arguments):
                filled = self._fill(spec, arguments)
                if filled is not None and values(filled) & values(arguments):
                    candidates.append(other)
        return sorted(candidates, key=lambda other: other not in self._new)

    def _fill(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What `spec` needs, by parameter name, from the call or from earlier results; None if it is not there."""
        filled: dict[str, Any] = {}
        for parameter in sorted(spec.required):
            if parameter in arguments:
                filled[parameter] = arguments[parameter]
            elif parameter in self._reader.results:
                filled[parameter] = self._reader.results[parameter]
            else:
                return None
        return filled
