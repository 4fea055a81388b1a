"""A NATS cluster of real servers on loopback, with TLS and logins."""

import base64
import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys

from actors.system.broker import server_binary
from tests.support.certificates import Certificate
from tests.support.ports import free_ports
from tests.support.process import Process

PASSWORD = "pa$$ word of a test"


class Server:
    """One nats-server; `text` goes into its configuration, `limits` into that of JetStream, unless that is off."""

    def __init__(self, directory: Path, text: str, *, jetstream: bool = True, limits: str = "") -> None:
        self.name, self._directory = directory.name, directory
        self._port, self._monitor = free_ports(2)
        directory.mkdir(parents=True, exist_ok=True)
        store = f"jetstream {{ store_dir: {json.dumps(str(directory / 'store'))}\n{limits}\n}}" if jetstream else ""
        listen = f"listen: 127.0.0.1:{self._port}\nhttp: 127.0.0.1:{self._monitor}"
        (directory / "nats.conf").write_text(f"server_name: {self.name}\n{listen}\n{store}\n{text}\n")
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._process = Process([server_binary(), "-c", self._directory / "nats.conf"], self._directory / "log")

    def until_up(self) -> None:
        """Until it takes clients, and knows the leader, if it has peers."""
        assert self._process is not None
        self._process.until_answers(f"http://127.0.0.1:{self._monitor}/healthz")

    def ask(self, path: str) -> dict[str, Any]:
        """What its monitoring port says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/{path}", timeout=60) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


@contextlib.contextmanager
def server(directory: Path, text: str = "", **options: Any) -> Iterator[Server]:
    """A single server, of these options of `Server`."""
    with _running([Server(directory, text, **options)]) as (one,):
        yield one


@contextlib.contextmanager
def cluster(directory: Path, text: str) -> Iterator[list[Server]]:
    """Three servers in one cluster; `text` goes into each one's configuration."""
    ports = free_ports(3)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    own = [f"cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n{text}" for port in ports]
    made = [Server(directory / f"n{n}", each, limits="max_file_store: 16GB") for n, each in enumerate(own)]
    with _running(made) as servers:
        yield servers


@contextlib.contextmanager
def _running(servers: list[Server]) -> Iterator[list[Server]]:
    try:
        for one in servers:
            one.start()
        for one in servers:
            one.until_up()
        yield servers
    finally:
        for one in servers:
            one.stop()


def tls(shown: Certificate, *, clients: Path | None = None) -> str:
    """The tls block of a server; `clients`: the authority that clients must show a certificate of."""
    verify = f"\n ca_file: {json.dumps(str(clients))}\n verify: true" if clients else ""
    return f"tls {{ cert_file: {json.dumps(str(shown.chain))}\n key_file: {json.dumps(str(shown.key))}{verify} }}"


def user(name: str = "evolved", password: str = PASSWORD) -> str:
    """The block that wants a user and a password."""
    return f"authorization {{ user: {json.dumps(name)}\n password: {json.dumps(password)} }}"


class Operator:
    """An operator with one account, as `nsc` would make them: the server's block, and .creds files for users."""

    def __init__(self) -> None:
        self._operator, self._account = _pair(nkeys.PREFIX_BYTE_OPERATOR), _pair(nkeys.PREFIX_BYTE_ACCOUNT)
        public, system = _public(self._account), _public(_pair(nkeys.PREFIX_BYTE_ACCOUNT))
        operator = _jwt(self._operator, "operator", _public(self._operator), {"version": 2})
        # 0 is "off", -1 "without a limit".
        limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1}
        limits |= {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "wildcards": True}
        account = _jwt(self._operator, "account", public, {"limits": limits, "version": 2})
        limits |= {"mem_storage": 0, "disk_storage": 0}
        told = _jwt(self._operator, "account", system, {"limits": limits, "version": 2})
        self.block = (
            f"operator: {operator}\nsystem_account: {system}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {public}: {account}, {system}: {told} }}"
        )

    def credentials(self, path: Path, *, hours: float = 1.0) -> Path:
        """A .creds file at `path`, good until `hours` from now."""
        pair = _pair(nkeys.PREFIX_BYTE_USER)
        unlimited = {"subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}, "version": 2}
        jwt = _jwt(self._account, "user", _public(pair), unlimited, expires=int(time.time() + hours * 3600))
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{bytes(pair.seed).decode()}\n------END USER NKEY SEED------\n"
        )
        return path


def _pair(kind: int) -> Any:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), kind)))


def _public(pair: Any) -> str:
    return bytes(pair.public_key).decode()


def _jwt(issuer: Any, kind: str, subject: str, nats: dict[str, Any], *, expires: int = 0) -> str:
    claims = {"jti": os.urandom(16).hex(), "iat": int(time.time()), "iss": _public(issuer), "name": kind}
    claims |= {"sub": subject, "nats": nats | {"type": kind}} | ({"exp": expires} if expires else {})
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    text = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{_base64(issuer.sign(text.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
