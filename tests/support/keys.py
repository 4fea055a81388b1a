"""Signing keys for tests, in a directory of their own."""

from pathlib import Path

from actors.messages.signing import PublicKeys, SigningKey
from adapters.weights.shared import SharedPath


def key_pair(directory: Path) -> tuple[SigningKey, PublicKeys]:
    """A private key made in `directory`, or found there, and its public half."""
    trusted = directory / "public.pem"
    return SigningKey.load(directory / "private.pem", trusted), PublicKeys(trusted)


def unsigned_weights() -> SharedPath:
    """A source that takes versions as they lie there, for tests that are not about who made them."""
    return SharedPath(check=lambda content, signature: "")
