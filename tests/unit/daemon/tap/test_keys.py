"""The key file: shown once, stored as digests, replaced as a whole, never trusted when others may write to it.

What keys open, and when they stop: `tests/integration/tap/test_keys.py`.
"""

import base64
import json
import stat
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import (
    LADDER,
    OPERATORS,
    Key,
    KeyRing,
    Scope,
    add_key,
    is_loopback,
    opens,
    presented,
    read_keys,
    revoke_key,
)
from tests.support.fakes import Clock

SCOPES: tuple[Scope, ...] = ("agent", "environment", "read", "content", "operate", "teach", "admin")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "keys.json"


def made(path: Path, tenant: str = "acme", scope: Scope = "agent", **fields: Any) -> tuple[bytes, Key]:
    text, key = add_key(path, tenant=tenant, scope=scope, now=0.0, **fields)
    return text.encode(), key


@pytest.mark.promise
def test_the_file_holds_no_key_and_is_for_its_owner_and_whom_that_one_lets_read(path: Path) -> None:
    text, key = made(path)
    assert text[17:] not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry["id"] for entry in json.loads(path.read_bytes())["keys"]] == [key.id]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    path.chmod(0o640)
    made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_keys_are_256_random_bits_behind_a_public_id_and_those_made_at_once_are_all_there(path: Path) -> None:
    texts: list[bytes] = []
    threads = [threading.Thread(target=lambda: texts.append(made(path)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    secrets = {base64.urlsafe_b64decode(text[17:] + b"=") for text in texts}
    assert [len(secret) for secret in secrets] == [32] * 8
    assert {text[4:16].decode() for text in texts} == {key.id for key in read_keys(path)}


def test_what_expires_opens_nothing_any_more_and_what_was_revoked_stays_so_since_then(path: Path) -> None:
    clock = Clock()
    text, key = made(path, expires=1500.0)
    ring = KeyRing(path, clock=clock)
    assert ring.find(text) == key
    clock.now = 1500.0
    assert ring.find(text) is None
    assert read_keys(path)[0].state(1500.0) == "expired"
    revoked = [revoke_key(path, key.id, now=now) for now in (1001.0, 2000.0)]
    assert [one.revoked for one in revoked if one] == [1001.0, 1001.0]


def test_a_file_that_breaks_leaves_the_keys_before_it_in_force(path: Path) -> None:
    text, key = made(path)
    ring = KeyRing(path, clock=Clock())
    whole = path.read_bytes()
    with capture_logs() as logs:
        for broken in (whole[:-20], b"", b'{"schema": 99, "keys": []}'):
            path.write_bytes(broken)
            ring.refresh()
            ring.refresh()
            assert ring.find(text) == key
    assert [line["event"] for line in logs] == ["keys_unreadable"]
    path.write_bytes(whole)
    revoke_key(path, key.id, now=1.0)
    ring.refresh()
    assert ring.find(text) is None


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (None, 0, "evolved keys add"),
        (b"{", 0o600, "not a key file"),
        (b'{"keys": [{"id": "a", "digest": "00", "tenant": "t", "created": 1}]}', 0o600, "not a key file .*digest"),
        (b'{"keys": [{"id": "a", "digest": "zz", "tenant": "t", "created": 1}]}', 0o600, "not a key file"),
        (b'{"schema": 3, "keys": []}', 0o600, "newer evolved"),
        (b'{"keys": []}', 0o660, "chmod 600"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy(
    path: Path, content: bytes | None, mode: int, says: str
) -> None:
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(KeysUnusable, match=says) as error:
        KeyRing(path, clock=Clock())
    assert str(path) in str(error.value)


@pytest.mark.parametrize("scope", SCOPES)
def test_every_key_of_the_operators_side_shuts_it_for_good(path: Path, scope: Scope) -> None:
    _, key = made(path, scope=scope)
    revoke_key(path, key.id, now=1.0)
    assert KeyRing(path, clock=Clock()).guarded == (scope in OPERATORS)


def test_the_ladder_goes_one_way_and_teaching_stands_beside_it() -> None:
    for low, high in pairwise(LADDER):
        assert opens(high, low)
        assert not opens(low, high)
    assert [scope for scope in SCOPES if opens(scope, "teach")] == ["teach", "admin"]
    assert [scope for scope in SCOPES if opens("teach", scope)] == ["teach"]
    assert [scope for scope in SCOPES if opens("admin", scope)] == ["read", "content", "operate", "teach", "admin"]


def test_what_is_no_key_of_ours_is_its_callers_own() -> None:
    assert presented(b"", b"bearer  evk_1_2") == b"evk_1_2"
    theirs = (b"", b"Bearer", b"Bearer sk-caller", b"Basic !!", b"Basic " + base64.b64encode(b"u:p"), b"Digest evk_1")
    assert {presented(b"", one) for one in theirs} == {b""}


def test_only_this_machines_own_addresses_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "tap.internal", "localhost.evil"))
