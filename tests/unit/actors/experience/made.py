"""An experiencer on a real store and the real desk, and lessons and runs for it."""

import random
from collections.abc import Callable
from pathlib import Path

from actors.experience.experiencer import Experiencer
from actors.experience.navigator import Navigator
from actors.experience.probing import Prober
from actors.experience.skill_trials import SkillReplayer
from actors.kinds.holdout import held_out
from actors.messages import Attributed, Attribution, Directive, Experience, Message, Trajectory
from actors.ports.environments import Episode
from actors.ports.models import Embedder, Extractor
from actors.store import Store
from actors.system.actor import Received, Result
from adapters.embedders.hashing import HashingEmbedder
from adapters.environments.travel import Drift, TravelDesk
from tests.support.travelling import Clerk, plays

_HASHING = HashingEmbedder()


def lesson(id: str, when: str = "book", content: str = "search then book:buy", **fields: object) -> Experience:
    """An active lesson, unless `fields` say otherwise."""
    return Experience(**{"id": id, "when_to_use": when, "content": content, "state": "active", **fields})  # type: ignore[arg-type]


async def navigator(
    store: Store, *lessons: Experience, embedder: Embedder | None = _HASHING, enabled: bool = True
) -> Navigator:
    """On a store that has these lessons."""
    await store.save(lessons)
    actor = Navigator(store=store, embedder=embedder, rng=random.Random(0), enabled=enabled)
    await actor.start()
    return actor


def traffic(count: int = 120, caller: str = "", **fields: object) -> list[Trajectory]:
    """Runs of the travel desk."""
    return [played.trajectory for played in plays(count, caller=caller, **fields)]


def rollout(id: str, goal: str, at: float, outcome: float, lessons: tuple[str, ...], version: int = 0) -> Trajectory:
    """A run of the sandbox."""
    return Trajectory(
        id=id, source="sandbox", goal=goal, steps=(), outcome=outcome, started=at, ended=at, experience_ids=lessons,
        min_version=version, max_version=version,
    )  # fmt: skip


def attributed(run: Trajectory) -> Attributed:
    return Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=(), judge="rules", rubric="1"))


class World:
    """An experiencer with all that it works on, and a clock that tests turn."""

    def __init__(self, store: Store, desk: Path) -> None:
        self.store, self.desk, self.now = store, desk, 1000.0
        self.sandbox, self.exam = True, held_out
        self.draw: tuple[str, ...] = ()
        self.extractor: Extractor | None = None
        self.player: Callable[[Episode, int], object] = Clerk(random.Random(3))
        self.emitted: list[Experience] = []

    async def begin(self, sandbox: bool | None = None, draw: tuple[str, ...] | None = None) -> None:
        """Start, or start again: with these in place of those of before."""
        self.draw = self.draw if draw is None else draw
        self.sandbox = self.sandbox if sandbox is None else sandbox
        environment = TravelDesk(self.desk)
        prober = Prober(environment=environment, player=self._play, clock=lambda: self.now)
        self.actor = Experiencer(
            store=self.store, draw=self.draw, prober=prober if self.sandbox else None, clock=lambda: self.now,
            tester=SkillReplayer(environment) if self.sandbox else None, extractor=self.extractor,
            embedder=HashingEmbedder(), exam=lambda key: self.exam(key),
        )  # fmt: skip
        await self.actor.start()

    async def _play(self, episode: Episode, seed: int) -> None:
        await self.player(episode, seed)  # type: ignore[misc]

    async def see(self, *runs: Trajectory) -> Result:
        items = [attributed(run) for run in runs]
        await self.store.save(items)
        return await self.hear(*items)

    async def hear(self, *messages: Message) -> Result:
        return await self._commit(await self.actor.handle([Received(one.id, "", one) for one in messages]))

    async def tick(self, seconds: float = 60.0, times: int = 1) -> Result:
        result = Result()
        for _ in range(times):
            self.now += seconds
            result = await self._commit(await self.actor.tick())
        return result

    async def _commit(self, result: Result) -> Result:
        await self.store.save(list(result.records))
        self.emitted += [one for one in result.records if isinstance(one, Experience)]
        return result

    async def drift(self, drift: Drift, id: str = "drift-1", **details: str) -> Result:
        drift.write(self.desk)
        return await self.hear(drifted(id, **details))

    async def states(self) -> dict[str, str]:
        return {one.content: one.state for one in await self.store.experiences()}

    async def lesson(self, content: str) -> Experience:
        return next(one for one in await self.store.experiences() if one.content == content)

    async def of_kind(self, kind: str) -> list[Experience]:
        return [one for one in await self.store.experiences() if one.kind == kind]


def drifted(id: str = "drift-1", **details: str) -> Directive:
    """A tool was renamed, unless `details` say otherwise."""
    given = {"cause": "tools", "tenant": "default", "missing": "book", "new": "buy", **details}
    return Directive(id=id, kind="drift", reason="", origin="sentinel", details=given)
