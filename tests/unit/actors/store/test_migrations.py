"""Databases of every past schema, written by the evolved of their time, open with all that is in them.

`past/make.py` says how they were made.
"""

import signal
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select

from actors.messages import Attributed
from actors.store import SchemaMismatch, Store, migrations
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.engine import open_engine
from actors.store.migrations import HEAD, migrate
from actors.store.settings import StoreSettings
from actors.store.tables import SCHEMA_VERSION, Base, EffectRow, OutcomeRevisionRow

PAST = Path(__file__).parent / "past"
DUMPS = sorted(path.stem for path in PAST.glob("schema-*.sql"))
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def written(name: str, directory: Path) -> str:
    """The URL of the database that was dumped as `name`."""
    path = directory / f"{name}.db"
    with sqlite3.connect(path) as old:
        old.executescript((PAST / f"{name}.sql").read_text())
    old.close()
    return f"sqlite:///{path}"


async def everything_is_there(store: Store, schema: int, tombs: tuple[str, ...] = ()) -> None:
    """What `past/make.py` wrote, as it can be asked for today."""
    assert [call.id for call in await store.exchanges(["x-0", "x-1", "x-2"])] == ["x-0", "x-1", "x-2"]
    assert {call.id for call in await store.open_exchanges()} == {"x-2"}
    run = await store.trajectory("run")
    assert isinstance(run, Attributed)
    assert [label.label for label in run.attribution.labels] == ["GOOD", "BAD"]
    assert run.trajectory.outcome == 1.0
    assert [said.id for said in await store.feedback_for("run")] == ["f-joined"]
    assert [said.id for said in await store.unjoined_feedback()] == ["f-waiting"]
    assert [lesson.content for lesson in await store.experiences("active")] == ["look twice"]
    assert [task.id for task in await store.tasks()] == ["task"]
    assert [(state.task.id, state.state) for state in await store.task_states()] == [("task", "offered")]
    assert [order.trajectories for order in await store.batches()] == [("run",)]
    assert [version.version for version in await store.candidates()] == [1]
    assert [verdict.decision for verdict in await store.verdicts()] == ["promote"]
    assert [serving.version for serving in await store.servings()] == [1]
    assert await store.frozen()
    assert [line.batch_id for line in (await store.lineage("run")).batches] == ["order"]
    marks = [f"traffic.exchange:x-{number}" for number in range(3)]
    assert await store.processed("assembler", marks) == {marks[0], marks[2]}
    assert [item.id for item in await store.unpublished("assembler", 9)] == [marks[0]]
    assert await store.failed("assembler", marks[1], "again") == 2
    assert [letter.input_id for letter in await store.dead_letters()] == [marks[2]]
    assert await store.state_get("assembler/mark") == b"here"
    if schema >= 4:
        assert (await store.voices(["lesson"]))["lesson"].useful == 1
        assert await store.tombstoned(["gone"]) == set(tombs)


@pytest.mark.parametrize("name", DUMPS)
async def test_a_database_of_any_past_schema_opens_with_all_that_is_in_it(name: str, tmp_path: Path) -> None:
    url, schema = written(name, tmp_path), int(name.split("-")[1])
    for _ in range(2):  # the second time there is nothing left to do
        store = Store(url, clock=lambda: 2000.0)
        await store.open()
        assert await store.state_get(migrations.SCHEMA_KEY) == str(SCHEMA_VERSION).encode()
        trail = ask(url, verify)
        assert (trail.problem, trail.entries) == ("", 5 if schema >= 4 else 4)
        await store.aclose()
    await store.open()
    # The first writing of schema 4 could not yet be told to forget what it did not have.
    await everything_is_there(store, schema, () if name == "schema-4-first" else ("gone",))
    await store.aclose()


def shape(url: str) -> tuple[object, ...]:
    """Columns with types and defaults, and indexes with what they are unique or partial by."""
    engine = open_engine(url, StoreSettings())
    with engine.connect() as connection:
        masters = connection.exec_driver_sql("SELECT type, name, tbl_name, sql FROM sqlite_master").all()
        names = sorted(row.name for row in masters if row.type == "table" and not row.name.startswith("sqlite_"))
        columns = {
            name: {row[1:] for row in ((0, *r[1:6]) for r in connection.exec_driver_sql(f"PRAGMA table_info({name})"))}
            for name in names
        }
        indexes = {
            row.name: (row.tbl_name, " ".join(row.sql.split())) for row in masters if row.type == "index" and row.sql
        }
        differences = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata
        )
    engine.dispose()
    return columns, indexes, differences


async def test_what_migrations_come_to_is_what_a_new_database_has(tmp_path: Path) -> None:
    """If this fails, a table was changed without a migration: write the next one, and raise SCHEMA_VERSION."""
    store = Store(f"sqlite:///{tmp_path}/new.db", clock=lambda: 0.0)
    await store.open()
    await store.aclose()
    columns, indexes, differences = shape(f"sqlite:///{tmp_path}/new.db")
    assert differences == []
    engine = open_engine(f"sqlite:///{tmp_path}/empty.db", StoreSettings())
    with engine.execution_options(writing=True).begin() as connection:
        migrate(connection, 0.0, "0001")  # not the newest: Alembic goes all the way from nothing
        migrate(connection, 0.0)
    engine.dispose()
    assert shape(f"sqlite:///{tmp_path}/empty.db") == (columns, indexes, [])
    for name in DUMPS:
        url = written(name, tmp_path)
        store = Store(url, clock=lambda: 0.0)
        await store.open()
        await store.aclose()
        assert shape(url) == (columns, indexes, []), name


def test_the_newest_migration_has_the_number_of_the_schema() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
    assert f"{SCHEMA_VERSION:04d}" == HEAD


async def test_a_database_from_the_future_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    url = written("schema-5", tmp_path)
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    for table, value in (("alembic_version SET version_num", "0099"), ("state SET value", b"99")):
        with sqlite3.connect(tmp_path / "schema-5.db") as newer:
            newer.execute(f"UPDATE {table} = ?", (value,))
        newer.close()
        before = (tmp_path / "schema-5.db").read_bytes()
        with pytest.raises(
            SchemaMismatch, match=rf"{tmp_path}/schema-5\.db has schema 99, .* up to {SCHEMA_VERSION}: .*db restore"
        ):
            await store.open()
        with pytest.raises(SchemaMismatch, match="99"):
            ask(url, verify)
        assert (tmp_path / "schema-5.db").read_bytes() == before
    await store.aclose()


KILLED = """
import os, signal, sys
from sqlalchemy import event
from actors.store.engine import open_engine
from actors.store.migrations import migrate
from actors.store.settings import StoreSettings
engine = open_engine(sys.argv[1], StoreSettings())
@event.listens_for(engine, "before_cursor_execute")
def die(connection, cursor, statement, *_):
    if "CREATE TABLE opinions" in statement:
        os.kill(os.getpid(), signal.SIGKILL)
with engine.execution_options(writing=True).begin() as connection:
    migrate(connection, 0.0)
"""


async def test_a_migration_that_is_killed_in_the_middle_goes_on_at_the_next_start(tmp_path: Path) -> None:
    url = written("schema-1", tmp_path)
    done = await anyio.run_process([sys.executable, "-c", KILLED, url], check=False)
    assert done.returncode == -signal.SIGKILL
    with sqlite3.connect(tmp_path / "schema-1.db") as old:
        assert not old.execute("SELECT name FROM sqlite_master WHERE name IN ('audit', 'alembic_version')").fetchall()
    old.close()
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    await everything_is_there(store, 1)
    await store.aclose()


async def test_of_several_that_open_it_at_once_one_migrates_and_the_others_wait(tmp_path: Path) -> None:
    url = written("schema-1", tmp_path)
    stores = [Store(url, clock=lambda: 0.0) for _ in range(4)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.open)
    assert {store.audit_head for store in stores} == {stores[0].audit_head}
    assert stores[0].audit_head.sequence == 4
    for store in stores:
        await store.aclose()


async def test_a_store_that_was_no_wal_waits_for_who_writes_to_it(tmp_path: Path) -> None:
    url = written("schema-1", tmp_path)
    store = Store(url, clock=lambda: 0.0)
    with sqlite3.connect(tmp_path / "schema-1.db", isolation_level=None) as other:
        assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.open)
            await anyio.sleep(0.3)
            other.execute("COMMIT")
    other.close()
    assert store.audit_head.sequence == 4
    await store.aclose()


async def test_what_was_known_of_outcomes_becomes_their_first_revision_with_what_it_came_to(tmp_path: Path) -> None:
    url = written("schema-9", tmp_path)
    with sqlite3.connect(tmp_path / "schema-9.db") as old:
        columns = "SELECT id, outcome, batch_id <> '', dropped FROM trajectories"
        wanted = f"{columns} WHERE outcome IS NOT NULL AND source = 'production' AND side_of = ''"
        known = {row[0]: row[1:] for row in old.execute(wanted)}
    old.close()
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    told, row = OutcomeRevisionRow, EffectRow
    told_rows = await store.ask(
        lambda connection: connection.execute(select(told.trajectory_id, told.outcome, told.revision, told.late)).all()
    )
    assert known
    assert {key: (outcome, revision, late) for key, outcome, revision, late in told_rows} == {
        key: (outcome, 0, False) for key, (outcome, _, _) in known.items()
    }
    effects = await store.ask(
        lambda connection: connection.execute(select(row.trajectory_id, row.channel, row.effect, row.detail)).all()
    )
    assert {key for key, *_ in effects} == {key for key, (_, used, dropped) in known.items() if used or dropped}
    assert {(effect, detail) for _, _, effect, detail in effects} <= {("trained", ""), ("ordered", "")} | {
        ("none", dropped) for _, _, dropped in known.values()
    }
    await store.aclose()
