"""`Filters`: which tasks are kept, and for each other one the reason why not. Execution decides where it can.

Two goals about different values are different tasks, however alike their words are; two about the same values are the
same task if their words, or their embeddings, are alike, or if they reach the same state in the same world.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Task, derived_id
from actors.ports.errors import AdapterError
from actors.ports.models import Embedder
from actors.tasks.questioner.programs import Program
from actors.tasks.questioner.settings import FilterSettings, Preferences
from actors.tasks.questioner.values import as_text, jaccard, tokens


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was executed, before anybody has said that it is worth keeping."""

    task: Task
    program: Program
    shape: str
    before: dict[str, Any]
    after: dict[str, Any]
    answer: str = ""
    """What must be said, for the verifier `answer`."""

    @property
    def world(self) -> str:
        """Names the world that it plays in."""
        return derived_id(msgspec.json.encode(self.task.spec["base"], order="deterministic").hex())

    @property
    def outcome(self) -> str:
        """Names world and state that it reaches, with the answer."""
        state = msgspec.json.encode(self.after, order="deterministic").hex()
        return derived_id(self.world, state, self.answer)

    @property
    def values(self) -> tuple[str, ...]:
        """What the goal is about: the values that it must tell."""
        return tuple(sorted({as_text(value) or repr(value) for _, value in self.program.given.values()}))


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the filters remember of a task that was kept. JSON-able."""

    task: str
    goal: str
    shape: str
    world: str
    outcome: str
    values: tuple[str, ...]


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was not kept."""

    goal: str
    reason: str
    """A stable short word to count by."""
    detail: str = ""
    """What it was compared with, or measured."""


class Filters:
    """Remembers what was kept.

    Args:
        embedder: None: goals are compared by their words alone.
        known: tasks that exist already; self-made ones like them are not new.
    """

    def __init__(
        self,
        settings: FilterSettings,
        prefer: Preferences,
        embedder: Embedder | None,
        known: Sequence[Task] = (),
    ) -> None:
        self._settings, self._prefer, self._embedder = settings, prefer, embedder
        self._known = {(_normal(task.goal), _spec(task.spec)) for task in known}
        self.entries: dict[str, Entry] = {}
        self._tokens: dict[str, frozenset[str]] = {}
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        self.semantic_off = 0
        """Goals whose likeness in meaning nobody could tell: the embedder was away."""

    def restore(self, entries: Sequence[Entry]) -> None:
        """Remember what an earlier run kept; embeddings are made anew when they are needed."""
        for entry in entries:
            self._remember(entry)

    def before_execution(self, program: Program) -> Dropped | None:
        """What can be said without words and without another execution."""
        calls = len(program.operations)
        if calls < self._settings.least_calls:
            return Dropped(goal="", reason="trivial", detail=f"{calls} calls")
        if calls > self._settings.most_calls:
            return Dropped(goal="", reason="too_long", detail=f"{calls} calls")
        if program.level not in self._prefer.difficulty:
            return Dropped(goal="", reason="difficulty", detail=f"level {program.level}")
        for name, value in program.given.values():
            use, avoid = self._prefer.use.get(name, ()), self._prefer.avoid.get(name, ())
            if (use and as_text(value) not in use) or as_text(value) in avoid:
                return Dropped(goal="", reason="entity", detail=f"{name} = {as_text(value)}")
        return None

    async def check(self, proposal: Proposal) -> Dropped | None:
        """Why `proposal` should not be kept; None if it should."""
        goal = proposal.task.goal

        def dropped(reason: str, detail: str = "") -> Dropped:
            return Dropped(goal=goal, reason=reason, detail=detail)

        if proposal.before == proposal.after and not proposal.answer:
            return dropped("no_op", "the state is as it was")
        base_goal = proposal.task.spec["base_goal"]
        if _normal(goal) == _normal(base_goal) or (_normal(goal), _spec(proposal.task.spec["base"])) in self._known:
            return dropped("not_novel", "the environment's own goal in this world")
        words, outcome = tokens(goal), proposal.outcome
        for entry in self.entries.values():
            if entry.world == proposal.world and _normal(entry.goal) == _normal(goal) and entry.outcome != outcome:
                # Neither can be told from the other by its words: the one that was kept goes too (`contradicted`).
                return dropped("ambiguous", f"task {entry.task} has the same goal and another state")
        about = proposal.values
        for entry in self.entries.values():
            if _normal(entry.goal) == _normal(goal) and entry.values != about:
                return dropped("ambiguous", f"task {entry.task} has the same goal and is about other values")
            if entry.outcome == outcome:
                return dropped("same_outcome", f"task {entry.task} reaches the same state in the same world")
        alike = [entry for entry in self.entries.values() if entry.values == about]
        for entry in alike:
            likeness = jaccard(words, self._tokens[entry.task])
            if likeness >= self._settings.lexical:
                return dropped("lexical", f"{likeness:.2f} like task {entry.task}")
        return await self._semantic(proposal, alike)

    async def _semantic(self, proposal: Proposal, alike: Sequence[Entry]) -> Dropped | None:
        if self._embedder is None or self._settings.semantic >= 1.0:
            return None
        goal = proposal.task.goal
        missing = [entry for entry in alike if entry.task not in self._vectors]
        try:
            vectors = await self._embedder.embed([goal, *(entry.goal for entry in missing)])
        except AdapterError:
            self.semantic_off += 1
            return None
        for entry, vector in zip(missing, vectors[1:], strict=True):
            self._vectors[entry.task] = vector
        self._vectors[proposal.task.id] = vectors[0]
        for entry in alike:
            likeness = float(vectors[0] @ self._vectors[entry.task])
            if likeness >= self._settings.semantic:
                del self._vectors[proposal.task.id]
                return Dropped(goal=goal, reason="semantic", detail=f"{likeness:.2f} like task {entry.task}")
        return None

    def contradicted(self, proposal: Proposal) -> list[str]:
        """Ids of kept tasks that have the goal of `proposal` in its world and reach another state."""
        return [
            entry.task
            for entry in self.entries.values()
            if entry.world == proposal.world
            and _normal(entry.goal) == _normal(proposal.task.goal)
            and entry.outcome != proposal.outcome
        ]

    def keep(self, proposal: Proposal) -> None:
        """`proposal` is kept."""
        self._remember(
            Entry(
                task=proposal.task.id,
                goal=proposal.task.goal,
                shape=proposal.shape,
                world=proposal.world,
                outcome=proposal.outcome,
                values=proposal.values,
            )
        )

    def forget(self, task: str) -> None:
        """A task is kept no longer."""
        self.entries.pop(task, None)
        self._tokens.pop(task, None)
        self._vectors.pop(task, None)

    def _remember(self, entry: Entry) -> None:
        self.entries[entry.task] = entry
        self._tokens[entry.task] = tokens(entry.goal)


def _normal(goal: str) -> str:
    return " ".join(goal.casefold().split())


def _spec(spec: dict[str, Any]) -> str:
    return msgspec.json.encode(spec, order="deterministic").decode()
