"""Signatures on verdicts: only what the gatekeeper judged can be swapped in.

HMAC-SHA256 with a key file that the gatekeeper and the swapper share; whoever can write to the broker but not read the
key cannot promote weights. What is signed is the verdict without its signature, so every measurement and the manifest's
digest stand behind it.
"""

import contextlib
import hmac
import os
import secrets
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.messages import Verdict

KEY_BYTES = 32


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


def _digest(verdict: Verdict, key: bytes) -> str:
    content = msgspec.json.encode(msgspec.structs.replace(verdict, signature=""), order="sorted")
    return hmac.new(key, content, sha256).hexdigest()


def sign(verdict: Verdict, key: bytes) -> Verdict:
    """`verdict` with its signature (hex)."""
    return msgspec.structs.replace(verdict, signature=_digest(verdict, key))


def verified(verdict: Verdict, key: bytes) -> bool:
    """Whether `verdict` was signed with `key` and is unchanged; constant time."""
    return hmac.compare_digest(_digest(verdict, key), verdict.signature)
