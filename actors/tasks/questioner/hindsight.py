"""`Hindsight`: what a walk has done becomes programs: shortest references, their preconditions, and their sums.

Then the environment's own goals are tried on them: a program that its verifier accepts for a goal gives the words in
which tasks like it are set.
"""

import random
import re
from collections.abc import Sequence
from typing import Any

from actors.messages import Task
from actors.ports.environments import Profile
from actors.tasks.questioner.arguments import Surroundings, Values, function_of
from actors.tasks.questioner.goal_templates import template_of
from actors.tasks.questioner.instance_pool import Execution, InstancePool, Made
from actors.tasks.questioner.programs import Argument, Operation, Program, perform, program_of
from actors.tasks.questioner.shrinking import missing_step, shrink
from actors.tasks.questioner.state import Known, QuestionerState
from actors.tasks.questioner.values import leaves, telling

_CLOSINGS = 16
"""Ways to end an episode that are tried on one program in one world."""
_SUMS = 3
"""Pairs of programs that are tried one after the other in one world."""


class Hindsight:
    """Makes programs and templates out of walks; keeps them in `state`."""

    def __init__(self, instances: InstancePool, state: QuestionerState, values: Values, profile: Profile) -> None:
        self._instances, self._state, self._values, self._profile = instances, state, values, profile

    async def learn(self, base: Task, walk: Sequence[Made]) -> None:
        """Add what `walk` has done to the library.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        closing = set(self._state.model.closing())
        made = [one for one in walk if not one.refused and one.call.name not in closing]
        if not made:
            return
        described = program_of(made).described
        known = {aim for one in self._state.library.values() for aim in one.aims}
        sets = {frozenset(one.aims) for one in self._state.library.values()}
        changes = [at for at, one in enumerate(made) if one.changed]
        for at in changes:
            if described[at] not in known:
                known.add(described[at])
                await self._shortest(base, made[: at + 1])
        if len(changes) > 1 and frozenset(described[at] for at in changes) not in sets:
            await self._whole(base, made[: changes[-1] + 1])
        for at, one in enumerate(made):
            if not one.changed and described[at] not in known:
                known.add(described[at])
                await self._reading(base, made[: at + 1])

    async def combine(self, base: Task, rng: random.Random) -> None:
        """Try some pairs of programs that change something one after the other.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        single = [one for one in self._state.library.values() if one.writes and not one.closed and len(one.aims) == 1]
        for _ in range(_SUMS if len(single) > 1 else 0):
            one, other = rng.sample(single, 2)
            values = {**self.told(base, one.program, rng), **self.told(base, other.program, rng)}
            both = one.program.then(other.program)
            if both.shape in self._state.library or len(both.operations) == len(one.program.operations):
                continue
            done = await perform(self._instances, base, both, values)
            if done is not None and not done.done:
                self._state.learn(Known(program=both.valued(done.made), aims=(*one.aims, *other.aims), writes=True))

    async def word(self, base: Task, rng: random.Random) -> None:
        """Find out which program solves the own goal of `base`, and confirm or refute what is believed of such goals.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        for template in self._state.templates:
            values = template.read(base.goal)
            if values is None:
                continue
            done = await perform(self._instances, base, template.program, values, evaluate=True)
            if done is not None and done.outcome >= 1.0:
                template.confirmed += 1
                return
            template.refuted += 1
        for known in list(self._state.library.values()):
            if known.closed:
                continue
            values = self.told(base, known.program, rng, only_named=True)
            if len(values) < len(known.program.given):
                continue
            done = await perform(self._instances, base, known.program, values)
            if done is None or done.done:
                continue
            for program in (
                [known.program.valued(done.made)]
                if not self._closings(known.program, done)
                else (self._closings(known.program.valued(done.made), done))
            ):
                solved = await perform(self._instances, base, program, {}, evaluate=True)
                if solved is None or solved.outcome < 1.0:
                    continue
                template = template_of(base.goal, program)
                if template is not None:
                    self._state.teach(template)
                    closed = len(program.operations) > len(known.program.operations)
                    self._state.learn(Known(program=program, aims=known.aims, writes=known.writes, closed=closed))
                return

    def told(self, base: Task, program: Program, rng: random.Random, *, only_named: bool = False) -> dict[str, Any]:
        """Values for the slots of `program` in the world of `base`: what its goal names where it names any.

        Args:
            only_named: leave out slots for which it names none.
        """
        around = Surroundings(base.goal)
        found: dict[str, Any] = {}
        for name, (argument, original) in program.given.items():
            candidates, near = self._values.entities(argument, original, around, rng)
            if near or (candidates and not only_named):
                found[name] = candidates[0]
        return found

    async def _shortest(self, base: Task, made: Sequence[Made]) -> None:
        """The shortest way to the last call's effect, and what it needs besides its values."""

        def keeps(done: Execution) -> bool:
            return done.after != done.before

        found = await shrink(self._instances, base, made, keeps)
        if found is None:
            return
        program = program_of(found.made)
        used = {one.origin for operation in program.operations for one in operation.arguments}
        for number, one in enumerate(found.made[:-1]):
            if number not in used:
                refused = await missing_step(self._instances, base, found.made, number)
                if refused:
                    self._state.model.needed(refused, one.call.name)
        self._state.learn(Known(program=program, aims=(program.described[-1],), writes=True))

    async def _whole(self, base: Task, made: Sequence[Made]) -> None:
        """The shortest way to all that changed."""
        whole = await self._instances.execute(base, [one.call for one in made])
        if not whole.clean:
            return
        found = await shrink(self._instances, base, made, lambda done: done.after == whole.after)
        if found is None:
            return
        program = program_of(found.made)
        writes = {name for name, tool in self._state.model.tools.items() if tool.operation == "write"}
        aims = tuple(
            text
            for text, operation in zip(program.described, program.operations, strict=True)
            if operation.tool in writes
        )
        self._state.learn(Known(program=program, aims=aims or (program.described[-1],), writes=True))

    async def _reading(self, base: Task, made: Sequence[Made]) -> None:
        """The shortest way to the last call's answer."""
        answer = made[-1].answer
        found = await shrink(self._instances, base, made, lambda done: done.made[-1].answer == answer)
        if found is not None and found.before == found.after and leaves(answer):
            program = program_of(found.made)
            self._state.learn(Known(program=program, aims=(program.described[-1],), writes=False))

    def _closings(self, program: Program, done: Execution) -> list[Program]:
        """`program` with each way to end the episode that is worth trying; none where no tool ends it."""
        return closings(program, done, self._instances.environment.tools(), self._state, self._profile)


def closings(
    program: Program, done: Execution, tools: Sequence[dict[str, Any]], state: QuestionerState, profile: Profile
) -> list[Program]:
    """`program` followed by calls that end the episode: with a value it has found, or a word that the notes have."""
    found: list[Program] = []
    closing = set(state.model.closing())
    for tool in tools:
        name, _, parameters = function_of(tool)
        required = [one for one in parameters if one.required]
        if name not in closing:
            continue
        if not required:
            found.append(_closed(program, Operation(name)))
            continue
        choices: list[tuple[Any, int, str]] = []
        for number in range(len(done.made) - 1, -1, -1):
            choices += [
                (leaf.value, number, leaf.path)
                for leaf in leaves(done.made[number].answer)
                if isinstance(leaf.value, str) and telling(leaf.value)
            ]
        notes = [note for note in profile.notes if re.search(rf"\b{re.escape(name)}\b", note)]
        words = dict.fromkeys(word for note in notes for word in reversed(re.findall(r"\w+", note)))
        choices += [(word, -1, "") for word in (*words, "done") if word != name]
        first, *others = required
        for value, origin, path in choices[:_CLOSINGS]:
            arguments = (
                Argument(first.name, value, origin, path),
                *(Argument(one.name, one.enum[0] if one.enum else "") for one in others),
            )
            found.append(_closed(program, Operation(name, arguments)))
    return found[:_CLOSINGS]


def _closed(program: Program, operation: Operation) -> Program:
    return Program((*program.operations, operation))
