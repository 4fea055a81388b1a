"""Backup and restore of an installation whose store is in PostgreSQL, which has tools of its own for its part."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.messages import Directive
from actors.store import Store
from daemon.errors import CommandFailed
from daemon.settings.reading import load
from daemon.upkeep.backup import backup
from daemon.upkeep.restore import REWIND, restore
from tests.support.postgres import Cluster
from tests.support.traffic import exchange

pytestmark = pytest.mark.anyio


def quiet(_: str) -> None:
    pass


def run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check)


async def test_the_rest_is_put_back_beside_a_store_that_pg_restore_has_put_back(
    postgres: Cluster, database: str, open_stores: Callable[..., Store], tmp_path: Path
) -> None:
    store, url = open_stores(), postgres.url(database)
    await store.open()
    config = load(None, [f"state_dir={tmp_path}/state", f"database.url={url}"])
    (config.state / "live").mkdir(parents=True)
    (config.state / "live/adapters.json").write_text("[]")
    calls = [exchange("a", number) for number in range(30)]
    await store.save([*calls, Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])
    made = backup(config, tmp_path / "b", settings=None, with_keys=False)
    assert [entry.name for entry in made.files] == ["state/live/adapters.json"]
    plain = url.replace("postgresql+psycopg", "postgresql")
    run("pg_dump", "--format=custom", f"--file={tmp_path}/dump", plain)
    await store.aclose()
    for words in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
        run("psql", "-q", "-c", words, plain)
    shutil.rmtree(config.state / "live")
    with pytest.raises(CommandFailed, match="schema none"):
        restore(config, tmp_path / "b", say=quiet)
    run("pg_restore", "--dbname", plain, f"{tmp_path}/dump", check=False)
    restore(config, tmp_path / "b", say=quiet)
    assert (config.state / "live/adapters.json").read_text() == "[]"
    await store.open()
    assert {call.id for call in await store.open_exchanges()} == {call.id for call in calls}
    assert await store.state_get(REWIND) == str(made.created).encode()
