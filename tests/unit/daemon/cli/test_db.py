"""`evolved db` as a person calls it."""

import sqlite3
from pathlib import Path

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store
from actors.store.schema import wanted
from tests.unit.daemon.cli.conftest import Evolved


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> None:
    """A store with one order in it."""

    async def fill() -> None:
        store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 0.0)
        await store.open()
        await store.save([Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])
        await store.aclose()

    anyio.run(fill)


def test_status_tells_schema_and_size(evolved: Evolved) -> None:
    told = evolved.json("db status")
    assert (told["store"], told["schema"]) == (str(evolved.directory / "evolved.db"), wanted())
    assert told["audit_head"].startswith("1:")
    assert "oldest exchange" in evolved("db status").out


def test_check_ends_with_1_and_a_remedy_for_what_it_finds(evolved: Evolved) -> None:
    with sqlite3.connect(evolved.directory / "evolved.db") as broken:
        broken.execute("DELETE FROM directives")
    broken.close()
    told = evolved("db check", 1).out
    assert "found: audit trail: entry 1: its record is gone: directive d" in told
    assert "remedy: " in told
    evolved(f"db backup {evolved.directory}/no", 2)
    assert not (evolved.directory / "no").exists()
    assert evolved.json("db check", 1)
