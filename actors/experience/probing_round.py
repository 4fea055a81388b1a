"""One round of probing: episodes with repaired calls, votes on the edits, replays that ask what was needed.

`probing` is the door to this; the data types of both stand here.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing

import anyio
import msgspec
import structlog

from actors.experience.lessons import producer_of
from actors.experience.tool_call_repair import Beliefs, Repair, RepairedEpisode, RepairLimits
from actors.kinds.clusters import cluster_of
from actors.messages import Step, Task, ToolCall, Trajectory, derived_id
from actors.ports.environments import Environment, Episode
from actors.ports.errors import AdapterError
from actors.rollout.errors import EpisodeLost
from actors.tool_results.tool_calls import ToolCallResult, tool_specs

_log = structlog.get_logger(__name__)
_SUCCESS = 0.5
_CHOICE = 4
"""Times as many tasks as are played, to choose from; and a kind that has fewer of them is none."""


EPISODES = 32
"""Played at most, in one round of probing."""
_WIDTH = 4
"""Episodes under way at once: what some of them found helps the next."""
_CALM = 2
"""Successful episodes without a new finding, for each kind of goal, after which the round ends early."""
_REPLAYS = 12
"""Replays at most that ask which calls were needed."""
_FIRST_SEED = 50_000_000
"""Lowest number of the tasks; far from those that rollouts count up from."""
_DOUBT = 3
"""Episodes that an edit may be used in without any success, before others are tried in its place."""
_LIMITS = RepairLimits()


Player = Callable[[Episode, int], Awaitable[object]]
"""Lets the policy play an episode to its end, with a seed; raises `EpisodeLost` where engine or environment break."""


class ProbeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one tool."""

    tool: str
    """As the policy calls it."""
    name: str
    """As it must be called now."""
    before: str = ""
    """What must be called before, with the same data."""
    producer: str = ""
    """First word of the tool that finds its argument."""
    verified: bool
    """An episode with it succeeded."""
    sources: tuple[str, ...] = ()
    """Probe trajectories that show it."""


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a round of probing came to."""

    findings: tuple[ProbeFinding, ...]
    trajectories: tuple[Trajectory, ...]
    tools: tuple[str, ...]
    """Names of the tools as they are now."""
    open: tuple[str, ...]
    """Tools that the policy called and that could not be made to work, the most wanted first."""
    lost: int = 0
    """Episodes that broke down."""


class _Votes(msgspec.Struct):
    """What speaks for an edit: ids of the episodes that used it."""

    wins: list[str] = msgspec.field(default_factory=list[str])
    """Those that succeeded."""
    uses: list[str] = msgspec.field(default_factory=list[str])
    """All of them."""


class _Success(msgspec.Struct, frozen=True):
    """A successful episode, to be replayed."""

    number: int
    task: Task
    calls: tuple[ToolCallResult, ...]
    """Without those that were refused."""


class Round:
    """One round; `Prober.probe` explains the arguments."""

    def __init__(
        self,
        environment: Environment,
        families: str | None,
        player: Player,
        clock: Callable[[], float],
        known: frozenset[str],
        former: frozenset[str],
        label: str,
        asks: Callable[[str], str],
    ) -> None:
        self._environment, self._families, self._player, self._clock = environment, families, player, clock
        self._label = label
        self._tools = tuple(tool_specs(environment.tools()))
        self._new, self._former = frozenset(self._tools) - known, known | former
        self._gone, self._asks = known - frozenset(self._tools), asks
        self._kinds: dict[str, str] = {}
        """By task."""
        self._played: Counter[str] = Counter()
        self._votes: dict[Repair, _Votes] = defaultdict(_Votes)
        self._needed: dict[str, tuple[str, str]] = {}
        """By tool name: what must be called before it, and the replay that showed it."""
        self._producers: dict[str, str] = {}
        self._successes: list[_Success] = []
        self._trajectories: list[Trajectory] = []
        self._open: Counter[str] = Counter()
        self._calm: Counter[str] = Counter()
        self._lost = 0
        self._error: Exception | None = None

    async def play(self) -> None:
        """Play episodes until every kind of goal is calm, or the budget is spent.

        Raises:
            EpisodeLost: none of them could be played.
        """
        waiting = self._tasks()
        kinds = set(waiting)
        number = 0
        while number < EPISODES:
            wave = self._wave(waiting, min(_WIDTH, EPISODES - number))
            if not wave:
                break
            beliefs = self._beliefs()
            async with anyio.create_task_group() as group:
                for task in wave:
                    group.start_soon(self._attempt, task, number, beliefs)
                    number += 1
            if not self._trajectories and self._error is not None:
                raise EpisodeLost("probing", self._error) from self._error
            if all(self._calm[kind] >= _CALM for kind in kinds):
                break

    def _tasks(self) -> dict[str, list[Task]]:
        """The round's tasks by kind: the tool that is gone and that their goal asks for, or else the kind of goal."""
        first = _FIRST_SEED + int(derived_id("probe", self._label)[:6], 16)
        tasks: dict[str, list[Task]] = defaultdict(list)
        for seed in range(first, first + _CHOICE * EPISODES):
            task = self._environment.sample(seed, "train", self._families)
            tasks[self._asks(task.goal) or cluster_of(task.goal)].append(task)
        # In free words nearly every goal is a kind of its own. Together they are one, which can come to rest.
        for kind in [kind for kind, found in tasks.items() if kind not in self._gone and len(found) < _CHOICE]:
            tasks[""] += tasks.pop(kind)
        for kind, found in tasks.items():
            self._kinds |= dict.fromkeys((task.id for task in found), kind)
        return tasks

    def _wave(self, waiting: Mapping[str, list[Task]], width: int) -> list[Task]:
        """The next tasks, every kind in its turn, leaving out kinds that are calm; what is gone has half of them."""
        gone = len(self._gone & waiting.keys())
        often = max(1, (len(waiting) - gone) // max(1, gone))
        wave: list[Task] = []
        while len(wave) < width:
            kinds = [kind for kind, tasks in waiting.items() if tasks and self._calm[kind] < _CALM]
            if not kinds:
                break
            kind = min(kinds, key=lambda kind: self._played[kind] / (often if kind in self._gone else 1))
            self._played[kind] += 1
            wave.append(waiting[kind].pop())
        return wave

    def _beliefs(self) -> Beliefs:
        doubtful = {edit for edit, votes in self._votes.items() if not votes.wins and len(votes.uses) >= _DOUBT}
        return Beliefs(
            {tool: edit for tool, edit in self._best().items() if edit not in doubtful},
            frozenset(doubtful),
            frozenset(edit.name for edit, votes in self._votes.items() if votes.wins),
        )

    def _best(self) -> dict[str, Repair]:
        """The edit of each tool for which most speaks."""
        best: dict[str, Repair] = {}
        for edit, votes in self._votes.items():
            rival = best.get(edit.tool)
            if rival is None or self._rank(votes) > self._rank(self._votes[rival]):
                best[edit.tool] = edit
        return best

    @staticmethod
    def _rank(votes: _Votes) -> tuple[int, int]:
        return len(votes.wins), len(votes.uses)

    async def _attempt(self, task: Task, number: int, beliefs: Beliefs) -> None:
        started = self._clock()
        id_ = derived_id("probe", self._label, number)
        try:
            async with aclosing(await self._environment.reset(task)) as inner:
                episode = RepairedEpisode(
                    inner, task.goal, new=self._new, former=self._former, beliefs=beliefs, limits=_LIMITS
                )
                await self._player(episode, number)
                outcome = await episode.evaluate()
        except (EpisodeLost, AdapterError) as error:
            self._lost += 1
            self._error = error
            _log.warning(
                "probe_lost", label=self._label, number=number, reason=f"{type(error).__name__}: {error}"[:200]
            )
            return
        self._keep(id_, task, episode.steps, inner.tools, outcome, started)
        succeeded = outcome >= _SUCCESS
        kind = self._kinds[task.id]
        stand_in = self._stand_in(kind, episode.calls) if succeeded else ""
        for edit in (*episode.used, *([Repair(tool=kind, name=stand_in)] if stand_in else [])):
            votes = self._votes[edit]
            votes.uses.append(id_)
            if succeeded:
                votes.wins.append(id_)
        for call in episode.calls:
            if not call.error and producer_of(call):
                self._producers.setdefault(call.tool, producer_of(call))
        self._open.update(episode.troubles)
        if succeeded:
            self._successes.append(_Success(number, task, tuple(call for call in episode.calls if not call.error)))
            # That a goal was reached some other way says nothing of the tool that it seems to ask for.
            open_ = kind in self._gone and not any(
                edit.tool == kind and votes.wins for edit, votes in self._votes.items()
            )
            if not open_ and set(episode.used) <= set(beliefs.adopted.values()):
                self._calm[kind] += 1

    def _stand_in(self, kind: str, calls: Iterable[ToolCallResult]) -> str:
        """The new tool that the policy called of itself where goals ask for one that is gone; empty if it is not clear.

        A policy that half knows the new name is repaired less often, and needs the lesson no less.
        """
        if kind not in self._gone:
            return ""
        told = {edit.name for edit, votes in self._votes.items() if votes.wins and edit.tool != kind}
        called = {call.tool for call in calls if not call.error} & self._new - told
        known = {edit.name for edit, votes in self._votes.items() if votes.wins and edit.tool == kind}
        return called.pop() if len(called) == 1 and not called & known else ""

    def _keep(self, id_: str, task: Task, steps: Iterable[Step], tools: object, outcome: float, started: float) -> None:
        self._trajectories.append(
            Trajectory(
                id=id_,
                source="probe",
                goal=task.goal,
                tools=json.dumps(tools).encode(),
                steps=tuple(steps),
                outcome=outcome,
                started=started,
                ended=self._clock(),
                trainable=False,
                why_not="probe",
                task_id=task.id,
            )
        )

    async def ask_what_was_needed(self) -> None:
        """Replay successes without single calls around the edited ones: what is refused then needed them."""
        left = _REPLAYS
        for name in dict.fromkeys(edit.name for edit, votes in self._votes.items() if votes.wins):
            # By number: episodes of one wave end in any order, and a round that is repeated asks the same.
            having = [one for one in self._successes if any(call.tool == name for call in one.calls)]
            success = max(having, key=lambda one: one.number, default=None)
            if success is None:
                continue
            questions = list(self._questions(success, name))
            if not questions or left < 1 + len(questions):
                continue
            left -= 1 + len(questions)
            # Where even the whole sequence does not work again, a replay proves nothing.
            if any(call.error for call in await self._replay(success, "")):
                continue
            for without, dependent in questions:
                replayed = await self._replay(success, without)
                if any(call.tool == dependent and call.error for call in replayed):
                    self._needed[dependent] = (without, self._trajectories[-1].id)

    def _questions(self, success: _Success, name: str) -> Iterable[tuple[str, str]]:
        """(tool to leave out, tool that may need it): neighbours that share data, not those that found it."""
        index = next(i for i, call in enumerate(success.calls) if call.tool == name)
        edited = success.calls[index]
        pairs = [(other, edited) for other in success.calls[:index]]
        pairs += [(edited, other) for other in success.calls[index + 1 :]]
        return dict.fromkeys(
            (first.tool, second.tool)
            for first, second in pairs
            if first.tool != second.tool and first.shares(second) and first.tool not in second.origins.values()
        )

    async def _replay(self, success: _Success, without: str) -> list[ToolCallResult]:
        """The calls of `success` on a fresh episode, those of the tool `without` left out."""
        started = self._clock()
        unlimited = RepairLimits(edits=0, calls=len(success.calls))
        async with aclosing(await self._environment.reset(success.task)) as inner:
            episode = RepairedEpisode(
                inner, success.task.goal, new=frozenset(), former=frozenset(), beliefs=Beliefs(), limits=unlimited
            )
            for call in success.calls:
                if call.tool != without:
                    seen = await episode.step([ToolCall(call.tool, json.dumps(call.arguments))], "")
                    if seen.done:
                        break
            outcome = await episode.evaluate()
        id_ = derived_id("replay", self._label, success.task.id, without)
        self._keep(id_, success.task, episode.steps, inner.tools, outcome, started)
        return episode.calls

    def report(self) -> ProbeReport:
        """What came of it."""
        findings = [
            ProbeFinding(
                tool=edit.tool,
                name=edit.name,
                before=edit.before or self._needed.get(edit.name, ("", ""))[0],
                producer=self._producers.get(edit.name, ""),
                verified=bool(self._votes[edit].wins),
                sources=tuple(self._votes[edit].wins or self._votes[edit].uses)[:16],
            )
            for edit in self._best().values()
        ]
        told = {found.name for found in findings}
        findings += [
            ProbeFinding(tool=name, name=name, before=before, verified=True, sources=(shown,))
            for name, (before, shown) in self._needed.items()
            if name not in told
        ]
        # A tool that another one needs before it is told there; alone it would be a lesson about half a deed.
        helpers = {found.before for found in findings}
        solved = {found.tool for found in findings}
        return ProbeReport(
            findings=tuple(found for found in findings if found.name not in helpers),
            trajectories=tuple(self._trajectories),
            tools=self._tools,
            open=tuple(tool for tool, _ in self._open.most_common() if tool not in solved),
            lost=self._lost,
        )
