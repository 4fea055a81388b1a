"""Backup and restore of a store in PostgreSQL, by its own tools."""

from collections.abc import Callable
from pathlib import Path

import pytest

from actors.messages import Directive
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import verify
from daemon.errors import TransferFailed
from daemon.settings.reading import load
from daemon.upkeep.backup import backup
from daemon.upkeep.consumer_reset import REWIND
from daemon.upkeep.restore import restore
from tests.support.databases import rows
from tests.support.ports import free_port
from tests.support.postgres import Cluster
from tests.support.traffic import exchange

pytestmark = pytest.mark.anyio


def quiet(_: str) -> None:
    pass


async def test_a_store_in_postgresql_is_backed_up_and_put_back_beside_what_was_there(
    postgres: Cluster, database: str, open_stores: Callable[..., Store], tmp_path: Path
) -> None:
    store, url = open_stores(), postgres.url(database)
    await store.open()
    config = load(
        None,
        [f"state_dir={tmp_path}/state", f"database.url={url}", f"control.listen=127.0.0.1:{free_port()}"],
    )
    calls = [exchange("a", number) for number in range(30)]
    await store.save([*calls, Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])
    made = backup(config, tmp_path / "b", settings=None, with_keys=False, with_weights=False, say=quiet)
    assert [entry.name for entry in made.files] == ["evolved.pgdump"]
    await store.save([exchange("late", 0)])
    with pytest.raises(TransferFailed, match="connections of daemons"):
        restore(config, tmp_path / "b", force=True, say=quiet)
    await store.aclose()
    with pytest.raises(TransferFailed, match=r"has tables is there already; --force"):
        restore(config, tmp_path / "b", force=False, say=quiet)
    restore(config, tmp_path / "b", force=True, say=quiet)
    await store.open()
    assert {call.id for call in await store.open_exchanges()} == {call.id for call in calls}
    assert ask(config.store_url, verify).problem == ""
    assert await store.state_get(REWIND) == str(made.created).encode()
    aside = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'exchanges'"
    (schema,) = [name for (name,) in rows(url, aside) if name != "public"]
    assert rows(url, f"SELECT count(*) FROM {schema}.exchanges") == [(31,)]
