"""`evolved keys`: a key is printed once, listed without its secret, and revoked by its id."""

import pytest

from daemon.tap.keys import KeyRing, read_keys
from tests.unit.daemon.cli.conftest import Evolved


@pytest.mark.promise
def test_a_key_is_alone_on_standard_output_opens_and_is_listed_without_its_secret(evolved: Evolved) -> None:
    out, err = evolved("keys add --tenant ops --scope admin --expires 90d --note 'for Ada'")
    text = out.strip()
    assert text not in err
    key = KeyRing(evolved.directory / "keys" / "keys.json", clock=lambda: 0.0).find(text.encode())
    assert key is not None
    (listed,) = evolved.json("keys list")
    assert (listed["tenant"], listed["scope"], listed["state"], listed["note"]) == ("ops", "admin", "active", "for Ada")
    assert listed["expires"] - listed["created"] == 90 * 86_400
    assert "digest" not in listed
    table = evolved("keys list").out
    assert listed["id"] == key.id
    assert key.id in table
    assert text not in table


def test_a_key_is_revoked_by_its_id_or_by_itself_and_never_repeated(evolved: Evolved) -> None:
    by_id, by_text = (evolved("keys add --tenant acme").out.strip() for _ in range(2))
    for shown in (by_id[4:16], by_text):
        assert by_text not in evolved(f"keys revoke {shown}").err
    kept = read_keys(evolved.directory / "keys" / "keys.json")
    assert [(key.state(0.0), key.scope, key.expires) for key in kept] == [("revoked", "agent", None)] * 2
    told = evolved("keys revoke evk_000000000000_secret", 2).err
    assert "evolved keys list" in told
    assert "secret" not in told


def test_with_the_first_key_it_is_said_that_it_counts_from_the_next_start(evolved: Evolved) -> None:
    assert "started again" in evolved("keys add --tenant acme").err
    assert "started again" not in evolved("keys add --tenant acme").err
    assert len(read_keys(evolved.directory / "keys" / "keys.json")) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("add --tenant acme --expires soon", "12h, 90d or 26w"),
        ("add --tenant ' '", "--tenant"),
        ("list", "evolved keys add"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_remedy(evolved: Evolved, words: str, says: str) -> None:
    assert says in evolved(f"keys {words}", 2).err
