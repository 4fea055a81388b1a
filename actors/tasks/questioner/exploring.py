"""`Explorer`: first every tool once or a few times (breadth), then walks in which results feed the next call (depth).

A call that was refused is tried again after others have worked: what made the difference is a precondition, which the
shortest reference tells exactly. Everything that is seen goes into the model; the walks are what tasks are made from.
"""

import random
from typing import Any

from actors.messages import Task
from actors.tasks.questioner.arguments import Parameter, Surroundings, Values, function_of
from actors.tasks.questioner.errors import WorldLost
from actors.tasks.questioner.instance_pool import InstancePool, Made, Session
from actors.tasks.questioner.model import EnvironmentModel
from actors.tasks.questioner.programs import program_of
from actors.tasks.questioner.settings import ProbeSettings
from actors.tasks.questioner.values import leaves
from actors.tasks.reference_calls import ReferenceCall

_OPTIONAL = 0.2
"""How often a parameter that may be left out is not."""
_AGAIN = 0.5
"""How often a refused call is tried again after another has worked."""
_ENTITY = 80


class Explorer:
    """Probes worlds; what it finds goes into `model`."""

    def __init__(
        self, instances: InstancePool, model: EnvironmentModel, values: Values, settings: ProbeSettings
    ) -> None:
        self._instances, self._model, self._values, self._settings = instances, model, values, settings

    async def breadth(self, base: Task, rng: random.Random) -> None:
        """Call every tool that has not been called yet, each in a fresh instance, with a few values.

        Raises:
            BudgetSpent, NotProbeable
        """
        asked: set[str] = set()
        while True:
            try:
                async with self._instances.open(base) as session:
                    fresh = [tool for tool in session.tools if self._fresh(tool) and function_of(tool)[0] not in asked]
                    if not fresh:
                        return
                    tool = fresh[0]
                    asked.add(function_of(tool)[0])
                    around = Surroundings(base.goal)
                    for number in range(self._settings.breadth):
                        made = await self._call(session, self._draw(tool, around, rng), around)
                        if made.done:
                            # Alone in a fresh instance: it was this tool that ended it, not a limit of steps.
                            self._model.tool(made.call.name).closes |= number == 0 and not made.refused
                            break
            except WorldLost:
                # Counted by the laboratory; the tool that was asked is not asked again.
                continue

    async def walk(self, base: Task, rng: random.Random) -> list[Made]:
        """One instance, as far as the depth or the episode goes; the calls that were made.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        async with self._instances.open(base) as session:
            around = Surroundings(base.goal)
            failed: list[ReferenceCall] = []
            done: set[str] = set()
            worked = False
            for _ in range(self._settings.depth):
                if worked and failed and rng.random() < _AGAIN:
                    call = failed.pop()
                else:
                    call = self._choose(session.tools, around, done, rng)
                if call is None:
                    break
                made = await self._call(session, call, around)
                done.add(_key(call))
                worked = not made.refused
                if made.refused and call.arguments:
                    failed = [*[one for one in failed if one != call][-3:], call]
                if made.done:
                    break
            return session.made

    async def _call(self, session: Session, call: ReferenceCall, around: Surroundings) -> Made:
        made = await session.call(call, watch=True)
        entry = self._model.tool(call.name)
        entry.calls += 1
        entry.refused += made.refused
        entry.writes += made.changed and not entry.closes
        if made.refused:
            return made
        found = leaves(made.answer)
        around.results += [(call.name, leaf) for leaf in found]
        for leaf in found:
            if not (isinstance(leaf.value, str) and len(leaf.value) > _ENTITY):
                self._model.saw(call.name, leaf.path, leaf.value)
        if entry.closes:
            return made
        program = program_of(session.made)
        for one in program.operations[-1].arguments:
            if one.origin >= 0:
                self._model.flowed(call.name, one.name, f"{session.made[one.origin].call.name}:{one.path}")
            elif len(str(one.value)) <= _ENTITY:
                self._model.worked(one.name, one.value)
        return made

    def _choose(
        self, tools: list[dict[str, Any]], around: Surroundings, done: set[str], rng: random.Random
    ) -> ReferenceCall | None:
        """The next call: rather a tool whose arguments are at hand, that was called seldom, and not the same again."""
        calls: list[ReferenceCall] = []
        weights: list[float] = []
        for tool in tools:
            name, _, parameters = function_of(tool)
            entry = self._model.tools.get(name)
            if not name or (entry is not None and entry.closes):
                continue
            call, ready = self._filled(name, parameters, around, rng)
            weight = 4.0 if ready else 1.0
            if entry is not None and entry.calls:
                weight *= 0.2 + (1 - entry.refused / entry.calls)
                weight *= 2.0 if entry.writes else 1.0
            if _key(call) in done:
                weight *= 0.05
            calls.append(call)
            weights.append(weight)
        return rng.choices(calls, weights)[0] if calls else None

    def _draw(self, tool: dict[str, Any], around: Surroundings, rng: random.Random) -> ReferenceCall:
        name, _, parameters = function_of(tool)
        return self._filled(name, parameters, around, rng)[0]

    def _filled(
        self, name: str, parameters: list[Parameter], around: Surroundings, rng: random.Random
    ) -> tuple[ReferenceCall, bool]:
        """A call of a tool, and whether all that it needs was at hand."""
        arguments: dict[str, Any] = {}
        ready = True
        for parameter in parameters:
            if not parameter.required and rng.random() >= _OPTIONAL:
                continue
            value, near = self._values.draw(name, parameter, around, rng)
            if value is None:
                ready = ready and not parameter.required
                continue
            arguments[parameter.name] = value
            ready = ready and near
        return ReferenceCall(name, arguments), ready

    def _fresh(self, tool: dict[str, Any]) -> bool:
        name, description, _ = function_of(tool)
        return bool(name) and not self._model.tool(name, description).calls


def _key(call: ReferenceCall) -> str:
    return f"{call.name}{sorted(call.arguments.items(), key=lambda item: item[0])!r}"
