"""A database that cannot be used is named with its setting and the remedy, and no password is ever shown."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from actors.store import Store, StoreMisconfigured, StoreUnavailable
from actors.store.settings import CONNECTIONS
from tests.support.patience import within
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql+psycopg://me:{SECRET}@host:not-a-port/db", "is no URL"),
        (f"{SECRET} is no url", "is no URL"),
        (f"postgresql+psycopg2://me:{SECRET}@host/db", r"or postgresql\+psycopg://"),
        (f"postgresql+psycopg://me@host/db?password={SECRET}", "database.password_file"),
        ("sqlite://", "must be a file"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_being_shown(url: str, says: str):
    with pytest.raises(StoreMisconfigured, match=says) as caught:
        Store(url, clock=time.time)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_driver_names_the_extra():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from actors.store import Store, StoreMisconfigured\n"
        "try: Store('postgresql+psycopg://me@host/db', clock=float)\n"
        "except StoreMisconfigured as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=within()
    ).stdout
    assert "pip install 'evolved[postgres]'" in said


@pytest.fixture
def with_password(postgres: Cluster, database: str) -> str:
    """URL of a database for a user who needs a password."""
    postgres.run("DROP OWNED BY ordinary" if _there(postgres) else "CREATE ROLE ordinary LOGIN")
    postgres.run(f"ALTER ROLE ordinary PASSWORD '{SECRET}'")
    postgres.run(f"ALTER DATABASE {database} OWNER TO ordinary")
    return postgres.tcp_url(database, user="ordinary")


def _there(postgres: Cluster) -> bool:
    with postgres.connect() as connection:
        return connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'ordinary'").fetchone() is not None


async def test_a_changed_password_in_its_file_needs_no_restart(
    postgres: Cluster, with_password: str, new_store: Callable[..., Store], tmp_path: Path
):
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    made = new_store(with_password, password_file=str(file))
    await made.open()
    postgres.run("ALTER ROLE ordinary PASSWORD 'another'")
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ordinary'")
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        await made.state_get("k")
    assert SECRET not in str(caught.value)
    file.write_text("another")
    assert await made.state_get("k") is None


@pytest.mark.parametrize(
    ("found", "wrong", "settings", "says"),
    [
        (
            "ordinary@",
            "ordinary:wr0ng@",
            {},
            r"database\.url postgresql\+psycopg://ordinary.*password authentication fa",
        ),
        ("", "", {}, r"database\.url postgresql\+psycopg://ordinary.*no password supplied"),
        ("", "", {"password_file": "/nowhere/none"}, r"database\.password_file .*none: No such file"),
        (":{port}/", ":1/", {"password_file": "{file}"}, "Connection refused"),
        ("/{database}", "/nowhere", {"password_file": "{file}"}, r'database\.url .*database "nowhere" does not exist'),
    ],
    ids=["wrong", "none", "no file", "no server", "no database"],
)
async def test_who_or_what_is_not_known_is_named_with_its_setting(
    postgres: Cluster, database: str, with_password: str, new_store: Callable[..., Store], tmp_path: Path, found: str,
    wrong: str, settings: dict, says: str,
):  # fmt: skip
    (tmp_path / "password").write_text(SECRET)
    about = {"port": postgres.port, "database": database, "file": tmp_path / "password"}
    given = {name: value.format(**about) for name, value in settings.items()}
    made = new_store(with_password.replace(found.format(**about), wrong, 1) if found else with_password, **given)
    with pytest.raises(StoreUnavailable, match=says) as caught:
        await made.open()
    assert "wr0ng" not in str(caught.value)


async def test_a_database_that_cannot_hold_all_text_is_refused_with_the_remedy(postgres: Cluster, new_store):
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreMisconfigured, match="ENCODING 'UTF8'"):
        await new_store(postgres.url("latin")).open()
    postgres.drop("latin")


async def test_a_statement_that_takes_too_long_is_ended(
    open_stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
):
    await open_stores().open()  # the tables are made without a deadline
    monkeypatch.setattr("actors.store.settings.STATEMENT_SECONDS", 0.2)
    made = open_stores()
    with pytest.raises(StoreUnavailable, match="statement timeout"):
        await made.ask(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(30)").all())


async def test_a_defect_is_no_outage_and_its_text_shows_no_values(open_stores: Callable[..., Store]):
    made = open_stores()
    await made.open()
    with pytest.raises(Exception, match="does not exist") as caught:
        await made.ask(lambda connection: connection.exec_driver_sql("SELECT %s FROM nowhere", (SECRET,)).all())
    assert not isinstance(caught.value, StoreUnavailable)
    assert SECRET not in str(caught.value)


async def test_there_are_no_more_connections_than_may_be(
    postgres: Cluster, database: str, open_stores: Callable[..., Store]
):
    made = open_stores()
    await made.open()
    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(made.counts)
            group.start_soon(made.state_put, "k", b"v")
    with postgres.connect() as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'evolved' AND datname = %s"
        (number,) = connection.execute(asked, (database,)).fetchone()
        assert CONNECTIONS - 1 <= number <= CONNECTIONS, "the writer may have had a reader's"
