"""Only an unchanged verdict with the right key passes."""

import stat

import msgspec
import pytest

from actors.messages import Verdict, decode, encode
from actors.signing import BadKey, load_key, sign, verified


@pytest.fixture
def verdict() -> Verdict:
    return Verdict(
        id="v", version=3, path="/versions/v000003", manifest="ab" * 32, incumbent=2, decision="promote",
        reason="better", measurements={"success": 0.5},
    )  # fmt: skip


def test_a_key_is_made_once_and_private(tmp_path):
    path = tmp_path / "state" / "gate.key"
    key = load_key(path)
    assert len(key) == 32
    assert load_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["gate.key"]


@pytest.mark.parametrize("content", ["", "no hex", "abcd"])
def test_a_useless_key_file_is_refused(tmp_path, content):
    path = tmp_path / "gate.key"
    path.write_text(content)
    with pytest.raises(BadKey):
        load_key(path)


def test_a_signature_survives_the_wire(verdict):
    signed = decode(encode(sign(verdict, b"k" * 32)))
    assert isinstance(signed, Verdict)
    assert verified(signed, b"k" * 32)


@pytest.mark.parametrize(
    "change",
    [{"decision": "reject"}, {"manifest": "cd" * 32}, {"path": "/elsewhere"}, {"measurements": {"success": 0.6}}],
)
def test_any_change_breaks_it(verdict, change):
    assert not verified(msgspec.structs.replace(sign(verdict, b"k" * 32), **change), b"k" * 32)


def test_another_key_or_none_does_not_pass(verdict):
    assert not verified(sign(verdict, b"k" * 32), b"x" * 32)
    assert not verified(verdict, b"k" * 32)
