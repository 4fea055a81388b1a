"""Only what was signed with a key whose public half we have, and is unchanged, passes."""

import stat
import threading
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from actors.messages import Verdict, decode, encode
from actors.messages.signing import BadKey, PublicKeys, SigningKey, canonical, record_problem, sign, trust


@pytest.fixture
def verdict() -> Verdict:
    return Verdict(
        id="v", version=3, path="/versions/v000003", manifest="ab" * 32, incumbent=2, decision="promote",
        reason="better", measurements={"success": 0.5, "tasks": 96.0},
    )  # fmt: skip


def pair(directory: Path, name: str = "gate") -> tuple[SigningKey, PublicKeys]:
    trusted = directory / f"{name}-public.pem"
    return SigningKey.load(directory / f"{name}-private.pem", trusted), PublicKeys(trusted)


def test_a_key_is_made_once_private_and_its_public_half_trusted(tmp_path):
    directory = tmp_path / "state" / "keys"
    key, keys = pair(directory)
    assert pair(directory)[0].fingerprint == key.fingerprint
    assert stat.S_IMODE((directory / "gate-private.pem").stat().st_mode) == 0o600
    assert sorted(file.name for file in directory.iterdir()) == ["gate-private.pem", "gate-public.pem"]
    assert keys.signer("manifest", b"x", key.sign("manifest", b"x")) == key.fingerprint


def test_processes_that_start_together_have_one_key(tmp_path):
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(pair(tmp_path)[0].fingerprint)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert len(PublicKeys(tmp_path / "gate-public.pem").keys()) == 1


FOREIGN = X25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


@pytest.mark.parametrize("content", ["", "no pem", "ab" * 32, FOREIGN.decode()], ids=["empty", "text", "hex", "kind"])
def test_a_useless_private_key_is_refused_by_name(tmp_path, content):
    (tmp_path / "gate-private.pem").write_text(content)
    with pytest.raises(BadKey, match=r"gate-private.pem holds no ed25519 private key"):
        pair(tmp_path)


def test_a_signature_survives_the_wire_and_another_key_or_none_does_not_pass(tmp_path, verdict):
    key, keys = pair(tmp_path)
    other, _ = pair(tmp_path / "elsewhere")
    for measurements in (verdict.measurements, {"tasks": 96, "lift": float("nan")}):
        one = msgspec.structs.replace(verdict, measurements=measurements)
        signed = decode(encode(sign(one, key)))
        assert isinstance(signed, Verdict)
        assert record_problem(signed, keys) == ""
        assert record_problem(sign(one, other), keys)
        assert record_problem(msgspec.structs.replace(signed, measurements={"lift": float("inf")}), keys)
    assert record_problem(verdict, keys) == "the verdict is not signed"
    line = f"evolved manifest sha256:{sha256(b'{}').hexdigest()}\n".encode()
    keys.keys()[0].verify(bytes.fromhex(key.sign("manifest", b"{}")), line)  # what the manual says is signed


@pytest.mark.parametrize(
    "change",
    [
        {"decision": "reject"},
        {"manifest": "cd" * 32},
        {"path": "/elsewhere"},
        {"measurements": {"success": 0.6, "tasks": 96.0}},
        {"measurements": {"success": 0.5}},
        {"created": 1.0},
        {"signature": "no hex"},
        {"signature": "ab" * 64},
    ],
)
def test_any_change_breaks_it_and_the_text_names_the_file(tmp_path, verdict, change):
    key, keys = pair(tmp_path)
    problem = record_problem(msgspec.structs.replace(sign(verdict, key), **change), keys)
    assert str(keys.path) in problem
    assert "evolved provenance trust" in problem


def test_a_signature_on_a_manifest_is_none_on_a_verdict(tmp_path, verdict):
    key, keys = pair(tmp_path)
    forged = msgspec.structs.replace(verdict, signature=key.sign("manifest", canonical(verdict)))
    assert record_problem(forged, keys)


def test_while_keys_are_exchanged_old_and_new_both_pass_and_then_the_old_does_not(tmp_path, verdict):
    old, keys = pair(tmp_path)
    signed_before = sign(verdict, old)
    (tmp_path / "gate-private.pem").unlink()
    new, _ = pair(tmp_path)
    assert new.fingerprint != old.fingerprint
    assert [record_problem(sign(verdict, key), keys) for key in (old, new)] == ["", ""]
    keys.path.write_text(new.public_pem)
    assert record_problem(sign(verdict, new), keys) == ""
    assert record_problem(signed_before, keys)


def test_a_key_brought_from_another_node_is_trusted_once(tmp_path, verdict):
    theirs, _ = pair(tmp_path / "there")
    _, keys = pair(tmp_path / "here")
    assert trust(keys.path, f"# of the learner in hall 2\n{theirs.public_pem}")
    assert not trust(keys.path, theirs.public_pem)
    assert record_problem(sign(verdict, theirs), keys) == ""


def test_no_public_keys_yet_is_told_with_file_and_remedy(tmp_path, verdict):
    key, _ = pair(tmp_path)
    problem = record_problem(sign(verdict, key), PublicKeys(tmp_path / "absent.pem"))
    assert "absent.pem" in problem
    assert "copy it" in problem


def test_public_keys_that_others_may_write_are_not_believed(tmp_path, verdict):
    key, keys = pair(tmp_path)
    keys.path.chmod(0o666)
    assert "chmod" in record_problem(sign(verdict, key), keys)
