"""`Program`: a reference with its data flow, so that it can be executed again with other values or in another world.

An argument is either given (a goal must tell it) or the value at a path in the result of an earlier operation. Two
references with the same operations and flow have the same `shape`, in whatever order and with whatever values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import derived_id
from actors.ports.tool_answers.reader import parsed
from actors.tasks.questioner.instance_pool import Execution, InstancePool, Made
from actors.tasks.questioner.values import leaves, telling
from actors.tasks.reference_calls import ReferenceCall, value_at

_SHAPE = 400
"""Characters of one operation's description; longer ones are their digest."""


class Argument(msgspec.Struct, frozen=True):
    """One argument of an operation."""

    name: str
    value: Any
    """As it was when the program was found, or last performed."""
    origin: int = -1
    """Index of the operation whose result holds it; -1: it is given."""
    path: str = ""
    """Where in that result."""


class Operation(msgspec.Struct, frozen=True):
    """One call."""

    tool: str
    arguments: tuple[Argument, ...] = ()


class Program(msgspec.Struct, frozen=True):
    """Operations in the order in which they worked."""

    operations: tuple[Operation, ...]

    @property
    def given(self) -> dict[str, tuple[str, Any]]:
        """The values that must be told: by slot, argument name and value. One value under one name is one slot."""
        return {
            slot(argument): (argument.name, argument.value)
            for operation in self.operations
            for argument in operation.arguments
            if argument.origin < 0
        }

    @property
    def found(self) -> list[Any]:
        """Values that are results of operations."""
        return [
            argument.value for operation in self.operations for argument in operation.arguments if argument.origin >= 0
        ]

    @property
    def described(self) -> list[str]:
        """Each operation by its tool and where its arguments come from."""
        texts: list[str] = []
        for operation in self.operations:
            arguments = (
                f"{one.name}={texts[one.origin]}.{one.path}" if one.origin >= 0 else one.name
                for one in sorted(operation.arguments, key=lambda one: one.name)
            )
            text = f"{operation.tool}({', '.join(arguments)})"
            texts.append(text if len(text) <= _SHAPE else f"{operation.tool}#{derived_id('operation', text)[:12]}")
        return texts

    @property
    def shape(self) -> str:
        """The same for programs that do the same with other values."""
        return " | ".join(sorted(self.described))

    @property
    def dependent(self) -> int:
        """Operations that need another's result, or another before them whose result nobody uses."""
        used = {one.origin for operation in self.operations for one in operation.arguments}
        needing = sum(any(one.origin >= 0 for one in operation.arguments) for operation in self.operations)
        silent = sum(number not in used for number in range(len(self.operations) - 1))
        return needing + (silent if needing else 0)

    @property
    def level(self) -> int:
        """Difficulty, 1 to 3."""
        return 1 if not self.dependent else 2 if self.dependent <= 2 else 3

    @property
    def calls(self) -> tuple[ReferenceCall, ...]:
        """The calls with the values that the program has."""
        return tuple(
            ReferenceCall(operation.tool, {one.name: one.value for one in operation.arguments})
            for operation in self.operations
        )

    def valued(self, made: Sequence[Made]) -> "Program":
        """The same with the values of calls that performed it."""
        operations = tuple(
            Operation(
                operation.tool,
                tuple(msgspec.structs.replace(one, value=done.call.arguments[one.name]) for one in operation.arguments),
            )
            for operation, done in zip(self.operations, made, strict=True)
        )
        return Program(operations)

    def then(self, other: "Program") -> "Program":
        """This one and after it what `other` does besides."""
        operations, place = list(self.operations), {}
        for number, operation in enumerate(other.operations):
            moved = Operation(
                operation.tool,
                tuple(
                    msgspec.structs.replace(one, origin=place[one.origin]) if one.origin >= 0 else one
                    for one in operation.arguments
                ),
            )
            if moved not in operations:
                operations.append(moved)
            place[number] = operations.index(moved)
        return Program(tuple(operations))


def slot(argument: Argument) -> str:
    """The name of a given argument's slot."""
    return f"{argument.name}={msgspec.json.encode(argument.value, order='deterministic').decode()}"


def program_of(made: Sequence[Made]) -> Program:
    """The program that calls amount to: each value comes from the latest result that holds it, else it is given."""
    operations: list[Operation] = []
    results = [leaves(one.answer) if not one.refused else [] for one in made]
    given: set[str] = set()
    for number, one in enumerate(made):
        arguments: list[Argument] = []
        for name, value in one.call.arguments.items():
            # A tool that repeats what it was told has found nothing out.
            origin, path = (-1, "") if repr(value) in given else _origin(name, value, results[:number])
            arguments.append(Argument(name, value, origin, path))
        given |= {repr(argument.value) for argument in arguments if argument.origin < 0}
        operations.append(Operation(one.call.name, tuple(arguments)))
    return Program(tuple(operations))


def _origin(name: str, value: Any, results: Sequence[list[Any]]) -> tuple[int, str]:
    second = (-1, "")
    for number in range(len(results) - 1, -1, -1):
        for leaf in results[number]:
            if leaf.value != value or type(leaf.value) is not type(value):
                continue
            same_name = leaf.key == name.lower()
            if same_name and telling(value, True):
                return number, leaf.path
            if telling(value) and second[0] < 0:
                second = (number, leaf.path)
    return second


async def perform(
    instances: InstancePool, base: Any, program: Program, values: Mapping[str, Any], *, evaluate: bool = False
) -> Execution | None:
    """Execute `program` in a fresh instance of the world of `base`, results flowing as they come.

    Args:
        values: by slot, what is told; a slot that is missing keeps the program's value.

    Returns:
        None if a call was refused, a result lacks what is needed, or the episode was over too early.

    Raises:
        WorldLost, BudgetSpent, NotProbeable
    """
    last = len(program.operations) - 1
    async with instances.open(base) as session:
        before = await session.state()
        for number, operation in enumerate(program.operations):
            arguments: dict[str, Any] = {}
            for one in operation.arguments:
                if one.origin < 0:
                    arguments[one.name] = values.get(slot(one), one.value)
                    continue
                value = value_at(parsed(session.made[one.origin].answer), one.path)
                if value is None:
                    return None
                arguments[one.name] = value
            made = await session.call(ReferenceCall(operation.tool, arguments))
            if made.refused or (made.done and number < last):
                return None
        after = await session.state()
        outcome = await session.outcome() if evaluate else 0.0
    return Execution(made=tuple(session.made), before=before, after=after, outcome=outcome)
