"""The key file: shown once, stored as digests, replaced as a whole, never trusted when others may write to it."""

import base64
import json
import stat
import threading
from pathlib import Path

import pytest

from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import Key, KeyRing, add_key, is_loopback, presented, read_keys, revoke_key


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "keys.json"


def made(path: Path, tenant: str = "acme", **fields: object) -> tuple[bytes, Key]:
    text, key = add_key(path, tenant=tenant, scope=fields.pop("scope", "agent"), now=1000.0, **fields)  # type: ignore[arg-type]
    return text.encode(), key


def test_a_key_is_found_by_its_text_and_by_nothing_else(path: Path) -> None:
    text, key = made(path)
    made(path, "other")
    ring = KeyRing(path, clock=Clock())
    assert ring.find(text) == key
    wrong = (b"", b"evk_", text[:-1], text + b"x", text[:-1] + bytes([text[-1] ^ 1]), text.upper(), b"\xff" * 60)
    assert [ring.find(one) for one in wrong] == [None] * len(wrong)


@pytest.mark.promise
def test_the_file_holds_no_key_and_is_for_its_owner_alone(path: Path) -> None:
    text, key = made(path)
    assert text not in path.read_bytes()
    assert text.rpartition(b"_")[2] not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry["id"] for entry in json.loads(path.read_bytes())["keys"]] == [key.id]
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_keys_are_256_random_bits_behind_a_public_id(path: Path) -> None:
    texts = [made(path)[0] for _ in range(20)]
    secrets = [base64.urlsafe_b64decode(text[17:] + b"=") for text in texts]
    assert {len(secret) for secret in secrets} == {32}
    assert len(set(secrets)) == len({text[4:16] for text in texts}) == 20


def test_an_expired_key_opens_nothing(path: Path) -> None:
    clock = Clock()
    text, key = made(path, expires=1500.0)
    ring = KeyRing(path, clock=clock)
    assert ring.find(text) == key
    clock.now = 1500.0
    assert ring.find(text) is None


def test_a_revoked_key_opens_nothing_from_the_next_look_at_the_file(path: Path) -> None:
    text, key = made(path)
    ring = KeyRing(path, clock=Clock())
    assert revoke_key(path, key.id, now=1001.0) is not None
    ring.refresh()
    assert ring.find(text) is None
    assert [one.state(2000.0) for one in read_keys(path)] == ["revoked"]


def test_revoking_again_keeps_the_first_time(path: Path) -> None:
    _, key = made(path)
    revoke_key(path, key.id, now=1001.0)
    again = revoke_key(path, key.id, now=2000.0)
    assert again is not None
    assert again.revoked == 1001.0
    assert revoke_key(path, "0" * 12, now=1.0) is None
    assert revoke_key(path.with_name("none"), key.id, now=1.0) is None


def test_a_new_key_works_without_a_restart(path: Path) -> None:
    made(path)
    ring = KeyRing(path, clock=Clock())
    text, key = made(path, "late")
    assert ring.find(text) is None
    ring.refresh()
    assert ring.find(text) == key


def test_a_file_that_breaks_leaves_the_keys_before_it_in_force(path: Path) -> None:
    text, key = made(path)
    ring = KeyRing(path, clock=Clock())
    whole = path.read_bytes()
    for broken in (whole[:-20], b"", b'{"schema": 99, "keys": []}'):
        path.write_bytes(broken)
        ring.refresh()
        ring.refresh()
        assert ring.find(text) == key
    assert ring.unreadable == 1
    path.write_bytes(whole)
    revoke_key(path, key.id, now=1.0)
    ring.refresh()
    assert ring.find(text) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "evolved keys add"),
        (b"{", "not a key file"),
        (b'{"keys": [{"id": "a", "digest": "00", "tenant": "t", "created": 1}]}', "32 bytes"),
        (b'{"keys": [{"id": "a", "digest": "zz", "tenant": "t", "created": 1}]}', "not a key file"),
        (b'{"schema": 3, "keys": []}', "newer evolved"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy(path: Path, content: bytes | None, says: str) -> None:
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(KeysUnusable, match=says) as error:
        KeyRing(path, clock=Clock())
    assert str(path) in str(error.value)


def test_a_file_that_others_may_write_to_is_not_trusted(path: Path) -> None:
    made(path)
    path.chmod(0o660)
    with pytest.raises(KeysUnusable, match="chmod 600"):
        KeyRing(path, clock=Clock())


def test_a_file_that_a_group_may_read_stays_so(path: Path) -> None:
    made(path)
    path.chmod(0o640)
    made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_keys_made_at_the_same_time_are_all_there(path: Path) -> None:
    threads = [threading.Thread(target=made, args=(path, f"t{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key.tenant for key in read_keys(path)) == [f"t{n}" for n in range(8)]


def test_an_admin_key_guards_even_when_it_is_revoked(path: Path) -> None:
    made(path)
    assert not KeyRing(path, clock=Clock()).guarded
    _, key = made(path, scope="admin")
    revoke_key(path, key.id, now=1.0)
    assert KeyRing(path, clock=Clock()).guarded


def test_a_key_is_shown_in_its_header_as_a_bearers_token_or_in_a_browsers_login() -> None:
    login = b"Basic " + base64.b64encode(b"admin:evk_1_2")
    assert presented(b" evk_1_2 ", b"Bearer sk-caller") == b"evk_1_2"
    assert (
        presented(b"", b"Bearer evk_1_2") == presented(b"", b"bearer  evk_1_2") == presented(b"", login) == b"evk_1_2"
    )
    theirs = (b"", b"Bearer", b"Bearer sk-caller", b"Basic !!", b"Basic " + base64.b64encode(b"u:p"), b"Digest evk_1")
    assert {presented(b"", one) for one in theirs} == {b""}


def test_only_this_machines_own_addresses_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "tap.internal", "localhost.evil"))
