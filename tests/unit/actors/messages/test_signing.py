"""Only what was signed with a key whose public half we have, and is unchanged, passes."""

import shutil
import stat
import threading
from hashlib import sha256

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Verdict, decode, encode
from actors.messages.signing import BadKey, PublicKeys, canonical, record_problem, sign, trust
from tests.support.keys import key_pair

NAN = float("nan")
VERDICT = Verdict(
    id="v", version=3, path="/versions/v000003", manifest="ab" * 32, incumbent=2, decision="promote",
    reason="better", measurements={"success": 0.5, "tasks": 96, "lift": NAN},
)  # fmt: skip


def test_a_key_is_made_once_private_and_its_public_half_trusted(tmp_path):
    directory = tmp_path / "state" / "keys"
    key, keys = key_pair(directory)
    assert key_pair(directory)[0].fingerprint == key.fingerprint
    assert stat.S_IMODE((directory / "private.pem").stat().st_mode) == 0o600
    assert sorted(file.name for file in directory.iterdir()) == ["private.pem", "public.pem"]
    assert keys.problem("manifest", b"x", key.sign("manifest", b"x")) == ""
    # What is signed is the line that the manual says.
    line = f"evolved manifest sha256:{sha256(b'x').hexdigest()}\n".encode()
    keys.keys()[0].verify(bytes.fromhex(key.sign("manifest", b"x")), line)


def test_processes_that_start_together_have_one_key(tmp_path):
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(key_pair(tmp_path)[0].fingerprint)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (16, 1)
    assert len(PublicKeys(tmp_path / "public.pem").keys()) == 1


FOREIGN = X25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


@pytest.mark.parametrize("content", [b"", b"no pem", b"ab" * 32, FOREIGN], ids=["empty", "text", "hex", "foreign"])
def test_a_useless_private_key_is_refused_by_name(tmp_path, content):
    (tmp_path / "private.pem").write_bytes(content)
    with pytest.raises(BadKey, match=r"private.pem holds no ed25519 private key"):
        key_pair(tmp_path)


def test_a_signature_survives_the_wire_and_a_field_that_a_later_version_adds(tmp_path):
    key, keys = key_pair(tmp_path)
    signed = decode(encode(sign(VERDICT, key)))
    assert isinstance(signed, Verdict)
    assert record_problem(signed, keys) == ""

    class Later(Verdict, frozen=True, kw_only=True, tag="verdict"):
        shadow: str = ""

    later = msgspec.convert(msgspec.to_builtins(VERDICT) | {"measurements": VERDICT.measurements}, Later)
    assert canonical(later) == canonical(VERDICT)
    assert canonical(msgspec.structs.replace(later, shadow="x")) != canonical(VERDICT)


NUMBERS = st.floats() | st.integers(-(2**63), 2**64 - 1)


@given(st.dictionaries(st.text(max_size=3), NUMBERS, max_size=3), st.floats() | st.sampled_from([0, 0.0, -0.0, 7]))
def test_what_comes_off_the_wire_is_what_was_signed(measurements, created):
    record = msgspec.structs.replace(VERDICT, measurements=measurements, created=created)
    assert canonical(decode(encode(record))) == canonical(record)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": "reject"},
        {"manifest": "cd" * 32},
        {"path": "/elsewhere"},
        {"measurements": VERDICT.measurements | {"success": 0.6}},
        {"measurements": {"success": 0.5, "lift": NAN}},
        # NaN cannot be replaced by infinity.
        {"measurements": VERDICT.measurements | {"lift": float("inf")}},
        {"created": 1.0},
        {"signature": "no hex"},
        {"signature": "ab" * 64},
    ],
)
def test_any_change_breaks_it_and_the_text_names_the_file(tmp_path, change):
    key, keys = key_pair(tmp_path)
    problem = record_problem(msgspec.structs.replace(sign(VERDICT, key), **change), keys)
    assert str(keys.path) in problem
    assert "evolved provenance trust" in problem


def test_another_key_or_none_or_one_for_something_else_does_not_pass(tmp_path):
    other, _ = key_pair(tmp_path / "elsewhere")
    key, keys = key_pair(tmp_path)
    assert record_problem(sign(VERDICT, other), keys)
    assert record_problem(VERDICT, keys) == "the verdict is not signed"
    of_a_manifest = key.sign("manifest", canonical(VERDICT))
    assert record_problem(msgspec.structs.replace(VERDICT, signature=of_a_manifest), keys)
    shutil.copy(tmp_path / "elsewhere" / "private.pem", tmp_path / "private.pem")
    assert key_pair(tmp_path)[0].fingerprint == other.fingerprint
    assert record_problem(sign(VERDICT, other), keys), "a private key that somebody brought is not trusted by itself"


def test_while_keys_are_exchanged_old_and_new_both_pass_and_then_the_old_does_not(tmp_path):
    old, keys = key_pair(tmp_path)
    signed_before = sign(VERDICT, old)
    (tmp_path / "private.pem").unlink()
    new, _ = key_pair(tmp_path)
    assert new.fingerprint != old.fingerprint
    assert [record_problem(sign(VERDICT, key), keys) for key in (old, new)] == ["", ""]
    keys.path.write_text(new.public_pem)
    assert record_problem(sign(VERDICT, new), keys) == ""
    assert record_problem(signed_before, keys)


def test_a_key_brought_from_another_node_is_trusted_once(tmp_path):
    theirs, _ = key_pair(tmp_path / "there")
    _, keys = key_pair(tmp_path / "here")
    assert trust(keys.path, f"# of the learner in hall 2\n{theirs.public_pem}")
    assert not trust(keys.path, theirs.public_pem)
    assert record_problem(sign(VERDICT, theirs), keys) == ""


def test_public_keys_that_are_not_there_or_not_to_be_believed_are_told_with_the_remedy(tmp_path):
    key, keys = key_pair(tmp_path)
    problem = record_problem(sign(VERDICT, key), PublicKeys(tmp_path / "absent.pem"))
    assert "absent.pem" in problem
    assert "copy it" in problem
    keys.path.chmod(0o666)
    assert "chmod" in record_problem(sign(VERDICT, key), keys)
    keys.path.chmod(0o600)
    keys.path.write_text("-----BEGIN PUBLIC KEY-----\nnope\n-----END PUBLIC KEY-----\n")
    with pytest.raises(BadKey, match=r"public.pem"):
        PublicKeys(keys.path).keys()
