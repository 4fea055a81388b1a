"""`Drafter`: known programs are executed in a world with other values, and each execution is said in words."""

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from actors.messages import Task, derived_id
from actors.ports.environments import Profile
from actors.ports.models import Draft
from actors.tasks.questioner.arguments import Surroundings, Values
from actors.tasks.questioner.filters import Proposal
from actors.tasks.questioner.goal_templates import generic
from actors.tasks.questioner.hindsight import closings
from actors.tasks.questioner.instance_pool import Execution, InstancePool
from actors.tasks.questioner.programs import Program, perform
from actors.tasks.questioner.settings import Preferences
from actors.tasks.questioner.state import Known, QuestionerState
from actors.tasks.questioner.values import as_text, differences, leaves, telling
from actors.tasks.reference_calls import SyntheticTaskSpec, Verifier

_DIFFICULTY = {1: 0.3, 2: 0.5, 3: 0.7}
_ANSWER = 60
"""Characters of a value that an agent is asked to say."""


class Drafter:
    """Executes programs of the library in worlds."""

    def __init__(
        self, instances: InstancePool, state: QuestionerState, values: Values, profile: Profile, prefer: Preferences
    ) -> None:
        self._instances, self._state, self._values = instances, state, values
        self._profile, self._prefer = profile, prefer

    async def drafts(
        self, base: Task, known: Known, tries: int, rng: random.Random
    ) -> AsyncIterator[tuple[Proposal, Draft]]:
        """Executions of `known` in the world of `base`, first with what its goal names.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        tried: set[str] = set()
        around = Surroundings(base.goal)
        for number in range(tries):
            values = self._draw(known.program, around, rng, own=number == 0)
            key = repr(sorted(values.items()))
            if values.keys() != known.program.given.keys() or key in tried:
                continue
            tried.add(key)
            done = await perform(self._instances, base, known.program, values)
            known.performed += 1
            if done is None or (done.done and not known.closed):
                known.failed += 1
                known.in_a_row += 1
                continue
            known.in_a_row = 0
            made = await self._made(base, known, done, rng)
            if made is not None:
                yield made

    def _draw(self, program: Program, around: Surroundings, rng: random.Random, *, own: bool) -> dict[str, Any]:
        """A value for each slot; `own`: those that the world's goal names, else some other with even chances."""
        constants = self._constants(program)
        found: dict[str, Any] = {}
        for name, (argument, original) in program.given.items():
            if name in constants:
                found[name] = original
                continue
            candidates, near = self._values.entities(argument, original, around, rng)
            if candidates:
                named = near and (own or rng.random() < 0.5)
                found[name] = candidates[0] if named else rng.choice(candidates)
        return found

    def _constants(self, program: Program) -> set[str]:
        """Slots that a learned template fills with the same value whatever the goal."""
        template = next((one for one in self._state.templates if one.program.shape == program.shape), None)
        if template is None:
            return set()
        names = {template.program.given[name][0] for name in template.slots}
        return {name for name, (argument, _) in program.given.items() if argument not in names}

    async def _made(
        self, base: Task, known: Known, done: Execution, rng: random.Random
    ) -> tuple[Proposal, Draft] | None:
        """The execution as a proposal with words; None if it cannot be told."""
        program = known.program.valued(done.made)
        goal = self._learned(program)
        verifier: Verifier = "state"
        answer = path = ""
        if not goal:
            if self._prefer.wording == "learned":
                return None
            if not known.closed and self._state.model.closing():
                closed = self._closed(program, done)
                if closed is None or (after := await perform(self._instances, base, closed, {})) is None:
                    return None
                program, done = closed.valued(after.made), after
            elif not known.writes:
                path, answer = _asked(program, done, rng)
                if not path:
                    return None
                verifier = "answer"
            goal = generic(self._state.model, program, path)
        spec = SyntheticTaskSpec(
            base=base.spec,
            base_goal=base.goal,
            reference=program.calls,
            verifier=verifier,
            made_from=(f"exploration-{self._state.environment}-{self._state.seed}-{self._state.round}",),
            environment=self._state.environment,
            answer=path,
        )
        content = msgspec.to_builtins(spec)
        task = Task(
            id=derived_id("selfmade", msgspec.json.encode([content, goal], order="deterministic").hex()),
            goal=goal,
            environment=self._state.environment,
            spec=content,
            difficulty=_DIFFICULTY[program.level],
            origin="questioner",
        )
        proposal = Proposal(
            task=task, program=program, shape=program.shape, before=done.before, after=done.after, answer=answer
        )
        return proposal, self._draft(goal, program, done, answer)

    def _learned(self, program: Program) -> str:
        """The goal in the environment's own words; empty if it has none for this program and its constants."""
        shape = program.shape
        for template in self._state.templates:
            if not template.believed or template.program.shape != shape:
                continue
            # Slots are named by their value: those of the template are found again by place.
            places = dict(zip(_slots(template.program), _slots(program), strict=False))
            theirs, ours = template.program.given, program.given
            fixed = [name for name in theirs if name not in template.slots]
            if all(theirs[name][1] == ours[places[name]][1] for name in fixed):
                return template.fill({name: ours[places[name]][1] for name in template.slots})
        return ""

    def _closed(self, program: Program, done: Execution) -> Program | None:
        """`program` with an end: the value that its last call has found, or none if the ending wants a word."""
        last = len(program.operations) - 1
        tools = self._instances.environment.tools()
        for closed in closings(program, done, tools, self._state, self._profile):
            arguments = closed.operations[-1].arguments
            if not arguments or arguments[0].origin == last:
                return closed
        return None

    def _draft(self, goal: str, program: Program, done: Execution, answer: str) -> Draft:
        tools = self._state.model.tools
        names = dict.fromkeys(operation.tool for operation in program.operations)
        return Draft(
            goal=goal,
            calls=tuple((call.name, call.arguments) for call in program.calls),
            descriptions={name: tools[name].description for name in names if name in tools},
            told=tuple(dict.fromkeys(filter(None, (as_text(value) for _, value in program.given.values())))),
            hidden=tuple(dict.fromkeys(filter(None, [*(as_text(value) for value in program.found), answer]))),
            changed=differences(done.before, done.after),
            style=self._prefer.style,
        )


def _slots(program: Program) -> list[str]:
    """The slots of `program`, in an order that programs of one shape share."""
    described = program.described
    order = sorted(range(len(described)), key=lambda number: described[number])
    found: dict[str, None] = {}
    for number in order:
        part = Program((program.operations[number],))
        for name in sorted(part.given, key=lambda name: part.given[name][0]):
            found[name] = None
    return list(found)


def _asked(program: Program, done: Execution, rng: random.Random) -> tuple[str, str]:
    """A value of the last answer that an agent can be asked for, by its path; two empty texts if there is none."""
    told = {as_text(value) for _, value in program.given.values()}
    choices = [
        (leaf.path, as_text(leaf.value))
        for leaf in leaves(done.made[-1].answer)
        if leaf.path and telling(leaf.value, True) and 0 < len(as_text(leaf.value)) <= _ANSWER
    ]
    choices = [(path, text) for path, text in choices if text not in told]
    return rng.choice(choices) if choices else ("", "")
