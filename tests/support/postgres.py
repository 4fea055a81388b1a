"""A throw-away PostgreSQL for tests: a real server in a temporary directory, and a fresh database whenever one asks.

The server does not fsync, so a power cut would lose its data; a `kill -9` of its processes does not, because what it
wrote is with the kernel. Over its socket anybody on this machine may log in as anybody, over its port nobody without a
password.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import psycopg
from psycopg import sql

from tests.support.certificates import Certificate
from tests.support.databases import opened_store
from tests.support.patience import Late, wait_until
from tests.support.ports import free_port
from tests.support.process import Process, alive, family

_TEMPLATE = "evolved_template"
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "lc_messages": "C",
}


class Cluster:
    """A server of our own, as an unprivileged user."""

    def __init__(self, directory: Path) -> None:
        """Makes the cluster in `directory`, which must be empty and whose parents everybody may enter.

        Raises:
            RuntimeError: it is not installed, or will not be made.
        """
        self.directory, self.data = directory, directory / "data"
        self.log = directory / "postgres.log"
        self.port = free_port()
        self._bin, self._names = _binaries(), itertools.count(1)
        self._server: Process | None = None
        self._template, self._more = False, dict[str, str]()
        self._user = _unprivileged()
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(directory, owner.pw_uid, owner.pw_gid)
        # English, and sorted as a dictionary is: what must not depend on it is found out.
        made = subprocess.run(
            [self._bin / "initdb", "-D", self.data, "-U", "evolved", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
             "--auth-local=trust", "--auth-host=scram-sha-256"],
            user=self._user, cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"initdb: {made.stderr or made.stdout}")

    def use_tls(self, certificate: Certificate) -> None:
        """From the next start on, whoever comes over the port may speak TLS."""
        for name, path in (("ssl_cert_file", certificate.chain), ("ssl_key_file", certificate.key)):
            own = self.directory / path.name
            shutil.copy(path, own)
            own.chmod(0o600)
            if self._user is not None:
                shutil.chown(own, self._user)
            self._more |= {"ssl": "on", name: str(own)}

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = [part for name, value in (_SETTINGS | self._more).items() for part in ("-c", f"{name}={value}")]
        self._server = Process(
            [self._bin / "postgres", "-D", self.data, "-k", self.directory, "-p", str(self.port), *settings], self.log,
            user=self._user, cwd="/",
        )  # fmt: skip
        self._server.until(self._answers, what="the server answers")

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self.connect():
            return True
        return False

    def stop(self) -> None:
        """End the server, however busy it is."""
        if self._server is not None:
            self._server.signal(signal.SIGINT)  # "fast": open transactions are rolled back
            with contextlib.suppress(Late):
                self._server.wait()
            self.kill()

    def kill(self) -> None:
        """kill -9 of the server and of all that works for it; `start` brings it back."""
        if self._server is not None:
            # Its backends lead sessions of their own, so its process group alone would leave them.
            pids = family(self._server.pid)
            self._server.kill()
            self._server = None
            wait_until(lambda: not any(alive(pid) for pid in pids), "the server and its backends are gone")

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        """A connection as its superuser."""
        return psycopg.connect(
            host=str(self.directory), port=self.port, user="evolved", dbname=database, autocommit=True
        )

    def url(self, database: str, *, user: str = "evolved", at: Path | None = None) -> str:
        """Of a database, over the socket, or another way to it."""
        return f"postgresql+psycopg://{user}@/{database}?host={at or self.directory}&port={self.port}"

    def tcp_url(self, database: str, *, user: str) -> str:
        """Of a database, over the port, where `user` needs a password."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run `statement` outside of any transaction."""
        with self.connect(database) as connection:
            connection.execute(statement.encode())

    def create(self, *, empty: bool = False) -> str:
        """A new database with the tables in it, or without; returns its name."""
        if not (empty or self._template):
            self.run(f"CREATE DATABASE {_TEMPLATE}")
            with ThreadPoolExecutor(1) as thread:  # a test's own event loop may be running in this one
                thread.submit(anyio.run, _make_tables, self.url(_TEMPLATE)).result()
            self._template = True
        name = f"test_{next(self._names)}"
        with self.connect() as connection:
            template = sql.Identifier("template0" if empty else _TEMPLATE)
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template)
            if connection.info.server_version >= 150_000:
                statement += sql.SQL(" STRATEGY FILE_COPY")  # the only one before 15; without fsync the faster one
            connection.execute(statement)
        return name

    def drop(self, name: str) -> None:
        """Throw a database away, whoever is still connected."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A server that is gone at the end, with its files."""
    # Not pytest's directory: that is its owner's alone, and the server does not run as root.
    directory = Path(tempfile.mkdtemp(prefix="evolved-postgres-", dir=_memory()))
    directory.chmod(0o755)
    cluster = None
    try:
        cluster = Cluster(directory)
        cluster.start()
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _memory() -> str | None:
    """A folder in memory, if there is one with room: tests on a busy disk wait for it."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30 else None


async def _make_tables(url: str) -> None:
    async with opened_store(url):
        pass


def _binaries() -> Path:
    """The folder with initdb and postgres: on PATH, or where Debian keeps each version's."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found += [path.parent for path in sorted(versions, key=lambda path: int(path.parts[-3]), reverse=True)]
    for folder in found:
        if (folder / "postgres").exists():
            return folder
    raise RuntimeError(
        "PostgreSQL's server is needed, initdb on PATH or under /usr/lib (Debian: apt install postgresql)"
    )


def _unprivileged() -> str | None:
    """Whom the server runs as: it refuses root. None: whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
