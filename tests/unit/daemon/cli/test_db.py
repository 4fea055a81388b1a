"""`evolved db` as a person calls it."""

import json
import sqlite3
from pathlib import Path

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store
from actors.store.schema import wanted
from daemon.cli.main import main
from tests.support.ports import free_port


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A settings file, and a store with one order in it."""
    file = tmp_path / "config.toml"
    file.write_text(f'state_dir = "{tmp_path}/state"\n[control]\nport = {free_port()}\n')

    async def fill() -> None:
        store = Store(f"sqlite:///{tmp_path}/state/evolved.db", clock=lambda: 0.0)
        await store.open()
        await store.save([Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])
        await store.aclose()

    anyio.run(fill)
    return file


def db(settings: Path, *arguments: str) -> int:
    return main(["db", *arguments, "--config", str(settings)])


def test_status_tells_schema_and_size(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert db(settings, "status", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["store"] == str(settings.parent / "state/evolved.db")
    assert told["schema"] == wanted()
    assert told["audit_head"].startswith("1:")
    assert db(settings, "status") == 0
    assert "the beginning" in capsys.readouterr().out


def test_a_backup_goes_there_and_back(tmp_path: Path, settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "b.tar"
    assert db(settings, "backup", str(out), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["keys"], told["weights"], told["files"]) == (False, [], 2)
    assert db(settings, "restore", str(out)) == 2
    assert "--force moves it aside" in capsys.readouterr().err
    assert db(settings, "restore", str(out), "--force", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["before"], "evolved.db").is_file()
    assert Path(told["settings"]).read_text() == settings.read_text()
    assert db(settings, "check") == 0


def test_check_ends_with_1_and_a_remedy_for_what_it_finds(
    tmp_path: Path, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(tmp_path / "state/evolved.db") as broken:
        broken.execute("DELETE FROM directives")
    broken.close()
    assert db(settings, "check") == 1
    told = capsys.readouterr().out
    assert "found: audit trail: entry 1: its record is gone: directive d" in told
    assert "remedy: " in told
    assert db(settings, "backup", str(tmp_path / "no")) == 2
    assert not (tmp_path / "no").exists()
    assert db(settings, "check", "--json") == 1


def test_a_file_that_is_no_database_is_named(
    tmp_path: Path, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state/evolved.db").write_text("no database, whatever its name says\n" * 100)
    assert db(settings, "status") == 2
    assert f"{tmp_path}/state/evolved.db: file is not a database" in capsys.readouterr().err
    assert db(settings, "check") == 1
