"""`evolved keys`: a key is printed once, listed without its secret, and revoked by its id."""

import json
from pathlib import Path

import pytest

from daemon.cli.main import main
from daemon.tap.keys import KeyRing, read_keys


class Shell:
    """Runs the command over one key file."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Standard output and error of `evolved keys WORDS`."""
        assert main(["keys", "--file", str(self.path), *words]) == status
        told = self._capsys.readouterr()
        return told.out, told.err


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / "keys.json", capsys)


@pytest.mark.promise
def test_a_key_is_alone_on_standard_output_opens_and_is_listed_without_its_secret(shell: Shell) -> None:
    out, err = shell("add", "--tenant", "ops", "--scope", "admin", "--expires", "90d", "--note", "for Ada")
    text = out.strip()
    assert text not in err
    key = KeyRing(shell.path, clock=lambda: 0.0).find(text.encode())
    assert key is not None
    (listed,) = json.loads(shell("list", "--json")[0])
    assert (listed["tenant"], listed["scope"], listed["state"], listed["note"]) == ("ops", "admin", "active", "for Ada")
    assert listed["expires"] - listed["created"] == 90 * 86_400
    assert "digest" not in listed
    table = shell("list")[0]
    assert listed["id"] == key.id
    assert key.id in table
    assert text not in table


def test_a_key_is_revoked_by_its_id_or_by_itself_and_never_repeated(shell: Shell) -> None:
    by_id, by_text = (shell("add", "--tenant", "acme")[0].strip() for _ in range(2))
    for shown in (by_id[4:16], by_text):
        assert by_text not in shell("revoke", shown)[1]
    assert [(key.state(0.0), key.scope, key.expires) for key in read_keys(shell.path)] == [
        ("revoked", "agent", None)
    ] * 2
    _, err = shell("revoke", "evk_000000000000_secret", status=2)
    assert "evolved keys list" in err
    assert "secret" not in err


def test_a_key_that_no_setting_names_is_said_not_to_be_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add = ["keys", "--set", f"state_dir={tmp_path}", "add", "--tenant", "acme"]
    assert main(add) == 0
    assert 'set keys_file = "' in capsys.readouterr().err
    assert main([*add[:3], "--set", "tap.door.keys_file=keys/keys.json", *add[3:]]) == 0
    assert "not in force" not in capsys.readouterr().err
    assert len(read_keys(tmp_path / "keys" / "keys.json")) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--tenant", "acme", "--expires", "soon"], "12h, 90d or 26w"),
        (["add", "--tenant", " "], "--tenant"),
        (["list"], "evolved keys add"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_remedy(shell: Shell, words: list[str], says: str) -> None:
    assert says in shell(*words, status=2)[1]
