"""Signing keys for tests, in a directory of their own."""

from pathlib import Path

from actors.signing import PublicKeys, SigningKey


def key_pair(directory: Path) -> tuple[SigningKey, PublicKeys]:
    """A private key made in `directory`, or found there, and its public half."""
    trusted = directory / "public.pem"
    return SigningKey.load(directory / "private.pem", trusted), PublicKeys(trusted)
