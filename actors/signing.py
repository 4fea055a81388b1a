"""Signatures on verdicts and orders: only what the gatekeeper judged, or an operator ordered, can be swapped in.

HMAC-SHA256 with a key file that the gatekeeper and the swapper share; whoever can write to the broker but not read the
key cannot promote weights. What is signed is the record without its signature, so every measurement and the manifest's
digest stand behind it.
"""

import contextlib
import hmac
import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.messages import Directive, Verdict

KEY_BYTES = 32
Signed = TypeVar("Signed", Verdict, Directive)


class BadKey(Exception):
    """The key file exists but holds no usable key."""


def load_key(path: Path) -> bytes:
    """The key in `path` (hex), made with owner-only permissions on first use.

    Two processes that start together agree: the file appears whole under its name or not at all, and the loser reads
    the winner's.

    Raises:
        BadKey: the file holds no hex key of at least 32 bytes.
        OSError: the file cannot be read or made.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was faster; its key is the key
                os.link(aside, path)
        finally:
            aside.unlink()
    try:
        key = bytes.fromhex(path.read_text().strip())
    except ValueError as error:
        raise BadKey(f"{path} holds no hex key") from error
    if len(key) < KEY_BYTES:
        raise BadKey(f"{path} holds {len(key)} bytes, {KEY_BYTES} are needed")
    return key


def _digest(record: Verdict | Directive, key: bytes) -> str:
    content = msgspec.json.encode(msgspec.structs.replace(record, signature=""), order="sorted")
    return hmac.new(key, content, sha256).hexdigest()


def sign(record: Signed, key: bytes) -> Signed:
    """`record` with its signature (hex)."""
    return msgspec.structs.replace(record, signature=_digest(record, key))


def verified(record: Verdict | Directive, key: bytes) -> bool:
    """Whether `record` was signed with `key` and is unchanged; constant time."""
    return hmac.compare_digest(_digest(record, key), record.signature)
