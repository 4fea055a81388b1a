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


def test_a_key_is_alone_on_standard_output_and_opens(shell: Shell) -> None:
    out, err = shell("add", "--tenant", "acme")
    key = KeyRing(shell.path, clock=lambda: 0.0).find(out.strip().encode())
    assert key is not None
    assert (key.tenant, key.scope, key.expires) == ("acme", "agent", None)
    assert out.strip() not in err


@pytest.mark.promise
def test_what_is_made_is_listed_without_its_secret(shell: Shell) -> None:
    text = shell("add", "--tenant", "ops", "--scope", "admin", "--expires", "90d", "--note", "for Ada")[0].strip()
    (listed,) = json.loads(shell("list", "--json")[0])
    assert (listed["tenant"], listed["scope"], listed["state"], listed["note"]) == ("ops", "admin", "active", "for Ada")
    assert listed["expires"] - listed["created"] == 90 * 86_400
    assert "digest" not in listed
    table = shell("list")[0]
    assert listed["id"] in table
    assert text not in table


@pytest.mark.parametrize("whole", [False, True])
def test_a_key_is_revoked_by_its_id_or_by_itself(shell: Shell, whole: bool) -> None:
    text = shell("add", "--tenant", "acme")[0].strip()
    _, err = shell("revoke", text if whole else text[4:16])
    assert text not in err
    assert [key.state(0.0) for key in read_keys(shell.path)] == ["revoked"]


def test_revoking_what_is_not_there_is_an_error_that_repeats_no_key(shell: Shell) -> None:
    shell("add", "--tenant", "acme")
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


def test_help_teaches_by_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["keys", "--help"])
    text = capsys.readouterr().out
    for word in ("evolved keys add --tenant acme", "x-evolved-key", "revoke", "--config"):
        assert word in text
