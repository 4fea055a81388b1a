"""Drawing lessons from the window: by contrast, as skills, as tool memory; and what a probe found.

What is drawn passes the same door, whoever drew it: too few independent origins and it is quarantined; too many lessons
of one party and it is refused; what is there already is not put on trial twice. And it is drawn from evidence of which
no party has more than its cap (`actors.statistics.parties`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import anyio.to_thread
import msgspec

from actors.experience.asking import asker
from actors.experience.lessons import (
    SOURCES,
    SUPPORT,
    Drawn,
    Kind,
    Practice,
    contrast,
    detail_of,
    lesson_id,
    probed,
    read_practice,
)
from actors.experience.origins import INDEPENDENT, TRUSTED, Origins, whose
from actors.experience.pool import EVICTED, LessonPool, tools_of
from actors.experience.probing_round import ProbeFinding
from actors.experience.skills import draw_skills
from actors.experience.tool_memory import draw_tools
from actors.experience.window import Window
from actors.kinds.agents import by_agent
from actors.messages import Experience, ExperienceState, Trajectory
from actors.messages.experience import ExperienceKind
from actors.statistics.parties import CAP, binds, thinned
from actors.tool_results.runs import tool_names
from actors.tool_results.tool_calls import ToolCallResult, calls_of

_CONFIRM_SUPPORT = 24
"""Where no sandbox can try a lesson: calls on each side, all later than it was drawn, on which contrast must say it
again before it becomes active. Eight times what a candidate needs: nothing else tries it."""


class Drawing:
    """Puts what is drawn into the pool.

    Args:
        draw: what is drawn beside contrast: "skills", sequences of calls that work; "tools", what each tool is good for
            and how it fails.
        tenant: whose lessons the sandbox's are; its candidates are tried there.
        sandbox: whether there is one.
        since: when the tools last drifted, unix seconds.
        kind: neighbourhood of a trajectory's goal.
    """

    def __init__(
        self,
        *,
        draw: Collection[str],
        pool: LessonPool,
        window: Window,
        origins: Origins,
        tenant: str,
        sandbox: bool,
        since: Callable[[], float],
        kind: Callable[[Trajectory], str],
    ) -> None:
        self._draw, self._pool, self._window, self._origins = draw, pool, window, origins
        self._tenant, self._sandbox, self._since, self._kind = tenant, sandbox, since, kind
        self._intents: dict[tuple[str, str], str] = {}
        """By tenant and tool: the word that goals use, for tools that were renamed."""
        self._calls: dict[str, tuple[ToolCallResult, ...]] = {}
        """By trajectory of the window: its calls, read."""

    def learn_intents(self, lessons: Iterable[Experience]) -> None:
        """Remember which tools lessons file under which word."""
        for lesson in lessons:
            practice = read_practice(lesson)
            if practice is not None:
                self._learn_intent(lesson.tenant, practice)

    def _learn_intent(self, tenant: str, practice: Practice) -> None:
        if not practice.what:
            self._intents[tenant, practice.tool] = practice.intent

    async def draw(self) -> None:
        """Draw lessons from the newest trajectories of each agent, about tools that it has today."""
        here = {run.id for run in self._window}
        self._calls = {key: calls for key, calls in self._calls.items() if key in here}
        for runs in by_agent(self._window):
            tenant, runs = runs[-1].tenant, _fair(runs)
            drawn = [one for one in await self._contrast(tenant, runs) if one.practice.tools <= _tools(runs)]
            for one in drawn:
                self._contrasted(tenant, one)
            if not self.tried(tenant):
                await self._confirm(tenant, runs, drawn)
            if "skills" in self._draw:
                await self._skills(tenant, runs)
            if "tools" in self._draw:
                await self._tools(tenant, runs)

    async def _contrast(self, tenant: str, runs: Sequence[Trajectory], support: int = SUPPORT) -> list[Drawn]:
        intents = {tool: word for (whose_tool, tool), word in self._intents.items() if whose_tool == tenant}
        place = {run.id: self._kind(run) for run in runs}
        return await anyio.to_thread.run_sync(
            contrast, runs, intents, self._origins.of, whose, lambda run: place[run.id], self._calls, support
        )

    def tried(self, tenant: str) -> bool:
        """Whether lessons of `tenant` are tried in a sandbox."""
        return self._sandbox and tenant == self._tenant

    def asker(self, tools: frozenset[str]) -> Callable[[str], str]:
        """Which of `tools` a goal asks for, by the runs of the sandbox's tenant that called them."""
        goals: dict[str, list[str]] = {tool: [] for tool in tools}
        others: list[str] = []
        for run in self._window:
            if run.tenant == self._tenant:
                called = tools & {call.tool for call in self._calls.get(run.id) or calls_of(run)}
                for said in [goals[tool] for tool in called] or [others]:
                    said.append(run.goal)
        return asker(goals, others)

    def take(self, found: ProbeFinding, new: frozenset[str]) -> None:
        """Make a finding of a probe a lesson: active if it was verified, else a candidate.

        Args:
            new: names of tools that are new.
        """
        intents = {tool: word for (tenant, tool), word in self._intents.items() if tenant == self._tenant}
        runs = [run for run in self._window if run.tenant == self._tenant]
        for practice in probed(
            found.tool, found.name, found.before, found.producer, runs=runs, intents=intents, origin=self._origins.of,
            calls=self._calls,
        ):  # fmt: skip
            self._found(practice, found, new, runs)

    def _found(self, practice: Practice, found: ProbeFinding, new: frozenset[str], runs: Sequence[Trajectory]) -> None:
        known = self._known(self._tenant, practice)
        if known is not None and known.state == "retired" and not practice.tools & new:
            return  # learnt long ago; that the policy slipped once in a probe is no news
        if known is not None and (known.state == "active" or (known.state == "candidate" and not found.verified)):
            return
        renames = practice.what == "instead" or (not practice.what and found.name != found.tool)
        kind: Kind = "rename" if renames else "precondition" if found.before else "practice"
        reason = "verified by a probe" if found.verified else ""
        state: ExperienceState = "active" if found.verified else "candidate"
        sources = found.sources
        if practice.what:
            # No word names what it is for: runs that called it say how people ask for it, and a probe is in no window.
            calling = [run.id for run in runs if any(call.tool == found.tool for call in self._calls.get(run.id, ()))]
            sources = (*sources, *calling[-SOURCES:])
        self._put_practice(practice, kind, self._tenant, sources, len(found.sources), "probe", state, reason)

    def _contrasted(self, tenant: str, drawn: Drawn) -> None:
        practice, known = drawn.practice, self._known(tenant, drawn.practice)
        if known is not None and known.state == "quarantined":
            self.support(known, drawn.sources, drawn.independent)
        elif self.fresh(known) and not self._taught(tenant, practice):
            state, reason = self.admitted(drawn.independent)
            if self.room(tenant, drawn.sources):
                self._put_practice(
                    practice, drawn.kind, tenant, drawn.sources, drawn.independent, "contrast", state, reason
                )

    def _known(self, tenant: str, practice: Practice) -> Experience | None:
        """The lesson that says so: the words that goals share, under which it is filed, are others in time."""
        known = self._pool.get(lesson_id(tenant, practice))
        if known is not None or not practice.what:
            return known
        said = [one for one in self._pool if one.tenant == tenant and one.content == practice.content]
        return max(said, key=lambda one: (one.state != "retired", one.updated), default=None)

    def fresh(self, known: Experience | None) -> bool:
        """Whether what is drawn is new: unknown, or given up before the world changed and perhaps right again."""
        if known is None:
            return True
        again = known.updated < self._since() or known.reason in (EVICTED, "forgotten")
        return known.state == "retired" and again

    def admitted(self, independent: int) -> tuple[ExperienceState, str]:
        """The state of a lesson with so many independent origins, and why."""
        if independent >= INDEPENDENT:
            return "candidate", ""
        return "quarantined", f"{independent} of {INDEPENDENT} independent sources"

    def support(self, known: Experience, sources: Sequence[str], independent: int, **changed: Any) -> None:
        """More evidence for a lesson: its sources are put together; enough origins end its quarantine."""
        independent = max(known.independent, independent)
        state, reason = (known.state, known.reason)
        if state == "quarantined":
            state, reason = self.admitted(independent)
        merged = tuple(dict.fromkeys((*known.sources, *sources)))[-2 * SOURCES :]
        # While a lesson waits, a revision for every further trajectory of the same origin would say nothing.
        if (state, independent) != (known.state, known.independent) or changed:
            self._pool.put(
                msgspec.structs.replace(
                    known, sources=merged, independent=independent, state=state, reason=reason, **changed
                )
            )

    def room(self, tenant: str, sources: Sequence[str]) -> bool:
        """Whether the party that most of `sources` came from may have another lesson."""
        party = self.party_of(sources)
        if not party or not binds(
            whose(run) for run in self._window if run.tenant == tenant and run.source not in TRUSTED
        ):
            return True
        held = sum(self.party_of(lesson.sources) == party for lesson in self._pool.live(tenant))
        if held + 1 <= CAP * self._pool.max_lessons:
            return True
        self._pool.counts["refused_party"] += 1
        return False

    def party_of(self, sources: Sequence[str]) -> str:
        """The party behind more than half of `sources`, as far as they are in the window; empty if there is none."""
        runs = self._window.get(sources)
        party = next(iter(self._origins.parties(runs)), "")
        return party if sum(self._origins.party(run) == party for run in runs) * 2 > len(runs) else ""

    async def _confirm(self, tenant: str, runs: Sequence[Trajectory], drawn: Sequence[Drawn]) -> None:
        """Where nothing else can try a candidate: does later traffic alone say the same, on much more evidence?"""
        for one in drawn:
            lesson = self._known(tenant, one.practice)
            if lesson is None or lesson.state != "candidate":
                continue
            known = frozenset(lesson.sources)
            later = [run for run in runs if run.ended > lesson.updated and run.id not in known]
            if len(later) < 2 * _CONFIRM_SUPPORT:
                continue
            for said in await self._contrast(tenant, later, _CONFIRM_SUPPORT):
                if said.practice.content == lesson.content and said.independent >= INDEPENDENT:
                    self._pool.put(msgspec.structs.replace(lesson, state="active", reason="confirmed by later traffic"))

    async def _skills(self, tenant: str, runs: Sequence[Trajectory]) -> None:
        for skill in await anyio.to_thread.run_sync(draw_skills, runs, self._kind, self._origins.of):
            sources = tuple(run.id for run in skill.runs)
            independent = len({self._origins.of(run) for run in skill.runs})
            known = self._pool.get(skill.id(tenant))
            if known is not None and known.state == "quarantined":
                self.support(known, sources, independent)
            elif self.fresh(known) and self.room(tenant, sources):
                state, reason = self.admitted(independent)
                self._put(
                    skill.id(tenant), tenant, "skill", skill.when_to_use, skill.content, sources, independent,
                    "sequence", state, reason, skill.detail,
                )  # fmt: skip

    async def _tools(self, tenant: str, runs: Sequence[Trajectory]) -> None:
        for memory in await anyio.to_thread.run_sync(draw_tools, runs, self._origins.of):
            known, sources = self._pool.get(memory.id(tenant)), tuple(run.id for run in memory.runs)
            if known is not None and known.state != "retired" and not memory.moved(known.detail):
                continue
            state, reason = self.admitted(memory.independent)
            # It states what was seen, and no trial could tell whether it helps.
            state = "active" if state == "candidate" else state
            if self.room(tenant, sources):
                self._put(
                    memory.id(tenant), tenant, "tool", memory.tool, memory.content, sources, memory.independent,
                    "calls", state, reason, memory.detail,
                )  # fmt: skip

    def _taught(self, tenant: str, practice: Practice) -> bool:
        """Whether an active lesson already says how to carry out this intent with this tool."""
        return not practice.what and any(
            lesson.state == "active" and lesson.when_to_use == practice.intent and practice.tool in tools_of(lesson)
            for lesson in self._pool.live(tenant)
            if read_practice(lesson) is not None
        )

    def _put_practice(
        self, practice: Practice, kind: Kind, tenant: str, sources: tuple[str, ...], independent: int, origin: str,
        state: ExperienceState, reason: str,
    ) -> None:  # fmt: skip
        known = self._known(tenant, practice)
        id_, when = (known.id, known.when_to_use) if known is not None else (lesson_id(tenant, practice), "")
        self._put(
            id_, tenant, kind, when or practice.intent, practice.content, sources, independent, origin, state, reason,
            detail_of(practice),
        )  # fmt: skip
        self._learn_intent(tenant, practice)

    def _put(
        self, id_: str, tenant: str, kind: ExperienceKind, when: str, content: str, sources: tuple[str, ...],
        independent: int, origin: str, state: ExperienceState, reason: str, detail: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        known = self._pool.get(id_)
        self._pool.put(
            Experience(
                id=id_, tenant=tenant, when_to_use=when, content=content, kind=kind, origin=origin, sources=sources,
                independent=independent, detail=detail or {}, state=state, reason=reason,
                revision=known.revision if known is not None else -1,
                updated=known.updated if known is not None else 0.0,
            )
        )  # fmt: skip


def _fair(runs: Sequence[Trajectory]) -> list[Trajectory]:
    """Those of `runs`, the oldest first, that count: the newest of a party that has more than its cap."""
    newest = runs[::-1]
    return [newest[place] for place in reversed(thinned([whose(run) for run in newest]))]


def _tools(runs: Sequence[Trajectory]) -> frozenset[str]:
    """Tools that there are today: those of the newest list, and those that worked beside it."""
    newest = runs[-1].tools
    calls = (call for run in runs if run.tools == newest for call in calls_of(run))
    return frozenset((*tool_names(newest), *(call.tool for call in calls if not call.error)))
