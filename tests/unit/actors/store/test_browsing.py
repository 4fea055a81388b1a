"""Trajectories are leafed through by page and filter, newest first, none twice and none left out."""

from typing import Any

import msgspec
import pytest

from actors.store import Store, browsing
from actors.store.browsing import Wanted, browse
from tests.support.credited import attributed

pytestmark = pytest.mark.anyio


async def all_of(store: Store, wanted: Wanted) -> list[str]:
    """Ids on all pages, in order."""
    found = list[str]()
    while True:
        shown, after = await store.ask(browse, wanted)
        found += [run["id"] for run in shown]
        if after is None:
            return found
        wanted = msgspec.structs.replace(wanted, after=after)


async def test_pages_of_all_sources_follow_each_other_by_time(store: Store) -> None:
    sources = ("production", "sandbox", "probe")
    # Three at a time end together: their ids decide.
    runs = [attributed(f"t{n:02d}", source=sources[n % 3], ended=float(n // 3)) for n in range(20)]
    await store.save(runs)
    expected = [run.id for run in sorted(runs, key=lambda run: (-run.trajectory.ended, run.id))]
    for limit in (1, 7, 50):
        assert await all_of(store, Wanted(limit=limit)) == expected
    assert await all_of(store, Wanted(limit=4, source="probe")) == [
        one.id for one in sorted(runs, key=lambda run: (-run.trajectory.ended, run.id))
        if one.trajectory.source == "probe"
    ]  # fmt: skip


async def test_outcome_tenant_words_and_version_are_filters(store: Store) -> None:
    await store.save(
        [
            attributed("won", outcome=0.5, goal="Book a FLIGHT"),
            attributed("lost", outcome=0.49, min_version=2, max_version=4),
            attributed("open", outcome=None, tenant="acme"),
            attributed("new").trajectory,
        ]
    )

    async def ids(**wanted: Any) -> set[str]:
        shown, _ = await store.ask(browse, Wanted(**wanted))
        return {run["id"] for run in shown}

    assert await ids(outcome="success") == {"won", "new"}
    assert await ids(outcome="failure") == {"lost"}
    assert await ids(outcome="unknown") == {"open"}
    assert await ids(tenant="acme") == {"open"}
    assert await ids(words="flight") == {"won"}
    assert await ids(words="LO") == {"lost"}
    assert await ids(version=3) == {"lost"}


async def test_a_rare_word_is_looked_for_in_so_many_rows_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "SCANNED", 5)
    await store.save([attributed(f"t{n:02d}", ended=float(n), goal="rare" if n == 2 else "plain") for n in range(12)])
    first, after = await store.ask(browse, Wanted(words="rare"))
    assert (first, after is None) == ([], False)
    assert await all_of(store, Wanted(words="rare")) == ["t02"]
