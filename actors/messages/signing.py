"""Signatures: ed25519 (RFC 8032) on what the learner made, on what the gate decided, and on what was ordered.

    learner     learner-private.pem  signs    manifest.json of each version  -> manifest.sig beside it
    daemon      gate-private.pem     signs    verdicts, and directives       -> `signature` in the record
    who loads   *-public.pem         checks   all of them, before an engine hears of the weights

A private key lies where it signs and nowhere else; whoever may write to the broker, or to the disk with the versions,
but has no private key cannot promote weights. What is signed is one line of text, "evolved KIND sha256:DIGEST": a
signature on one kind of thing says nothing of another, and `openssl pkeyutl -verify -rawin` can check it without us.

A file of public keys may hold several, one after the other: old and new are both accepted while keys are exchanged.
"""

import contextlib
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from actors.messages.codec import encode
from actors.messages.files import alone_with, write_whole
from actors.messages.policy import Directive, Verdict

Kind = Literal["manifest", "verdict", "directive"]
Signed = TypeVar("Signed", Verdict, Directive)
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_sorted = msgspec.msgpack.Encoder(order="sorted")


class BadKey(Exception):
    """A key file that cannot be used; the text names it and says what to do."""


class SigningKey:
    """A private key, for who signs."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_pem = _pem(private.public_key())
        self.fingerprint = fingerprint(private.public_key())

    @classmethod
    def load(cls, path: Path, trusted: Path) -> "SigningKey":
        """The key in `path` (PKCS #8, PEM), made with owner-only permissions on first use; of two processes that start
        together the loser reads the winner's. A key that is made here is added to the public keys in `trusted`, so that
        nothing is to be done on one machine; a key that somebody brought is only if there is no such file. Raises
        BadKey.
        """
        useless = BadKey(
            f"{path} holds no ed25519 private key in PEM, or one behind a passphrase; move it away and start again to "
            "have one made, or write one with: openssl genpkey -algorithm ed25519"
        )
        try:
            if made := not path.exists():
                with alone_with(path):
                    if made := not path.exists():
                        write_whole(path, _new_key(), mode=0o600)
            private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise BadKey(f"{path}: {error.strerror}; it must be readable by its owner, who signs with it") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise useless from error
        if not isinstance(private, Ed25519PrivateKey):
            raise useless
        key = cls(private)
        if made or not trusted.exists():
            trust(trusted, key.public_pem)
        return key

    def sign(self, kind: Kind, content: bytes) -> str:
        """The signature on `content`, hex."""
        return self._private.sign(_statement(kind, content)).hex()


class PublicKeys:
    """The public keys in a file, for checking signatures. The file is read again at each use."""

    def __init__(self, path: Path) -> None:
        """
        Args:
            path: need not be there yet: it appears when the signer starts first, or is brought by a person.
        """
        self.path = path

    def problem(self, kind: Kind, content: bytes, signature: str) -> str:
        """Why `signature` on `content` does not count, and what to do about it; empty if it does."""
        if not signature:
            return f"the {kind} is not signed"
        try:
            for key in self.keys():
                # No hex is a signature by nobody.
                with contextlib.suppress(InvalidSignature, ValueError):
                    key.verify(bytes.fromhex(signature), _statement(kind, content))
                    return ""
        except BadKey as error:
            return str(error)
        return (
            f"the {kind}'s signature is by none of the keys in {self.path}; if the signer has a new key, add its "
            f"public key to that file (evolved provenance trust); if not, somebody changed the {kind}"
        )

    def keys(self) -> list[Ed25519PublicKey]:
        """The keys, in the file's order.

        Raises:
            BadKey: no such file, one that others may write to, or a block in it that is no ed25519 public key.
        """
        try:
            if self.path.stat().st_mode & _OTHERS_WRITE:
                raise BadKey(f"{self.path}: others may write to it; chmod go-w it")
            return list(parse(self.path.read_text(), str(self.path)))
        except (OSError, UnicodeDecodeError) as error:
            raise BadKey(
                f"no public keys: {self.path}: {getattr(error, 'strerror', None) or error}; the signer makes it when "
                "it first starts; copy it from there (evolved provenance show), or add a key to it (evolved "
                "provenance trust)"
            ) from error


def trust(path: Path, pem: str) -> bool:
    """Add the public keys in `pem` to the file at `path`; False if all are there already."""
    try:
        with alone_with(path):
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            known = {fingerprint(key) for key in parse(before, str(path))} if before.strip() else set[str]()
            fresh = [key for key in parse(pem, "the key to be trusted") if fingerprint(key) not in known]
            if fresh:
                lines = [*before.splitlines(), *(_pem(key).rstrip() for key in fresh), ""]
                write_whole(path, "\n".join(lines).encode(), mode=0o644)
            return bool(fresh)
    except (OSError, UnicodeDecodeError) as error:
        raise BadKey(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def parse(text: str, where: str) -> Iterator[Ed25519PublicKey]:
    """The public keys in `text`, PEM block after PEM block; what stands between them is comment."""
    blocks = [part.partition(_END)[0] for part in text.split(_BEGIN)[1:]]
    if not blocks:
        raise BadKey(f"{where} holds no public key in PEM; write one with: openssl pkey -in PRIVATE -pubout")
    for block in blocks:
        try:
            key = serialization.load_pem_public_key(f"{_BEGIN}{block}{_END}\n".encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadKey(f"{where}: a block in it is no public key in PEM; copy it again") from error
        if not isinstance(key, Ed25519PublicKey):
            raise BadKey(f"{where}: a key in it is not ed25519; take it out")
        yield key


def fingerprint(key: Ed25519PublicKey) -> str:
    """First 16 hex digits of the sha256 of the raw public key: what people compare."""
    return sha256(key.public_bytes_raw()).hexdigest()[:16]


def sign(record: Signed, key: SigningKey) -> Signed:
    """`record` with its signature: everything that it says stands behind it, a verdict's measurements and the
    manifest's digest among it."""
    return msgspec.structs.replace(record, signature=key.sign(_kind(record), canonical(record)))


def record_problem(record: Verdict | Directive, keys: PublicKeys) -> str:
    """Why `record` does not count; empty if the daemon signed it and it is unchanged."""
    return keys.problem(_kind(record), canonical(record), record.signature)


def canonical(record: Verdict | Directive) -> bytes:
    """`record` without its signature in one form, whoever made it: as it comes off the wire, where a whole number in a
    field of floats is a float, in sorted msgpack. Fields at their default are left out, so that one that a later
    evolved adds breaks no old signature."""
    read = msgspec.msgpack.decode(encode(msgspec.structs.replace(record, signature="")), type=type(record))
    fields = ((field.name, getattr(read, field.name), field.default) for field in msgspec.structs.fields(read))
    return _sorted.encode({name: found for name, found, default in fields if found not in (default, {})})


def _kind(record: Verdict | Directive) -> Kind:
    return "verdict" if isinstance(record, Verdict) else "directive"


def _statement(kind: Kind, content: bytes) -> bytes:
    return f"evolved {kind} sha256:{sha256(content).hexdigest()}\n".encode()


def _pem(key: Ed25519PublicKey) -> str:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def _new_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
