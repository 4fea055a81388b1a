"""What is too old or too much goes, what anything rests on stays."""

from pathlib import Path

import msgspec
import pytest

from actors.messages import BatchOrder, Candidate, Experience, Feedback, Step, Task
from actors.store import Dropped, Joined, Store
from actors.store.archive import ask
from actors.store.integrity import check
from actors.store.stories import order_of
from daemon.settings.tables import Keep
from daemon.upkeep.retention import Retention
from tests.support.credited import attributed
from tests.support.traffic import exchange, feedback, said_of, unjoined

pytestmark = pytest.mark.anyio
DAY = 86_400.0
NOW = 1000 * DAY


def keep(**given: float) -> Keep:
    return msgspec.structs.replace(Keep(runs_days=365.0, calls_days=90.0, versions=8), **given)


class Kept:
    """A store and a state directory."""

    def __init__(self, state: Path, url: str) -> None:
        self.state, self.url = state, url
        self.store = Store(url, clock=lambda: NOW)

    async def run(self, key: str, days: float, *, dropped: bool = True) -> None:
        """A run that ended so many days ago, with two calls and what was said of it."""
        at = NOW - days * DAY
        calls = [exchange(key, number, started=at) for number in range(2)]
        steps = tuple(Step(exchange_id=call.id) for call in calls)
        run = attributed(key, steps=steps, started=at, ended=at, source="production")
        said = feedback(key, 1)
        await self.store.save([*calls, run, said, Joined(id=said.id, trajectory_id=key)])
        if dropped:
            await self.store.save([Dropped(id=key, reason="too old")])

    def retention(self) -> Retention:
        path = Path(self.url.removeprefix("sqlite:///")) if self.url.startswith("sqlite") else None
        return Retention(
            keep(), store=self.store, state=self.state, database=path,
            clock=lambda: NOW, pause=0.0,
        )  # fmt: skip

    async def there(self, *keys: str) -> list[str]:
        return [key for key in keys if await self.store.trajectory(key) is not None]


@pytest.fixture
async def kept(tmp_path: Path, store_url: str):
    made = Kept(tmp_path / "state", store_url)
    made.state.mkdir()
    await made.store.open()
    yield made
    await made.store.aclose()


async def test_a_run_goes_with_its_age_its_feedback_with_it_and_its_calls_after_it(kept: Kept) -> None:
    await kept.run("old", 400)
    await kept.run("middle", 200)
    await kept.run("new", 1)
    lone = exchange("lone", 0, started=NOW - 200 * DAY)
    await kept.store.save([lone, Feedback(id="unjoined", received=NOW - 400 * DAY, response_id="r-never")])
    retention = kept.retention()
    await retention.round()
    assert await kept.there("old", "middle", "new") == ["middle", "new"]
    assert await said_of(kept.store, "old") == []
    # Whose key a run came with stands in its calls alone: they stay as long as it does, however old.
    ids = [f"x-default-{key}-0" for key in ("old", "middle", "new", "lone")]
    assert [call.id for call in await kept.store.exchanges(ids)] == [ids[1], ids[2]]
    assert await unjoined(kept.store) == set()
    assert retention.rows == {"trajectories": 1, "exchanges": 3, "feedback": 1}
    assert ask(kept.url, lambda connection: check(connection, None, lambda _: None)).findings == ()


async def test_what_something_rests_on_stays_however_old(kept: Kept) -> None:
    for key in ("lesson", "retired", "task", "order", "trained"):
        await kept.run(key, 900)
    await kept.run("pool", 900, dropped=False)
    lesson = Experience(id="l", when_to_use="", content="", sources=("lesson",), state="active")
    gone = Experience(id="g", when_to_use="", content="", sources=("retired",), state="active")
    order = {"path": "", "sha256": "", "size": 0}
    await kept.store.save(
        [
            lesson, gone, msgspec.structs.replace(gone, state="retired", revision=1),
            BatchOrder(id="answered", trajectories=("trained",), created=1.0, **order),
            BatchOrder(id="open", trajectories=("order",), created=2.0, **order),
            Candidate(id="c", version=1, parent=0, path="", files=(), manifest="", batch_ids=("answered",)),
        ]
    )  # fmt: skip
    await kept.store.offer([Task(id="t", goal="", environment="travel", spec={"made_from": ["task"]})], ["task"])
    await kept.retention().round()
    everything = ("lesson", "retired", "task", "order", "trained", "pool")
    assert await kept.there(*everything) == ["lesson", "task", "order", "pool"]
    # Lineage of what was trained is there still.
    line = await kept.store.ask(order_of, "answered")
    assert ([version.version for version in line.versions], line.trajectories) == ([1], 1)


async def test_orders_that_nothing_came_of_go_but_the_newest(kept: Kept) -> None:
    orders = [
        BatchOrder(id=key, path="", sha256="", size=0, trajectories=(key,), created=NOW - days * DAY)
        for key, days in (("answered", 900), ("lost", 800), ("newest", 700))
    ]
    version = Candidate(id="c", version=1, parent=0, path="", files=(), manifest="", batch_ids=("answered",))
    await kept.store.save([*orders, version])
    await kept.retention().round()
    assert {order.id for order in await kept.store.newest(BatchOrder)} == {"answered", "newest"}


async def test_many_rows_go_in_small_transactions(kept: Kept) -> None:
    calls = [exchange(f"r{number}", 0, started=1.0) for number in range(450)]
    await kept.store.save(calls)
    steps: list[int] = []
    retention = kept.retention()
    await retention.round(lambda: steps.append(retention.rows["exchanges"]) is None)
    assert retention.rows["exchanges"] == 450
    assert {200, 400} <= set(steps)


async def test_a_clock_that_jumps_ahead_deletes_nothing_until_it_has_stood_for_a_day(kept) -> None:
    await kept.run("young", days=1)
    clock, up = [NOW], [1000.0]
    retention = Retention(
        keep(runs_days=60.0, calls_days=60.0),
        store=kept.store, state=kept.state, database=None,
        clock=lambda: clock[0], uptime=lambda: up[0], pause=0.0,
    )  # fmt: skip
    clock[0] += 365 * DAY
    up[0] += 600
    await retention.round()
    assert await kept.there("young") == ["young"]
    clock[0] -= 365 * DAY  # set right again
    await retention.round()
    clock[0] += 365 * DAY
    for _ in range(3):
        clock[0] += DAY / 2
        up[0] += DAY / 2
        await retention.round()
    assert await kept.there("young") == [], "it was meant"
