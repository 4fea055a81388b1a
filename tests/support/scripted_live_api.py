"""A live API that answers as it is told: for what stands around live APIs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from actors.messages import Step, Task, ToolCall
from actors.ports.models import Grade
from adapters.live import CallResult, Operation

Answer = Callable[[str, Mapping[str, Any]], Awaitable[CallResult]]


def operation(name: str, returns: dict[str, Any] | None = None, /, **properties: Any) -> Operation:
    """One whose arguments are `properties`."""
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return Operation(name=name, parameters=parameters, returns=returns, claims_read_only=name.startswith("get"))


async def echo(tool: str, arguments: Mapping[str, Any]) -> CallResult:
    """Says what it was asked."""
    return CallResult(text=f"{tool} {dict(arguments)}", structured={"tool": tool, **arguments})


class ScriptedLiveApi:
    """A `LiveApi` that remembers what it was asked."""

    name = "scripted"

    def __init__(self, *operations: Operation, answer: Answer = echo, secrets: frozenset[str] = frozenset()) -> None:
        self.operations, self.answer, self._secrets = operations, answer, secrets
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.listed = 0
        self.closed = False

    def secrets(self) -> frozenset[str]:
        return self._secrets

    async def tools(self) -> Sequence[Operation]:
        self.listed += 1
        return self.operations

    def read_only(self, tool: str) -> bool:
        return any(one.name == tool and one.claims_read_only for one in self.operations)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        self.asked.append((tool, dict(arguments)))
        return await self.answer(tool, arguments)

    async def aclose(self) -> None:
        self.closed = True


class CallsLiked:
    """A grader who likes attempts that called the tool `wanted`, and remembers what it was shown."""

    name = "calls_liked"

    def __init__(self, wanted: str) -> None:
        self.wanted, self.seen = wanted, list[Sequence[Step]]()

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        self.seen.append(steps)
        return Grade(score=float(any(call.name == self.wanted for step in steps for call in step.tool_calls)))
