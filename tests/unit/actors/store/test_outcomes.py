"""Revisions of outcomes and their effects, under any order of events."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from actors.messages import Feedback, Trajectory
from actors.store import Joined, Store
from actors.store import tables as t
from actors.store.outcomes import CORRECTIONS
from tests.support.late_feedback import BATCH, Daemon

KEYS = st.sampled_from([f"k{number}" for number in range(BATCH + 1)])
EVENTS = st.one_of(
    st.tuples(st.just("run"), KEYS),
    st.tuples(st.just("company")),
    st.tuples(st.just("say"), KEYS, st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.0, -5000.0, 1.0])),
    st.tuples(st.just("say"), KEYS, st.sampled_from([0.0, 1.0]), st.just(0.0)),
    st.tuples(st.just("hear")),
    st.tuples(st.just("answer"), st.sampled_from(["trained", "trained", "trained", "skipped"])),
    st.tuples(st.just("serve")),
    st.tuples(st.just("restart")),
)


class Played:
    """A daemon that events happen to."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.version, self.answered, self.companies = daemon, 0, 0, 0
        self.seen: set[str] = set()

    async def happen(self, event: tuple) -> None:
        daemon = self.daemon
        match event:
            case ("run", key) if key not in self.seen:
                self.seen.add(key)
                await daemon.run(key, version=self.version)
            case ("company",):
                self.companies += 1
                keys = [f"c{self.companies}-{number}" for number in range(BATCH)]
                await daemon.run(*keys, version=self.version)
                for number, key in enumerate(keys):
                    await daemon.say(key, float(number % 2))
            case ("say", key, outcome, skew):
                await daemon.say(key, outcome, received=daemon.now + skew)
            case ("hear",):
                await daemon.hear()
            case ("answer", what) if self.answered < len(daemon.orders):
                self.answered = len(daemon.orders)
                self.version += what == "trained"
                await daemon.answer(self.version, answer=what)
            case ("restart",):
                await daemon.start()
            case _:
                pass

    async def end(self) -> None:
        """Nothing is fresh any more, and everything is answered."""
        for key in sorted({f"k{number}" for number in range(BATCH + 1)} - self.seen):
            await self.happen(("run", key))
        await self._settle()
        await self.daemon.serve(self.version + 9)
        await self._settle()

    async def _settle(self) -> None:
        await self.daemon.hear()
        for _ in range(50):
            await self.happen(("answer", "trained"))
            await self.daemon.hear()
            if self.answered == len(self.daemon.orders):
                return
        raise AssertionError("orders without an end")


@pytest.mark.promise
@settings(max_examples=5)
@given(st.lists(EVENTS, min_size=25, max_size=40))
def test_a_revision_is_trained_on_at_most_once_and_has_one_list_of_effects(events: list[tuple]) -> None:
    async def play(path: Path) -> None:
        store = Store(f"sqlite:///{path}/evolved.db", clock=lambda: 5000.0)
        await store.open()
        played = Played(await Daemon(store, path).start())
        for number in range(BATCH):  # so that there soon is something to train on, and to correct
            await played.happen(("run", f"k{number}"))
            await played.happen(("say", f"k{number}", float(number % 2), 0.0))
        await played.happen(("hear",))
        await played.happen(("answer", "trained"))
        for event in events:
            await played.happen(event)
        await played.end()
        daemon, used = played.daemon, Counter[tuple[str, int]]()
        learned: dict[str, float] = {}
        failed = await _failed(store)
        for order in daemon.orders:
            for item in daemon.items(order).values():
                run = item.attributed.trajectory
                used[run.id, run.outcome_revision] += 1
                assert item.corrects == learned.get(run.id)
                if order.id not in failed and run.outcome is not None:
                    learned[run.id] = run.outcome
        assert not used or max(used.values()) == 1
        told, effects = await store.ask(_books)
        assert used.keys() <= told.keys()
        # Each has its word on training, none is under way, and nothing else has one.
        assert {key[:2] for key in effects if key[2] == "training"} == told.keys()
        assert "ordered" not in effects.values()
        assert {key[:2] for key in effects} <= told.keys()
        for (key, revision), outcome in told.items():
            assert revision <= CORRECTIONS
            assert revision == 0 or told[key, revision - 1] != outcome
            trained = effects[key, revision, "training"] == "trained"
            assert not trained or used[key, revision] == 1
        await store.aclose()

    with TemporaryDirectory() as directory:
        anyio.run(play, Path(directory))


async def _failed(store: Store) -> set[str]:
    """Orders that nothing was learned from."""
    return {
        order for made in await store.candidates(10_000) if made.answer != "trained" for order in made.batch_ids
    }  # fmt: skip


def _books(connection) -> tuple[dict[tuple[str, int], float], dict[tuple[str, int, str], str]]:
    told, row = t.OutcomeRevisionRow, t.EffectRow
    return (
        {
            (one[0], one[1]): one[2]
            for one in connection.execute(select(told.trajectory_id, told.revision, told.outcome))
        },
        {
            (one[0], one[1], one[2]): one[3]
            for one in connection.execute(select(row.trajectory_id, row.revision, row.channel, row.effect))
        },
    )


def test_an_outcome_that_is_no_number_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 0.0)
        await store.open()
        await store.save([Trajectory(id="a", steps=(), started=1.0, ended=2.0)])
        for number, outcome in enumerate((float("nan"), 1.0, float("nan"))):
            said = Feedback(id=f"f{number}", received=3.0 + number, trajectory_id="a", outcome=outcome)
            await store.save([said, Joined(id=said.id, trajectory_id="a", outcome=outcome)])
        assert store.reports.words == {"told": 1, "not_a_number": 2}
        (row,) = await store.recent_outcomes()
        assert (row.outcome, row.revision) == (1.0, 0)
        await store.aclose()

    anyio.run(play)
