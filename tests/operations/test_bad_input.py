"""What is wrong from the start: one line that names file, key and remedy, an exit code, no traceback, no change."""

import hashlib
import os
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from actors.store import Store
from tests.support.certificates import self_signed
from tests.support.installation import Installation
from tests.support.process import run

UNUSABLE = 2


def fails(here: Installation, command: str, *words: str) -> str:
    """`evolved COMMAND` ends with a line that has all of `words`; all that it said."""
    done = here.run(command)
    assert done.returncode == UNUSABLE, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"evolved {command}: ")
    for word in words:
        assert word in last
    return done.stderr


def seen(directory: Path) -> dict[str, str]:
    """Every file below `directory` by its digest."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "here")


@pytest.mark.parametrize("command", ["run", "tap", "broker", "learner", "config"])
def test_settings_that_are_not_there(here: Installation, command: str) -> None:
    here.file.unlink()
    fails(here, command, str(here.file), "No such file", "--config")


MISSING = "/nowhere/missing"
UNKNOWN = {"runs": {"idle_minute": 3}}
MEANT = ("{file}", "runs.idle_minute", "did you mean runs.idle_minutes?")
WRONG = {
    "a key that the daemon does not know": ("run", UNKNOWN, MEANT),
    "a key that the tap does not know": ("tap", UNKNOWN, MEANT),
    "a key that the broker does not know": ("broker", UNKNOWN, MEANT),
    "a type": ("run", {"control": {"listen": 80}}, ("{file}", "control.listen", "expected `str`")),
    "a password in an address": (
        "run", {"database": {"url": "oracul://me:hunter2@host/name"}},
        ("{file}", "database.url holds a password", "database.password_file"),
    ),
    "a database that we do not speak": (
        "run", {"database": {"url": "oracul://me@host/name"}},
        ("database.url: oracul is not supported; write sqlite:////absolute/path.db or postgresql+psycopg://",),
    ),
    "a secret that is not there": (
        "run", {"nats": {"url": "nats://me@127.0.0.1:9", "secret_file": MISSING}},
        (f"nats.secret_file = {MISSING}", "No such file", "name another file"),
    ),
    "keys that are not there": ("tap", {"tap": {"require_key": True}}, ("keys.json", "evolved keys add")),
    "a file of an earlier shape": ("run", {"learner": {"lr": 1e-6}}, ("{file}", "[learner] is now [model], [train]")),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_setting_that_cannot_be_used(here: Installation, case: str) -> None:
    command, settings, words = WRONG[case]
    here.configure(**settings)
    told = fails(here, command, *(word.format(file=here.file) for word in words))
    assert "hunter2" not in told


def test_a_file_that_is_no_toml(here: Installation) -> None:
    for content, words in ((b"[tap\n", ("is no TOML", "line 1")), (b"\xff\xfe", ("is no TOML",))):
        here.file.write_bytes(content)
        fails(here, "tap", str(here.file), *words)


@pytest.mark.parametrize(
    ("command", "key"), [("run", "control.listen"), ("run", "otlp.listen"), ("tap", "tap.listen"), ("tap", "tap.admin")]
)
def test_a_port_that_somebody_else_has(here: Installation, command: str, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        table, _, name = key.partition(".")
        port = other.getsockname()[1]
        here.configure(**{table: {name: f"127.0.0.1:{port}"}})
        fails(here, command, f"{key} = ", str(port), "in use", "ss -ltnp")


@pytest.mark.torch
def test_a_port_of_the_engine_that_somebody_else_has(here: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [*here.command("engine")[:4], "--model", str(here.directory), "--port", str(port)]
        done = run(command)
    assert done.returncode == UNUSABLE, done.stderr
    assert f"--port {port}" in done.stderr
    assert "ss -ltnp" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run", "broker"])
def test_a_state_directory_on_a_disk_that_is_read_only_or_full(here: Installation, command: str) -> None:
    state = here.config.state
    state.mkdir()
    for mount, words in (
        ("-o ro,size=1m", ("Read-only file system", "mount its file system for writing")),
        ("-o size=4k", ("No space left on device", "make room on its disk")),
    ):
        script = f'mount -t tmpfs {mount} none {state} && (head -c 4096 /dev/zero > {state}/x 2>/dev/null; exec "$@")'
        done = run(["unshare", "--mount", "sh", "-c", script, "sh", *here.command(command)])
        assert done.returncode == UNUSABLE, f"it takes root and a mount namespace of its own: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert f"state_dir {state}" in done.stderr
        for word in words:
            assert word in done.stderr
    assert seen(state) == {}


def test_a_state_directory_that_is_a_file(here: Installation) -> None:
    here.config.state.write_text("mine")
    fails(here, "run", f"state_dir {here.config.state}", "set state_dir to a directory")
    assert here.config.state.read_text() == "mine"


def test_a_database_of_another_schema_is_left_as_it_is(here: Installation) -> None:
    state = here.config.state
    state.mkdir()
    anyio.run(Store(here.config.store_url, clock=time.time).open)
    with closing(sqlite3.connect(state / "evolved.db")) as database:
        database.execute("UPDATE state SET value = ? WHERE key = 'store.schema'", (b"999",))
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = seen(state)["evolved.db"]
    fails(here, "run", "database.url", "schema 999", "evolved db restore", str(state))
    assert seen(state)["evolved.db"] == before


def test_keys_that_everybody_may_change(here: Installation) -> None:
    keys = here.config.state / "keys" / "keys.json"
    keys.parent.mkdir(parents=True)
    keys.write_text('{"schema": 1, "keys": []}')
    keys.chmod(0o666)
    fails(here, "tap", str(keys), "chmod 600")


def test_certificates_that_are_none(here: Installation) -> None:
    chain = self_signed(here.directory, "chain", days=3).chain
    other = self_signed(here.directory, "other", days=3).chain
    here.configure(tap={"tls_cert": str(chain), "tls_key": str(other.with_suffix(".key"))})
    fails(here, "tap", "tap.tls_cert", str(chain), "give PEM files that match")


def test_a_certificate_that_has_expired_is_said_and_still_served(here: Installation) -> None:
    # Refusing to start would take the agents that do not check it down as well.
    chain = self_signed(here.directory, "chain", days=-3).chain
    here.configure(tap={"tls_cert": str(chain), "tls_key": str(chain.with_suffix(".key"))})
    with here.running("tap") as tap:
        tap.until_said("certificate_expired", str(chain), "tap.tls_cert")
        tap.until_said("tap_listening")


def test_a_tap_without_a_disk_serves_and_says_so(here: Installation) -> None:
    here.config.state.write_text("no directory")
    with here.running("tap") as tap:
        tap.until_said("tap_listening")
        tap.until_said("spool_unusable", str(here.config.spool), "state_dir")


def test_a_reader_that_has_seen_enough_is_no_error(here: Installation) -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(here.command("config"), stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
