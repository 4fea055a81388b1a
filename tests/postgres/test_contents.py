"""What agents write, PostgreSQL keeps as SQLite does: NUL, any alphabet, large numbers, order."""

from collections.abc import Callable

import pytest

from actors.messages import Candidate, Trajectory, Verdict
from actors.store import Store
from actors.store.columns import read, written
from tests.support.credited import attributed
from tests.support.databases import rows
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio
ODD = ("a\0b", "\0", "\ue000", "\ue0000", "\ue0001\0", "\ue000\ue000", "naïve", "日本語", "🦉\0", "a\ufffdb", "")


@pytest.fixture
async def store(open_stores: Callable[..., Store]) -> Store:
    made = open_stores()
    await made.open()
    return made


async def test_any_text_is_read_as_it_was_written_and_no_two_become_the_same():
    assert tuple(read(written(text)) for text in ODD) == ODD
    assert len({written(text) for text in ODD}) == len(ODD)
    assert not any("\0" in (written(text) or "") for text in ODD)


async def test_a_goal_a_reason_and_an_id_with_nul_come_back_whole(store: Store):
    await store.save([attributed("t\0x", goal="say \0 and \ue000 to Mia", tenant="acme\0")])
    (row,) = await store.recent_outcomes(source="production")
    assert (row.id, row.goal) == ("t\0x", "say \0 and \ue000 to Mia")
    await store.park("gate", "in\0put", "s", b"\0\xff", "bad\0byte")
    (letter,) = await store.dead_letters()
    assert (letter["input_id"], letter["error"], letter["size"]) == ("in\0put", "bad\0byte", 2)
    assert await store.processed("gate", ["in\0put", "input"]) == {"in\0put"}


async def test_text_is_sorted_by_its_bytes_whatever_the_language_of_the_database(
    store: Store, postgres: Cluster, database: str
):
    names = ["b", "A", "a", "Z", "_", "ä", "10", "9"]
    await store.save([attributed(name, ended=1.0) for name in names])
    assert [row.id for row in await store.recent_outcomes(source="production")] == sorted(names, key=str.encode)
    collations = rows(
        postgres.url(database),
        "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND data_type IN ('character varying', 'text')",
    )
    assert collations == [("C",)]


async def test_numbers_have_64_bits(store: Store, postgres: Cluster, database: str):
    large = 2**40 + 1
    await store.save([Candidate(id="c", version=large, parent=large - 1, path="", files=(), manifest="")])
    assert [one.version for one in await store.newest(Candidate)] == [large]
    kinds = rows(
        postgres.url(database),
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = 'public'",
    )
    assert {kind for (kind,) in kinds} == {"bigint", "boolean", "bytea", "character varying", "double precision"}
    at = 1_788_888_888.123456
    await store.save(
        [Verdict(id="v", version=1, path="", manifest="", incumbent=0, decision="reject", reason="", created=at)]
    )
    assert rows(postgres.url(database), "SELECT created FROM verdicts") == [(at,)]


async def test_more_values_than_one_statement_takes(store: Store):
    await store.save([Trajectory(id=f"t{n:05}", steps=(), started=0.0, ended=1.0) for n in range(3000)])
    assert len(await store.closed_runs([f"t{n:05}" for n in range(3000)])) == 3000
    assert len(await store.recent_outcomes(source="production", limit=5000)) == 3000
